#include "cuda/half_weights.h"

#include <fmt/format.h>

#include <algorithm>

#include "apr/error.h"
#include "base/format.h"
#include "base/log.h"
#include "cuda/error.h"

namespace apr::cuda {

HalfWeights::HalfWeights(Dequantizer& dequantizer, const Stream& stream,
                         std::span<const ProjectionGroup> groups)
    : dequantizer_(dequantizer),
      places_(half_places(groups)),
      largest_(places_.order.size() * sizeof(float), "weight scales") {
  for (size_t idx = 0; idx < places_.order.size(); ++idx) {
    largest_of_[places_.order[idx]] = {idx, false};
  }
  APR_CUDA(api().cudaMemsetAsync(largest_.data(), 0, largest_.size_bytes(), stream.get()));
}

HalfStoreChoice HalfWeights::prewarm(uint64_t free_bytes) {
  const bool has_e4m3 = std::any_of(places_.order.begin(), places_.order.end(),
                                    [this](const Weight* weight) { return is_e4m3(*weight); });
  const char* width = has_e4m3 ? "8-bit" : "16-bit";
  HalfStoreChoice choice = choose_half_store(cache_bytes(), free_bytes, width);
  if (choice.store == HalfStore::kCached) {
    try {
      for (const uint64_t n_bytes : places_.layer_bytes) {
        buffers_.emplace_back(n_bytes, "prefill weights");
      }
      for (const Weight* weight : places_.order) {
        if (const auto& place = places_.places.at(weight); place.layer >= 0) {
          make(*weight, {0, weight->n_rows},
               buffers_[static_cast<size_t>(place.layer)].data() + place.offset_bytes);
        }
      }
    } catch (const Error& error) {
      buffers_.clear();
      choice = {HalfStore::kStreamed, error.what()};
    }
  }
  if (choice.store == HalfStore::kCached) {
    log_detail(
        fmt::format("prefill: {} weights made once: {}", width, format_bytes(cache_bytes())));
  } else {
    log_note(
        fmt::format("prefill: {} weights are made again for each chunk: {}", width, choice.reason));
  }
  return choice;
}

const std::byte* HalfWeights::kept(const Weight& weight) const {
  const HalfPlaces::Place& place = places_.places.at(&weight);
  return buffers_.empty() || place.layer < 0
             ? nullptr
             : buffers_[static_cast<size_t>(place.layer)].data() + place.offset_bytes;
}

void HalfWeights::make(const Weight& weight, RowRange rows, std::byte* out) {
  if (is_e4m3(weight)) {
    dequantizer_.to_e4m3(weight, rows, largest(weight), reinterpret_cast<uint8_t*>(out));
  } else {
    dequantizer_.to_f16(weight, rows, largest(weight), reinterpret_cast<uint16_t*>(out));
  }
}

const float* HalfWeights::largest(const Weight& weight) {
  Largest& entry = largest_of_.at(&weight);
  float* found = largest_.as<float>() + entry.idx;
  if (!entry.is_found) {
    dequantizer_.find_largest(weight, found);
    entry.is_found = true;
  }
  return found;
}

}  // namespace apr::cuda
