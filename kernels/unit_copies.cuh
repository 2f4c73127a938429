// The copies of a warp: the units (quant/device.cuh) of its share of each row tile's columns,
// through a ring in shared memory (sm_80 and later).
#pragma once

#include "async_copy.cuh"
#include "matvec_layout.cuh"
#include "reduce.cuh"

namespace apr {

// Walks tile by tile. first_of(tile): the first unit of the warp's share.
template <class T, class FirstOf>
struct UnitCopies {
  static constexpr int kUnitBytes = quant::unit_bytes<T>();
  uint32_t ring_address;  // in shared memory
  int first_unit, end_unit, unit_step;
  int tile, n_tiles, tile_step;
  FirstOf first_of;
  int unit = end_unit;
  const uint8_t* next = nullptr;  // global: unit `unit` of the tile

  __device__ __forceinline__ void start_tile() {
    if (tile < n_tiles) {
      unit = first_unit;
      next = first_of(tile);
    }
  }
  // Starts copying the next unit, if there is one, and closes its group.
  __device__ __forceinline__ void operator()(int slot) {
    if (unit < end_unit) {
      copy_async_by_warp<kUnitBytes>(ring_address + slot * kUnitBytes, next,
                                     static_cast<int>(threadIdx.x % kWarpSize));
      next += unit_step * kUnitBytes;
      unit += unit_step;
      if (unit >= end_unit) {
        tile += tile_step;
        start_tile();
      }
    }
    copy_group_end();
  }
  // Fills the ring but for one slot.
  __device__ __forceinline__ void start() {
    start_tile();
#pragma unroll
    for (int slot = 0; slot < ring_slots<T>() - 1; ++slot) {
      (*this)(slot);
    }
  }
};

}  // namespace apr
