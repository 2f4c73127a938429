#include "generate/parity_ops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "apr/error.h"
#include "generate/exact_ops.h"
#include "generate/logit_rows.h"
#include "generate/moe_routes.h"
#include "generate/observation.h"
#include "generate/parity_logits.h"

namespace apr {
namespace {

constexpr int64_t kMostRows = 512;  // of a step: every value of it is kept on the host

bool writes_state(OpKind kind) {
  return kind == OpKind::kKvAppend || kind == OpKind::kConv1d || kind == OpKind::kDeltaNet;
}

// What one backend materialised in one step.
class StepRecorder final : public StepObserver {
 public:
  struct Source {
    std::string kernel;
    int first_op = 0, n_ops = 1;
  };

  void after_stage(const ExecPlan& exec, const Stage& stage, StepValues& values) override {
    const Source source{stage.kernel, stage.first_op, stage.n_ops};
    for (const ValueId id : stage.materialised) {
      rows_[id] = values.read(id);
    }
    for (int op_idx = stage.first_op; op_idx < stage.first_op + stage.n_ops; ++op_idx) {
      source_[op_idx] = source;
      const Op& op = exec.plan->ops[static_cast<size_t>(op_idx)];
      if (writes_state(op.kind)) {
        states_[op.state_idx] = values.read_state(op.state_idx);
      }
    }
  }
  void clear() {
    rows_.clear();
    states_.clear();
    source_.clear();
  }
  const std::vector<float>* rows(ValueId id) const { return find(rows_, id); }
  const std::vector<float>* state(int state_idx) const { return find(states_, state_idx); }
  const Source* source(int op_idx) const {
    const auto found = source_.find(op_idx);
    return found == source_.end() ? nullptr : &found->second;
  }

 private:
  static const std::vector<float>* find(const std::map<int, std::vector<float>>& map, int key) {
    const auto found = map.find(key);
    return found == map.end() ? nullptr : &found->second;
  }
  std::map<int, std::vector<float>> rows_, states_;  // by ValueId, by state_idx
  std::map<int, Source> source_;                     // by op_idx
};

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

// Watches the oracle: compares, then puts the backend's value in place of the oracle's.
class StepReferee final : public StepObserver {
 public:
  StepReferee(const StepRecorder& recorder, bool exact, OpParityReport& report)
      : recorder_(recorder), exact_(exact), report_(report) {}

  void begin(std::span<const TokenId> ids, std::span<const int64_t> logit_rows,
             int64_t first_position) {
    ids_ = ids;
    logit_rows_ = logit_rows;
    first_position_ = first_position;
  }

  void after_stage(const ExecPlan& exec, const Stage& stage, StepValues& values) override {
    APR_CHECK(stage.n_ops == 1, "the oracle runs one op a stage");
    const Plan& plan = *exec.plan;
    const Op& op = plan.ops[static_cast<size_t>(stage.first_op)];
    if (op.kind == OpKind::kMoeRoute) {
      take_over_route(op, values);
    }
    for (size_t out_idx = 0; out_idx < op.outputs.size(); ++out_idx) {
      const ValueId id = op.outputs[out_idx];
      const std::vector<float>* found = recorder_.rows(id);
      if (found == nullptr) {
        continue;
      }
      const Value& info = plan.values[static_cast<size_t>(id)];
      const std::vector<float> expected = values.read(id);
      OpParity parity = start(plan, stage.first_op, info.name);
      if (info.type == ValueType::kI32) {
        compare_integers(parity, *found, expected);
      } else {
        compare(parity, *found, expected, info.row_elems());
        if (!parity.passed && info.type == ValueType::kF32) {
          judge(parity, plan, op, out_idx, values, *found, expected, info.row_elems());
        }
      }
      add(std::move(parity));
      if (info.type == ValueType::kI32 || all_finite(*found)) {
        values.write(id, *found);
      }
    }
    if (writes_state(op.kind)) {
      compare_state(plan, stage.first_op, op, values);
    }
  }

 private:
  OpParity start(const Plan& plan, int op_idx, const std::string& value) const {
    const Op& op = plan.ops[static_cast<size_t>(op_idx)];
    OpParity parity;
    parity.op_idx = op_idx;
    parity.op = op.name;
    parity.kind = op.kind;
    parity.layer_idx = op.layer_idx;
    parity.value = value;
    if (const StepRecorder::Source* source = recorder_.source(op_idx); source != nullptr) {
      parity.kernel = source->kernel;
      parity.first_op = source->first_op;
      parity.n_ops = source->n_ops;
    }
    parity.first_position = first_position_;
    parity.n_tokens = static_cast<int64_t>(ids_.size());
    parity.bound = op_bound(op.kind, exact_);
    return parity;
  }

  // Puts the backend's choice of experts in place of the oracle's where that one allows it.
  void take_over_route(const Op& op, StepValues& values) {
    const std::vector<float>* found = recorder_.rows(op.outputs[0]);
    if (found == nullptr) {
      return;
    }
    const RouteVerdict verdict =
        take_over_routes(op, as_ids(*found), op_bound(op.kind, exact_), values);
    for (const int64_t token : verdict.rerouted) {
      report_.rerouted[first_position_ + token].push_back(op.layer_idx);
    }
  }

  static void compare(OpParity& parity, const std::vector<float>& found,
                      const std::vector<float>& expected, int64_t row_elems) {
    APR_CHECK(found.size() == expected.size(), parity.op);
    parity.cosine = cosine_similarity(found, expected);
    const auto n_elems = static_cast<size_t>(row_elems);
    for (size_t first = 0; first < found.size(); first += n_elems) {
      const double linf = relative_linf(std::span(found).subspan(first, n_elems),
                                        std::span(expected).subspan(first, n_elems));
      if (!(linf <= parity.relative_linf)) {
        parity.relative_linf = linf;
        parity.worst_row = static_cast<int64_t>(first / n_elems);
      }
    }
    parity.passed = parity.relative_linf <= parity.bound;
  }

  static void compare_integers(OpParity& parity, const std::vector<float>& found,
                               const std::vector<float>& expected) {
    size_t n_different = 0;
    for (size_t idx = 0; idx < found.size(); ++idx) {
      n_different +=
          std::bit_cast<uint32_t>(found[idx]) != std::bit_cast<uint32_t>(expected[idx]) ? 1 : 0;
    }
    parity.bound = 0.0;
    parity.relative_linf =
        found.empty() ? 0.0 : static_cast<double>(n_different) / static_cast<double>(found.size());
    parity.passed = n_different == 0;
  }

  // Which of the two is nearer to the exact value of the worst row.
  void judge(OpParity& parity, const Plan& plan, const Op& op, size_t out_idx,
             const StepValues& values, const std::vector<float>& found,
             const std::vector<float>& expected, int64_t row_elems) const {
    ExactStep step{plan, op, {}, ids_, logit_rows_, first_position_, {}, {}, {}};
    for (const ValueId id : op.inputs) {
      step.inputs.push_back(values.read(id));
    }
    if (op.state_idx >= 0) {
      const auto history = history_.find(op.state_idx);
      if (history != history_.end()) {
        step.keys = history->second.keys;
        step.values = history->second.values;
      }
      step.state = state_before(plan, op.state_idx);
    }
    const std::vector<double> exact = exact_row(step, out_idx, parity.worst_row);
    const auto error = [&](const std::vector<float>& rows) {
      double difference = 0.0, size = 0.0;
      for (size_t idx = 0; idx < exact.size(); ++idx) {
        const double value = rows[static_cast<size_t>(parity.worst_row * row_elems) + idx];
        if (!std::isfinite(value)) {
          return std::numeric_limits<double>::infinity();
        }
        difference = std::max(difference, std::abs(value - exact[idx]));
        size = std::max(size, std::abs(exact[idx]));
      }
      return size == 0.0 ? difference : difference / size;
    };
    if (!exact.empty()) {
      parity.error_to_exact = error(found);
      parity.oracle_error_to_exact = error(expected);
    }
  }

  void compare_state(const Plan& plan, int op_idx, const Op& op, StepValues& values) {
    const std::vector<float>* found = recorder_.state(op.state_idx);
    if (found == nullptr) {
      return;
    }
    const StateSpec& spec = plan.states[static_cast<size_t>(op.state_idx)];
    const bool is_cache = spec.kind == StateKind::kKvCache;
    const int64_t row_elems = is_cache ? spec.elems_per_position / 2 : spec.elems;
    OpParity parity = start(plan, op_idx, "state");
    compare(parity, *found, values.read_state(op.state_idx), row_elems);
    add(std::move(parity));
    if (all_finite(*found)) {
      values.write_state(op.state_idx, *found);
    }
    const std::vector<float> kept = values.read_state(op.state_idx);
    if (is_cache) {
      History& history = history_[op.state_idx];
      const auto middle = kept.begin() + static_cast<ptrdiff_t>(kept.size() / 2);
      history.keys.insert(history.keys.end(), kept.begin(), middle);
      history.values.insert(history.values.end(), middle, kept.end());
    } else {
      recurrent_[op.state_idx] = kept;
    }
  }

  // All zeros before the first step.
  std::span<const float> state_before(const Plan& plan, int state_idx) const {
    std::vector<float>& state = recurrent_[state_idx];
    if (state.empty()) {
      state.resize(static_cast<size_t>(plan.states[static_cast<size_t>(state_idx)].elems));
    }
    return state;
  }

  void add(OpParity parity) {
    ++report_.n_compared;
    const auto same_kind = std::find_if(report_.worst.begin(), report_.worst.end(),
                                        [&](const OpParity& o) { return o.kind == parity.kind; });
    if (same_kind == report_.worst.end()) {
      report_.worst.push_back(parity);
    } else if (!(parity.relative_linf <= same_kind->relative_linf)) {
      *same_kind = parity;
    }
    if (!parity.passed) {
      report_.failed.push_back(std::move(parity));
    }
  }

  struct History {
    std::vector<float> keys, values;  // [positions, kv_dim]
  };

  const StepRecorder& recorder_;
  bool exact_;
  OpParityReport& report_;
  std::span<const TokenId> ids_;
  std::span<const int64_t> logit_rows_;
  int64_t first_position_ = 0;
  std::map<int, History> history_;                       // by state_idx
  mutable std::map<int, std::vector<float>> recurrent_;  // by state_idx: as the last step left it
};

}  // namespace

double op_bound(OpKind kind, bool exact) {
  if (exact) {
    return 1e-4;
  }
  return kind == OpKind::kAttention ? 0x1p-5 : 0x1p-8;
}

OpParityReport compare_ops(Backend& oracle, Backend& backend, std::span<const TokenId> ids,
                           int64_t n_decode, bool exact, const std::atomic<bool>* cancel) {
  OpParityReport report;
  StepRecorder recorder;
  StepReferee referee(recorder, exact, report);
  const Observation of_backend(backend, recorder);
  const Observation of_oracle(oracle, referee);
  backend.reset();
  oracle.reset();
  std::vector<TokenId> all(ids.begin(), ids.end());
  const std::vector<TokenId> next = arbitrary_ids(oracle.desc().vocab_rows, n_decode);
  all.insert(all.end(), next.begin(), next.end());
  const int64_t most_rows = std::min({oracle.max_rows(), backend.max_rows(), kMostRows});
  std::vector<float> logits(static_cast<size_t>(oracle.desc().vocab_rows));
  const auto n_prompt = static_cast<int64_t>(ids.size());
  for (int64_t done = 0; done < static_cast<int64_t>(all.size()) && report.passed();) {
    const int64_t n_rows = done < n_prompt ? std::min(most_rows, n_prompt - done) : 1;
    const auto step_ids = std::span<const TokenId>(all).subspan(static_cast<size_t>(done),
                                                                static_cast<size_t>(n_rows));
    const std::vector<int64_t> last = {n_rows - 1};
    recorder.clear();
    referee.begin(step_ids, last, done);
    bool was_cancelled = false;
    try {
      was_cancelled = !backend.forward(step_ids, last, logits, cancel);
    } catch (const Error& error) {
      report.error = error.what();  // what was recorded until then is still compared
    }
    was_cancelled = was_cancelled || !oracle.forward(step_ids, last, logits, cancel);
    if (was_cancelled) {
      throw Error(ErrorCode::kInterrupted, "interrupted");
    }
    done += n_rows;
  }
  return report;
}

}  // namespace apr
