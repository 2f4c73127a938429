#include "cuda/half_weights.h"

#include <fmt/format.h>

#include "apr/error.h"
#include "base/format.h"
#include "base/log.h"
#include "cuda/error.h"

namespace apr::cuda {
namespace {

constexpr uint64_t kAlignBytes = 256;
constexpr int64_t kHalfBytes = 2;

}  // namespace

HalfWeights::HalfWeights(Dequantizer& dequantizer, const Stream& stream,
                         std::span<const ProjectionGroup> groups)
    : dequantizer_(dequantizer) {
  int layer_idx = -1;
  for (const ProjectionGroup& group : groups) {
    if (group.every_row && (layer_bytes_.empty() || group.layer_idx != layer_idx)) {
      layer_bytes_.push_back(0);
      layer_idx = group.layer_idx;
    }
    if (group.every_row) {
      layer_bytes_.back() = (layer_bytes_.back() + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
    }
    for (const Weight* weight : group.weights) {
      Entry entry;
      entry.largest_idx = order_.size();
      if (group.every_row) {
        entry.layer = static_cast<int64_t>(layer_bytes_.size()) - 1;
        entry.offset_bytes = static_cast<int64_t>(layer_bytes_.back());
        layer_bytes_.back() += static_cast<uint64_t>(weight->n_rows * weight->n_cols * kHalfBytes);
      }
      entries_[weight] = entry;
      order_.push_back(weight);
    }
  }
  for (const uint64_t n_bytes : layer_bytes_) {
    cache_bytes_ += n_bytes;
  }
  largest_ = DeviceBuffer(order_.size() * sizeof(float), "weight scales");
  APR_CUDA(api().cudaMemsetAsync(largest_.data(), 0, largest_.size_bytes(), stream.get()));
}

HalfStoreChoice HalfWeights::prewarm(uint64_t free_bytes) {
  HalfStoreChoice choice = choose_half_store(cache_bytes_, free_bytes);
  if (choice.store == HalfStore::kCached) {
    try {
      for (const uint64_t n_bytes : layer_bytes_) {
        buffers_.emplace_back(n_bytes, "16-bit prefill weights");
      }
      for (const Weight* weight : order_) {
        if (const Entry& entry = entries_.at(weight); entry.layer >= 0) {
          make(*weight, {0, weight->n_rows},
               reinterpret_cast<uint16_t*>(buffers_[static_cast<size_t>(entry.layer)].data() +
                                           entry.offset_bytes));
        }
      }
    } catch (const Error& error) {
      buffers_.clear();
      choice = {HalfStore::kStreamed, error.what()};
    }
  }
  if (choice.store == HalfStore::kCached) {
    log_detail(fmt::format("prefill: 16-bit weights made once: {}", format_bytes(cache_bytes_)));
  } else {
    log_note(
        fmt::format("prefill: 16-bit weights are made again for each chunk: {}", choice.reason));
  }
  return choice;
}

const uint16_t* HalfWeights::kept(const Weight& weight) const {
  const Entry& entry = entries_.at(&weight);
  return buffers_.empty() || entry.layer < 0
             ? nullptr
             : reinterpret_cast<const uint16_t*>(buffers_[static_cast<size_t>(entry.layer)].data() +
                                                 entry.offset_bytes);
}

void HalfWeights::make(const Weight& weight, RowRange rows, uint16_t* out) {
  dequantizer_.to_f16(weight, rows, largest(weight), out);
}

const float* HalfWeights::largest(const Weight& weight) {
  Entry& entry = entries_.at(&weight);
  float* found = largest_.as<float>() + entry.largest_idx;
  if (!entry.largest_found) {
    dequantizer_.find_largest(weight, found);
    entry.largest_found = true;
  }
  return found;
}

}  // namespace apr::cuda
