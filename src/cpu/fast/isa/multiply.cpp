#include "cpu/fast/isa/multiply.h"

#include "cpu/fast/scratch.h"

namespace apr::cpu::fast::APR_CPU_ISA {
namespace {

constexpr int kBlockCols = 1024;
static_assert(kBlockCols % kDecodeTileCols == 0);

// Register tile: kTileRows x tokens accumulators, the tokens' vectors and one of the weights.
constexpr int kTileRows = 4;
constexpr int kVectorRegisters = HWY_ARCH_X86 && kLanes < 16 ? 16 : 32;
constexpr int kTileTokens = kVectorRegisters == 32 ? 6 : HWY_NATIVE_FMA ? 3 : 2;

// Rows decoded at once where every token fits into one tile: more independent sums for few tokens.
template <int kTokens>
constexpr int kStreamRows = 9 * kTokens + 2 <= kVectorRegisters ? 8 : kTileRows;

// Rows decoded at once for many tokens: 64 x 1024 f32 stay in the second-level cache, and the
// activations, which do not, are read once for all of them.
constexpr int kChunkRows = 64;

// Row distance of decoded tiles; not a multiple of 4096 bytes, so that rows spread over cache sets.
constexpr int kStreamStride = kDecodeTileCols + 16;
constexpr int kChunkStride = kBlockCols + 16;

APR_ALWAYS_INLINE int64_t min(int64_t a, int64_t b) {
  return a < b ? a : b;
}

// acc[r][t] += w[r] * x[t] over n_cols columns, lane by lane.
template <int kRows, int kTokens, int kStride>
APR_ALWAYS_INLINE void accumulate(const float* w, const float* const (&x)[kTokens], int64_t n_cols,
                                  Vec (&acc)[kRows][kTokens]) {
  int64_t col = 0;
  for (; col + kLanes <= n_cols; col += kLanes) {
    Vec x_vec[kTokens];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      x_vec[t] = load(x[t] + col);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec w_vec = load(w + r * kStride + col);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        acc[r][t] = hn::MulAdd(w_vec, x_vec[t], acc[r][t]);
      }
    }
  }
  if (col < n_cols) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Vec w_vec = load_first(w + r * kStride + col, n_cols - col);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        acc[r][t] = hn::MulAdd(w_vec, load_first(x[t] + col, n_cols - col), acc[r][t]);
      }
    }
  }
}

template <int kRows, int kTokens>
APR_ALWAYS_INLINE void clear(Vec (&acc)[kRows][kTokens]) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      acc[r][t] = zero();
    }
  }
}

// Adds the lanes of acc and puts (first column block) or adds (later ones) the sums to y.
template <int kRows, int kTokens>
APR_ALWAYS_INLINE void finish(const ProductJob& job, int64_t row, int64_t n_rows, int64_t token,
                              bool is_first, Vec (&acc)[kRows][kTokens]) {
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    float* y = job.y + (token + t) * job.y_stride + row;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; r += 4) {
      Vec4 sums = sum_lanes4(acc[r][t], acc[r + 1][t], acc[r + 2][t], acc[r + 3][t]);
      if (r + 4 <= n_rows) {
        sums = is_first ? sums : hn::Add(hn::LoadU(kQuad, y + r), sums);
        hn::StoreU(sums, kQuad, y + r);
      } else {
        float last[4];
        hn::StoreU(sums, kQuad, last);
        for (int64_t i = 0; r + i < n_rows; ++i) {
          y[r + i] = is_first ? last[i] : y[r + i] + last[i];
        }
      }
    }
  }
}

template <int kTokens>
APR_ALWAYS_INLINE void token_rows(const ProductJob& job, int64_t token, int64_t col,
                                  const float* (&x)[kTokens]) {
  for (int t = 0; t < kTokens; ++t) {
    const int64_t row = job.x_index == nullptr ? token + t : job.x_index[token + t];
    x[t] = job.x + row * job.x_stride + col;
  }
}

// Asks for the part of a group of rows' bytes that belongs to columns [col, col + n_cols): called
// tile by tile for the group that comes next, whose bytes follow, it has that group in the cache in
// time. May point past the matrix; a prefetch never faults.
APR_ALWAYS_INLINE void prefetch_part(const uint8_t* group, int64_t group_bytes, int64_t col,
                                     int64_t n_cols, int64_t all_cols) {
  const int64_t end = (col + n_cols) * group_bytes / all_cols;
  for (int64_t byte = col * group_bytes / all_cols; byte < end; byte += 64) {
    __builtin_prefetch(group + byte, 0, 2);
  }
}

// All tokens in one tile: decodes a small tile and uses it at once.
template <int kTokens>
void stream_rows(const ProductJob& job, int64_t row_begin, int64_t row_end) {
  constexpr int kRows = kStreamRows<kTokens>;
  HWY_ALIGN float tile[kRows * kStreamStride] = {};
  const float* x[kTokens];
  token_rows(job, 0, 0, x);
  for (int64_t row = row_begin; row < row_end; row += kRows) {
    const int64_t n_rows = min(kRows, row_end - row);  // rows behind keep finite old values
    const uint8_t* w = job.w + row * job.row_bytes;
    for (int64_t block = 0; block < job.n_cols; block += kBlockCols) {
      const int64_t block_end = min(block + kBlockCols, job.n_cols);
      Vec acc[kRows][kTokens];
      clear(acc);
      for (int64_t col = block; col < block_end; col += kDecodeTileCols) {
        const int64_t n_cols = min(kDecodeTileCols, block_end - col);
        prefetch_part(w + kRows * job.row_bytes, kRows * job.row_bytes, col, n_cols, job.n_cols);
        job.decode(w + col / job.block_elems * job.block_bytes, job.row_bytes, n_rows,
                   n_cols / job.block_elems, tile, kStreamStride);
        const float* x_tile[kTokens];
        for (int t = 0; t < kTokens; ++t) {
          x_tile[t] = x[t] + col;
        }
        accumulate<kRows, kTokens, kStreamStride>(tile, x_tile, n_cols, acc);
      }
      finish(job, row, n_rows, 0, block == 0, acc);
    }
  }
}

// Tokens [token, token + kTokens) against a decoded chunk of n_rows rows.
template <int kTokens>
void multiply_chunk(const ProductJob& job, const float* chunk, int64_t row, int64_t n_rows,
                    int64_t token, int64_t block, int64_t n_cols) {
  const float* x[kTokens];
  token_rows(job, token, block, x);
  for (int64_t r = 0; r < n_rows; r += kTileRows) {
    Vec acc[kTileRows][kTokens];
    clear(acc);
    accumulate<kTileRows, kTokens, kChunkStride>(chunk + r * kChunkStride, x, n_cols, acc);
    finish(job, row + r, n_rows - r, token, block == 0, acc);
  }
}

// Many tokens: decodes a chunk of rows once and walks the tokens in tiles.
void multiply_chunks(const ProductJob& job, int64_t row_begin, int64_t row_end) {
  auto* chunk = static_cast<float*>(
      scratch(ScratchUse::kTask, kChunkRows * kChunkStride * int64_t{sizeof(float)}));
  for (int64_t row = row_begin; row < row_end; row += kChunkRows) {
    const int64_t n_rows = min(kChunkRows, row_end - row);
    // A last tile of fewer rows multiplies rows that are not there: zeros.
    for (int64_t r = n_rows; r % kTileRows != 0; ++r) {
      std::memset(chunk + r * kChunkStride, 0, kBlockCols * sizeof(float));
    }
    for (int64_t block = 0; block < job.n_cols; block += kBlockCols) {
      const int64_t n_cols = min(kBlockCols, job.n_cols - block);
      job.decode(job.w + row * job.row_bytes + block / job.block_elems * job.block_bytes,
                 job.row_bytes, n_rows, n_cols / job.block_elems, chunk, kChunkStride);
      int64_t token = 0;
      for (; token + kTileTokens <= job.n_tokens; token += kTileTokens) {
        multiply_chunk<kTileTokens>(job, chunk, row, n_rows, token, block, n_cols);
      }
      for (; token < job.n_tokens; ++token) {
        multiply_chunk<1>(job, chunk, row, n_rows, token, block, n_cols);
      }
    }
  }
}

template <int kTokens>
APR_ALWAYS_INLINE void stream_rows_of(const ProductJob& job, int64_t row_begin, int64_t row_end) {
  if (job.n_tokens == kTokens) {
    stream_rows<kTokens>(job, row_begin, row_end);
  } else if constexpr (kTokens > 1) {
    stream_rows_of<kTokens - 1>(job, row_begin, row_end);
  }
}

}  // namespace

void multiply_rows(const ProductJob& job, int64_t row_begin, int64_t row_end) {
  if (job.n_tokens <= kTileTokens) {
    stream_rows_of<kTileTokens>(job, row_begin, row_end);
  } else {
    multiply_chunks(job, row_begin, row_end);
  }
  if (job.bias != nullptr) {
    for (int64_t token = 0; token < job.n_tokens; ++token) {
      float* y = job.y + token * job.y_stride;
      for (int64_t row = row_begin; row < row_end; ++row) {
        y[row] += job.bias[row];
      }
    }
  }
}

int64_t rows_per_task(int64_t n_rows, int64_t n_tokens, int n_threads) {
  const int64_t most = n_tokens <= kTileTokens ? 128 : kChunkRows;
  const int64_t share = n_rows / (4 * n_threads);
  const int64_t rows = (share + 7) / 8 * 8;
  return rows < 8 ? 8 : min(rows, most);
}

}  // namespace apr::cpu::fast::APR_CPU_ISA
