// Decoders of the common types for AVX-512: a block's few values become a table in a register, and
// one permutation looks sixteen weights up.
//
// Every value is the reference's: a table entry is computed by the reference's own operations, and
// where a product and a difference are fused, the product is exact (an f16 or an f16 times a 6-bit
// scale, times a code of at most 5 bits, has at most 22 bits).
#pragma once

#include "cpu/fast/isa/decode_f16c.h"

namespace apr::cpu::fast::APR_CPU_ISA {

// Sixteen consecutive codes from `first` on, as f32.
APR_ALWAYS_INLINE __m512 codes_from(int first) {
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_cvtepi32_ps(_mm512_add_epi32(lanes, _mm512_set1_epi32(first)));
}

// An f16 in every lane.
APR_ALWAYS_INLINE __m512 broadcast_f16(const uint8_t* from) {
  return _mm512_cvtph_ps(_mm256_set1_epi16(static_cast<int16_t>(load_half(from))));
}

// Sixteen bytes, one to a 32-bit lane.
APR_ALWAYS_INLINE __m512i load_bytes16(const uint8_t* from) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

APR_ALWAYS_INLINE __m512i high_nibbles(__m512i bytes) {
  return _mm512_srli_epi32(bytes, 4);
}

// table[low nibble of each lane]
APR_ALWAYS_INLINE void store_lookup(__m512i nibbles, __m512 table, float* out) {
  _mm512_storeu_ps(out, _mm512_permutexvar_ps(nibbles, table));
}

// (low, high)[code], the code being the low nibble and, as bit 4, bit 4 of `fifth`.
APR_ALWAYS_INLINE void store_lookup(__m512i nibbles, __m512i fifth, __m512 low, __m512 high,
                                    float* out) {
  // Selects by the mask 15: its bits from nibbles, the rest from fifth; bits above 4 do not count.
  const __m512i codes = _mm512_ternarylogic_epi32(nibbles, fifth, _mm512_set1_epi32(15), 0xe4);
  _mm512_storeu_ps(out, _mm512_permutex2var_ps(low, codes, high));
}

// One block of 32 packed nibbles: weights 0..15 in the low ones.
APR_ALWAYS_INLINE void store_nibbles32(const uint8_t* qs, __m512 table, float* out) {
  const __m512i bytes = load_bytes16(qs);
  store_lookup(bytes, table, out);
  store_lookup(high_nibbles(bytes), table, out + 16);
}

// As store_nibbles32, with fifth bits in a word: bit j for weight j.
APR_ALWAYS_INLINE void store_nibbles32(const uint8_t* qs, const uint8_t* qh, __m512 low,
                                       __m512 high, float* out) {
  int32_t bits;
  std::memcpy(&bits, qh, sizeof bits);
  const __m512i bytes = load_bytes16(qs), all = _mm512_set1_epi32(bits);
  // Rotations that bring bit j (16 + j) to bit 4.
  const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i to_low = _mm512_add_epi32(lanes, _mm512_set1_epi32(28));
  const __m512i to_high = _mm512_add_epi32(lanes, _mm512_set1_epi32(12));
  store_lookup(bytes, _mm512_rorv_epi32(all, to_low), low, high, out);
  store_lookup(high_nibbles(bytes), _mm512_rorv_epi32(all, to_high), low, high, out + 16);
}

// Eight scales, then eight minima of Q4_K and Q5_K, times d and dmin. sub_d: [16], 64-byte aligned.
APR_ALWAYS_INLINE void load_sub_scales(const uint8_t* block, float* sub_d) {
  const __m512 values = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load_scale_min_k4(block + 4)));
  const __m512 factors =
      _mm512_mask_blend_ps(0xff00, broadcast_f16(block), broadcast_f16(block + 2));
  const __m512 products = _mm512_mul_ps(values, factors);
  _mm512_store_ps(sub_d, products);
  asm("" : "+m"(*reinterpret_cast<float(*)[16]>(sub_d)));  // to be broadcast by loads
}

template <>
struct BlockDecoder<quant::Q4_0> {
  APR_ALWAYS_INLINE void decode(const uint8_t* blocks, int64_t n_blocks, float* out) {
    for_scaled_blocks<quant::Q4_0>(
        blocks, n_blocks, out,
        [](const uint8_t* block, float d, float* to) __attribute__((always_inline)) {
          store_nibbles32(block + 2, _mm512_mul_ps(_mm512_set1_ps(d), codes_from(-8)), to);
        });
  }
};

template <>
struct BlockDecoder<quant::Q4_1> {
  APR_ALWAYS_INLINE void decode(const uint8_t* blocks, int64_t n_blocks, float* out) {
    for_scaled_blocks<quant::Q4_1>(
        blocks, n_blocks, out,
        [](const uint8_t* block, float d, float* to) __attribute__((always_inline)) {
          const __m512 m = broadcast_f16(block + 2);
          store_nibbles32(block + 4, _mm512_fmadd_ps(_mm512_set1_ps(d), codes_from(0), m), to);
        });
  }
};

template <>
struct BlockDecoder<quant::Q5_0> {
  APR_ALWAYS_INLINE void decode(const uint8_t* blocks, int64_t n_blocks, float* out) {
    for_scaled_blocks<quant::Q5_0>(
        blocks, n_blocks, out,
        [](const uint8_t* block, float d, float* to) __attribute__((always_inline)) {
          const __m512 d_vec = _mm512_set1_ps(d);
          store_nibbles32(block + 6, block + 2, _mm512_mul_ps(d_vec, codes_from(-16)),
                          _mm512_mul_ps(d_vec, codes_from(0)), to);
        });
  }
};

template <>
struct BlockDecoder<quant::Q5_1> {
  APR_ALWAYS_INLINE void decode(const uint8_t* blocks, int64_t n_blocks, float* out) {
    for_scaled_blocks<quant::Q5_1>(
        blocks, n_blocks, out,
        [](const uint8_t* block, float d, float* to) __attribute__((always_inline)) {
          const __m512 d_vec = _mm512_set1_ps(d), m = broadcast_f16(block + 2);
          store_nibbles32(block + 8, block + 4, _mm512_fmadd_ps(d_vec, codes_from(0), m),
                          _mm512_fmadd_ps(d_vec, codes_from(16), m), to);
        });
  }
};

template <>
struct BlockDecoder<quant::Q8_0> {
  APR_ALWAYS_INLINE void decode(const uint8_t* blocks, int64_t n_blocks, float* out) {
    for_scaled_blocks<quant::Q8_0>(
        blocks, n_blocks, out,
        [](const uint8_t* block, float d, float* to) __attribute__((always_inline)) {
          for (int part = 0; part < 32; part += 16) {
            const __m512i codes = _mm512_cvtepi8_epi32(
                _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 2 + part)));
            _mm512_storeu_ps(to + part,
                             _mm512_mul_ps(_mm512_set1_ps(d), _mm512_cvtepi32_ps(codes)));
          }
        });
  }
};

APR_ALWAYS_INLINE void decode_q4_k(const uint8_t* block, float* out) {
  alignas(64) float sub_d[16];
  load_sub_scales(block, sub_d);
  const float* sub_min = sub_d + 8;
  for (int pair = 0; pair < 4; ++pair) {
    const uint8_t* qs = block + 16 + 32 * pair;
    const __m512 low = _mm512_fmsub_ps(_mm512_set1_ps(sub_d[2 * pair]), codes_from(0),
                                       _mm512_set1_ps(sub_min[2 * pair]));
    const __m512 high = _mm512_fmsub_ps(_mm512_set1_ps(sub_d[2 * pair + 1]), codes_from(0),
                                        _mm512_set1_ps(sub_min[2 * pair + 1]));
    for (int part = 0; part < 32; part += 16) {
      const __m512i bytes = load_bytes16(qs + part);
      store_lookup(bytes, low, out + 64 * pair + part);
      store_lookup(high_nibbles(bytes), high, out + 64 * pair + 32 + part);
    }
  }
}

APR_ALWAYS_INLINE void decode_q5_k(const uint8_t* block, float* out) {
  alignas(64) float sub_d[16];
  load_sub_scales(block, sub_d);
  const float* sub_min = sub_d + 8;
  const __m512i fifths[2] = {load_bytes16(block + 16), load_bytes16(block + 32)};
  for (int sub = 0; sub < 8; ++sub) {
    const uint8_t* qs = block + 48 + 32 * (sub / 2);
    const __m512 d = _mm512_set1_ps(sub_d[sub]), m = _mm512_set1_ps(sub_min[sub]);
    const __m512 low = _mm512_fmsub_ps(d, codes_from(0), m);
    const __m512 high = _mm512_fmsub_ps(d, codes_from(16), m);
    for (int part = 0; part < 2; ++part) {
      const __m512i bytes = load_bytes16(qs + 16 * part);
      // Bit `sub` to bit 4; bits that other sub-blocks own lie above or are masked away.
      const __m512i fifth = sub < 4
                                ? _mm512_slli_epi32(fifths[part], static_cast<unsigned>(4 - sub))
                                : _mm512_srli_epi32(fifths[part], static_cast<unsigned>(sub - 4));
      store_lookup(sub % 2 == 0 ? bytes : high_nibbles(bytes), fifth, low, high,
                   out + 32 * sub + 16 * part);
    }
  }
}

APR_ALWAYS_INLINE void decode_q6_k(const uint8_t* block, float* out) {
  const __m512i scales =
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 192)));
  alignas(64) float sub_d[16];
  _mm512_store_ps(sub_d, _mm512_mul_ps(broadcast_f16(block + 208), _mm512_cvtepi32_ps(scales)));
  asm("" : "+m"(sub_d));  // to be broadcast by loads
  // 64 weights in a register of bytes: groups 0 and 1, then 2 and 3, of each half of the block.
  const __m512i four_two = _mm512_inserti64x4(_mm512_set1_epi16(4), _mm256_set1_epi16(2), 1);
  const __m512i zero_two = _mm512_inserti64x4(_mm512_set1_epi16(0), _mm256_set1_epi16(2), 1);
  const __m512i low4 = _mm512_set1_epi8(15), low6 = _mm512_set1_epi8(63);
  alignas(64) int8_t codes[256];
  for (int part = 0; part < 4; ++part) {
    const uint8_t* qh = block + 128 + 32 * (part / 2);
    __m512i ql = _mm512_loadu_si512(block + 64 * (part / 2));
    __m512i high = _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(qh)));
    if (part % 2 == 0) {
      high = _mm512_sllv_epi16(high, four_two);
    } else {
      ql = _mm512_srli_epi16(ql, 4);
      high = _mm512_srlv_epi16(high, zero_two);
    }
    const __m512i merged = _mm512_ternarylogic_epi32(ql, high, low4, 0xe4);
    _mm512_store_si512(codes + 64 * part,
                       _mm512_sub_epi8(_mm512_and_si512(merged, low6), _mm512_set1_epi8(32)));
  }
  for (int sub = 0; sub < 16; ++sub) {
    const __m512i wide =
        _mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(codes + 16 * sub)));
    _mm512_storeu_ps(out + 16 * sub,
                     _mm512_mul_ps(_mm512_set1_ps(sub_d[sub]), _mm512_cvtepi32_ps(wide)));
  }
}

// Signed levels of one byte each as f32.
APR_ALWAYS_INLINE __m512 load_levels(const int8_t* levels) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(levels))));
}

template <>
struct BlockDecoder<quant::IQ4_NL> {
  APR_ALWAYS_INLINE void decode(const uint8_t* blocks, int64_t n_blocks, float* out) {
    const __m512 levels = load_levels(quant::kIq4Levels);
    for_scaled_blocks<quant::IQ4_NL>(
        blocks, n_blocks,
        out, [&](const uint8_t* block, float d, float* to) __attribute__((always_inline)) {
          store_nibbles32(block + 2, _mm512_mul_ps(_mm512_set1_ps(d), levels), to);
        });
  }
};

APR_ALWAYS_INLINE void decode_iq4_xs(const uint8_t* block, float* out) {
  const __m512 levels = load_levels(quant::kIq4Levels), d = broadcast_f16(block);
  const uint32_t scales_h = static_cast<uint32_t>(load_half(block + 2));
  uint32_t scales_l;
  std::memcpy(&scales_l, block + 4, sizeof scales_l);
  for (int sub = 0; sub < 8; ++sub) {
    const uint32_t scale = ((scales_l >> (4 * sub)) & 15) | (((scales_h >> (2 * sub)) & 3) << 4);
    const __m512 dl =
        _mm512_mul_ps(d, _mm512_set1_ps(static_cast<float>(static_cast<int>(scale) - 32)));
    store_nibbles32(block + 8 + 16 * sub, _mm512_mul_ps(dl, levels), out + 32 * sub);
  }
}

APR_ALWAYS_INLINE void decode_mxfp4(const uint8_t* block, float* out) {
  // 2^(e - 128), subnormal for e = 0 and 1.
  const uint32_t e = block[0];
  const int32_t bits = static_cast<int32_t>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  const __m512 d = _mm512_castsi512_ps(_mm512_set1_epi32(bits));
  store_nibbles32(block + 1, _mm512_mul_ps(d, load_levels(quant::kE2m1DoubledLevels)), out);
}

APR_CPU_BLOCK_DECODER(Q4_K, decode_q4_k)
APR_CPU_BLOCK_DECODER(Q5_K, decode_q5_k)
APR_CPU_BLOCK_DECODER(Q6_K, decode_q6_k)
APR_CPU_BLOCK_DECODER(IQ4_XS, decode_iq4_xs)
APR_CPU_BLOCK_DECODER(MXFP4, decode_mxfp4)

// Half precision as stored; a signalling NaN becomes quiet.
template <>
struct BlockDecoder<quant::F16> {
  APR_ALWAYS_INLINE void decode(const uint8_t* halves, int64_t n_elems, float* out) {
    int64_t elem = 0;
    for (; elem + 16 <= n_elems; elem += 16) {
      _mm512_storeu_ps(
          out + elem,
          _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves + 2 * elem))));
    }
    for (; elem < n_elems; ++elem) {
      out[elem] = load_scale1(halves + 2 * elem);
    }
  }
};

}  // namespace apr::cpu::fast::APR_CPU_ISA
