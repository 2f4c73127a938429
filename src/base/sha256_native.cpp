// SHA-256 with the x86 SHA extensions. Two lanes hold the state as the instructions want it: ABEF
// and CDGH, highest word first.
#include "base/sha256.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

namespace apr {
namespace {

bool has_sha() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kShaBit = 1U << 29, kSsse3Bit = 1U << 9, kSse41Bit = 1U << 19;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (b & kShaBit) == 0) {
    return false;
  }
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kSsse3Bit) != 0 && (c & kSse41Bit) != 0;
}

__attribute__((target("sha,sse4.1,ssse3"))) void blocks_native(Sha256State& state,
                                                               const std::byte* data,
                                                               size_t n_blocks) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  auto* words = reinterpret_cast<__m128i*>(state.data());
  const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
  for (; n_blocks > 0; --n_blocks, data += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];  // the last 16 words of the schedule
#pragma GCC unroll 16
    for (int group = 0; group < 16; ++group) {
      __m128i& now = w[group % 4];
      if (group < 4) {
        now = _mm_shuffle_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(data) + group),
                               big_endian);
      } else {  // `now` holds w[t-16 ..]
        const __m128i& before = w[(group + 3) % 4];
        now = _mm_sha256msg1_epu32(now, w[(group + 1) % 4]);
        now = _mm_add_epi32(now, _mm_alignr_epi8(before, w[(group + 2) % 4], 4));
        now = _mm_sha256msg2_epu32(now, before);
      }
      const __m128i sum = _mm_add_epi32(
          now, _mm_load_si128(reinterpret_cast<const __m128i*>(kSha256Round.data()) + group));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(words, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(words + 1, _mm_alignr_epi8(dchg, feba, 8));
}

}  // namespace

Sha256Blocks sha256_blocks_native() {
  static const bool has = has_sha();
  return has ? blocks_native : nullptr;
}

}  // namespace apr

#else

namespace apr {

Sha256Blocks sha256_blocks_native() {
  return nullptr;
}

}  // namespace apr

#endif
