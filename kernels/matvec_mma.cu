// Computes  y = w norm(x) (+ bias) (+ residual); kSwiglu: silu(w x) * (w2 x)
// Reads     x [n_cols] f32, w [n_rows, n_cols] in a block type T, as planes
// Writes    y [n_rows] f32
// How       Weights become exact f16 numbers q (scale * q + offset a group), x is rounded to f16
//           after a power-of-two scaling; products of 16 rows on tensor cores with f32 sums, scales
//           applied outside. The 8 columns of a product hold 8 groups of x, so that each lane
//           scales groups of its own.
// Grid      any number of blocks, which share the tiles of 16 rows   Block  8 warps, which share k
// Shared    dynamic: n_cols * 2 bytes (x as f16) + n_cols / group * 4 (sums of x a group);
//           static: up to 2 * 8 * 16 + 32 floats
// Assumes   sm_80; n_tokens == 1; n_cols % 32 == 0; n_rows >= 16
// Moves     n_rows * row_bytes + blocks * n_cols * 4 bytes
// Determinism  gpu_to_gpu   Reference  cpu::reference::matmul; bound: x rounded to 11 bits
#include "grid_dependency.cuh"
#include "mma.cuh"
#include "params.h"
#include "power_of_two.cuh"
#include APR_QUANT_FILE  // the type, named by the kernel row
#include "reduce.cuh"
#include "weight.cuh"

namespace apr {

constexpr int kMmaWarps = 8;
constexpr int kTileRows = 16;

// Stages x: normed, scaled to [2^13, 2^14) by a power of two, as f16 in quartets ordered
// 0 2 1 3, and the sum of each group. Returns what undoes the scaling.
template <int kGroupElems>
__device__ inline float stage_x(const MatvecParams& p, uint2* x16, float* group_sums,
                                float* scratch) {
  const int n_cols = p.w.n_cols;
  const float4* x = reinterpret_cast<const float4*>(p.x);
  const float4* norm = reinterpret_cast<const float4*>(p.norm_weight);
  float sum = 0.0f, largest = 0.0f;
  for (int quartet = threadIdx.x; quartet < n_cols / 4; quartet += blockDim.x) {
    float4 v = x[quartet];
    if (norm != nullptr) {
      sum += v.x * v.x + v.y * v.y + (v.z * v.z + v.w * v.w);
      const float4 w = norm[quartet];
      v = make_float4(v.x * w.x, v.y * w.y, v.z * w.z, v.w * w.w);
    }
    largest = fmaxf(fmaxf(largest, fmaxf(fabsf(v.x), fabsf(v.y))), fmaxf(fabsf(v.z), fabsf(v.w)));
  }
  float scale = 1.0f;
  if (norm != nullptr) {
    const float mean = __fdiv_rn(block_sum(sum, scratch), static_cast<float>(n_cols));
    scale = __fdiv_rn(1.0f, __fsqrt_rn(mean + p.eps));
    __syncthreads();
  }
  largest = block_max(largest, scratch);
  const PowerOfTwo power = power_to_f16(largest * scale);
  const float up = power.up, down = power.down;
  constexpr int kLanes = kGroupElems / 4;  // neighbouring threads of one group
  for (int first = 0; first < n_cols / 4; first += blockDim.x) {
    const int quartet = first + threadIdx.x;
    const bool inside = quartet < n_cols / 4;
    float sum4 = 0.0f;
    if (inside) {
      float4 v = x[quartet];
      if (norm != nullptr) {
        const float4 w = norm[quartet];
        v = make_float4(v.x * w.x * scale, v.y * w.y * scale, v.z * w.z * scale, v.w * w.w * scale);
      }
      const uint2 packed = make_uint2(pack_f16(v.x * up, v.z * up), pack_f16(v.y * up, v.w * up));
      x16[quartet] = packed;
      float v0, v1, v2, v3;
      unpack_f16(packed.x, v0, v2);
      unpack_f16(packed.y, v1, v3);
      sum4 = (v0 + v1) + (v2 + v3);
    }
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      sum4 += __shfl_xor_sync(0xffffffffu, sum4, distance);
    }
    if (inside && quartet % kLanes == 0) {
      group_sums[quartet / kLanes] = sum4;
    }
  }
  return down;
}

// Four bytes u as exact f16 numbers u - kBias: (q0, q2) and (q1, q3). 0x6400 + u is 1024 + u.
template <int kBias>
__device__ __forceinline__ void quants_f16(uint32_t quants, uint32_t& even, uint32_t& odd) {
  constexpr uint32_t kOffset = (0x6400u + kBias) * 0x00010001u;  // 1024 + kBias, twice
  const uint32_t even_bits = (quants & 0x00ff00ffu) | 0x64006400u;
  const uint32_t odd_bits = (quants >> 8 & 0x00ff00ffu) | 0x64006400u;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(even) : "r"(even_bits), "r"(kOffset));
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(odd) : "r"(odd_bits), "r"(kOffset));
}

// One tile of 16 rows, this warp's share of the columns. sums[h]: rows row and row + 8, in every
// lane of the row's four.
template <class T>
__device__ inline void tile_sums(const WeightRef& w, int64_t row, const uint2* x16,
                                 const float* group_sums, float (&sums)[2]) {
  constexpr int kGroupElems = T::kGroupElems;
  constexpr int kParts = kGroupElems / 16;  // products of a group
  constexpr int kSpan = 8 * kGroupElems;    // columns that fill a product's 8 columns
  constexpr int kUnit = kSpan > T::kBlockElems ? kSpan : T::kBlockElems;  // a warp's step
  constexpr bool kWhole = T::kBlockElems % kUnit == 0;                    // rows are whole units
  const int lane = threadIdx.x % kWarpSize;
  const int g = lane / 4, t = lane % 4;
  const int blocks_per_row = w.n_cols / T::kBlockElems;
  for (int unit = threadIdx.x / kWarpSize; unit * kUnit < w.n_cols; unit += kMmaWarps) {
    const int first_block = unit * (kUnit / T::kBlockElems);
#pragma unroll
    for (int span = 0; span < kUnit / kSpan; ++span) {
      const int first = unit * kUnit + span * kSpan;
      // This lane's x: its quartets of group g of the span.
      uint2 mine[kParts];
      const bool has_group = kWhole || first + g * kGroupElems < w.n_cols;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        mine[part] =
            has_group ? x16[(first + g * kGroupElems + part * 16) / 4 + t] : make_uint2(0u, 0u);
      }
      // Everything this lane reads of the span first, so that the loads are in flight together.
      uint32_t quants[kSpan / 16][2] = {};
#pragma unroll
      for (int product = 0; product < kSpan / 16; ++product) {
        const int elem = span * kSpan + product * 16;  // in the unit; known to the compiler
        const int block = elem / T::kBlockElems;
        if (kWhole || first_block + block < blocks_per_row) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const quant::PlanesBlock<T> from{
                w.data, w.n_blocks, (row + 8 * half) * blocks_per_row + first_block + block};
            quants[product][half] = T::quants4(from, elem % T::kBlockElems / 4 + t);
          }
        }
      }
      // Columns 2t and 2t + 1 of the products are this lane's groups, of both rows.
      quant::Affine affine[2][2] = {};
#pragma unroll
      for (int which = 0; which < 2; ++which) {
        const int elem = span * kSpan + (2 * t + which) * kGroupElems;
        if (kWhole || unit * kUnit + elem < w.n_cols) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const quant::PlanesBlock<T> from{
                w.data, w.n_blocks,
                (row + 8 * half) * blocks_per_row + first_block + elem / T::kBlockElems};
            affine[which][half] = T::affine(from, elem % T::kBlockElems / kGroupElems);
          }
        }
      }
      float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
      for (int product = 0; product < kSpan / 16; ++product) {
        uint32_t a[4];
        quants_f16<T::kQuantBias>(quants[product][0], a[0], a[2]);
        quants_f16<T::kQuantBias>(quants[product][1], a[1], a[3]);
        const bool my_column = g == product / kParts;
        const uint2 x = mine[product % kParts];
        const uint32_t b[2] = {my_column ? x.x : 0u, my_column ? x.y : 0u};
        mma_16x8x16(d, a, b);
      }
#pragma unroll
      for (int which = 0; which < 2; ++which) {
        const int group = first / kGroupElems + 2 * t + which;
        const float group_sum = kWhole || group * kGroupElems < w.n_cols ? group_sums[group] : 0.0f;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          sums[half] += affine[which][half].scale * d[2 * half + which];
          if constexpr (T::kHasOffset) {
            sums[half] += affine[which][half].offset * group_sum;
          }
        }
      }
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {  // over the lanes of one row
    sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 1);
    sums[half] += __shfl_xor_sync(0xffffffffu, sums[half], 2);
  }
}

// Asks for a tile's bytes of one weight, segment by segment: they do not depend on the kernel
// before.
template <class T, int kSegment = 0>
__device__ __forceinline__ void prefetch_tile(const WeightRef& w, int first_row) {
  if constexpr (kSegment < T::kSegments) {
    constexpr int kBytes = T::kSegmentBytes[kSegment];
    const int64_t row_bytes = static_cast<int64_t>(w.n_cols / T::kBlockElems) * kBytes;
    const uint8_t* begin =
        w.data + quant::plane_offset_bytes<T, kSegment>(w.n_blocks) + first_row * row_bytes;
    for (int64_t offset = threadIdx.x * 128; offset < kTileRows * row_bytes;
         offset += kMmaWarps * 32 * 128) {
      asm volatile("prefetch.global.L2 [%0];" ::"l"(begin + offset));
    }
    prefetch_tile<T, kSegment + 1>(w, first_row);
  }
}

template <class T, MatvecEpilogue kEpilogue>
__global__ void __launch_bounds__(kMmaWarps * 32, 1)
    matvec_mma(const __grid_constant__ MatvecParams p) {
  extern __shared__ uint4 shared[];
  constexpr int kWeights = kEpilogue == MatvecEpilogue::kSwiglu ? 2 : 1;
  __shared__ float partial[kWeights][kMmaWarps][kTileRows];
  __shared__ float scratch[kMaxWarps];
  uint2* x16 = reinterpret_cast<uint2*>(shared);                       // [n_cols / 4] quartets
  float* group_sums = reinterpret_cast<float*>(x16 + p.w.n_cols / 4);  // [n_cols / kGroupElems]
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;

  const int first_tile_row = min(static_cast<int>(blockIdx.x) * kTileRows, p.w.n_rows - kTileRows);
  prefetch_tile<T>(p.w, first_tile_row);
  if constexpr (kEpilogue == MatvecEpilogue::kSwiglu) {
    prefetch_tile<T>(p.w2, first_tile_row);
  }
  grid_dependency_wait();
  grid_dependency_launch();
  const float undo = stage_x<T::kGroupElems>(p, x16, group_sums, scratch);
  __syncthreads();

  const int n_tiles = (p.w.n_rows + kTileRows - 1) / kTileRows;
  for (int tile = blockIdx.x; tile < n_tiles; tile += gridDim.x) {
    // The last tile ends with the last row and may share rows with the one before it.
    const int first_row = min(tile * kTileRows, p.w.n_rows - kTileRows);
#pragma unroll
    for (int weight = 0; weight < kWeights; ++weight) {
      float sums[2] = {0.0f, 0.0f};
      tile_sums<T>(weight == 0 ? p.w : p.w2, first_row + lane / 4, x16, group_sums, sums);
      if (lane % 4 == 0) {
        partial[weight][warp][lane / 4] = sums[0];
        partial[weight][warp][lane / 4 + 8] = sums[1];
      }
    }
    __syncthreads();
    const int row = first_row + static_cast<int>(threadIdx.x);
    // A row that two tiles hold is stored by the first alone, for y may be the residual.
    if (threadIdx.x < kTileRows && row >= tile * kTileRows) {
      float value[2] = {0.0f, 0.0f};
#pragma unroll
      for (int weight = 0; weight < kWeights; ++weight) {
        for (int from = 0; from < kMmaWarps; ++from) {
          value[weight] += partial[weight][from][threadIdx.x];
        }
        value[weight] *= undo;
      }
      if constexpr (kEpilogue == MatvecEpilogue::kSwiglu) {
        value[0] = __fdiv_rn(value[0], 1.0f + expf(-value[0])) * value[1];
      }
      if (p.bias != nullptr) {
        value[0] += p.bias[row];
      }
      p.y[row] = p.residual == nullptr ? value[0] : value[0] + p.residual[row];
    }
    __syncthreads();
  }
}

}  // namespace apr
