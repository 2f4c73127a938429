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

template <class T>
std::span<const int> segments_of() {
  if constexpr (T::kBlockElems == 1) {
    return {};
  } else {
    return T::kSegmentBytes;
  }
}

bool is_vector(const Weight& weight) {
  return !weight.values.empty();
}

int64_t block_count(const Weight& weight) {
  return weight.size_bytes / weight.type->block_bytes;
}

}  // namespace

std::span<const int> block_segments(const QuantType& type) {
  switch (type.id) {
#define APR_QUANT_TYPE(id, name, traits, file) \
  case id:                                     \
    return segments_of<quant::traits>();
#include "quant/type_rows.inc"
#undef APR_QUANT_TYPE
    default:
      break;
  }
  check_failed("type is in the table", __FILE__, __LINE__, std::string(type.name));
}

int64_t device_weight_bytes(const Weight& weight) {
  int64_t n_bytes = is_vector(weight) ? static_cast<int64_t>(weight.values.size()) * 4 : 0;
  const std::span<const int> segments = block_segments(*weight.type);
  if (segments.empty()) {
    return n_bytes + weight.size_bytes;
  }
  for (const int segment : segments) {
    n_bytes += quant::align16(block_count(weight) * segment);
  }
  return n_bytes;
}

void pack_planes(const std::byte* raw, int64_t n_blocks, std::span<const int> segments,
                 std::byte* planes) {
  int64_t block_bytes = 0;
  for (const int segment : segments) {
    block_bytes += segment;
  }
  int64_t offset = 0;
  for (const int segment : segments) {
    const size_t segment_bytes = static_cast<size_t>(segment);
    for (int64_t block = 0; block < n_blocks; ++block) {
      std::memcpy(planes + block * segment, raw + block * block_bytes + offset, segment_bytes);
    }
    planes += quant::align16(n_blocks * segment);
    offset += segment;
  }
}

DeviceWeights::DeviceWeights(const Model& model) {
  int64_t total_bytes = 0, largest_bytes = 0;
  for (const Weight& weight : model.weights()) {
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
  for (const Weight& weight : model.weights()) {
    if (is_vector(weight)) {
      upload(vector_offset_bytes_[&weight], weight.values.data(),
             static_cast<int64_t>(weight.values.size()) * 4);
    }
    const std::span<const int> segments = block_segments(*weight.type);
    if (segments.empty()) {
      upload(offset_bytes_[&weight], weight.data, weight.size_bytes);
    } else {
      pack_planes(weight.data, block_count(weight), segments, planes.data());
      upload(offset_bytes_[&weight], planes.data(),
             device_weight_bytes(weight) - static_cast<int64_t>(weight.values.size()) * 4);
    }
  }
}

WeightRef DeviceWeights::matrix(const Weight& weight) const {
  return {reinterpret_cast<const uint8_t*>(memory_.data() + offset_bytes_.at(&weight)),
          block_count(weight), static_cast<int32_t>(weight.n_experts * weight.n_rows),
          static_cast<int32_t>(weight.n_cols)};
}

const float* DeviceWeights::vector(const Weight* weight) const {
  return weight == nullptr
             ? nullptr
             : reinterpret_cast<const float*>(memory_.data() + vector_offset_bytes_.at(weight));
}

}  // namespace apr::cuda
