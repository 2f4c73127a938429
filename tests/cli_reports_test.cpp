// What apr parity and apr bench print of what they found.
#include <gtest/gtest.h>

#include <cmath>

#include "cli/bench_report.h"
#include "cli/file_type.h"
#include "cli/parity_report.h"

namespace apr::cli {
namespace {

ParityReport failing_report() {
  ParityReport report;
  report.model = "m.gguf";
  report.choice = {"gpu", "gpu", "asked for by --gpu"};
  LogitsParity good;
  good.cosine = 1.0;
  good.margin = 1.0;
  LogitsParity bad = good;
  bad.position = 17;
  bad.cosine = 0.5;
  report.positions = {good, bad};
  report.verdict = judge(report.positions, report.bounds());
  return report;
}

TEST(ParityReport, OfABadPositionSaysWhereInEveryForm) {
  const ParityReport report = failing_report();
  EXPECT_FALSE(report.passed());
  EXPECT_NE(report.failure().find("position 17 (prefill): cosine 0.5"), std::string::npos);
  const auto json = parity_json(report);
  EXPECT_EQ(json["passed"], false);
  EXPECT_EQ(json["reason"], report.failure());
  EXPECT_EQ(json["positions"][0]["passed"], true);
  EXPECT_EQ(json["positions"][1]["passed"], false);
  EXPECT_EQ(json["backend"]["ran"], "gpu");
  const std::string text = parity_text(report);
  EXPECT_NE(text.find("position 17 (prefill)"), std::string::npos);
  EXPECT_NE(text.find("logits FAIL"), std::string::npos);
}

TEST(ParityReport, NamesTheFirstBadOpAndWhoIsNearer) {
  ParityReport report = failing_report();
  OpParity op;
  op.op = "blk.3.attn_q";
  op.value = op.op;
  op.kind = OpKind::kMatmul;
  op.layer_idx = 3;
  op.kernel = "project";
  op.first_position = 4;
  op.n_tokens = 5;
  op.worst_row = 2;
  op.relative_linf = 0.25;
  op.bound = 0.004;
  op.passed = false;
  op.error_to_exact = 0.25;
  op.oracle_error_to_exact = 1e-7;
  report.ops = OpParityReport{};
  report.ops->failed = {op, op};
  EXPECT_NE(report.failure().find("first op blk.3.attn_q (matmul, layer 3)"), std::string::npos);
  EXPECT_NE(report.failure().find("the oracle is nearer"), std::string::npos);
  const auto first = parity_json(report)["ops"]["first_bad_op"];
  EXPECT_EQ(first["op"], "blk.3.attn_q");
  EXPECT_EQ(first["layer"], 3);
  EXPECT_EQ(first["position"], 6);
  EXPECT_EQ(first["nearer_to_exact"], "oracle");
  EXPECT_NE(parity_text(report).find("ops FAIL"), std::string::npos);
}

TEST(ParityReport, FailsForABadOpAloneAndForAnErrorAlone) {
  ParityReport report = failing_report();
  report.positions.pop_back();
  report.verdict = judge(report.positions, report.bounds());
  EXPECT_TRUE(report.passed());
  report.ops = OpParityReport{};
  EXPECT_TRUE(report.passed());
  report.ops->error = "non-finite logits at position 3";
  EXPECT_FALSE(report.passed());
  EXPECT_NE(report.failure().find("non-finite logits"), std::string::npos);
}

TEST(ParityReport, RefusesToCompareOpsOfEightBits) {
  ParityReport report;
  EXPECT_EQ(report.per_op_refusal(), "");
  for (const auto& [ran, word] :
       {std::pair{"f16", ""}, {"f32", ""}, {"fp8", "fp8"}, {"dp4a", "dp4a"}}) {
    report.prefill_gemm = {{"requested", ran}, {"ran", ran}, {"reason", ""}};
    EXPECT_EQ(report.per_op_refusal().empty(), *word == 0) << ran;
    EXPECT_NE(report.per_op_refusal().find(word), std::string::npos) << ran;
  }
}

TEST(ParityReport, HasNoNumberWhereJsonHasNone) {
  ParityReport report = failing_report();
  report.positions[1].relative_linf = INFINITY;
  report.positions[1].cosine = NAN;
  report.verdict = judge(report.positions, report.bounds());
  const auto json = parity_json(report);
  EXPECT_TRUE(json["positions"][1]["cosine"].is_null());
  EXPECT_TRUE(json["max_relative_linf"].is_null());
  EXPECT_EQ(json["passed"], false);
}

ParityReport report_of_experts() {
  ParityReport report;
  LogitsParity good;
  good.cosine = 1.0;
  good.margin = 1.0;
  report.positions = {good};
  report.verdict = judge(report.positions, report.bounds());
  report.route_bound = 0x1p-6;
  report.n_replays = 1;
  SequenceParity shorter, longer;
  shorter.n_prompt = 3;
  longer.n_prompt = 9;
  longer.n_decode = 2;
  longer.routes.n_choices = 44;
  longer.routes.rerouted = {{4, {1, 3}}, {10, {3}}};
  report.sequences = {shorter, longer};
  return report;
}

TEST(ParityReport, OfOtherExpertsSaysHowManyAndWhere) {
  const ParityReport report = report_of_experts();
  EXPECT_TRUE(report.passed());
  const auto routes = parity_json(report)["routes"];
  EXPECT_EQ(routes["bound"], 0x1p-6);
  EXPECT_EQ(routes["positions"], 14);
  EXPECT_EQ(routes["choices"], 44);
  EXPECT_EQ(routes["rerouted_positions"], 2);
  EXPECT_EQ(routes["rerouted_choices"], 3);
  EXPECT_EQ(routes["layers"], (std::vector<int>{1, 3}));
  EXPECT_EQ(routes["oracle_replays"], 1);
  ASSERT_EQ(routes["sequences"].size(), 1U);
  EXPECT_EQ(routes["sequences"][0]["prompt_tokens"], 9);
  EXPECT_EQ(routes["sequences"][0]["rerouted"][0]["layers"], (std::vector<int>{1, 3}));
  EXPECT_NE(parity_text(report).find("experts of 2 of 14 positions chosen otherwise (layers 1, 3)"),
            std::string::npos)
      << parity_text(report);
  EXPECT_TRUE(parity_json(failing_report())["routes"].is_null());
}

TEST(ParityReport, OfAChoiceThatTheBoundForbidsFailsByName) {
  ParityReport report = report_of_experts();
  report.sequences[1].routes.failure = "position 4: blk.1.ffn_expert_ids (layer 1) chose";
  EXPECT_FALSE(report.passed());
  EXPECT_NE(report.failure().find("blk.1.ffn_expert_ids"), std::string::npos);
  EXPECT_EQ(parity_json(report)["passed"], false);
  EXPECT_NE(parity_text(report).find("routes FAIL"), std::string::npos);
}

TEST(BenchReport, SharesAreOfBytesInDecodeAndOfProductsInPrompts) {
  const MachineSpeed speed{100e9, 50e12, "measured"};
  BenchResult decode;
  decode.test = {0, 10, 0};
  decode.samples_ns = {1'000'000'000};
  decode.bytes = 25e9;
  decode.flops = 49e12;
  EXPECT_DOUBLE_EQ(decode.share_of_bound(speed), 0.25);
  EXPECT_DOUBLE_EQ(decode.mean_ts(), 10.0);
  EXPECT_EQ(decode.stddev_ts(), 0.0);
  BenchResult prompt = decode;
  prompt.test = {10, 0, 7};
  EXPECT_DOUBLE_EQ(prompt.share_of_bound(speed), 0.98);
  EXPECT_EQ(prompt.share_of_bound({100e9, 0.0, "no products"}), 0.0);
  EXPECT_EQ(prompt.test.name(), "pp10 @ d7");
  EXPECT_EQ(decode.test.name(), "tg10");
}

TEST(FileType, HasTheNamesThatLlamaCppPrints) {
  EXPECT_EQ(file_type_name(0), "all F32");
  EXPECT_EQ(file_type_name(7), "Q8_0");
  EXPECT_EQ(file_type_name(14), "Q4_K - Small");
  EXPECT_EQ(file_type_name(15), "Q4_K - Medium");
  EXPECT_EQ(file_type_name(19), "IQ2_XXS - 2.0625 bpw");
  EXPECT_EQ(file_type_name(38), "MXFP4 MoE");
  for (const uint64_t retired_or_unknown : {4ull, 5ull, 6ull, 33ull, 35ull, 1024ull, ~0ull}) {
    EXPECT_EQ(file_type_name(retired_or_unknown), "");
  }
}

TEST(BenchReport, TestsGoByDepthAndZerosAreNone) {
  const auto tests = bench_tests({0, 5}, {3, 0}, {0, 9});
  ASSERT_EQ(tests.size(), 4U);
  EXPECT_EQ(tests[0].name(), "pp5");
  EXPECT_EQ(tests[1].name(), "tg3");
  EXPECT_EQ(tests[2].name(), "pp5 @ d9");
  EXPECT_EQ(tests[3].name(), "tg3 @ d9");
}

}  // namespace
}  // namespace apr::cli
