// The shared memory of matvec_mma, laid out alike by host and device: the staged x, then a ring of
// units (quant/device.cuh) for each warp, then the grid of the type. matvec_rows has the same
// rings.
#pragma once

#include "quant/device.cuh"

namespace apr {

constexpr int kMatvecWarps = 16;       // of a block
constexpr int kRingBytes = 76 * 1024;  // of its warps together, where two units a warp are less

// Units of a warp's ring.
template <class T>
constexpr int ring_slots() {
  constexpr int kFit = kRingBytes / (kMatvecWarps * quant::unit_bytes<T>());
  return kFit < 2 ? 2 : kFit > 4 ? 4 : kFit;
}

// Of the rings and the grid behind them.
template <class T>
constexpr int rings_bytes() {
  return kMatvecWarps * ring_slots<T>() * quant::unit_bytes<T>();
}
template <class T>
constexpr int rings_and_grid_bytes() {
  return rings_bytes<T>() + quant::grid_words<T>() * 4;
}
constexpr int kScaleElems = 32;  // values of x with one scale

// Columns of x that are staged; those past its end are zero.
APR_DEVICE constexpr int staged_cols(int n_cols) {
  return quant::units_of(n_cols) * quant::kUnitCols;
}

// From one int8 plane of x to the next: 16 more than a multiple of 128, so that the planes' loads
// meet no bank twice.
APR_DEVICE constexpr int staged_plane_bytes(int n_cols) {
  return staged_cols(n_cols) + 16;
}

// Of a staged x with its scales and the sums of its groups.
APR_DEVICE constexpr int staged_x_bytes(int n_cols, int group_elems) {
  return 2 * staged_plane_bytes(n_cols) + staged_cols(n_cols) / kScaleElems * 4 +
         staged_cols(n_cols) / group_elems * 4;
}

}  // namespace apr
