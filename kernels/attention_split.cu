// Computes  y[t, h] = softmax_p(scale * q[t, h] . K[p, h / group]) V[p, h / group]
//           (* sigmoid(gate[t, h])), keys p up to the token's position; kFused: q and k normed and
//           rotated first, k and v appended, of one token
// Reads     q (kFused: k, v, norms, inv_freq) f32, the cache (f16)   Writes  y; kFused: its new row
// How       a warp takes 16 keys at a time: scores and weighted values are products with keys or
//           dimensions as rows and the group's heads as columns, so that lanes load 16 bytes of
//           keys and values straight into fragments, the next tile's while this one is at work.
//           kFused loads the first tile before the dependency wait: rows of earlier steps.
// Grid      (n_kv_heads, n_splits, n_tokens): fixed; the splits share the tiles there are, the last
//           block of a kv head to end combines them, in their order
// Block     kSplitWarps warps   Shared  dynamic: split_shared_bytes(); static: q, the new row
// Assumes   sm_80; kHeadDim 64, 128 or 256; group <= 8; what is read is 16-byte aligned. kFused:
//           no kernel that may still run when this one starts writes *step or the cache.
// Moves     2 * (position + n_tokens) * n_kv_heads * head_dim * 2 bytes a token
// Determinism  gpu_to_gpu, for one number of splits
// Reference cpu::reference::rms_norm, rope, kv_append, attention; q, weights rounded to f16
#include "attention_params.h"
#include "dynamic_shared.cuh"
#include "grid_dependency.cuh"
#include "mma.cuh"
#include "norm_rope.cuh"
#include "past_l1.cuh"
#include "power_of_two.cuh"
#include "reduce.cuh"
#include "softmax_exp2.cuh"
#include "split_shape.h"
#include "tile_mma.cuh"

namespace apr {

// A tile of 16 keys in a warp's registers. Lane l, g = l / 4, t = l % 4: of keys g and g + 8 the
// elements [32 c + 8 t, + 8); of the values of keys 2t, 2t + 1, 2t + 8, 2t + 9 the elements
// [64 c + 8 g, + 8).
template <int kHeadDim>
struct KeyTile {
  static constexpr int kKeyColumns = kHeadDim / 32, kValueColumns = kHeadDim / 64;
  uint4 k[2][kKeyColumns];
  uint4 v[4][kValueColumns];

  __device__ __forceinline__ static int value_key(int idx) {
    return threadIdx.x % 4 * 2 + idx % 2 + idx / 2 * 8;
  }

  // `row`: of the tile's first key; keys from n_there on become zeros.
  __device__ __forceinline__ void load_keys(const uint16_t* row, int row_elems, int n_there) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const uint16_t* from = row + static_cast<int64_t>(g) * row_elems + 8 * t;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int column = 0; column < kKeyColumns; ++column) {
        k[half][column] =
            load_or_zero(from + 8 * half * row_elems + 32 * column, g + 8 * half < n_there);
      }
    }
  }

  __device__ __forceinline__ void load_values(const uint16_t* row, int row_elems, int n_there) {
    const int g = threadIdx.x % 32 / 4;
#pragma unroll
    for (int idx = 0; idx < 4; ++idx) {
      const int key = value_key(idx);
#pragma unroll
      for (int column = 0; column < kValueColumns; ++column) {
        v[idx][column] = load_or_zero(
            row + static_cast<int64_t>(key) * row_elems + 64 * column + 8 * g, key < n_there);
      }
    }
  }

  // Takes key `key` of the tile and its values from rows in shared memory.
  __device__ __forceinline__ void replace_key(int key, const uint16_t* row) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int column = 0; column < kKeyColumns; ++column) {
        const uint4 found = *reinterpret_cast<const uint4*>(row + 32 * column + 8 * t);
        k[half][column] = g + 8 * half == key ? found : k[half][column];
      }
    }
  }
  __device__ __forceinline__ void replace_value(int key, const uint16_t* row) {
    const int g = threadIdx.x % 32 / 4;
#pragma unroll
    for (int idx = 0; idx < 4; ++idx) {
#pragma unroll
      for (int column = 0; column < kValueColumns; ++column) {
        const uint4 found = *reinterpret_cast<const uint4*>(row + 64 * column + 8 * g);
        v[idx][column] = value_key(idx) == key ? found : v[idx][column];
      }
    }
  }
};

__device__ __forceinline__ uint32_t low_halves(uint32_t a, uint32_t b) {
  return __byte_perm(a, b, 0x5410);
}
__device__ __forceinline__ uint32_t high_halves(uint32_t a, uint32_t b) {
  return __byte_perm(a, b, 0x7632);
}

// The greatest or the sum over the eight lanes that hold a column of a product.
__device__ __forceinline__ float column_max(float x) {
#pragma unroll
  for (int distance = 4; distance < 32; distance *= 2) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, distance));
  }
  return x;
}
__device__ __forceinline__ float column_sum(float x) {
#pragma unroll
  for (int distance = 4; distance < 32; distance *= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, distance);
  }
  return x;
}

// What a warp has seen of its keys; lane (g, t) holds heads 2t and 2t + 1.
template <int kHeadDim>
struct SplitState {
  float largest[2], total[2];         // the largest product; the sum of this lane's weights
  float sums[kHeadDim / 16][4] = {};  // [4 c + i]: elements 64 c + 8 g + 2 i, + 1 (of two heads)

  __device__ __forceinline__ SplitState() {
    largest[0] = largest[1] = minus_infinity();
    total[0] = total[1] = 0.0f;
  }

  // Turns the products of 16 keys with q into weights: fragment b of weight products.
  __device__ __forceinline__ void weigh(const float (&products)[4], const float (&unscale)[2],
                                        uint32_t (&b)[2]) {
    float weights[4], keep[2];
    bool grew = false;
#pragma unroll
    for (int head = 0; head < 2; ++head) {
      const float tile_largest = column_max(fmaxf(products[head], products[2 + head]));
      grew = grew || tile_largest > largest[head];
      const float new_largest = fmaxf(largest[head], tile_largest);
      keep[head] = exp2_approx((largest[head] - new_largest) * unscale[head]);
      largest[head] = new_largest;
      const float shift = kWeightShift - new_largest * unscale[head];
      weights[head] = exp2_approx(products[head] * unscale[head] + shift);
      weights[2 + head] = exp2_approx(products[2 + head] * unscale[head] + shift);
      total[head] = total[head] * keep[head] + (weights[head] + weights[2 + head]);
    }
    b[0] = transpose_matrix(pack_f16(weights[0], weights[1]));
    b[1] = transpose_matrix(pack_f16(weights[2], weights[3]));
    if (__any_sync(0xffffffffu, grew)) {  // seldom, after the first tiles
#pragma unroll
      for (int idx = 0; idx < kHeadDim / 16; ++idx) {
#pragma unroll
        for (int elem = 0; elem < 4; ++elem) {
          sums[idx][elem] *= keep[elem % 2];
        }
      }
    }
  }

  __device__ __forceinline__ void add_values(const KeyTile<kHeadDim>& tile,
                                             const uint32_t (&b)[2]) {
#pragma unroll
    for (int column = 0; column < KeyTile<kHeadDim>::kValueColumns; ++column) {
      uint32_t words[4][4];
#pragma unroll
      for (int key = 0; key < 4; ++key) {
        const uint4 from = tile.v[key][column];
        words[key][0] = from.x, words[key][1] = from.y;
        words[key][2] = from.z, words[key][3] = from.w;
      }
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        const uint32_t a[4] = {low_halves(words[0][word], words[1][word]),
                               high_halves(words[0][word], words[1][word]),
                               low_halves(words[2][word], words[3][word]),
                               high_halves(words[2][word], words[3][word])};
        mma_16x8x16(sums[4 * column + word], a, b);
      }
    }
  }
};

// Query heads of the group in shared memory, as the columns of products.
template <int kHeadDim>
struct QueryHeads {
  static constexpr int kRowElems = kHeadDim + 32;  // lanes of two heads meet other banks
  uint16_t rows[8][kRowElems];                     // f16, each head scaled by a power of two
  float unscale[8];                                // turns its products into exponents of two

  // Elements [32 column + 8 t, + 8) of head g.
  __device__ __forceinline__ uint4 fragment(int column) const {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    return *reinterpret_cast<const uint4*>(&rows[g][32 * column + 8 * t]);
  }
};

// Norms and rotates heads, a warp each: what can be had before they are there is.
template <int kHeadDim>
class HeadPreparation {
 public:
  // `head`: below group a query head, then the key head.
  __device__ __forceinline__ HeadPreparation(const QkRopeAppendParams& p, int position)
      : p_(p), n_pairs_(p.n_rot / 2) {
    const int lane = threadIdx.x % kWarpSize;
#pragma unroll
    for (int idx = 0; idx < kPairs; ++idx) {
      const int pair = lane + idx * kWarpSize;
      if (pair < n_pairs_) {
        turn(p.inv_freq[pair], position, p.magnitude, sine_[idx], cosine_[idx]);
      }
    }
  }

  __device__ __forceinline__ void load_norm(const float* norm) {
    has_norm_ = norm != nullptr;
#pragma unroll
    for (int idx = 0; idx < kElems; ++idx) {
      weight_[idx] = has_norm_ ? norm[threadIdx.x % kWarpSize + idx * kWarpSize] : 1.0f;
    }
  }

  // Brings the head at `from` to `x` [kHeadDim] in shared memory, this warp's own.
  __device__ __forceinline__ void run(const float* from, float* x) const {
    const int lane = threadIdx.x % kWarpSize;
    float mine[kElems];
    float sum = 0.0f;
#pragma unroll
    for (int idx = 0; idx < kElems; ++idx) {
      mine[idx] = from[lane + idx * kWarpSize];
    }
#pragma unroll
    for (int idx = 0; idx < kElems; ++idx) {
      sum += mine[idx] * mine[idx];
    }
    const float scale = has_norm_ ? inverse_rms(sum, kHeadDim, p_.eps) : 1.0f;
#pragma unroll
    for (int idx = 0; idx < kElems; ++idx) {
      x[lane + idx * kWarpSize] = mine[idx] * scale * weight_[idx];
    }
    __syncwarp();
#pragma unroll
    for (int idx = 0; idx < kPairs; ++idx) {
      const int pair = lane + idx * kWarpSize;
      if (pair < n_pairs_) {
        rotate(x[pair], x[pair + n_pairs_], sine_[idx], cosine_[idx]);
      }
    }
    __syncwarp();
  }

 private:
  static constexpr int kElems = kHeadDim / kWarpSize, kPairs = (kElems + 1) / 2;
  const QkRopeAppendParams& p_;
  int n_pairs_;
  bool has_norm_ = false;
  float sine_[kPairs], cosine_[kPairs], weight_[kElems];
};

// A head of f32 as f16 in `to`, scaled by a power of two that `unscale` undoes.
template <int kHeadDim>
__device__ __forceinline__ void store_query(const float2 (&pairs)[kHeadDim / 64], float scale,
                                            uint16_t* to, float* unscale) {
  const int lane = threadIdx.x % kWarpSize;
  float largest = 0.0f;
#pragma unroll
  for (int idx = 0; idx < kHeadDim / 64; ++idx) {
    largest = fmaxf(largest, fmaxf(fabsf(pairs[idx].x), fabsf(pairs[idx].y)));
  }
  const PowerOfTwo power = power_to_f16(warp_max(largest));
#pragma unroll
  for (int idx = 0; idx < kHeadDim / 64; ++idx) {
    reinterpret_cast<uint32_t*>(to)[lane + idx * kWarpSize] =
        pack_f16(pairs[idx].x * power.up, pairs[idx].y * power.up);
  }
  if (lane == 0) {
    *unscale = scale * kLog2E * power.down;
  }
}

template <int kHeadDim>
__device__ __forceinline__ void load_pairs(const float* from, float2 (&pairs)[kHeadDim / 64]) {
#pragma unroll
  for (int idx = 0; idx < kHeadDim / 64; ++idx) {
    pairs[idx] = reinterpret_cast<const float2*>(from)[threadIdx.x % kWarpSize + idx * kWarpSize];
  }
}

// Rows of the cache that this step adds, in shared memory: keys, values.
template <int kHeadDim>
struct NewRow {
  uint16_t k[kHeadDim], v[kHeadDim];
};

// Writes elements [elem, + 4) of a head's result.
template <int kHeadDim>
__device__ __forceinline__ void store_result(const AttentionSplitParams& p, int64_t token, int head,
                                             int elem, float4 sum, float total) {
  const float factor = __fdiv_rn(1.0f, total);
  float4 value = make_float4(sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor);
  if (p.gate.gate != nullptr) {
    const float4 gate = *reinterpret_cast<const float4*>(p.gate.gate + token * p.gate.token_stride +
                                                         head * p.gate.head_stride + elem);
    value = make_float4(gated(value.x, gate.x), gated(value.y, gate.y), gated(value.z, gate.z),
                        gated(value.w, gate.w));
  }
  *reinterpret_cast<float4*>(p.y + (token * p.in.n_heads + head) * kHeadDim + elem) = value;
}

__device__ __forceinline__ void add_scaled(float4& sum, float factor, const float4& value) {
  sum.x += factor * value.x;
  sum.y += factor * value.y;
  sum.z += factor * value.z;
  sum.w += factor * value.w;
}

// Combines the splits of one kv head: a block, after all splits have been written.
template <int kHeadDim>
__device__ __forceinline__ void combine_splits(const AttentionSplitParams& p, int64_t token,
                                               int kv_head, int group, int n_used,
                                               const float4* partial, const float2* stats,
                                               float* scratch, float* totals) {
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  float* factors = scratch;  // [n_used, group]
  float4* slice_sums = reinterpret_cast<float4*>(scratch + (gridDim.y * group + 3) / 4 * 4);
  if (warp < group) {
    float top = minus_infinity(), total = 0.0f;
    for (int split = lane; split < n_used; split += kWarpSize) {
      top = fmaxf(top, __ldcg(&stats[split * group + warp].x));
    }
    top = warp_max(top);
    for (int split = lane; split < n_used; split += kWarpSize) {
      const float2 stat = __ldcg(&stats[split * group + warp]);
      const float factor = exp2_approx(stat.x - top);
      factors[split * group + warp] = factor;
      total += factor * stat.y;
    }
    total = warp_sum(total);
    if (lane == 0) {
      totals[warp] = total;
    }
  }
  __syncthreads();
  // Each thread has four elements of a slice of the splits.
  const int n_quartets = group * (kHeadDim / 4);
  const int n_slices = max(1, kSplitThreads / n_quartets);
  for (int item = threadIdx.x; item < n_slices * n_quartets; item += kSplitThreads) {
    const int slice = item / n_quartets, quartet = item % n_quartets;
    const int head = quartet / (kHeadDim / 4);
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
    for (int split = slice; split < n_used; split += n_slices) {
      add_scaled(sum, factors[split * group + head],
                 load_shared_by_blocks(partial + split * n_quartets + quartet));
    }
    if (n_slices == 1) {
      store_result<kHeadDim>(p, token, kv_head * group + head, quartet % (kHeadDim / 4) * 4, sum,
                             totals[head]);
    } else {
      slice_sums[item] = sum;
    }
  }
  if (n_slices == 1) {
    return;
  }
  __syncthreads();
  if (threadIdx.x < n_quartets) {
    const int quartet = threadIdx.x, head = quartet / (kHeadDim / 4);
    float4 sum = slice_sums[quartet];
    for (int slice = 1; slice < n_slices; ++slice) {
      add_scaled(sum, 1.0f, slice_sums[slice * n_quartets + quartet]);
    }
    store_result<kHeadDim>(p, token, kv_head * group + head, quartet % (kHeadDim / 4) * 4, sum,
                           totals[head]);
  }
}

template <int kHeadDim, bool kFused>
__global__ void __launch_bounds__(kSplitThreads, kHeadDim > 64 ? 1 : 2)
    attention_split(const __grid_constant__ AttentionSplitParams p) {
  APR_DYNAMIC_SHARED(float, joined);  // [kSplitWarps, group, kHeadDim]
  __shared__ __align__(16) QueryHeads<kHeadDim> queries;
  __shared__ __align__(16) NewRow<kHeadDim> new_row;
  __shared__ float2 warp_stats[kSplitWarps][8];
  __shared__ float totals[8];
  __shared__ bool is_last;
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int g = lane / 4, t = lane % 4;
  const int kv_head = blockIdx.x, split = blockIdx.y;
  const int64_t token = blockIdx.z;
  const int group = p.in.n_heads / p.in.n_kv_heads;
  const int row_elems = p.in.n_kv_heads * kHeadDim;

  grid_dependency_launch();
  if constexpr (!kFused) {
    grid_dependency_wait();
  }
  const int position = p.in.step->position + static_cast<int>(token);
  const int n_tiles = position / kSplitTileKeys + 1;
  const int n_split_tiles = n_tiles <= kAloneTiles
                                ? n_tiles
                                : max(kLeastTiles, (n_tiles + static_cast<int>(gridDim.y) - 1) /
                                                       static_cast<int>(gridDim.y));
  const int n_used = (n_tiles + n_split_tiles - 1) / n_split_tiles;
  if (split >= n_used) {
    grid_dependency_wait();
    return;
  }
  const int end_tile = min(n_tiles, (split + 1) * n_split_tiles);
  const bool has_new = kFused && split == n_used - 1;
  // Keys from here on are not loaded: another split's, or not in the cache yet.
  const int end_key = min(end_tile * kSplitTileKeys, kFused ? position : position + 1);

  int key = (split * n_split_tiles + warp) * kSplitTileKeys;  // the first of the warp's tile
  const int64_t first_elem = static_cast<int64_t>(key) * row_elems + kv_head * kHeadDim;
  const uint16_t* k_row = static_cast<const uint16_t*>(p.in.cache.k) + first_elem;
  const uint16_t* v_row = static_cast<const uint16_t*>(p.in.cache.v) + first_elem;
  KeyTile<kHeadDim> tile;
  tile.load_keys(k_row, row_elems, end_key - key);
  tile.load_values(v_row, row_elems, end_key - key);

  for (int idx = threadIdx.x; idx < 8 * QueryHeads<kHeadDim>::kRowElems / 2; idx += kSplitThreads) {
    reinterpret_cast<uint32_t*>(queries.rows)[idx] = 0;  // heads that are not in the group
  }
  if (threadIdx.x < 8) {
    queries.unscale[threadIdx.x] = 1.0f;
  }
  __syncthreads();
  const int n_units = group + (has_new ? 2 : 0);  // query heads, the new key, the new values
  const auto head_of = [&](int head) {
    return p.in.q.q + token * p.in.q.token_stride +
           (kv_head * group + head) * static_cast<int64_t>(p.in.q.head_stride);
  };
  float2 pairs[kHeadDim / 64];
  if constexpr (kFused) {
    HeadPreparation<kHeadDim> preparation(p.in, position);
    preparation.load_norm(warp < group ? p.in.q_norm : p.in.k_norm);
    grid_dependency_wait();
    float* x = joined + warp * kHeadDim;
    const int64_t new_elem = static_cast<int64_t>(position) * row_elems + kv_head * kHeadDim;
    for (int unit = warp; unit < n_units; unit += kSplitWarps) {
      if (unit > warp) {  // a ninth or tenth unit
        preparation.load_norm(p.in.k_norm);
      }
      if (unit < group) {
        preparation.run(head_of(unit), x);
        load_pairs<kHeadDim>(x, pairs);
        store_query<kHeadDim>(pairs, p.scale, queries.rows[unit], &queries.unscale[unit]);
        continue;
      }
      const bool is_key = unit == group;
      if (is_key) {
        preparation.run(p.in.k + kv_head * kHeadDim, x);
      }
      load_pairs<kHeadDim>(is_key ? x : p.in.v + kv_head * kHeadDim, pairs);
      auto* to = reinterpret_cast<uint32_t*>(is_key ? new_row.k : new_row.v);
      auto* cache = reinterpret_cast<uint32_t*>(
          static_cast<uint16_t*>(is_key ? p.in.cache.k : p.in.cache.v) + new_elem);
#pragma unroll
      for (int idx = 0; idx < kHeadDim / 64; ++idx) {
        const uint32_t pair = pack_f16(pairs[idx].x, pairs[idx].y);
        to[lane + idx * kWarpSize] = pair;
        cache[lane + idx * kWarpSize] = pair;
      }
      __syncwarp();  // x is free again
    }
  } else if (warp < group) {
    load_pairs<kHeadDim>(head_of(warp), pairs);
    store_query<kHeadDim>(pairs, p.scale, queries.rows[warp], &queries.unscale[warp]);
  }
  __syncthreads();

  // In registers where they leave room for the tile.
  constexpr bool kKeepQueries = kHeadDim <= 128;
  uint4 kept[kKeepQueries ? kHeadDim / 32 : 1];
  if constexpr (kKeepQueries) {
#pragma unroll
    for (int column = 0; column < kHeadDim / 32; ++column) {
      kept[column] = queries.fragment(column);
    }
  }
  const float unscale[2] = {queries.unscale[2 * t], queries.unscale[2 * t + 1]};
  SplitState<kHeadDim> state;
  constexpr int kStepKeys = kSplitWarps * kSplitTileKeys;
  for (; key < end_tile * kSplitTileKeys; key += kStepKeys) {
    const bool is_newest = has_new && key + kSplitTileKeys > position;
    if (is_newest) {
      tile.replace_key(position - key, new_row.k);
    }
    float even[4] = {}, odd[4] = {};
#pragma unroll
    for (int column = 0; column < kHeadDim / 32; ++column) {
      uint4 q;
      if constexpr (kKeepQueries) {
        q = kept[column];
      } else {
        q = queries.fragment(column);
      }
      const uint4 top = tile.k[0][column], bottom = tile.k[1][column];
      mma_16x8x16(even, {top.x, bottom.x, top.y, bottom.y}, {q.x, q.y});
      mma_16x8x16(odd, {top.z, bottom.z, top.w, bottom.w}, {q.z, q.w});
    }
    k_row += static_cast<int64_t>(kStepKeys) * row_elems;
    tile.load_keys(k_row, row_elems, end_key - (key + kStepKeys));
#pragma unroll
    for (int elem = 0; elem < 4; ++elem) {
      const bool is_seen = key + g + elem / 2 * 8 <= position;
      even[elem] = is_seen ? even[elem] + odd[elem] : minus_infinity();
    }
    uint32_t weights[2];
    state.weigh(even, unscale, weights);
    if (is_newest) {
      tile.replace_value(position - key, new_row.v);
    }
    state.add_values(tile, weights);
    v_row += static_cast<int64_t>(kStepKeys) * row_elems;
    tile.load_values(v_row, row_elems, end_key - (key + kStepKeys));
  }

  // Joins the warps.
#pragma unroll
  for (int head = 0; head < 2; ++head) {
    const int of = 2 * t + head;
    const float total = column_sum(state.total[head]);
    if (of < group) {
      float* row = joined + (warp * group + of) * kHeadDim + 8 * g;
#pragma unroll
      for (int idx = 0; idx < kHeadDim / 16; ++idx) {
        *reinterpret_cast<float2*>(row + idx / 4 * 64 + idx % 4 * 2) =
            make_float2(state.sums[idx][head], state.sums[idx][2 + head]);
      }
      if (g == 0) {
        warp_stats[warp][of] = make_float2(state.largest[head] * unscale[head], total);
      }
    }
  }
  __syncthreads();
  const int64_t unit = token * p.in.n_kv_heads + kv_head;
  const int n_quartets = group * (kHeadDim / 4);
  float4* partial = reinterpret_cast<float4*>(p.partial) + unit * gridDim.y * n_quartets;
  float2* stats = reinterpret_cast<float2*>(p.stats) + unit * gridDim.y * group;
  for (int quartet = threadIdx.x; quartet < n_quartets; quartet += kSplitThreads) {
    const int head = quartet / (kHeadDim / 4);
    float top = minus_infinity(), total = 0.0f;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int from = 0; from < kSplitWarps; ++from) {
      top = fmaxf(top, warp_stats[from][head].x);
    }
#pragma unroll
    for (int from = 0; from < kSplitWarps; ++from) {
      const float factor = exp2_approx(warp_stats[from][head].x - top);
      total += factor * warp_stats[from][head].y;
      add_scaled(sum, factor, reinterpret_cast<const float4*>(joined)[from * n_quartets + quartet]);
    }
    if (n_used == 1) {
      store_result<kHeadDim>(p, token, kv_head * group + head, quartet % (kHeadDim / 4) * 4, sum,
                             total);
    } else {
      partial[split * n_quartets + quartet] = sum;
      if (quartet % (kHeadDim / 4) == 0) {
        stats[split * group + head] = make_float2(top, total);
      }
    }
  }
  if (n_used == 1) {
    return;
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(p.counters + unit, 1u) == static_cast<uint32_t>(n_used) - 1;
  }
  __syncthreads();
  if (!is_last) {
    return;
  }
  __threadfence();
  combine_splits<kHeadDim>(p, token, kv_head, group, n_used, partial, stats, joined, totals);
  if (threadIdx.x == 0) {
    p.counters[unit] = 0;
  }
}

}  // namespace apr
