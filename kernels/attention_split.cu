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
#include "split_combine.cuh"
#include "split_heads.cuh"
#include "split_shape.h"
#include "split_tile.cuh"

namespace apr {

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
    const auto source_of = [&](int unit) {
      return unit < group ? head_of(unit) : (unit == group ? p.in.k : p.in.v) + kv_head * kHeadDim;
    };
    const float* source = source_of(warp);
    grid_dependency_wait();
    float* x = joined + warp * kHeadDim;
    const int64_t new_elem = static_cast<int64_t>(position) * row_elems + kv_head * kHeadDim;
    for (int unit = warp; unit < n_units; unit += kSplitWarps) {
      if (unit > warp) {  // a ninth or tenth unit
        preparation.load_norm(p.in.k_norm);
        source = source_of(unit);
      }
      if (unit < group) {
        preparation.run(source, x);
        load_pairs<kHeadDim>(x, pairs);
        store_query<kHeadDim>(pairs, p.scale, queries.rows[unit], &queries.unscale[unit]);
        continue;
      }
      const bool is_key = unit == group;
      if (is_key) {
        preparation.run(source, x);
      }
      load_pairs<kHeadDim>(is_key ? x : source, pairs);
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
