// Ops that move rows or do little per element: no instruction set matters to them.
#include <cmath>
#include <cstring>

#include "cpu/fast/ops.h"
#include "cpu/fast/scratch.h"

namespace apr::cpu::fast {
namespace {

constexpr int64_t kRowsPerTask = 16;

// Calls f(row) for every row, in tasks of kRowsPerTask rows.
template <class Fn>
void for_rows(ThreadPool& pool, int64_t n_rows, const Fn& f) {
  pool.run((n_rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task_idx) {
    const int64_t end = std::min(n_rows, (task_idx + 1) * kRowsPerTask);
    for (int64_t row = task_idx * kRowsPerTask; row < end; ++row) {
      f(row);
    }
  });
}

size_t f32_bytes(int64_t n_elems) {
  return static_cast<size_t>(n_elems) * sizeof(float);
}

float sigmoid(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}

}  // namespace

void split_heads(const SplitHeadsArgs& args, ThreadPool& pool) {
  const int64_t dim = args.head_dim;
  for_rows(pool, args.n_tokens, [&](int64_t token) {
    for (int64_t head = token * args.n_heads; head < (token + 1) * args.n_heads; ++head) {
      std::memcpy(args.q + head * dim, args.x + head * 2 * dim, f32_bytes(dim));
      std::memcpy(args.gate + head * dim, args.x + (head * 2 + 1) * dim, f32_bytes(dim));
    }
  });
}

void rope(const RopeArgs& args, ThreadPool& pool) {
  const int64_t n_pairs = args.n_rot / 2;
  for_rows(pool, args.n_tokens, [&](int64_t token) {
    auto* cos = static_cast<float*>(
        scratch(ScratchUse::kTask, args.n_rot * static_cast<int64_t>(sizeof(float))));
    float* sin = cos + n_pairs;
    const float position = static_cast<float>(args.first_position + token);
    for (int64_t pair = 0; pair < n_pairs; ++pair) {
      const double angle = static_cast<double>(position * args.inv_freq[pair]);
      cos[pair] = static_cast<float>(std::cos(angle)) * args.magnitude;
      sin[pair] = static_cast<float>(std::sin(angle)) * args.magnitude;
    }
    for (int64_t head = token * args.n_heads; head < (token + 1) * args.n_heads; ++head) {
      const float* x = args.x + head * args.head_dim;
      float* y = args.y + head * args.head_dim;
      for (int64_t pair = 0; pair < n_pairs; ++pair) {
        const float a = x[pair], b = x[pair + n_pairs];
        y[pair] = a * cos[pair] - b * sin[pair];
        y[pair + n_pairs] = a * sin[pair] + b * cos[pair];
      }
      std::memmove(y + args.n_rot, x + args.n_rot, f32_bytes(args.head_dim - args.n_rot));
    }
  });
}

void kv_append(const KvAppendArgs& args, ThreadPool& pool) {
  for_rows(pool, args.n_tokens, [&](int64_t token) {
    const int64_t from = token * args.kv_dim, to = (args.first_position + token) * args.kv_dim;
    std::memcpy(args.k_cache + to, args.k + from, f32_bytes(args.kv_dim));
    std::memcpy(args.v_cache + to, args.v + from, f32_bytes(args.kv_dim));
  });
}

void delta_gates(const DeltaGatesArgs& args, ThreadPool& pool) {
  for_rows(pool, args.n_tokens, [&](int64_t token) {
    for (int64_t head = 0; head < args.n_heads; ++head) {
      const int64_t elem = token * args.n_heads + head;
      const float x = args.alpha[elem] + args.dt_bias[head];
      const float softplus = x > 20.0F ? x : std::log1p(std::exp(x));
      args.decay[elem] = softplus * args.ssm_a[head];
      args.beta[elem] = sigmoid(args.beta_raw[elem]);
    }
  });
}

// Chooses by logits, as the softmax keeps their order; the weights are the softmax over the chosen,
// which is the softmax over all renormalised.
void moe_route(const MoeRouteArgs& args, ThreadPool& pool) {
  for_rows(pool, args.n_tokens, [&](int64_t token) {
    const float* logits = args.logits + token * args.n_experts;
    int32_t* ids = args.ids + token * args.n_used;
    float* weights = args.weights + token * args.n_used;
    // Insertion into the list of the best so far: falling logits, equal ones by ascending id.
    int64_t n_chosen = 0;
    for (int64_t expert = 0; expert < args.n_experts; ++expert) {
      if (n_chosen == args.n_used && !(logits[expert] > logits[ids[n_chosen - 1]])) {
        continue;
      }
      int64_t slot = n_chosen < args.n_used ? n_chosen++ : n_chosen - 1;
      for (; slot > 0 && logits[expert] > logits[ids[slot - 1]]; --slot) {
        ids[slot] = ids[slot - 1];
      }
      ids[slot] = static_cast<int32_t>(expert);
    }
    double sum = 0.0;
    for (int64_t slot = 0; slot < args.n_used; ++slot) {
      sum += std::exp(static_cast<double>(logits[ids[slot]]) - static_cast<double>(logits[ids[0]]));
    }
    for (int64_t slot = 0; slot < args.n_used; ++slot) {
      weights[slot] = static_cast<float>(
          std::exp(static_cast<double>(logits[ids[slot]]) - static_cast<double>(logits[ids[0]])) /
          sum);
    }
  });
}

void take_rows(const TakeRowsArgs& args, ThreadPool& pool) {
  for_rows(pool, args.n_rows, [&](int64_t row) {
    std::memcpy(args.y + row * args.dim, args.x + args.rows[row] * args.dim, f32_bytes(args.dim));
  });
}

}  // namespace apr::cpu::fast
