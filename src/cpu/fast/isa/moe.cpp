#include "cpu/fast/isa/math.h"
#include "cpu/fast/isa/multiply.h"
#include "cpu/fast/isa/ops.h"
#include "cpu/fast/isa/parallel.h"
#include "cpu/fast/scratch.h"

namespace apr::cpu::fast::APR_CPU_ISA {
namespace {

// The (token, slot) pairs of a call, sorted by expert, so that an expert's weights are decoded
// once.
struct Routing {
  int64_t n_pairs;
  int64_t n_active;     // experts with at least one pair
  int32_t* active;      // [n_experts]: their ids, ascending
  int32_t* first;       // [n_experts + 1]: first sorted pair of each expert
  int32_t* token;       // [n_pairs]: token of a sorted pair
  int32_t* sorted;      // [n_pairs]: sorted place of pair token * n_used + slot
  float *gate, *up;     // [n_pairs, ffn_dim] f32, in sorted order
  float* contribution;  // [n_pairs, model_dim] f32, in sorted order
};

Routing route_pairs(const MoeFfnArgs& args) {
  const int64_t n_experts = args.gate.n_experts, n_pairs = args.n_tokens * args.n_used;
  const int64_t ffn_elems = n_pairs * args.gate.n_rows, model_elems = n_pairs * args.down.n_rows;
  const int64_t n_ints = 2 * n_experts + 1 + 2 * n_pairs;
  auto* floats =
      static_cast<float*>(scratch(ScratchUse::kCall, (2 * ffn_elems + model_elems + n_ints) * 4));
  Routing routing{};
  routing.n_pairs = n_pairs;
  routing.gate = floats;
  routing.up = routing.gate + ffn_elems;
  routing.contribution = routing.up + ffn_elems;
  routing.active = reinterpret_cast<int32_t*>(routing.contribution + model_elems);
  routing.first = routing.active + n_experts;
  routing.token = routing.first + n_experts + 1;
  routing.sorted = routing.token + n_pairs;

  // Counting sort: counts, then starts, then places (which move each start to the next one's).
  std::memset(routing.first, 0, static_cast<size_t>(n_experts + 1) * sizeof(int32_t));
  for (int64_t pair = 0; pair < n_pairs; ++pair) {
    ++routing.first[args.ids[pair]];
  }
  int32_t start = 0;
  for (int64_t expert = 0; expert < n_experts; ++expert) {
    const int32_t count = routing.first[expert];
    if (count > 0) {
      routing.active[routing.n_active++] = static_cast<int32_t>(expert);
    }
    routing.first[expert] = start;
    start += count;
  }
  for (int64_t pair = 0; pair < n_pairs; ++pair) {
    const int32_t place = routing.first[args.ids[pair]]++;
    routing.sorted[pair] = place;
    routing.token[place] = static_cast<int32_t>(pair / args.n_used);
  }
  for (int64_t expert = n_experts; expert > 0; --expert) {
    routing.first[expert] = routing.first[expert - 1];
  }
  routing.first[0] = 0;
  return routing;
}

// The products of one expert's matrix with the expert's pairs.
ProductJob expert_job(const MatrixRef& w, const Routing& routing, int64_t expert, float* y) {
  const int64_t first = routing.first[expert];
  ProductJob job{};
  job.decode = decoder_of(w.type->id);
  job.block_elems = w.type->block_elems;
  job.block_bytes = w.type->block_bytes;
  job.w = reinterpret_cast<const uint8_t*>(w.data) + expert * w.n_rows * w.row_bytes;
  job.row_bytes = w.row_bytes;
  job.n_cols = w.n_cols;
  job.x_stride = w.n_cols;
  job.n_tokens = routing.first[expert + 1] - first;
  job.y = y + first * w.n_rows;
  job.y_stride = w.n_rows;
  return job;
}

// Calls f(expert, row_begin, row_end) for parts of each active expert's n_rows rows.
template <class Fn>
APR_ALWAYS_INLINE void for_expert_rows(ThreadPool& pool, const Routing& routing, int64_t n_rows,
                                       Fn f) {
  const int64_t tokens_per_expert = routing.n_pairs / routing.n_active;
  const int64_t part_rows = rows_per_task(n_rows, tokens_per_expert, pool.n_threads());
  const int64_t n_parts = (n_rows + part_rows - 1) / part_rows;
  const auto task = [&](int64_t task_idx) {
    const int64_t begin = task_idx % n_parts * part_rows;
    const int64_t end = begin + part_rows < n_rows ? begin + part_rows : n_rows;
    f(routing.active[task_idx / n_parts], begin, end);
  };
  pool.run(routing.n_active * n_parts, task);
}

// gate = silu(gate x) * (up x) for rows [begin, end) of one expert's matrices.
void expert_hidden(const MoeFfnArgs& args, const Routing& routing, int64_t expert, int64_t begin,
                   int64_t end) {
  const int64_t ffn_dim = args.gate.n_rows;
  ProductJob gate = expert_job(args.gate, routing, expert, routing.gate);
  ProductJob up = expert_job(args.up, routing, expert, routing.up);
  gate.x = up.x = args.x;
  gate.x_index = up.x_index = routing.token + routing.first[expert];
  multiply_rows(gate, begin, end);
  multiply_rows(up, begin, end);
  for (int64_t pair = 0; pair < gate.n_tokens; ++pair) {
    float* g = gate.y + pair * ffn_dim + begin;
    const auto swiglu_of = [](Vec a, Vec b) __attribute__((always_inline)) {
      return hn::Mul(silu(a), b);
    };
    map(end - begin, g, swiglu_of, g, up.y + pair * ffn_dim + begin);
  }
}

}  // namespace

void moe_ffn(const MoeFfnArgs& args, ThreadPool& pool) {
  if (args.n_tokens == 0) {
    return;
  }
  const int64_t model_dim = args.down.n_rows, ffn_dim = args.gate.n_rows;
  const Routing routing = route_pairs(args);
  for_expert_rows(pool, routing, ffn_dim, [&](int64_t expert, int64_t begin, int64_t end) {
    expert_hidden(args, routing, expert, begin, end);
  });
  for_expert_rows(pool, routing, model_dim, [&](int64_t expert, int64_t begin, int64_t end) {
    ProductJob down = expert_job(args.down, routing, expert, routing.contribution);
    down.x = routing.gate + routing.first[expert] * ffn_dim;
    multiply_rows(down, begin, end);
  });
  const auto sum_range = [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      float* y = args.y + token * model_dim;
      const size_t row_bytes = static_cast<size_t>(model_dim) * sizeof(float);
      if (args.init == nullptr) {
        std::memset(y, 0, row_bytes);
      } else {
        std::memmove(y, args.init + token * model_dim, row_bytes);
      }
      for (int64_t pair = token * args.n_used; pair < (token + 1) * args.n_used; ++pair) {
        const Vec weight = broadcast(args.weights[pair]);
        const auto add_weighted = [&](Vec sum, Vec value) __attribute__((always_inline)) {
          return hn::Add(sum, hn::Mul(weight, value));
        };
        map(model_dim, y, add_weighted, y, routing.contribution + routing.sorted[pair] * model_dim);
      }
    }
  };
  parallel_ranges(pool, args.n_tokens, args.n_used * model_dim, sum_range);
}

}  // namespace apr::cpu::fast::APR_CPU_ISA
