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
  int32_t n_rows, n_cols;
};

// What a matvec does with its products before it stores them.
enum class MatvecEpilogue : int32_t { kNone, kSwiglu };

// One of the matrices that a matvec multiplies with its x.
struct MatvecPart {
  WeightRef w;
  const float* bias;       // [w.n_rows] f32 or null
  float* y;                // [w.n_rows] f32
  int32_t first_tile = 0;  // matvec_mma: of its tiles of 16 rows among those of all parts
};

constexpr int32_t kMostMatvecParts = 3;

// y = w norm(x) (+ bias) (+ residual) for each part; with kSwiglu silu(w x) * (w x of part 1)
struct MatvecParams {
  const float* x;            // [n_cols] f32
  const float* norm_weight;  // [n_cols] f32 of an RMS norm applied to x first, or null
  MatvecPart parts[kMostMatvecParts];
  const float* residual;  // [n_rows] f32 or null, may be y; with one part alone
  int32_t n_parts;        // of one type and n_cols; kSwiglu: 2, of one shape; for the launcher
  // matvec_mma: warps that share the columns of a tile, a power of two; kSwiglu: both weights', two
  // at least
  int32_t n_col_warps;
  int32_t n_tiles;  // matvec_mma: of the parts; kSwiglu: of one
  float eps;        // of the norm
  float per_col;    // matvec_mma: 1 / n_cols, for the mean of the norm
};

// Two products of one launch, each of one type; blocks from n_first_blocks on take the second.
struct MatvecPairParams {
  MatvecParams first, second;
  int32_t n_first_blocks;
};

// What changes from step to step of a sequence; kernels read it from device memory, so that one
// captured graph serves every step.
struct StepState {
  int32_t position;  // of the step's first token
  int32_t n_tokens;  // of this step
};

enum class DequantForm : int32_t { kF32, kF16, kE4m3 };

// out = w dequantised; w.n_cols counts whole blocks, n_cols the columns that are stored.
struct DequantParams {
  WeightRef w;
  void* out;          // [n_rows of the launch, n_cols] f32, f16 or E4M3
  int32_t first_row;  // of the launch
  int32_t n_cols;     // <= w.n_cols
  float scale;        // not f32: a power of two, multiplied with that of
  // Not f32: max |w|, brought to [2^13, 2^14), as E4M3 to [2^7, 2^8); null: none.
  const float* largest = nullptr;
};

// y[t] = token_embd[ids[t]]
struct EmbedParams {
  const int32_t* ids;  // [n_tokens]
  WeightRef table;     // [vocab_rows, model_dim]
  float* y;            // [n_tokens, model_dim] f32
};

// y = a OP b, elementwise; rows of b may be further apart than those of a.
struct BinaryParams {
  const float *a, *b;  // [n_rows, n_cols] f32
  float* y;            // [n_rows, n_cols] f32; may be a or b
  int64_t n_elems;
};

// Rows of f16, each scaled by a power of two that brings its largest value to [2^13, 2^14).
struct F16Rows {
  uint16_t* values;  // [n_rows, n_cols] f16
  float* undo;       // [n_rows] f32: what undoes the scaling
};

// Rows of E4M3 (e4m3.cuh), each scaled by a power of two that brings its largest value to
// [2^7, 2^8).
struct E4m3Rows {
  uint8_t* values;  // [n_rows, n_cols] E4M3
  float* undo;      // [n_rows] f32: what undoes the scaling, and the 2^-6 of E4M3 weights
};

struct ScaleRowsParams {
  const float* x;  // [n_rows, n_cols] f32
  F16Rows y;
  int32_t n_cols;
  E4m3Rows y_e4m3 = {};  // of the rows .e4m3, which make these in place of y
};

// The columns of one matrix among the products of F16Rows and 16-bit weights, or of E4m3Rows and
// 8-bit ones; their value is product * undo[row] * (the undo of 16-bit weights) (+ bias).
struct ProductColumns {
  const float* largest;  // max |weight|, from which the weights' power of two follows
  const float* bias;     // [n_cols] f32 or null
  int32_t first_col, n_cols;
  int32_t n_splits = 1;  // that are added up, in their order
};

struct Products {
  const float* data;         // [n_rows, stride] f32
  const float* undo;         // [n_rows] f32, of the rows; null: the products are values already
  int64_t stride;            // elements from one row to the next
  int64_t split_stride = 0;  // elements from one split of a sum to the next
};

constexpr int32_t kMostProductParts = 4;

// y[part] = the values of its columns.
struct UnscaleParams {
  Products products;
  ProductColumns columns[kMostProductParts];
  float* y[kMostProductParts];          // [n_rows, y_stride] f32; may be the products
  int64_t y_stride[kMostProductParts];  // elements from one row to the next
};

// y = silu(gate) * up
struct SwigluRowsParams {
  Products products;
  ProductColumns gate, up;
  F16Rows y;  // or, where y.values is null:
  float* y_f32;
  bool keep;             // the row fits in the launch's shared memory
  E4m3Rows y_e4m3 = {};  // of the rows .e4m3, which make these in place of y
};

// sum = x + product; y = sum / sqrt(mean(sum^2) + eps) * weight
struct SumNormRowsParams {
  const float* x;     // [n_rows, n_cols] f32
  Products products;  // data null: none, and the norm is of x
  ProductColumns columns;
  float* sum;                // [n_rows, n_cols] f32; null without products
  const float* norm_weight;  // [n_cols] f32; null: no norm
  F16Rows y;                 // of the norm; or, where y.values is null:
  float* y_f32;
  float eps;
  int32_t n_cols;
  bool keep;             // the row fits in the launch's shared memory
  E4m3Rows y_e4m3 = {};  // of the rows .e4m3, which make these in place of y
};

// Activations to 8 bits, a scale for each 32.
struct Q8Rows {
  int8_t* values;  // [n_rows, n_cols]
  float* scale;    // [n_rows, n_cols / 32] f32
  float* sum;      // [n_rows, n_cols / 32] f32: scale * the sum of the values
};

struct QuantizeRowsParams {
  const float* x;  // [n_rows, n_cols] f32
  Q8Rows y;
  int32_t n_cols;  // a multiple of 32
};

// y[t] = w x[t] (+ bias)
struct Dp4aGemmParams {
  WeightRef w;
  Q8Rows x;           // [n_tokens, n_cols]
  const float* bias;  // [n_rows] f32 or null
  float* y;           // [n_tokens, n_rows] f32
  int32_t n_tokens;
};

}  // namespace apr
