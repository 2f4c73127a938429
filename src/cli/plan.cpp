// apr plan: the forward pass as a list of operations, and what it is lowered to.
#include "apr/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "apr/lower.h"
#include "cli/ignored_flags.h"
#include "cli/load.h"
#include "cli/output.h"
#include "cli/verb.h"

namespace apr::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDefaultChunk = 512, kDefaultGpuChunk = 2048;

class PlanVerb : public Verb {
 public:
  void add_options(CLI::App& app) override;
  int run() override;

 private:
  bool is_for_gpu() const { return backend_.gpu || backend_.backend == "cuda"; }
  Target target(Phase phase) const;

  std::string model_;
  bool lowered_ = false;
  BackendOptions backend_;
  EngineOptions engine_;
};

void PlanVerb::add_options(CLI::App& app) {
  add_model(app, model_);
  add_switch(app, "--lowered", lowered_,
             "Also the executable plans of prefill and decode: kernels, buffers, workspace");
  add_chunk(app, engine_);
  add_backend(app, backend_);
  add_output(app, output, false);
}

Target PlanVerb::target(Phase phase) const {
  Target target;
  target.phase = phase;
  target.backend = is_for_gpu() ? BackendKind::kCuda : BackendKind::kCpu;
  target.f16_rows = is_for_gpu() && phase == Phase::kPrefill && !engine_.exact;
  target.max_rows = phase == Phase::kDecode      ? 1
                    : engine_.prefill_chunk != 0 ? engine_.prefill_chunk
                    : is_for_gpu()               ? kDefaultGpuChunk
                                                 : kDefaultChunk;
  return target;
}

Json value_json(const Plan& plan, ValueId id) {
  const Value& value = plan.values[static_cast<size_t>(id)];
  return {{"name", value.name},
          {"rows", value.rows == RowDomain::kTokens ? "tokens" : "logit_rows"},
          {"row_shape", value.row_shape},
          {"type", value.type == ValueType::kF32 ? "f32" : "i32"}};
}

Json plan_json(const Plan& plan) {
  Json ops = Json::array();
  for (const Op& op : plan.ops) {
    Json inputs = Json::array(), outputs = Json::array(), weights = Json::array();
    for (const ValueId id : op.inputs) {
      inputs.push_back(plan.values[static_cast<size_t>(id)].name);
    }
    for (const ValueId id : op.outputs) {
      outputs.push_back(value_json(plan, id));
    }
    for (const Weight* weight : op.weights) {
      if (weight != nullptr) {
        weights.push_back({{"name", weight->name},
                           {"type", weight->type->name},
                           {"shape", weight->shape},
                           {"bytes", weight->size_bytes}});
      }
    }
    ops.push_back({{"index", ops.size()},
                   {"name", op.name},
                   {"kind", op_kind_name(op.kind)},
                   {"layer", op.layer_idx},
                   {"inputs", std::move(inputs)},
                   {"outputs", std::move(outputs)},
                   {"weights", std::move(weights)}});
  }
  return ops;
}

Json exec_json(const ExecPlan& exec) {
  Json stages = Json::array();
  for (const Stage& stage : exec.stages) {
    Json outputs = Json::array();
    for (const ValueId id : stage.materialised) {
      outputs.push_back({{"name", exec.plan->values[static_cast<size_t>(id)].name},
                         {"offset_bytes", exec.value_offset_bytes[static_cast<size_t>(id)]}});
    }
    stages.push_back({{"first_op", stage.first_op},
                      {"n_ops", stage.n_ops},
                      {"kernel", stage.kernel},
                      {"contract", stage.contract == Contract::kBitwise ? "bitwise" : "bounded"},
                      {"outputs", std::move(outputs)}});
  }
  return {{"max_rows", exec.target.max_rows},
          {"workspace_bytes", exec.workspace_bytes},
          {"stages", std::move(stages)}};
}

int PlanVerb::run() {
  // A plan needs no GPU; the flags must still make sense.
  choose_backend(backend_, [] {
    cuda::Readiness readiness;
    readiness.ready = true;
    return readiness;
  });
  RunFacts facts;
  facts.gpu_overrides_backend = backend_.gpu && backend_.backend == "cpu";
  facts.is_plan = true;
  facts.is_lowered = lowered_;
  facts.uses_gpu = is_for_gpu();
  warn_of_ignored(given, facts);
  const Model model(open_model_file(model_));
  const Plan plan = build_plan(model);
  Json json = {{"model", model_}};
  std::string text;
  if (output.is_json()) {
    json["ops"] = plan_json(plan);
  } else {
    text = print_plan(plan);
  }
  if (lowered_) {
    for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
      const ExecPlan exec = lower(plan, target(phase));
      const char* name = phase == Phase::kPrefill ? "prefill" : "decode";
      if (output.is_json()) {
        json[name] = exec_json(exec);
      } else {
        text += fmt::format("\n{}, chunks of {}:\n{}", name, exec.target.max_rows,
                            print_exec_plan(exec));
      }
    }
  }
  if (output.is_json()) {
    write_json(json, true);
  } else {
    write_stdout(text);
  }
  return 0;
}

}  // namespace

std::unique_ptr<Verb> make_plan_verb() {
  return std::make_unique<PlanVerb>();
}

}  // namespace apr::cli
