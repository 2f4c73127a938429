// kernels/scale_rows.cu and product_rows.cu: which of their kernels, and how they are launched.
#pragma once

#include "cuda/launch.h"
#include "params.h"

namespace apr::cuda {

// y [n_rows, n_cols] f16, or E4M3 where y_e4m3 is given, with a power of two each = x [n_rows,
// n_cols].
void launch_scale_rows(const KernelLibrary& kernels, const Stream& stream,
                       const ScaleRowsParams& params, int64_t n_rows);

// y[part] [n_rows, y_stride] f32 = the values of n_parts matrices' products.
void launch_unscale_rows(const KernelLibrary& kernels, const Stream& stream,
                         const UnscaleParams& params, int n_parts, int64_t n_rows);

// y [n_rows, n_cols] = silu(gate) * up.
void launch_swiglu_rows(const KernelLibrary& kernels, const Stream& stream,
                        const SwigluRowsParams& params, int64_t n_rows);

// sum [n_rows, n_cols] = x + product, y = its RMS norm.
void launch_sum_norm_rows(const KernelLibrary& kernels, const Stream& stream,
                          const SumNormRowsParams& params, int64_t n_rows);

}  // namespace apr::cuda
