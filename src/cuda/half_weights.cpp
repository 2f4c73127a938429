#include "cuda/half_weights.h"

#include <fmt/format.h>

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
  HalfStoreChoice choice = choose_half_store(cache_bytes(), free_bytes);
  if (choice.store == HalfStore::kCached) {
    try {
      for (const uint64_t n_bytes : places_.layer_bytes) {
        buffers_.emplace_back(n_bytes, "16-bit prefill weights");
      }
      for (const Weight* weight : places_.order) {
        if (const auto& place = places_.places.at(weight); place.layer >= 0) {
          make(*weight, {0, weight->n_rows},
               reinterpret_cast<uint16_t*>(buffers_[static_cast<size_t>(place.layer)].data() +
                                           place.offset_bytes));
        }
      }
    } catch (const Error& error) {
      buffers_.clear();
      choice = {HalfStore::kStreamed, error.what()};
    }
  }
  if (choice.store == HalfStore::kCached) {
    log_detail(fmt::format("prefill: 16-bit weights made once: {}", format_bytes(cache_bytes())));
  } else {
    log_note(
        fmt::format("prefill: 16-bit weights are made again for each chunk: {}", choice.reason));
  }
  return choice;
}

const uint16_t* HalfWeights::kept(const Weight& weight) const {
  const HalfPlaces::Place& place = places_.places.at(&weight);
  return buffers_.empty() || place.layer < 0
             ? nullptr
             : reinterpret_cast<const uint16_t*>(buffers_[static_cast<size_t>(place.layer)].data() +
                                                 place.offset_bytes);
}

void HalfWeights::make(const Weight& weight, RowRange rows, uint16_t* out) {
  dequantizer_.to_f16(weight, rows, largest(weight), out);
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
