#include "cli/parity_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace apr::cli {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinity and no NaN: null.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

Json position_json(const LogitsParity& position, const ParityBounds& bounds) {
  const std::string failure = position_failure(position, bounds);
  Json json = {{"position", position.position},
               {"phase", position.is_decode ? "decode" : "prefill"},
               {"cosine", number(position.cosine)},
               {"kl", number(position.kl)},
               {"relative_linf", number(position.relative_linf)},
               {"oracle_id", position.oracle_id},
               {"id", position.id},
               {"margin", number(position.margin)},
               {"passed", failure.empty()}};
  if (!failure.empty()) {
    json["reason"] = failure;
  }
  return json;
}

Json op_json(const OpParity& op) {
  Json json = {{"op", op.op},
               {"kind", op_kind_name(op.kind)},
               {"layer", op.layer_idx},
               {"value", op.value},
               {"kernel", op.kernel},
               {"stage_ops", {op.first_op, op.first_op + op.n_ops - 1}},
               {"phase", op.n_tokens == 1 ? "decode" : "prefill"},
               {"position", op.first_position + op.worst_row},
               {"cosine", number(op.cosine)},
               {"relative_linf", number(op.relative_linf)},
               {"bound", op.bound},
               {"passed", op.passed}};
  if (op.error_to_exact && op.oracle_error_to_exact) {
    json["error_to_exact"] = number(*op.error_to_exact);
    json["oracle_error_to_exact"] = number(*op.oracle_error_to_exact);
    json["nearer_to_exact"] = *op.error_to_exact < *op.oracle_error_to_exact ? "backend" : "oracle";
  }
  return json;
}

Json rerouted_json(const ReroutedLayers& rerouted) {
  Json json = Json::array();
  for (const auto& [position, layers] : rerouted) {
    json.push_back({{"position", position}, {"layers", layers}});
  }
  return json;
}

// What the sequences' choices of experts came to.
struct RouteSum {
  int64_t n_positions = 0, n_choices = 0, n_rerouted_positions = 0, n_rerouted_choices = 0;
  int64_t n_unsteady = 0;
  std::set<int> layers;
};

RouteSum sum_routes(const std::vector<SequenceParity>& sequences) {
  RouteSum sum;
  for (const SequenceParity& sequence : sequences) {
    sum.n_positions += sequence.n_prompt + sequence.n_decode;
    sum.n_choices += sequence.routes.n_choices;
    sum.n_rerouted_positions += static_cast<int64_t>(sequence.routes.rerouted.size());
    sum.n_unsteady += sequence.n_unsteady;
    for (const auto& [position, layers] : sequence.routes.rerouted) {
      sum.n_rerouted_choices += static_cast<int64_t>(layers.size());
      sum.layers.insert(layers.begin(), layers.end());
    }
  }
  return sum;
}

Json routes_json(const ParityReport& report) {
  if (!report.route_bound) {
    return Json();
  }
  const RouteSum sum = sum_routes(report.sequences);
  Json sequences = Json::array();
  for (const SequenceParity& sequence : report.sequences) {
    if (!sequence.routes.rerouted.empty()) {
      sequences.push_back({{"prompt_tokens", sequence.n_prompt},
                           {"rerouted", rerouted_json(sequence.routes.rerouted)}});
    }
  }
  return {{"bound", *report.route_bound},
          {"positions", sum.n_positions},
          {"choices", sum.n_choices},
          {"rerouted_positions", sum.n_rerouted_positions},
          {"rerouted_choices", sum.n_rerouted_choices},
          {"layers", sum.layers},
          {"oracle_replays", report.n_replays},
          {"unsteady_positions", sum.n_unsteady},
          {"sequences", sequences},
          {"failure", report.route_failure()}};
}

std::string routes_text(const ParityReport& report) {
  const RouteSum sum = sum_routes(report.sequences);
  std::string text = fmt::format("routes {}: experts of {} of {} positions chosen otherwise",
                                 report.route_failure().empty() ? "PASS" : "FAIL",
                                 sum.n_rerouted_positions, sum.n_positions);
  if (sum.n_rerouted_positions > 0) {
    text += fmt::format(
        " (layers {}), among router logits at most {:.3g} of the largest apart; the oracle took "
        "the choices over and ran again {} times",
        fmt::join(sum.layers, ", "), *report.route_bound, report.n_replays);
  }
  text += "\n";
  if (sum.n_unsteady > 0) {
    text += fmt::format(
        "  {} positions had other logits when they were run again, watched: the experts recorded "
        "may not be those judged\n",
        sum.n_unsteady);
  }
  return text;
}

Json ops_json(const OpParityReport& ops) {
  Json worst = Json::array(), failed = Json::array();
  for (const OpParity& op : ops.worst) {
    worst.push_back(op_json(op));
  }
  for (const OpParity& op : ops.failed) {
    failed.push_back(op_json(op));
  }
  Json json = {{"compared", ops.n_compared},
               {"rerouted", rerouted_json(ops.rerouted)},
               {"inputs", "the backend's own, for the oracle too"},
               {"first_bad_op", failed.empty() ? Json() : failed[0]},
               {"failed", failed},
               {"worst_of_each_kind", worst}};
  if (!ops.error.empty()) {
    json["error"] = ops.error;
  }
  return json;
}

std::string op_line(const OpParity& op) {
  std::string line = fmt::format(
      "{} ({}, layer {}): {} of kernel {} at position {} ({}): relative Linf {:.3g}, "
      "bound {:.3g}",
      op.op, op_kind_name(op.kind), op.layer_idx, op.value, op.kernel,
      op.first_position + op.worst_row, op.n_tokens == 1 ? "decode" : "prefill", op.relative_linf,
      op.bound);
  if (op.error_to_exact && op.oracle_error_to_exact) {
    line +=
        fmt::format("; off the exact value by {:.3g}, the oracle by {:.3g}: {} is nearer",
                    *op.error_to_exact, *op.oracle_error_to_exact,
                    *op.error_to_exact < *op.oracle_error_to_exact ? "the backend" : "the oracle");
  }
  return line;
}

}  // namespace

std::string ParityReport::route_failure() const {
  for (const SequenceParity& sequence : sequences) {
    if (!sequence.routes.failure.empty()) {
      return sequence.routes.failure;
    }
  }
  return {};
}

std::string ParityReport::per_op_refusal() const {
  return eight_bit_cosine() ? fmt::format(
                                  "--per-op has no bound for {} products; unset FP8_PREFILL and "
                                  "APR_QWEN35_PREFILL_GEMM",
                                  prefill_gemm["ran"].get<std::string>())
                            : "";
}

std::string ParityReport::failure() const {
  if (const std::string wrong = route_failure(); !wrong.empty()) {
    return fmt::format("parity failed: {}", wrong);
  }
  if (ops && !ops->failed.empty()) {
    return fmt::format("parity failed: first op {}", op_line(ops->failed[0]));
  }
  return fmt::format("parity failed: {}", verdict.passed ? ops->error : verdict.reason);
}

nlohmann::ordered_json parity_json(const ParityReport& report) {
  const ParityBounds bounds = report.bounds();
  Json positions = Json::array(), near_ties = Json::array();
  for (const LogitsParity& position : report.positions) {
    positions.push_back(position_json(position, bounds));
  }
  for (const size_t idx : report.verdict.near_ties) {
    near_ties.push_back(report.positions[idx].position);
  }
  Json json = {{"model", report.model},
               {"passed", report.passed()},
               {"reason", report.passed() ? "" : report.failure()},
               {"mode", report.exact ? "exact" : "default"},
               {"trained_weights", report.trained},
               {"oracle", report.oracle},
               {"backend", report.choice.to_json()},
               {"prefill_gemm", report.prefill_gemm},
               {"bounds",
                {{"min_cosine", bounds.min_cosine},
                 {"max_relative_linf", nullptr},
                 {"max_mean_kl", nullptr},
                 {"margin", bounds.margin},
                 {"relative_margin", bounds.relative_margin}}},
               {"min_cosine", number(report.verdict.min_cosine)},
               {"mean_kl", number(report.verdict.mean_kl)},
               {"max_relative_linf", number(report.verdict.max_relative_linf)},
               {"judged", report.positions.size()},
               {"near_ties", near_ties},
               {"routes", routes_json(report)},
               {"positions", positions}};
  if (bounds.max_relative_linf) {
    json["bounds"]["max_relative_linf"] = *bounds.max_relative_linf;
  }
  if (bounds.max_mean_kl) {
    json["bounds"]["max_mean_kl"] = *bounds.max_mean_kl;
  }
  if (report.ops) {
    json["ops"] = ops_json(*report.ops);
  }
  return json;
}

std::string parity_text(const ParityReport& report) {
  const ParityBounds bounds = report.bounds();
  std::string text;
  for (const LogitsParity& position : report.positions) {
    if (const std::string failure = position_failure(position, bounds); !failure.empty()) {
      text += failure + "\n";
    }
  }
  for (const size_t idx : report.verdict.near_ties) {
    const LogitsParity& position = report.positions[idx];
    text +=
        fmt::format("position {}: near tie, not judged: token {} instead of {}, margin {:.4g}\n",
                    position.position, position.id, position.oracle_id, position.margin);
  }
  const auto n_decode = std::count_if(report.positions.begin(), report.positions.end(),
                                      [](const LogitsParity& p) { return p.is_decode; });
  text += fmt::format(
      "logits {}: {} mode, {} positions ({} of decode), cosine >= {:.8f}, mean KL {:.3g}{}, "
      "relative Linf <= {:.3g}, {} near ties\n",
      report.verdict.passed ? "PASS" : "FAIL", report.exact ? "exact" : "default",
      report.positions.size(), n_decode, report.verdict.min_cosine, report.verdict.mean_kl,
      bounds.max_mean_kl || report.exact ? ""
      : report.eight_bit_cosine()        ? " (not judged: 8-bit activations)"
                                         : " (not judged: synthetic weights)",
      report.verdict.max_relative_linf, report.verdict.near_ties.size());
  if (report.route_bound) {
    text += routes_text(report);
  }
  if (!report.ops) {
    return text;
  }
  for (const OpParity& op : report.ops->failed) {
    text += op_line(op) + "\n";
  }
  if (!report.ops->error.empty()) {
    text += report.ops->error + "\n";
  }
  text += fmt::format("ops {}: {} values, each from the backend's own inputs; the worst by kind:\n",
                      report.ops->passed() ? "PASS" : "FAIL", report.ops->n_compared);
  if (!report.ops->rerouted.empty()) {
    text += fmt::format(
        "  experts of {} positions chosen otherwise, among router logits within the bound; the "
        "oracle took the choices over\n",
        report.ops->rerouted.size());
  }
  for (const OpParity& op : report.ops->worst) {
    text += fmt::format("  {:<16} {:>9.3g} of {:>9.3g}  {} {} ({})\n", op_kind_name(op.kind),
                        op.relative_linf, op.bound, op.op, op.value == op.op ? "" : op.value,
                        op.kernel);
  }
  return text;
}

}  // namespace apr::cli
