// Arguments of the kernels: one plain struct each, read by g++ and NVRTC alike and passed by value.
#pragma once

#include "platform.cuh"

namespace apr {

// y = x / sqrt(mean(x^2) + eps) * weight
struct RmsNormParams {
  const float* x;       // [n_rows, dim] f32
  const float* weight;  // [dim] f32
  float* y;             // [n_rows, dim] f32; may be x
  int32_t dim;
  float eps;
};

// A quantised matrix in device memory: [n_rows, n_cols], or a stack of them counted in n_rows.
struct WeightRef {
  const uint8_t* data;  // raw blocks or planes (quant/device.cuh), 16-byte aligned
  int64_t n_blocks;     // of the whole tensor
  int32_t n_rows, n_cols;
};

// What a matvec does with its products before it stores them.
enum class MatvecEpilogue : int32_t { kNone, kSwiglu };

// y[t] = w (norm(x[t])) (+ bias) (+ residual[t]); with kSwiglu silu(w x) * (w2 x)
struct MatvecParams {
  const float* x;            // [n_tokens, n_cols] f32
  const float* norm_weight;  // [n_cols] f32 of an RMS norm applied to x first, or null
  WeightRef w, w2;           // w2: kSwiglu alone
  const float* bias;         // [n_rows] f32 or null
  const float* residual;     // [n_tokens, n_rows] f32 or null; may be y
  float* y;                  // [n_tokens, n_rows] f32
  int64_t y_stride;          // elements from one token's row of y (and residual) to the next
  int32_t n_tokens;          // 1 to 8
  float eps;                 // of the norm
};

}  // namespace apr
