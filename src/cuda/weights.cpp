#include "cuda/weights.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "apr/error.h"
#include "cuda/error.h"
#include "quant/device.cuh"

namespace apr::cuda {
namespace {

// Fills one of two pinned buffers with several threads while the other is on its way.
class Uploader {
 public:
  explicit Uploader(std::byte* memory) : memory_(memory), stream_(create_stream()) {
    for (Slot& slot : slots_) {
      slot.buffer = PinnedBuffer(kBufferBytes, "weight upload");
      slot.sent = create_event();
    }
  }

  // Bytes as they are, to `offset_bytes` of the memory.
  void copy(const void* data, int64_t n_bytes, int64_t offset_bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    for (int64_t done = 0; done < n_bytes; done += kBufferBytes) {
      const int64_t part_bytes = std::min<int64_t>(kBufferBytes, n_bytes - done);
      send(offset_bytes + done, part_bytes, part_bytes, 1,
           [&](std::byte* to, int64_t first_byte, int64_t end_byte) {
             std::memcpy(to, from + done + first_byte, static_cast<size_t>(end_byte - first_byte));
           });
    }
  }

  // A matrix of a block type, as planes.
  void pack(const Weight& weight, int64_t offset_bytes) {
    const int64_t n_rows = row_count(weight);
    const int64_t row_bytes = weight.type->row_bytes(weight.n_cols);
    const int64_t tile_bytes = planes_bytes(*weight.type, quant::kUnitRows, weight.n_cols);
    const int64_t n_tiles = (n_rows + quant::kUnitRows - 1) / quant::kUnitRows;
    const int64_t most_tiles = std::max<int64_t>(1, kBufferBytes / tile_bytes);
    for (int64_t first_tile = 0; first_tile < n_tiles; first_tile += most_tiles) {
      const int64_t part_tiles = std::min(most_tiles, n_tiles - first_tile);
      send(offset_bytes + first_tile * tile_bytes, part_tiles * tile_bytes, part_tiles, tile_bytes,
           [&](std::byte* to, int64_t first, int64_t end) {
             const int64_t first_row = (first_tile + first) * quant::kUnitRows;
             const int64_t end_row = std::min(n_rows, (first_tile + end) * quant::kUnitRows);
             pack_planes(*weight.type, weight.data + first_row * row_bytes, end_row - first_row,
                         weight.n_cols, to);
           });
    }
  }

  void finish() { APR_CUDA(api().cudaStreamSynchronize(stream_.get())); }

 private:
  static constexpr int64_t kBufferBytes = int64_t{32} << 20;
  static constexpr unsigned kMostThreads = 8;  // more do not outrun the bus

  struct Slot {
    PinnedBuffer buffer;
    Event sent;
    bool in_flight = false;
  };

  // Fills a buffer of n_bytes, n_items of item_bytes, by fill(to, first item, end item) in several
  // threads and starts its copy to `offset_bytes`.
  template <class Fill>
  void send(int64_t offset_bytes, int64_t n_bytes, int64_t n_items, int64_t item_bytes,
            const Fill& fill) {
    Slot& slot = slots_[next_slot_];
    next_slot_ = 1 - next_slot_;
    if (slot.buffer.size_bytes() < static_cast<size_t>(n_bytes)) {  // 16 rows alone are larger
      finish();
      slot.buffer = PinnedBuffer(static_cast<size_t>(n_bytes), "weight upload");
    } else if (slot.in_flight) {
      APR_CUDA(api().cudaEventSynchronize(slot.sent.get()));
    }
    constexpr int64_t kBytesOfAThread = int64_t{1} << 20;  // fewer do not pay for it
    const int64_t n_threads =
        std::clamp<int64_t>(std::min(n_items, n_bytes / kBytesOfAThread), 1,
                            std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads));
    const auto fill_share = [&](int64_t thread) {
      const int64_t first = n_items * thread / n_threads;
      fill(slot.buffer.data() + first * item_bytes, first, n_items * (thread + 1) / n_threads);
    };
    {
      std::vector<std::jthread> threads;
      for (int64_t thread = 1; thread < n_threads; ++thread) {
        threads.emplace_back(fill_share, thread);
      }
      fill_share(0);
    }
    APR_CUDA(api().cudaMemcpyAsync(memory_ + offset_bytes, slot.buffer.data(),
                                   static_cast<size_t>(n_bytes), cudaMemcpyHostToDevice,
                                   stream_.get()));
    APR_CUDA(api().cudaEventRecord(slot.sent.get(), stream_.get()));
    slot.in_flight = true;
  }

  std::byte* memory_;
  Stream stream_;
  Slot slots_[2];
  int next_slot_ = 0;
};

}  // namespace

DeviceWeights::DeviceWeights(std::span<const Weight> weights) : places_(weight_places(weights)) {
  memory_ = DeviceBuffer(static_cast<size_t>(places_.total_bytes), "weights");
  Uploader uploader(memory_.data());
  for (const Weight& weight : weights) {
    if (!weight.values.empty()) {
      uploader.copy(weight.values.data(), static_cast<int64_t>(weight.values.size()) * 4,
                    places_.vector_offset_bytes[&weight]);
    }
    if (has_planes(*weight.type)) {
      uploader.pack(weight, places_.offset_bytes[&weight]);
    } else {
      uploader.copy(weight.data, weight.size_bytes, places_.offset_bytes[&weight]);
    }
  }
  uploader.finish();
}

WeightRef DeviceWeights::matrix(const Weight& weight) const {
  return {reinterpret_cast<const uint8_t*>(memory_.data() + places_.offset_bytes.at(&weight)),
          static_cast<int32_t>(row_count(weight)), static_cast<int32_t>(weight.n_cols)};
}

const float* DeviceWeights::vector(const Weight* weight) const {
  return weight == nullptr ? nullptr
                           : reinterpret_cast<const float*>(memory_.data() +
                                                            places_.vector_offset_bytes.at(weight));
}

}  // namespace apr::cuda
