// Causal grouped-query attention, one pass over the keys.
//
// A query row (one token, one head) visits the keys in blocks of 64, the blocks in segments of
// 1024, both counted from position 0. Within a segment: online softmax, a running maximum m, sum l
// of weights and weighted sum of values, rescaled when a block raises m. Segments start afresh and
// are merged in ascending order by the same rescaling. So a row's bits depend on its query and its
// keys alone: not on the rows that share its loads, nor on whether one thread walks all segments or
// each segment is a task of its own.
#include "cpu/fast/isa/math.h"
#include "cpu/fast/isa/ops.h"
#include "cpu/fast/isa/outer.h"
#include "cpu/fast/scratch.h"

namespace apr::cpu::fast::APR_CPU_ISA {
namespace {

constexpr int kKeys = 64;  // of a block
constexpr int64_t kSegmentKeys = 1024;
constexpr int64_t kTaskRows = 128;  // query rows of a task, about
static_assert(kSegmentKeys % kKeys == 0 && kKeys % (kOuterVecs * kLanes) == 0);

constexpr float kNoScore = -__builtin_inff();

APR_ALWAYS_INLINE int64_t min(int64_t a, int64_t b) {
  return a < b ? a : b;
}
APR_ALWAYS_INLINE int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

APR_ALWAYS_INLINE float exp1(float x) {
  return hn::GetLane(exp(broadcast(x)));
}

// The softmax state of query rows. Row stride of `values` is dim_padded.
struct RowStates {
  float* max;     // [n_rows] f32: m
  float* sum;     // [n_rows] f32: l
  float* values;  // [n_rows, dim_padded] f32
};

// The query rows of a task: tokens [token, token + n_tokens) times the heads of one key head.
struct Task {
  const AttentionArgs& args;
  int64_t kv_head, token, n_tokens;
  int64_t group, dim, dim_padded, n_rows;

  // Keys that row `row` (token-major) sees.
  int64_t row_keys(int64_t row) const { return args.first_position + token + row / group + 1; }
  int64_t most_keys() const { return args.first_position + token + n_tokens; }
  const float* key(int64_t position) const {
    return args.k_cache + (position * args.n_kv_heads + kv_head) * dim;
  }
  const float* value(int64_t position) const {
    return args.v_cache + (position * args.n_kv_heads + kv_head) * dim;
  }
  float* out(int64_t row) const {
    return args.y + ((token + row / group) * args.n_heads + kv_head * group + row % group) * dim;
  }
};

// Working memory of a task.
struct Work {
  float* query;   // [n_rows, dim]
  float* scores;  // [n_rows, kKeys]; weights after the softmax
  float* keys;    // [dim, kKeys]: a block of keys, turned
  float* values;  // [kKeys, dim_padded]: a block of values, packed
  RowStates segment;
  RowStates total;
};

int64_t state_elems(int64_t n_rows, int64_t dim_padded) {
  return n_rows * (dim_padded + 2);
}

// States carved from memory of state_elems elements; values come first and stay aligned.
RowStates carve_states(float* memory, int64_t n_rows, int64_t dim_padded) {
  float* max = memory + n_rows * dim_padded;
  return {max, max + n_rows, memory};
}

Work carve_work(const Task& task) {
  const int64_t n_states = round_up(state_elems(task.n_rows, task.dim_padded), 16);
  const int64_t n_query = round_up(task.n_rows * task.dim, 16);
  const int64_t n_elems =
      n_query + task.n_rows * kKeys + task.dim * kKeys + kKeys * task.dim_padded + 2 * n_states;
  Work work{};
  work.query = static_cast<float*>(
      scratch(ScratchUse::kTask, n_elems * static_cast<int64_t>(sizeof(float))));
  work.scores = work.query + n_query;
  work.keys = work.scores + task.n_rows * kKeys;
  work.values = work.keys + task.dim * kKeys;
  float* states = work.values + kKeys * task.dim_padded;
  work.segment = carve_states(states, task.n_rows, task.dim_padded);
  work.total = carve_states(states + n_states, task.n_rows, task.dim_padded);
  return work;
}

void gather_queries(const Task& task, float* query) {
  for (int64_t row = 0; row < task.n_rows; ++row) {
    const int64_t head = task.kv_head * task.group + row % task.group;
    const float* q =
        task.args.q + ((task.token + row / task.group) * task.args.n_heads + head) * task.dim;
    std::memcpy(query + row * task.dim, q, static_cast<size_t>(task.dim) * sizeof(float));
  }
}

void clear_states(const RowStates& states, int64_t n_rows, int64_t dim_padded) {
  for (int64_t row = 0; row < n_rows; ++row) {
    states.max[row] = kNoScore;
    states.sum[row] = 0.0F;
  }
  std::memset(states.values, 0, static_cast<size_t>(n_rows * dim_padded) * sizeof(float));
}

// Asks for keys and values of four positions. A head's rows lie a whole cache row apart, which the
// hardware does not follow; far ones may not exist, but a prefetch never faults.
APR_ALWAYS_INLINE void prefetch_rows4(const Task& task, int64_t position) {
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t d = 0; d < task.dim; d += 16) {
      __builtin_prefetch(task.key(position + i) + d, 0, 2);
      __builtin_prefetch(task.value(position + i) + d, 0, 2);
    }
  }
}

// turned[d][j] = key j's element d, for n_keys keys; zeros behind. Prefetches the block after.
void turn_keys(const Task& task, int64_t first_key, int64_t n_keys, float* turned) {
  const int64_t key_stride = task.args.n_kv_heads * task.dim;
  if (n_keys < kKeys) {
    std::memset(turned, 0, static_cast<size_t>(task.dim * kKeys) * sizeof(float));
  }
  int64_t j = 0;
  for (; j + 4 <= n_keys; j += 4) {
    const float* key = task.key(first_key + j);
    prefetch_rows4(task, first_key + kKeys + j);
    int64_t d = 0;
    for (; d + 4 <= task.dim; d += 4) {
      const auto k0 = hn::LoadU(kQuad, key + d), k1 = hn::LoadU(kQuad, key + key_stride + d);
      const auto k2 = hn::LoadU(kQuad, key + 2 * key_stride + d);
      const auto k3 = hn::LoadU(kQuad, key + 3 * key_stride + d);
      const auto low01 = hn::InterleaveLower(kQuad, k0, k1);
      const auto low23 = hn::InterleaveLower(kQuad, k2, k3);
      const auto high01 = hn::InterleaveUpper(kQuad, k0, k1);
      const auto high23 = hn::InterleaveUpper(kQuad, k2, k3);
      float* to = turned + d * kKeys + j;
      hn::StoreU(hn::ConcatLowerLower(kQuad, low23, low01), kQuad, to);
      hn::StoreU(hn::ConcatUpperUpper(kQuad, low23, low01), kQuad, to + kKeys);
      hn::StoreU(hn::ConcatLowerLower(kQuad, high23, high01), kQuad, to + 2 * kKeys);
      hn::StoreU(hn::ConcatUpperUpper(kQuad, high23, high01), kQuad, to + 3 * kKeys);
    }
    for (; d < task.dim; ++d) {
      for (int64_t i = 0; i < 4; ++i) {
        turned[d * kKeys + j + i] = key[i * key_stride + d];
      }
    }
  }
  for (; j < n_keys; ++j) {
    const float* key = task.key(first_key + j);
    for (int64_t d = 0; d < task.dim; ++d) {
      turned[d * kKeys + j] = key[d];
    }
  }
}

// scores of one row -> weights; updates m and l and rescales the row's values. n_keys: 1..kKeys.
APR_ALWAYS_INLINE void soften_row(float* scores, int64_t n_keys, float scale, float* max,
                                  float* sum, float* values, int64_t dim_padded) {
  constexpr int kVecs = kKeys / kLanes;
  const Vec scale_vec = broadcast(scale), none = broadcast(kNoScore);
  Vec vecs[kVecs];
  Vec block_max = none;
#pragma GCC unroll 16
  for (int v = 0; v < kVecs; ++v) {
    vecs[v] = hn::Mul(load(scores + v * kLanes), scale_vec);
    if (n_keys < (v + 1) * kLanes) {
      const int64_t n_left = n_keys - v * kLanes;
      const auto seen = hn::FirstN(kF32, static_cast<size_t>(n_left < 0 ? 0 : n_left));
      vecs[v] = hn::IfThenElse(seen, vecs[v], none);
    }
    block_max = hn::Max(block_max, vecs[v]);
  }
  const float old_max = *max;
  const float row_max = hn::GetLane(hn::MaxOfLanes(kF32, block_max));
  const float new_max = row_max > old_max ? row_max : old_max;
  const Vec max_vec = broadcast(new_max);
  Vec total = zero();
#pragma GCC unroll 16
  for (int v = 0; v < kVecs; ++v) {
    const Vec weight = exp(hn::Sub(vecs[v], max_vec));
    store(weight, scores + v * kLanes);
    total = hn::Add(total, weight);
  }
  if (new_max != old_max) {
    const float keep = exp1(old_max - new_max);
    const Vec keep_vec = broadcast(keep);
    *max = new_max;
    *sum *= keep;
    for (int64_t d = 0; d < dim_padded; d += kLanes) {
      store(hn::Mul(load(values + d), keep_vec), values + d);
    }
  }
  *sum += sum_lanes(total);
}

// Folds keys [first_key, first_key + kKeys) into the states, each row as far as it sees them.
void fold_block(const Task& task, const Work& work, const RowStates& states, int64_t first_key) {
  const int64_t n_keys = min(kKeys, task.most_keys() - first_key);
  const int64_t dim = task.dim, dim_padded = task.dim_padded;
  turn_keys(task, first_key, n_keys, work.keys);
  const float* values = task.value(first_key);
  int64_t value_stride = task.args.n_kv_heads * dim;
  // Rows a power of two apart share few cache sets: where many tiles read the values, they are
  // packed first.
  if (dim != dim_padded || task.n_rows > 2 * kOuterRows) {
    for (int64_t j = 0; j < n_keys; ++j) {
      float* to = work.values + j * dim_padded;
      std::memcpy(to, values + j * value_stride, static_cast<size_t>(dim) * sizeof(float));
      std::memset(to + dim, 0, static_cast<size_t>(dim_padded - dim) * sizeof(float));
    }
    values = work.values;
    value_stride = dim_padded;
  }
  for (int64_t row = 0, n_tile = 0; row < task.n_rows; row += n_tile) {
    n_tile = next_tile_rows(task.n_rows - row);
    if (task.row_keys(row + n_tile - 1) <= first_key) {
      continue;
    }
    const auto fold = [&]<int kRows>() __attribute__((always_inline)) {
      float* scores = work.scores + row * kKeys;
      std::memset(scores, 0, kRows * kKeys * sizeof(float));
      outer_rows<kRows>(work.query + row * dim, dim, work.keys, kKeys, dim, scores, kKeys, kKeys);
      for (int64_t r = row; r < row + kRows; ++r) {
        const int64_t n_seen = min(kKeys, task.row_keys(r) - first_key);
        if (n_seen > 0) {
          soften_row(work.scores + r * kKeys, n_seen, task.args.scale, states.max + r,
                     states.sum + r, states.values + r * dim_padded, dim_padded);
        }
      }
      // Rows see ascending numbers of keys: those that all see together, then each its own rest.
      const int64_t seen_by_first = task.row_keys(row) - first_key;
      const int64_t n_common = seen_by_first < 0 ? 0 : min(kKeys, seen_by_first);
      outer_rows<kRows>(scores, kKeys, values, value_stride, n_common,
                        states.values + row * dim_padded, dim_padded, dim_padded);
      for (int64_t r = row + 1; r < row + kRows; ++r) {
        const int64_t n_rest = min(kKeys, task.row_keys(r) - first_key) - n_common;
        if (n_rest > 0) {
          outer_rows<1>(work.scores + r * kKeys + n_common, kKeys, values + n_common * value_stride,
                        value_stride, n_rest, states.values + r * dim_padded, dim_padded,
                        dim_padded);
        }
      }
    };
    with_rows<kOuterRows>(n_tile, fold);
  }
}

// The states of a segment's keys, from nothing.
void fold_segment(const Task& task, const Work& work, const RowStates& states, int64_t segment) {
  clear_states(states, task.n_rows, task.dim_padded);
  const int64_t end = min(task.most_keys(), (segment + 1) * kSegmentKeys);
  for (int64_t key = segment * kSegmentKeys; key < end; key += kKeys) {
    fold_block(task, work, states, key);
  }
}

// total = total and the segment's states together, for one row that sees keys of the segment.
void merge_row(const RowStates& total, const RowStates& segment, int64_t row, int64_t dim_padded) {
  const float new_max = segment.max[row] > total.max[row] ? segment.max[row] : total.max[row];
  const float keep = exp1(total.max[row] - new_max), take = exp1(segment.max[row] - new_max);
  total.max[row] = new_max;
  total.sum[row] = total.sum[row] * keep + segment.sum[row] * take;
  const Vec keep_vec = broadcast(keep), take_vec = broadcast(take);
  const auto merge = [&](Vec old, Vec more) __attribute__((always_inline)) {
    return hn::Add(hn::Mul(old, keep_vec), hn::Mul(more, take_vec));
  };
  float* to = total.values + row * dim_padded;
  map(dim_padded, to, merge, to, segment.values + row * dim_padded);
}

void write_row(const Task& task, const RowStates& total, int64_t row) {
  const Vec scale = broadcast(1.0F / total.sum[row]);
  const auto apply = [&](Vec value) __attribute__((always_inline)) {
    return hn::Mul(value, scale);
  };
  map(task.dim, task.out(row), apply, total.values + row * task.dim_padded);
}

// One thread, all segments of the task's rows.
void attend_all(const Task& task) {
  const Work work = carve_work(task);
  gather_queries(task, work.query);
  fold_segment(task, work, work.total, 0);
  for (int64_t segment = 1; segment * kSegmentKeys < task.most_keys(); ++segment) {
    fold_segment(task, work, work.segment, segment);
    for (int64_t row = 0; row < task.n_rows; ++row) {
      if (task.row_keys(row) > segment * kSegmentKeys) {
        merge_row(work.total, work.segment, row, task.dim_padded);
      }
    }
  }
  for (int64_t row = 0; row < task.n_rows; ++row) {
    write_row(task, work.total, row);
  }
}

Task task_of(const AttentionArgs& args, int64_t task_tokens, int64_t task_idx) {
  const int64_t token = task_idx / args.n_kv_heads * task_tokens;
  const int64_t n_tokens = min(task_tokens, args.n_tokens - token);
  const int64_t group = args.n_heads / args.n_kv_heads;
  return {args,          task_idx % args.n_kv_heads,      token,           n_tokens, group,
          args.head_dim, round_up(args.head_dim, kLanes), n_tokens * group};
}

// Few rows and many keys: each segment of each task's rows is computed on its own, then merged.
void attend_split(const AttentionArgs& args, ThreadPool& pool, int64_t task_tokens, int64_t n_tasks,
                  int64_t n_segments) {
  const int64_t group = args.n_heads / args.n_kv_heads;
  const int64_t dim_padded = round_up(args.head_dim, kLanes);
  const int64_t part_elems = round_up(state_elems(task_tokens * group, dim_padded), 16);
  auto* parts = static_cast<float*>(scratch(
      ScratchUse::kCall, n_tasks * n_segments * part_elems * static_cast<int64_t>(sizeof(float))));
  const auto part_states = [&](const Task& task, int64_t task_idx, int64_t segment) {
    return carve_states(parts + (task_idx * n_segments + segment) * part_elems, task.n_rows,
                        dim_padded);
  };
  const auto fold = [&](int64_t part) {
    const Task task = task_of(args, task_tokens, part / n_segments);
    const int64_t segment = part % n_segments;
    if (segment * kSegmentKeys < task.most_keys()) {
      const Work work = carve_work(task);
      gather_queries(task, work.query);
      fold_segment(task, work, part_states(task, part / n_segments, segment), segment);
    }
  };
  pool.run(n_tasks * n_segments, fold);
  const auto merge = [&](int64_t task_idx) {
    const Task task = task_of(args, task_tokens, task_idx);
    const RowStates total = part_states(task, task_idx, 0);
    for (int64_t row = 0; row < task.n_rows; ++row) {
      for (int64_t segment = 1; segment * kSegmentKeys < task.row_keys(row); ++segment) {
        merge_row(total, part_states(task, task_idx, segment), row, dim_padded);
      }
      write_row(task, total, row);
    }
  };
  pool.run(n_tasks, merge);
}

}  // namespace

void attention(const AttentionArgs& args, ThreadPool& pool) {
  if (args.n_tokens == 0) {
    return;
  }
  const int64_t group = args.n_heads / args.n_kv_heads;
  const int64_t most_tokens = group < kTaskRows ? kTaskRows / group : 1;
  const int64_t task_tokens = min(most_tokens, args.n_tokens);
  const int64_t n_tasks = (args.n_tokens + task_tokens - 1) / task_tokens * args.n_kv_heads;
  const int64_t n_segments =
      (args.first_position + args.n_tokens + kSegmentKeys - 1) / kSegmentKeys;
  if (n_segments > 1 && n_tasks < 4 * pool.n_threads()) {
    attend_split(args, pool, task_tokens, n_tasks, n_segments);
    return;
  }
  // The last tasks see the most keys: they go first.
  const auto task = [&](int64_t task_idx) {
    attend_all(task_of(args, task_tokens, n_tasks - 1 - task_idx));
  };
  pool.run(n_tasks, task);
}

}  // namespace apr::cpu::fast::APR_CPU_ISA
