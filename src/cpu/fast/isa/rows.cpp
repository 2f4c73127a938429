// Norms and elementwise ops.
#include "cpu/fast/isa/math.h"
#include "cpu/fast/isa/ops.h"
#include "cpu/fast/isa/parallel.h"

namespace apr::cpu::fast::APR_CPU_ISA {
namespace {

// 1 / sqrt(sum / n_elems + eps), for a sum of squares.
APR_ALWAYS_INLINE float inverse_root(float sum, double n_elems, float eps) {
  const double mean = static_cast<double>(sum) / n_elems;
  return static_cast<float>(1.0 / __builtin_sqrt(mean + static_cast<double>(eps)));
}

// y = f(vectors of a and b) over the elements of two buffers.
template <class Fn>
APR_ALWAYS_INLINE void map_binary(const BinaryArgs& args, ThreadPool& pool, Fn f) {
  parallel_ranges(pool, args.n_elems, 1, [&](int64_t begin, int64_t end) {
    map(end - begin, args.y + begin, f, args.a + begin, args.b + begin);
  });
}

}  // namespace

void rms_norm(const RmsNormArgs& args, ThreadPool& pool) {
  parallel_ranges(pool, args.n_rows, args.dim, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* x = args.x + row * args.dim;
      const Vec scale =
          broadcast(inverse_root(dot(x, x, args.dim), static_cast<double>(args.dim), args.eps));
      const auto apply = [&](Vec value, Vec weight) __attribute__((always_inline)) {
        return hn::Mul(hn::Mul(value, scale), weight);
      };
      map(args.dim, args.y + row * args.dim, apply, x, args.weight);
    }
  });
}

void l2_norm(const L2NormArgs& args, ThreadPool& pool) {
  const int64_t row_elems = args.n_heads * args.head_dim;
  parallel_ranges(pool, args.n_tokens, row_elems, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      for (int64_t head = 0; head < args.n_heads; ++head) {
        const float* x = args.x + token * args.row_stride + head * args.head_dim;
        const Vec scale = broadcast(inverse_root(dot(x, x, args.head_dim), 1.0, args.eps));
        const auto apply = [&](Vec value) __attribute__((always_inline)) {
          return hn::Mul(value, scale);
        };
        map(args.head_dim, args.y + token * row_elems + head * args.head_dim, apply, x);
      }
    }
  });
}

void gated_rms_norm(const GatedRmsNormArgs& args, ThreadPool& pool) {
  parallel_ranges(pool, args.n_rows, 4 * args.dim, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* x = args.x + row * args.dim;
      const Vec scale =
          broadcast(inverse_root(dot(x, x, args.dim), static_cast<double>(args.dim), args.eps));
      const auto apply = [&](Vec value, Vec weight, Vec gate) __attribute__((always_inline)) {
        return hn::Mul(hn::Mul(hn::Mul(value, scale), weight), silu(gate));
      };
      map(args.dim, args.y + row * args.dim, apply, x, args.weight, args.gate + row * args.dim);
    }
  });
}

void sigmoid_gate(const BinaryArgs& args, ThreadPool& pool) {
  map_binary(
      args, pool,
      [](Vec a, Vec b) __attribute__((always_inline)) { return hn::Mul(a, sigmoid(b)); });
}

void add(const BinaryArgs& args, ThreadPool& pool) {
  map_binary(
      args, pool, [](Vec a, Vec b) __attribute__((always_inline)) { return hn::Add(a, b); });
}

void swiglu(const BinaryArgs& args, ThreadPool& pool) {
  map_binary(
      args, pool, [](Vec a, Vec b) __attribute__((always_inline)) { return hn::Mul(silu(a), b); });
}

void row_gate(const RowGateArgs& args, ThreadPool& pool) {
  parallel_ranges(pool, args.n_tokens, args.dim, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const Vec gate = sigmoid(broadcast(args.g[token]));
      const auto apply = [&](Vec value) __attribute__((always_inline)) {
        return hn::Mul(value, gate);
      };
      map(args.dim, args.y + token * args.dim, apply, args.x + token * args.dim);
    }
  });
}

}  // namespace apr::cpu::fast::APR_CPU_ISA
