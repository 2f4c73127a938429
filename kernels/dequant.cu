// Computes  out = the f32 values of a quantised matrix, bit for bit those of the scalar
//           reference; or f16 or E4M3 (sm_89) of value * scale (a power of two)
// Reads     w [n_rows, n_cols] in T      Writes  out [n_rows, n_cols], the form
// Grid      (ceil(n_cols / 2048), n_rows)   Block  256 threads, 8 values each   Shared  none
// Assumes   whole blocks a row in w; columns past n_cols are decoded and not stored; out 16-byte
//           aligned
// Moves     n_rows * (row_bytes + n_cols * (4, 2 or 1)) bytes
// Determinism  gpu_to_gpu   Reference  QuantType::dequantize
#include APR_QUANT_FILE  // the type, named by the kernel row
#include "dequant_octet.cuh"
#include "grid_dependency.cuh"
#include "params.h"
#include "power_of_two.cuh"
#include "reduce.cuh"
#include "weight.cuh"

namespace apr {

template <class T, bool kPlanes, DequantForm kForm>
__global__ void dequant(const __grid_constant__ DequantParams p) {
  grid_dependency_wait();
  DequantParams scaled = p;
  if (kForm != DequantForm::kF32 && p.largest != nullptr) {
    scaled.scale *=
        kForm == DequantForm::kE4m3 ? up_to_e4m3(*p.largest) : power_to_f16(*p.largest).up;
  }
  dequant_octet<T, kPlanes, kForm>(scaled, blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y);
}

// The largest |value| of the launch's rows, as f32 bits, into the u32 at p.out, zero before. Grid
// and block as dequant.
template <class T, bool kPlanes>
__global__ void weight_absmax(const __grid_constant__ DequantParams p) {
  __shared__ float scratch[kMaxWarps];
  const int octet = blockIdx.x * blockDim.x + threadIdx.x;
  const int64_t row = static_cast<int64_t>(p.first_row) + blockIdx.y;
  float largest = 0.0f;
  if (8 * octet < p.n_cols) {
    float values[8];
    weight_octet<T, kPlanes>(p.w, row, octet, values);
#pragma unroll
    for (int elem = 0; elem < 8; ++elem) {
      largest = fmaxf(largest, 8 * octet + elem < p.n_cols ? fabsf(values[elem]) : 0.0f);
    }
  }
  largest = block_max(largest, scratch);
  // Most blocks find a larger value there already and are done.
  if (threadIdx.x == 0 && largest > *static_cast<volatile float*>(p.out)) {
    // Bits of non-negative floats order as the floats do.
    atomicMax(static_cast<unsigned int*>(p.out), __float_as_uint(largest));
  }
}

}  // namespace apr
