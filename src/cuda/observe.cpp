// Shows the values of a running step, stage by stage: CudaBackend::ObservedStep.
#include <algorithm>
#include <iterator>

#include "apr/error.h"
#include "cuda/backend.h"
#include "cuda/error.h"
#include "e4m3.cuh"
#include "f16_value.cuh"

namespace apr::cuda {
namespace {

// Copies from the device, or to it.
template <class T>
std::vector<T> from_device(const std::byte* data, size_t n_elems) {
  std::vector<T> copy(n_elems);
  APR_CUDA(api().cudaMemcpy(copy.data(), data, n_elems * sizeof(T), cudaMemcpyDeviceToHost));
  return copy;
}

template <class T>
void to_device(std::byte* data, const std::vector<T>& values) {
  APR_CUDA(
      api().cudaMemcpy(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
}

std::vector<float> widened(const std::vector<uint16_t>& halves) {
  std::vector<float> values(halves.size());
  std::transform(halves.begin(), halves.end(), values.begin(),
                 [](uint16_t bits) { return f16_to_f32(bits); });
  return values;
}

std::vector<uint16_t> halved(std::span<const float> values) {
  std::vector<uint16_t> halves(values.size());
  std::transform(values.begin(), values.end(), halves.begin(), f16_bits);
  return halves;
}

// How scaled rows lie: where the rows' f32 begin, and what those are multiplied with.
struct RowLayout {
  bool e4m3;
  int64_t scales_at;
  float unit;
};
RowLayout row_layout(const ExecPlan& exec, ValueId id) {
  const int64_t row_elems = exec.plan->values[static_cast<size_t>(id)].row_elems();
  const int64_t max_rows = exec.target.max_rows;
  // The f32 of E4M3 rows also undo the 2^-6 of the weights.
  return exec.value_format[static_cast<size_t>(id)] == ValueFormat::kE4m3Rows
             ? RowLayout{true, e4m3_values_bytes(max_rows, row_elems), 0x1p-6F}
             : RowLayout{false, max_rows * row_elems * 2, 1.0F};
}

}  // namespace

int64_t CudaBackend::ObservedStep::n_rows(ValueId id) const {
  return backend_.rows_of(step_, id);
}

std::byte* CudaBackend::ObservedStep::data(ValueId id) const {
  return reinterpret_cast<std::byte*>(backend_.value(step_, id));
}

std::vector<float> CudaBackend::ObservedStep::read(ValueId id) const {
  const int64_t row_elems = backend_.plan_.values[static_cast<size_t>(id)].row_elems();
  const size_t n_elems = static_cast<size_t>(n_rows(id) * row_elems);
  if (step_.exec->value_format[static_cast<size_t>(id)] == ValueFormat::kF32) {
    return from_device<float>(data(id), n_elems);
  }
  const RowLayout layout = row_layout(*step_.exec, id);
  std::vector<float> values;
  if (layout.e4m3) {
    const std::vector<uint8_t> codes = from_device<uint8_t>(data(id), n_elems);
    std::transform(codes.begin(), codes.end(), std::back_inserter(values), e4m3_value);
  } else {
    values = widened(from_device<uint16_t>(data(id), n_elems));
  }
  const std::vector<float> scales =
      from_device<float>(data(id) + layout.scales_at, static_cast<size_t>(n_rows(id)));
  for (size_t idx = 0; idx < n_elems; ++idx) {
    values[idx] *= scales[idx / static_cast<size_t>(row_elems)] * layout.unit;
  }
  return values;
}

void CudaBackend::ObservedStep::write(ValueId id, std::span<const float> rows) {
  const int64_t row_elems = backend_.plan_.values[static_cast<size_t>(id)].row_elems();
  if (step_.exec->value_format[static_cast<size_t>(id)] == ValueFormat::kF32) {
    return to_device<float>(data(id), {rows.begin(), rows.end()});
  }
  // At the scales that the rows have.
  const RowLayout layout = row_layout(*step_.exec, id);
  const std::vector<float> scales =
      from_device<float>(data(id) + layout.scales_at, static_cast<size_t>(n_rows(id)));
  std::vector<float> values(rows.begin(), rows.end());
  for (size_t idx = 0; idx < values.size(); ++idx) {
    const float scale = scales[idx / static_cast<size_t>(row_elems)] * layout.unit;
    values[idx] = scale == 0.0F ? 0.0F : values[idx] / scale;
  }
  if (layout.e4m3) {
    std::vector<uint8_t> codes(values.size());
    std::transform(values.begin(), values.end(), codes.begin(), nearest_e4m3);
    to_device(data(id), codes);
  } else {
    to_device(data(id), halved(values));
  }
}

std::vector<float> CudaBackend::ObservedStep::read_state(int state_idx) const {
  std::vector<float> values;
  for (std::byte* rows : cache_rows(state_idx)) {
    const std::vector<float> part = backend_.f32_cache()
                                        ? from_device<float>(rows, cache_elems())
                                        : widened(from_device<uint16_t>(rows, cache_elems()));
    values.insert(values.end(), part.begin(), part.end());
  }
  return values;
}

void CudaBackend::ObservedStep::write_state(int state_idx, std::span<const float> state) {
  for (std::byte* rows : cache_rows(state_idx)) {
    const std::span<const float> part = state.first(cache_elems());
    if (backend_.f32_cache()) {
      to_device<float>(rows, {part.begin(), part.end()});
    } else {
      to_device(rows, halved(part));
    }
    state = state.subspan(cache_elems());
  }
}

size_t CudaBackend::ObservedStep::cache_elems() const {
  return static_cast<size_t>(step_.n_tokens * backend_.desc().attention.kv_dim());
}

std::array<std::byte*, 2> CudaBackend::ObservedStep::cache_rows(int state_idx) const {
  const int64_t first =
      backend_.n_past_ * backend_.desc().attention.kv_dim() * (backend_.f32_cache() ? 4 : 2);
  return {backend_.k_cache_[static_cast<size_t>(state_idx)].data() + first,
          backend_.v_cache_[static_cast<size_t>(state_idx)].data() + first};
}

}  // namespace apr::cuda
