// Computes  y[t, h] = softmax_p(scale * q[t, h] . K[p, h / group]) V[p, h / group]
//           (* sigmoid(gate[t, h])), keys p up to the token's position
// Reads     q f32, the cache's first position + n_tokens rows (f16), gate f32   Writes  y f32
// How       rows are pairs (token, head of the group), so that a block's rows share their keys and
//           end close to each other; each warp keeps its rows' sums in registers and walks over
//           tiles of keys in shared memory, copied while the tile before is at work, with the
//           softmax of what it has seen (FlashAttention-2, Dao 2023, arXiv:2307.08691)
// Grid      (n_kv_heads, ceil(n_tokens * group / kRows)): the most keys first
// Block     FlashShape::kWarps warps   Shared  dynamic: FlashShape::kSharedBytes
// Assumes   sm_80; kHeadDim 64, 128 or 256; q, gate and y 16-byte aligned, as their strides
// Moves     n_tokens * n_heads * head_dim * 8 bytes, and from L2 the keys and values of each block
// Determinism  gpu_to_gpu   Reference  cpu::reference::attention; q, softmax weights rounded to f16
#include "async_copy.cuh"
#include "attention_params.h"
#include "dynamic_shared.cuh"
#include "flash_shape.h"
#include "grid_dependency.cuh"
#include "mma.cuh"
#include "power_of_two.cuh"
#include "reduce.cuh"
#include "softmax_exp2.cuh"
#include "tile_mma.cuh"
#include "tile_offset.cuh"

namespace apr {

// The greatest or the sum over the four lanes that share a row of a product.
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// What the softmax needs to know of a row.
struct RowFacts {
  float unscale;  // turns its products into exponents of two
  int last_key;   // that it sees
};

// Brings this warp's rows of q to f16, each scaled by a power of two, into `tile`.
template <int kHeadDim, int kWarpRows>
__device__ __forceinline__ void load_queries(const AttentionPrefillParams& p, int first_row,
                                             int n_rows, int group, int kv_head, uint8_t* tile,
                                             int position, RowFacts* facts) {
  constexpr int kRowBytes = 2 * kHeadDim;
  constexpr int kVector = kHeadDim < 128 ? 2 : 4;           // elements of a load
  constexpr int kParts = kHeadDim / (kWarpSize * kVector);  // loads of a lane
  constexpr int kRowsAtOnce = 8;
  const int lane = threadIdx.x % kWarpSize, warp_row = threadIdx.x / kWarpSize * kWarpRows;
#pragma unroll 1
  for (int base = 0; base < kWarpRows; base += kRowsAtOnce) {
    float q[kRowsAtOnce][kParts * kVector];
#pragma unroll
    for (int idx = 0; idx < kRowsAtOnce; ++idx) {
      const int row = first_row + warp_row + base + idx;
      const int token = row / group, head = kv_head * group + row % group;
      const float* from = p.q.q + token * p.q.token_stride + head * p.q.head_stride;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        float* to = &q[idx][part * kVector];
        const int elem = (part * kWarpSize + lane) * kVector;
        if constexpr (kVector == 4) {
          const float4 v = row < n_rows ? *reinterpret_cast<const float4*>(from + elem)
                                        : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
          to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
        } else {
          const float2 v = row < n_rows ? *reinterpret_cast<const float2*>(from + elem)
                                        : make_float2(0.0f, 0.0f);
          to[0] = v.x, to[1] = v.y;
        }
      }
    }
#pragma unroll
    for (int idx = 0; idx < kRowsAtOnce; ++idx) {
      float largest = 0.0f;
#pragma unroll
      for (int elem = 0; elem < kParts * kVector; ++elem) {
        largest = fmaxf(largest, fabsf(q[idx][elem]));
      }
      const PowerOfTwo power = power_to_f16(warp_max(largest));
      const int row = warp_row + base + idx;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const float* from = &q[idx][part * kVector];
        const int elem = (part * kWarpSize + lane) * kVector;
        uint32_t* to = reinterpret_cast<uint32_t*>(tile + tile_offset<kRowBytes>(row, elem / 8) +
                                                   elem % 8 * 2);
#pragma unroll
        for (int pair = 0; pair < kVector / 2; ++pair) {
          to[pair] = pack_f16(from[2 * pair] * power.up, from[2 * pair + 1] * power.up);
        }
      }
      if (lane == 0) {
        facts[row] = {p.scale * kLog2E * power.down,
                      position + min(first_row + row, n_rows - 1) / group};
      }
    }
  }
}

// Copies tile after tile of a kv head's keys and values into shared memory, a block together.
template <int kHeadDim>
class KeyCopy {
 public:
  __device__ __forceinline__ KeyCopy(const KvCacheRef& cache, int n_kv_heads, int kv_head,
                                     int n_keys)
      : row_elems_(n_kv_heads * kHeadDim), n_left_(n_keys - my_row()) {
    const int64_t first =
        static_cast<int64_t>(my_row()) * row_elems_ + kv_head * kHeadDim + my_chunk() * 8;
    k_ = static_cast<const uint16_t*>(cache.k) + first;
    v_ = static_cast<const uint16_t*>(cache.v) + first;
  }

  // Starts copying the next tile into stage `to`; keys that are not there become zeros.
  __device__ __forceinline__ void start_next(uint32_t to) {
    using Shape = FlashShape<kHeadDim>;
    static_assert(kRowsAtOnce % 8 == 0 && Shape::kKeys % kRowsAtOnce == 0, "one swizzle a thread");
    to += tile_offset<Shape::kRowBytes>(my_row(), my_chunk());
#pragma unroll
    for (int base = 0; base < Shape::kKeys; base += kRowsAtOnce) {
      const bool is_there = base < n_left_;
      const int64_t offset = is_there ? static_cast<int64_t>(base) * row_elems_ : 0;
      copy_async_or_zero(to + base * Shape::kRowBytes, k_ + offset, is_there);
      copy_async_or_zero(to + base * Shape::kRowBytes + Shape::kTileBytes, v_ + offset, is_there);
    }
    copy_group_end();
    k_ += static_cast<int64_t>(Shape::kKeys) * row_elems_;
    v_ += static_cast<int64_t>(Shape::kKeys) * row_elems_;
    n_left_ -= Shape::kKeys;
  }

 private:
  static constexpr int kChunks = kHeadDim / 8;
  static constexpr int kRowsAtOnce = FlashShape<kHeadDim>::kWarps * kWarpSize / kChunks;
  __device__ __forceinline__ static int my_row() {
    return threadIdx.x / kChunks;
  }
  __device__ __forceinline__ static int my_chunk() {
    return threadIdx.x % kChunks;
  }

  const uint16_t *k_, *v_;  // this thread's chunk of the next tile's row my_row()
  int row_elems_;           // from one position to the next
  int n_left_;              // positions from there on
};

template <int kHeadDim>
__global__ void __launch_bounds__(FlashShape<kHeadDim>::kWarps * 32, FlashShape<kHeadDim>::kBlocks)
    attention_prefill(const __grid_constant__ AttentionPrefillParams p) {
  using Shape = FlashShape<kHeadDim>;
  constexpr int kRowBytes = Shape::kRowBytes, kKeys = Shape::kKeys, kPartKeys = Shape::kPartKeys;
  constexpr int kRowTiles = Shape::kRowTiles, kWarpRows = 16 * kRowTiles;
  constexpr int kColumns = kHeadDim / 16;  // steps of 16 elements
  APR_DYNAMIC_SHARED(uint8_t, shared);
  uint8_t* q_tile = shared + Shape::kQueryOffset;
  RowFacts* facts = reinterpret_cast<RowFacts*>(shared + Shape::kFactsOffset);
  const uint32_t key_tiles = shared_address(shared);
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int g = lane / 4, t = lane % 4;

  grid_dependency_wait();
  grid_dependency_launch();
  const int group = p.n_heads / p.n_kv_heads, kv_head = blockIdx.x;
  const int position = p.step->position, n_tokens = p.step->n_tokens;
  const int n_rows = n_tokens * group;
  const int first_row = static_cast<int>(gridDim.y - 1 - blockIdx.y) * Shape::kRows;
  if (first_row >= n_rows) {
    return;
  }
  const int n_keys = position + (min(first_row + Shape::kRows, n_rows) - 1) / group + 1;
  const int n_tiles = (n_keys + kKeys - 1) / kKeys;
  KeyCopy<kHeadDim> key_copy(p.cache, p.n_kv_heads, kv_head, n_keys);

  // The rows that this lane names to load_matrices: of q and values, of keys.
  const uint32_t row_major = tile_offset<kRowBytes>(lane % 16, lane / 16);
  const uint32_t col_major = tile_offset<kRowBytes>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  if constexpr (!Shape::kQueriesInRegisters) {
    key_copy.start_next(key_tiles);
  }
  load_queries<kHeadDim, kWarpRows>(p, first_row, n_rows, group, kv_head, q_tile, position, facts);
  __syncwarp();
  const uint32_t q_rows = shared_address(q_tile) + warp * kWarpRows * kRowBytes;
  uint32_t q_kept[Shape::kQueriesInRegisters ? kColumns : 1][kRowTiles][4];
  if constexpr (Shape::kQueriesInRegisters) {  // their tile becomes the keys'
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
#pragma unroll
      for (int tile = 0; tile < kRowTiles; ++tile) {
        load_matrices(q_kept[column][tile],
                      column_address(q_rows + row_major, column) + tile * 16 * kRowBytes);
      }
    }
    __syncthreads();
    key_copy.start_next(key_tiles);
  }

  // Rows g, g + 8 of each tile of 16: the largest product, and the sum of their weights.
  float largest[2 * kRowTiles], total[2 * kRowTiles];
#pragma unroll
  for (int part = 0; part < 2 * kRowTiles; ++part) {
    largest[part] = minus_infinity();
    total[part] = 0.0f;
  }
  const RowFacts* my_facts = facts + warp * kWarpRows + g;
  const int warp_row = first_row + warp * kWarpRows;
  const int seen_by_all = position + warp_row / group + 1;  // keys that every row of the warp sees
  const int warp_keys =
      warp_row < n_rows ? position + min(warp_row + kWarpRows - 1, n_rows - 1) / group + 1 : 0;

  float sums[kRowTiles][2 * kColumns][4] = {};
  for (int key_tile = 0; key_tile < n_tiles; ++key_tile) {
    copy_groups_wait<0>();
    __syncthreads();  // the tile is there, and the one before is no longer read
    const uint32_t k_tile = key_tiles + key_tile % 2 * 2 * Shape::kTileBytes;
    const int tile_key = key_tile * kKeys;
    if (key_tile + 1 < n_tiles) {
      key_copy.start_next(key_tiles + (key_tile + 1) % 2 * 2 * Shape::kTileBytes);
    }
#pragma unroll 1
    for (int first_key = tile_key; first_key < min(tile_key + kKeys, warp_keys);
         first_key += kPartKeys) {
      const uint32_t k_part = k_tile + (first_key - tile_key) * kRowBytes;
      const uint32_t v_part = k_part + Shape::kTileBytes;

      float scores[kRowTiles][kPartKeys / 8][4] = {};
#pragma unroll
      for (int column = 0; column < kColumns; ++column) {
        uint32_t q_loaded[kRowTiles][4];
        if constexpr (!Shape::kQueriesInRegisters) {
#pragma unroll
          for (int tile = 0; tile < kRowTiles; ++tile) {
            load_matrices(q_loaded[tile],
                          column_address(q_rows + row_major, column) + tile * 16 * kRowBytes);
          }
        }
#pragma unroll
        for (int pair = 0; pair < kPartKeys / 16; ++pair) {
          uint32_t b[4];
          load_matrices(b, column_address(k_part + col_major, column) + pair * 16 * kRowBytes);
#pragma unroll
          for (int tile = 0; tile < kRowTiles; ++tile) {
            const auto& a = [&]() -> const uint32_t(&)[4] {
              if constexpr (Shape::kQueriesInRegisters) {
                return q_kept[column][tile];
              } else {
                return q_loaded[tile];
              }
            }();
            mma_16x8x16(scores[tile][2 * pair], a, {b[0], b[1]});
            mma_16x8x16(scores[tile][2 * pair + 1], a, {b[2], b[3]});
          }
        }
      }

      if (first_key + kPartKeys > seen_by_all) {
#pragma unroll
        for (int part = 0; part < 2 * kRowTiles; ++part) {
          const int n_seen = my_facts[part * 8].last_key + 1 - first_key - 2 * t;
#pragma unroll
          for (int idx = 0; idx < kPartKeys / 4; ++idx) {
            if (idx / 2 * 8 + idx % 2 >= n_seen) {
              scores[part / 2][idx / 2][part % 2 * 2 + idx % 2] = minus_infinity();
            }
          }
        }
      }

      float keep[2 * kRowTiles];
      bool grew = false;
#pragma unroll
      for (int part = 0; part < 2 * kRowTiles; ++part) {
        auto& row = scores[part / 2];
        const float unscale = my_facts[part * 8].unscale;
        float tile_largest = minus_infinity();
#pragma unroll
        for (int idx = 0; idx < kPartKeys / 8; ++idx) {
          tile_largest =
              fmaxf(tile_largest, fmaxf(row[idx][part % 2 * 2], row[idx][part % 2 * 2 + 1]));
        }
        tile_largest = quad_max(tile_largest);
        grew = grew || tile_largest > largest[part];
        const float new_largest = fmaxf(largest[part], tile_largest);
        keep[part] = exp2_approx((largest[part] - new_largest) * unscale);
        largest[part] = new_largest;
        const float shift = kWeightShift - new_largest * unscale;
        float weight_sum = 0.0f;
#pragma unroll
        for (int idx = 0; idx < kPartKeys / 8; ++idx) {
#pragma unroll
          for (int elem = part % 2 * 2; elem < part % 2 * 2 + 2; ++elem) {
            row[idx][elem] = exp2_approx(row[idx][elem] * unscale + shift);
            weight_sum += row[idx][elem];
          }
        }
        total[part] = total[part] * keep[part] + weight_sum;
      }
      if (__any_sync(0xffffffffu, grew)) {  // seldom, after the first tiles
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
          for (int idx = 0; idx < 2 * kColumns * 4; ++idx) {
            sums[tile][idx / 4][idx % 4] *= keep[2 * tile + idx % 4 / 2];
          }
        }
      }

#pragma unroll
      for (int step = 0; step < kPartKeys / 16; ++step) {
        uint32_t a[kRowTiles][4];
#pragma unroll
        for (int tile = 0; tile < kRowTiles; ++tile) {
#pragma unroll
          for (int word = 0; word < 4; ++word) {
            const float* from = &scores[tile][2 * step + word / 2][word % 2 * 2];
            a[tile][word] = pack_f16(from[0], from[1]);
          }
        }
#pragma unroll
        for (int column = 0; column < kColumns; ++column) {
          uint32_t b[4];
          load_matrices_transposed(
              b, column_address(v_part + row_major, column) + step * 16 * kRowBytes);
#pragma unroll
          for (int tile = 0; tile < kRowTiles; ++tile) {
            mma_16x8x16(sums[tile][2 * column], a[tile], {b[0], b[1]});
            mma_16x8x16(sums[tile][2 * column + 1], a[tile], {b[2], b[3]});
          }
        }
      }
    }
  }

#pragma unroll
  for (int part = 0; part < 2 * kRowTiles; ++part) {
    const float factor = __fdiv_rn(1.0f, quad_sum(total[part]));
    const int row = warp_row + part * 8 + g;
    if (row >= n_rows) {
      continue;
    }
    const int token = row / group, head = kv_head * group + row % group;
    float* y = p.y + (static_cast<int64_t>(token) * p.n_heads + head) * kHeadDim;
    const float* gate = p.gate.gate + token * p.gate.token_stride + head * p.gate.head_stride;
#pragma unroll
    for (int idx = 0; idx < 2 * kColumns; ++idx) {
      const float* from = &sums[part / 2][idx][part % 2 * 2];
      float2 value = make_float2(from[0] * factor, from[1] * factor);
      if (p.gate.gate != nullptr) {
        const float2 open = *reinterpret_cast<const float2*>(gate + idx * 8 + 2 * t);
        value = make_float2(gated(value.x, open.x), gated(value.y, open.y));
      }
      *reinterpret_cast<float2*>(y + idx * 8 + 2 * t) = value;
    }
  }
}

}  // namespace apr
