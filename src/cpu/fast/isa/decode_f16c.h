// Scales of weight blocks, for the x86 instruction sets that have F16C.
//
// Values that are put together byte by byte stay out of memory: a wide load of bytes that narrow
// stores wrote waits until those have left the store queue, with everything that depends on it.
#pragma once

#include <immintrin.h>

#include "apr_quant_files.h"
#include "cpu/fast/isa/decode.h"

namespace apr::cpu::fast::APR_CPU_ISA {

constexpr int kScaleRun = 8;  // blocks whose scales are converted at once

APR_ALWAYS_INLINE uint64_t load_half(const uint8_t* from) {
  uint16_t half;
  std::memcpy(&half, from, sizeof half);
  return half;
}

// Four f16 of four blocks in one word. The empty asm keeps the compiler from doing this with
// vector shuffles, for which the decoders have no port to spare.
APR_ALWAYS_INLINE uint64_t pack_halves(const uint8_t* blocks, int64_t block_bytes) {
  uint64_t low = load_half(blocks) | load_half(blocks + block_bytes) << 16;
  uint64_t high = load_half(blocks + 2 * block_bytes) | load_half(blocks + 3 * block_bytes) << 16;
  asm("" : "+r"(low), "+r"(high));
  return low | high << 32;
}

// The f16 at the start of each of eight blocks, as f32. A signalling NaN becomes quiet, as the
// reference's product makes it.
APR_ALWAYS_INLINE void load_scales8(const uint8_t* blocks, int64_t block_bytes, float* scales) {
  const auto low = static_cast<int64_t>(pack_halves(blocks, block_bytes));
  const auto high = static_cast<int64_t>(pack_halves(blocks + 4 * block_bytes, block_bytes));
  _mm256_store_ps(scales, _mm256_cvtph_ps(_mm_set_epi64x(high, low)));
  // Each scale is then broadcast by a load, not by a shuffle of the register.
  asm("" : "+m"(*reinterpret_cast<float(*)[kScaleRun]>(scales)));
}

APR_ALWAYS_INLINE float load_scale1(const uint8_t* from) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(static_cast<int>(load_half(from)))));
}

// For types of small blocks that start with their scale: calls f(block, scale, out) for each.
template <class T, class Fn>
APR_ALWAYS_INLINE void for_scaled_blocks(const uint8_t* blocks, int64_t n_blocks, float* out,
                                         Fn f) {
  alignas(32) float scales[kScaleRun];
  for (; n_blocks >= kScaleRun; n_blocks -= kScaleRun) {
    load_scales8(blocks, T::kBlockBytes, scales);
    for (int i = 0; i < kScaleRun; ++i) {
      f(blocks, scales[i], out);
      blocks += T::kBlockBytes;
      out += T::kBlockElems;
    }
  }
  for (; n_blocks > 0; --n_blocks) {
    f(blocks, load_scale1(blocks), out);
    blocks += T::kBlockBytes;
    out += T::kBlockElems;
  }
}

// The decoder of a type whose blocks decode_block(block, out) decodes.
#define APR_CPU_BLOCK_DECODER(T, decode_block)                                                     \
  template <>                                                                                      \
  struct BlockDecoder<quant::T> {                                                                  \
    APR_ALWAYS_INLINE void decode(const uint8_t* blocks, int64_t n_blocks, float* out) {           \
      for (int64_t block = 0; block < n_blocks; ++block) {                                         \
        decode_block(blocks + block * quant::T::kBlockBytes, out + block * quant::T::kBlockElems); \
      }                                                                                            \
    }                                                                                              \
  };

// The eight scales (low half) and eight minima of Q4_K and Q5_K, one byte each.
APR_ALWAYS_INLINE __m128i load_scale_min_k4(const uint8_t* packed) {
  uint32_t word0, word1, word2;
  std::memcpy(&word0, packed, 4);
  std::memcpy(&word1, packed + 4, 4);
  std::memcpy(&word2, packed + 8, 4);
  const uint64_t scales_high = (word2 & 0x0f0f0f0fu) | ((word0 >> 2) & 0x30303030u);
  const uint64_t mins_high = ((word2 >> 4) & 0x0f0f0f0fu) | ((word1 >> 2) & 0x30303030u);
  const uint64_t scales = (word0 & 0x3f3f3f3fu) | scales_high << 32;
  const uint64_t mins = (word1 & 0x3f3f3f3fu) | mins_high << 32;
  return _mm_set_epi64x(static_cast<int64_t>(mins), static_cast<int64_t>(scales));
}

}  // namespace apr::cpu::fast::APR_CPU_ISA
