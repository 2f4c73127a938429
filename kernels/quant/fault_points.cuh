// Where tests plant a fault, one kind for each mistake a decoder can make. Each function below
// gives back what it was given; in a build with APR_FAULTS the planted one does not, and a test
// that decodes must see it. On the device APR_FAULTS names the fault (-DAPR_FAULTS=kSign); on the
// host quant::planted_fault does, at run time.
#pragma once

#include "platform.cuh"

namespace apr::quant {

enum class Fault { kNone, kSign, kHighBits, kScaleSelector, kD, kRowStride, kTailGuard };

#if defined(APR_FAULTS) && defined(APR_DEVICE_CODE)
APR_DEVICE constexpr bool is_planted(Fault fault) {
  return fault == Fault::APR_FAULTS;
}
#elif defined(APR_FAULTS)
inline Fault planted_fault = Fault::kNone;
APR_DEVICE bool is_planted(Fault fault) {
  return fault == planted_fault;
}
#else
APR_DEVICE constexpr bool is_planted(Fault) {
  return false;
}
#endif

// Bits that tell signs. Fault: all clear.
APR_DEVICE uint32_t sign_bits(uint32_t bits) {
  return is_planted(Fault::kSign) ? 0 : bits;
}

// The value of a byte in two's complement. Fault: its sign is lost.
APR_DEVICE int signed_byte(uint8_t byte) {
  return is_planted(Fault::kSign) ? byte : static_cast<int8_t>(byte);
}

// A minimum, to be added. Fault: it is not turned.
APR_DEVICE float negated(float minimum) {
  return is_planted(Fault::kSign) ? minimum : -minimum;
}

// High bits of a quant, a grid entry or a scale, stored apart from the low ones. Fault: all clear.
APR_DEVICE uint32_t high_bits(uint32_t bits) {
  return is_planted(Fault::kHighBits) ? 0 : bits;
}

// Which of a block's scales. Fault: its neighbour.
APR_DEVICE int scale_selector(int group) {
  return is_planted(Fault::kScaleSelector) ? group ^ 1 : group;
}

// The bits of a block's own scale. Fault: the last one flips.
APR_DEVICE uint32_t d_bits(uint32_t bits) {
  return is_planted(Fault::kD) ? bits ^ 1 : bits;
}

// From one row, or one unit of rows, to the next. Fault: `step` less, so that rows overlap.
APR_DEVICE int64_t row_stride(int64_t stride, int step) {
  return is_planted(Fault::kRowStride) ? stride - step : stride;
}

// Columns of a row that are stored. Fault: one more.
APR_DEVICE int stored_columns(int n_cols) {
  return is_planted(Fault::kTailGuard) ? n_cols + 1 : n_cols;
}

}  // namespace apr::quant
