// Tiles of keys in a warp's registers, and what attention_split keeps of those it has seen.
#pragma once

#include "mma.cuh"
#include "past_l1.cuh"
#include "softmax_exp2.cuh"
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

}  // namespace apr
