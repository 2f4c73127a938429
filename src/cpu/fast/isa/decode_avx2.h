// Decoders of the common types for AVX2: codes are made byte by byte, thirty-two at once, then
// widened from memory, converted and scaled eight at a time.
//
// Every value is the reference's: the same operations, and where a product and a difference are
// fused, the product is exact (an f16 times a 6-bit scale, times a code of at most 5 bits).
#pragma once

#include "cpu/fast/isa/decode_f16c.h"

namespace apr::cpu::fast::APR_CPU_ISA {

APR_ALWAYS_INLINE __m128i load128(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}
APR_ALWAYS_INLINE __m256i load256(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

// Eight signed bytes from memory as f32.
APR_ALWAYS_INLINE __m256 load_codes8(const int8_t* from) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
}

// out[j] = d * codes[j] for n_codes (a multiple of 8) codes.
APR_ALWAYS_INLINE void store_scaled(const int8_t* codes, int n_codes, float d, float* out) {
  const __m256 d_vec = _mm256_set1_ps(d);
#pragma GCC unroll 4
  for (int j = 0; j < n_codes; j += 8) {
    _mm256_storeu_ps(out + j, _mm256_mul_ps(d_vec, load_codes8(codes + j)));
  }
}

// out[j] = d * codes[j] - m for 32 codes.
APR_ALWAYS_INLINE void store_scaled32(const int8_t* codes, float d, float m, float* out) {
  const __m256 d_vec = _mm256_set1_ps(d), m_vec = _mm256_set1_ps(m);
#pragma GCC unroll 4
  for (int j = 0; j < 32; j += 8) {
    _mm256_storeu_ps(out + j, _mm256_fmsub_ps(d_vec, load_codes8(codes + j), m_vec));
  }
}

// The 32 nibbles of 16 bytes: the low ones, then the high ones.
APR_ALWAYS_INLINE __m256i unpack_nibbles(const uint8_t* qs) {
  const __m128i packed = load128(qs);
  return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(packed, 4), packed),
                          _mm256_set1_epi8(15));
}

// 0xff in the bytes j for which bit j of the word is clear.
APR_ALWAYS_INLINE __m256i clear_bits(const uint8_t* word) {
  int32_t bits;
  std::memcpy(&bits, word, sizeof bits);
  const __m256i byte_of =
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit_of = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), byte_of);
  return _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit_of), _mm256_setzero_si256());
}

APR_ALWAYS_INLINE void store_codes(__m256i codes, int8_t* to) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(to), codes);
}

template <>
struct BlockDecoder<quant::Q4_0> {
  APR_ALWAYS_INLINE void decode(const uint8_t* blocks, int64_t n_blocks, float* out) {
    alignas(32) int8_t codes[32];
    for_scaled_blocks<quant::Q4_0>(
        blocks, n_blocks,
        out, [&](const uint8_t* block, float d, float* to) __attribute__((always_inline)) {
          store_codes(_mm256_sub_epi8(unpack_nibbles(block + 2), _mm256_set1_epi8(8)), codes);
          store_scaled(codes, 32, d, to);
        });
  }
};

template <>
struct BlockDecoder<quant::Q5_0> {
  APR_ALWAYS_INLINE void decode(const uint8_t* blocks, int64_t n_blocks, float* out) {
    alignas(32) int8_t codes[32];
    for_scaled_blocks<quant::Q5_0>(
        blocks, n_blocks,
        out, [&](const uint8_t* block, float d, float* to) __attribute__((always_inline)) {
          // Without the fifth bit a code is nibble - 16, which sets the four high bits.
          const __m256i sign =
              _mm256_and_si256(clear_bits(block + 2), _mm256_set1_epi8(static_cast<char>(0xf0)));
          store_codes(_mm256_or_si256(unpack_nibbles(block + 6), sign), codes);
          store_scaled(codes, 32, d, to);
        });
  }
};

template <>
struct BlockDecoder<quant::Q8_0> {
  APR_ALWAYS_INLINE void decode(const uint8_t* blocks, int64_t n_blocks, float* out) {
    for_scaled_blocks<quant::Q8_0>(
        blocks, n_blocks, out,
        [](const uint8_t* block, float d, float* to) __attribute__((always_inline)) {
          store_scaled(reinterpret_cast<const int8_t*>(block + 2), 32, d, to);
        });
  }
};

// Eight scales and minima of Q4_K and Q5_K, times d and dmin.
APR_ALWAYS_INLINE void load_sub_scales(const uint8_t* block, float* sub_d, float* sub_min) {
  const __m128i bytes = load_scale_min_k4(block + 4);
  const __m256 scales = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
  const __m256 mins = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)));
  _mm256_store_ps(sub_d, _mm256_mul_ps(_mm256_set1_ps(load_scale1(block)), scales));
  _mm256_store_ps(sub_min, _mm256_mul_ps(_mm256_set1_ps(load_scale1(block + 2)), mins));
  // To be broadcast by loads.
  asm(""
      : "+m"(*reinterpret_cast<float(*)[8]>(sub_d)), "+m"(*reinterpret_cast<float(*)[8]>(sub_min)));
}

APR_ALWAYS_INLINE void decode_q4_k(const uint8_t* block, float* out) {
  alignas(32) float sub_d[8], sub_min[8];
  load_sub_scales(block, sub_d, sub_min);
  alignas(32) int8_t codes[256];
  const __m256i low4 = _mm256_set1_epi8(15);
  for (int pair = 0; pair < 4; ++pair) {
    const __m256i qs = load256(block + 16 + 32 * pair);
    store_codes(_mm256_and_si256(qs, low4), codes + 64 * pair);
    store_codes(_mm256_and_si256(_mm256_srli_epi16(qs, 4), low4), codes + 64 * pair + 32);
  }
  for (int sub = 0; sub < 8; ++sub) {
    store_scaled32(codes + 32 * sub, sub_d[sub], sub_min[sub], out + 32 * sub);
  }
}

APR_ALWAYS_INLINE void decode_q5_k(const uint8_t* block, float* out) {
  alignas(32) float sub_d[8], sub_min[8];
  load_sub_scales(block, sub_d, sub_min);
  alignas(32) int8_t codes[256];
  const __m256i low4 = _mm256_set1_epi8(15), bit4 = _mm256_set1_epi8(16);
  const __m256i qh = load256(block + 16);
  for (int pair = 0; pair < 4; ++pair) {
    const __m256i qs = load256(block + 48 + 32 * pair);
    // Bits 2 pair and 2 pair + 1 to bit 4; what the 16-bit shift brings from a neighbour is masked.
    const __m256i low =
        pair < 2 ? _mm256_slli_epi16(qh, 4 - 2 * pair) : _mm256_srli_epi16(qh, 2 * pair - 4);
    const __m256i high =
        pair < 2 ? _mm256_slli_epi16(qh, 3 - 2 * pair) : _mm256_srli_epi16(qh, 2 * pair - 3);
    store_codes(_mm256_or_si256(_mm256_and_si256(qs, low4), _mm256_and_si256(low, bit4)),
                codes + 64 * pair);
    store_codes(_mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(qs, 4), low4),
                                _mm256_and_si256(high, bit4)),
                codes + 64 * pair + 32);
  }
  for (int sub = 0; sub < 8; ++sub) {
    store_scaled32(codes + 32 * sub, sub_d[sub], sub_min[sub], out + 32 * sub);
  }
}

APR_ALWAYS_INLINE void decode_q6_k(const uint8_t* block, float* out) {
  const __m256 d = _mm256_set1_ps(load_scale1(block + 208));
  alignas(32) float sub_d[16];
  const auto* scales = reinterpret_cast<const int8_t*>(block + 192);
  _mm256_store_ps(sub_d, _mm256_mul_ps(d, load_codes8(scales)));
  _mm256_store_ps(sub_d + 8, _mm256_mul_ps(d, load_codes8(scales + 8)));
  asm("" : "+m"(sub_d));  // to be broadcast by loads
  alignas(32) int8_t codes[256];
  const __m256i low4 = _mm256_set1_epi8(15), bits45 = _mm256_set1_epi8(0x30);
  for (int half = 0; half < 2; ++half) {
    const __m256i ql0 = load256(block + 64 * half), ql1 = load256(block + 64 * half + 32);
    const __m256i qh = load256(block + 128 + 32 * half);
    const auto store_group = [&](int group, __m256i low, __m256i high)
        __attribute__((always_inline)) {
      const __m256i code =
          _mm256_or_si256(_mm256_and_si256(low, low4), _mm256_and_si256(high, bits45));
      store_codes(_mm256_sub_epi8(code, _mm256_set1_epi8(32)), codes + 128 * half + 32 * group);
    };
    store_group(0, ql0, _mm256_slli_epi16(qh, 4));
    store_group(1, ql1, _mm256_slli_epi16(qh, 2));
    store_group(2, _mm256_srli_epi16(ql0, 4), qh);
    store_group(3, _mm256_srli_epi16(ql1, 4), _mm256_srli_epi16(qh, 2));
  }
  for (int sub = 0; sub < 16; ++sub) {
    store_scaled(codes + 16 * sub, 16, sub_d[sub], out + 16 * sub);
  }
}

APR_CPU_BLOCK_DECODER(Q4_K, decode_q4_k)
APR_CPU_BLOCK_DECODER(Q5_K, decode_q5_k)
APR_CPU_BLOCK_DECODER(Q6_K, decode_q6_k)

// Half precision as stored; a signalling NaN becomes quiet.
template <>
struct BlockDecoder<quant::F16> {
  APR_ALWAYS_INLINE void decode(const uint8_t* halves, int64_t n_elems, float* out) {
    int64_t elem = 0;
    for (; elem + 8 <= n_elems; elem += 8) {
      _mm256_storeu_ps(out + elem, _mm256_cvtph_ps(load128(halves + 2 * elem)));
    }
    for (; elem < n_elems; ++elem) {
      out[elem] = load_scale1(halves + 2 * elem);
    }
  }
};

}  // namespace apr::cpu::fast::APR_CPU_ISA
