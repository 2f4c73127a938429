#include "cuda/weights.h"

#include <cstring>

#include "apr/error.h"
#include "apr_quant_files.h"
#include "cuda/error.h"

namespace apr::cuda {
namespace {

constexpr int64_t kAlignBytes = 256;

int64_t aligned(int64_t n_bytes) {
  return (n_bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
}

bool is_vector(const Weight& weight) {
  return !weight.values.empty();
}

// What the planes layout of a block type needs; no bytes of a plain one, which stays as it is.
struct PlanesOf {
  int64_t (*bytes)(int64_t n_rows, int64_t n_cols);
  void (*pack)(const std::byte* raw, int64_t n_rows, int64_t n_cols, std::byte* planes);
};

template <class T>
void pack(const std::byte* raw, int64_t n_rows, int64_t n_cols, std::byte* planes) {
  const int64_t blocks_per_row = n_cols / T::kBlockElems;
  const auto* from = reinterpret_cast<const uint8_t*>(raw);
  const auto* to = reinterpret_cast<const uint8_t*>(planes);
  for (int64_t row = 0; row < n_rows; ++row) {
    for (int64_t block = 0; block < blocks_per_row; ++block, from += T::kBlockBytes) {
      quant::copy_to_planes<T>(from,
                               quant::planes_block<T>(to, n_cols, row, static_cast<int>(block)));
    }
  }
}

template <class T>
PlanesOf planes_of_type() {
  if constexpr (T::kBlockElems == 1) {
    return {nullptr, nullptr};
  } else {
    return {&quant::planes_bytes<T>, &pack<T>};
  }
}

PlanesOf planes_of(const QuantType& type) {
  switch (type.id) {
#define APR_QUANT_TYPE(id, name, traits, file) \
  case id:                                     \
    return planes_of_type<quant::traits>();
#include "quant/type_rows.inc"
#undef APR_QUANT_TYPE
    default:
      break;
  }
  check_failed("type is in the table", __FILE__, __LINE__, std::string(type.name));
}

int64_t row_count(const Weight& weight) {
  return weight.n_experts * weight.n_rows;
}

}  // namespace

bool has_planes(const QuantType& type) {
  return planes_of(type).bytes != nullptr;
}

int64_t planes_bytes(const QuantType& type, int64_t n_rows, int64_t n_cols) {
  return planes_of(type).bytes(n_rows, n_cols);
}

void pack_planes(const QuantType& type, const std::byte* raw, int64_t n_rows, int64_t n_cols,
                 std::byte* planes) {
  std::memset(planes, 0, static_cast<size_t>(planes_bytes(type, n_rows, n_cols)));
  planes_of(type).pack(raw, n_rows, n_cols, planes);
}

int64_t device_weight_bytes(const Weight& weight) {
  const int64_t n_bytes = is_vector(weight) ? static_cast<int64_t>(weight.values.size()) * 4 : 0;
  return n_bytes + (has_planes(*weight.type)
                        ? planes_bytes(*weight.type, row_count(weight), weight.n_cols)
                        : weight.size_bytes);
}

DeviceWeights::DeviceWeights(std::span<const Weight> weights) {
  int64_t total_bytes = 0, largest_bytes = 0;
  for (const Weight& weight : weights) {
    if (is_vector(weight)) {
      vector_offset_bytes_[&weight] = total_bytes;
      total_bytes += aligned(static_cast<int64_t>(weight.values.size()) * 4);
    }
    const int64_t matrix_bytes =
        device_weight_bytes(weight) - static_cast<int64_t>(weight.values.size()) * 4;
    offset_bytes_[&weight] = total_bytes;
    total_bytes += aligned(matrix_bytes);
    largest_bytes = std::max(largest_bytes, matrix_bytes);
  }
  memory_ = DeviceBuffer(static_cast<size_t>(total_bytes), "weights");
  std::vector<std::byte> planes(static_cast<size_t>(largest_bytes));
  const auto upload = [&](int64_t offset, const void* data, int64_t n_bytes) {
    APR_CUDA(api().cudaMemcpy(memory_.data() + offset, data, static_cast<size_t>(n_bytes),
                              cudaMemcpyHostToDevice));
  };
  for (const Weight& weight : weights) {
    if (is_vector(weight)) {
      upload(vector_offset_bytes_[&weight], weight.values.data(),
             static_cast<int64_t>(weight.values.size()) * 4);
    }
    if (!has_planes(*weight.type)) {
      upload(offset_bytes_[&weight], weight.data, weight.size_bytes);
    } else {
      pack_planes(*weight.type, weight.data, row_count(weight), weight.n_cols, planes.data());
      upload(offset_bytes_[&weight], planes.data(),
             device_weight_bytes(weight) - static_cast<int64_t>(weight.values.size()) * 4);
    }
  }
}

WeightRef DeviceWeights::matrix(const Weight& weight) const {
  return {reinterpret_cast<const uint8_t*>(memory_.data() + offset_bytes_.at(&weight)),
          static_cast<int32_t>(row_count(weight)), static_cast<int32_t>(weight.n_cols)};
}

const float* DeviceWeights::vector(const Weight* weight) const {
  return weight == nullptr
             ? nullptr
             : reinterpret_cast<const float*>(memory_.data() + vector_offset_bytes_.at(weight));
}

}  // namespace apr::cuda
