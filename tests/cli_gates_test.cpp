// What a run does with what the gates find; the GPU's part is a CPU backend whose logits are
// changed.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "support/expect_error.h"
#include "support/gated.h"

namespace apr::cli {
namespace {

using test::Alteration;
using test::AlterationOf;
using test::failing;
using test::Gated;
using test::turned;

TEST_F(Gated, JudgesAPromptOfOneTokenByTheLoadGateAlone) {
  prompt_.resize(1);
  const Admitted admitted = run(true);
  EXPECT_EQ(admitted.parity.status, "PASS");
  EXPECT_EQ(admitted.parity.source, "not-judged");
  EXPECT_EQ(admitted.parity.positions, 1);
  EXPECT_TRUE(admitted.parity.to_json()["min_cosine"].is_null());
  EXPECT_TRUE(receipts().empty());
}

TEST_F(Gated, IsSkippedByTheVariable) {
  const AlterationOf bad = [](const EngineOptions&) { return turned(0, 0.1); };
  ::setenv("SKIP_PARITY_GATE", "1", 1);
  const Admitted admitted = run(true, bad);
  EXPECT_EQ(admitted.parity.status, "skipped");
  EXPECT_EQ(admitted.parity.source, "not-judged");
  EXPECT_TRUE(admitted.parity.to_json()["cosine"].is_null());
  EXPECT_TRUE(printed("warning: parity: skipped (SKIP_PARITY_GATE=1)")) << lines_;
  EXPECT_TRUE(receipts().empty());
  ::setenv("SKIP_PARITY_GATE", "yes", 1);
  EXPECT_EQ(refusal(bad).code(), ErrorCode::kParityFailed);
  EXPECT_TRUE(printed("SKIP_PARITY_GATE is \"yes\"; it must be 0 or 1")) << lines_;
}

TEST_F(Gated, RefusesAForcedGpuAtTheLoadGate) {
  for (const double cosine : {0.899, 0.5, 0.01}) {
    const RefusedBackend refused = refusal([=](const EngineOptions&) { return turned(0, cosine); });
    EXPECT_EQ(refused.exit_code(), 13);
    const std::string text = refused.what();
    EXPECT_TRUE(text.starts_with("PARITY-GATE FAILED")) << text;
    for (const char* part : {"at least 0.98", "argmax CPU ", " | GPU ", "max abs difference",
                             "apr parity model.gguf", "SKIP_PARITY_GATE=1"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << ": " << text;
    }
    EXPECT_NEAR(refused.parity()["cosine"].get<double>(), cosine, 1e-4);
    EXPECT_EQ(refused.parity()["positions"], 1);
    EXPECT_EQ(n_made_, 1);
  }
  EXPECT_TRUE(receipts().empty());
}

TEST_F(Gated, TakesTheCpuAtTheLoadGateWhereTheGpuIsNotForced) {
  const Admitted admitted = run(false, [](const EngineOptions&) { return turned(0, 0.5); });
  EXPECT_TRUE(is_cpu(admitted));
  EXPECT_EQ(admitted.parity.status, "FAILED");
  EXPECT_TRUE(
      printed("\nselected: cpu (reason: parity FAILED cosine=0.5000 position=1 "
              "threshold=0.98)\n"))
      << lines_;
  EXPECT_FALSE(choice_.fell_back());
  EXPECT_EQ(choice_.reason, "parity FAILED cosine=0.5000 position=1 threshold=0.98");
}

TEST_F(Gated, TriesTheExactKernelsOnceAndGoesOnWithThem) {
  const AlterationOf fast_is_bad = [](const EngineOptions& engine) {
    return turned(0, engine.exact ? 1.0 : 0.95);
  };
  const Admitted admitted = run(true, fast_is_bad);
  EXPECT_EQ(n_made_, 2);
  EXPECT_EQ(admitted.parity.status, "PASS");
  EXPECT_GE(*admitted.parity.cosine, 0.9999);
  EXPECT_NE(choice_.reason.find("exact kernels, as the fast ones reached cosine 0.95"),
            std::string::npos)
      << choice_.reason;
  EXPECT_TRUE(printed("warning: parity: cosine=0.9500")) << lines_;
  // The receipt is of the exact kernels: without --exact the gate looks again.
  EXPECT_EQ(run(true, fast_is_bad).parity.source, "fresh");
  engine_.exact = true;
  EXPECT_EQ(run(true, fast_is_bad).parity.source, "receipt");
}

TEST_F(Gated, IsDecidedByTheRetry) {
  const RefusedBackend refused =
      refusal([](const EngineOptions& engine) { return turned(0, engine.exact ? 0.979 : 0.95); });
  EXPECT_EQ(refused.exit_code(), 13);
  EXPECT_NEAR(refused.parity()["cosine"].get<double>(), 0.979, 1e-4);
  EXPECT_EQ(n_made_, 2);
  engine_.exact = true;  // nothing to try
  refusal([](const EngineOptions&) { return turned(0, 0.95); });
  EXPECT_EQ(n_made_, 1);
  engine_.exact = false;
  most_made_ = 1;  // no memory for it
  EXPECT_EQ(refusal([](const EngineOptions&) { return turned(0, 0.95); }).exit_code(), 13);
  EXPECT_EQ(n_made_, 2);
  most_made_ = 1;
  EXPECT_TRUE(is_cpu(run(false, [](const EngineOptions&) { return turned(0, 0.95); })));
}

TEST_F(Gated, RefusesAForcedGpuOnThePrompt) {
  const RefusedBackend refused = refusal([](const EngineOptions&) { return turned(5, 0.9); });
  EXPECT_EQ(refused.exit_code(), 14);
  const std::string text = refused.what();
  EXPECT_TRUE(text.starts_with("GPU output diverges from CPU at position 5 (argmax ")) << text;
  EXPECT_NE(text.find("validated via batched prefill"), std::string::npos) << text;
  EXPECT_NEAR(refused.parity()["min_cosine"].get<double>(), 0.9, 1e-3);
  EXPECT_GE(refused.parity()["cosine"].get<double>(), 0.9999);
  EXPECT_EQ(refused.parity()["source"], "fresh");
  EXPECT_TRUE(receipts().empty());
}

TEST_F(Gated, JudgesTheKernelsOfALongPromptAsWell) {
  prompt_ = arbitrary_ids(model_->desc().n_tokens, 90);
  const RefusedBackend refused = refusal([](const EngineOptions&) {
    return Alteration{.change = [](int64_t position, int64_t n_rows, std::span<float> logits) {
      if (position == 9 && n_rows == 90) {
        test::turn_away(logits, 0.9);
      }
    }};
  });
  EXPECT_EQ(refused.exit_code(), 14);
  EXPECT_NE(std::string(refused.what()).find("at position 9 "), std::string::npos);
  // A receipt of a short prompt is not one of a long prompt; the other way it is.
  const std::vector<TokenId> long_prompt = prompt_;
  prompt_.resize(30);
  run(true);
  prompt_ = long_prompt;
  const Admitted admitted = run(true);
  EXPECT_TRUE(printed("shorter prompts")) << lines_;
  EXPECT_EQ(admitted.parity.positions, 1 + 64 + 7 + 15 + 63);
  EXPECT_EQ(run(true).parity.source, "receipt");
  prompt_.resize(30);
  EXPECT_EQ(run(true).parity.source, "receipt");
}

// As other kernels take them, and end long prompts.
TEST_F(Gated, JudgesTheKernelsOfFewTokensAsWell) {
  const RefusedBackend refused = refusal([](const EngineOptions&) {
    return Alteration{.change = [](int64_t position, int64_t n_rows, std::span<float> logits) {
      if (position == 6 && n_rows == 8) {
        test::turn_away(logits, 0.9);
      }
    }};
  });
  EXPECT_EQ(refused.exit_code(), 14);
  EXPECT_NE(std::string(refused.what()).find("at position 6 "), std::string::npos);
}

// A step of one token alone: what a bad cache would do.
TEST_F(Gated, RefusesADecodeStepThatIsOther) {
  const RefusedBackend refused = refusal([](const EngineOptions&) {
    return Alteration{.change = [](int64_t position, int64_t n_rows, std::span<float> logits) {
      if (position > 0 && n_rows == 1) {
        test::turn_away(logits, 0.9);
      }
    }};
  });
  EXPECT_EQ(refused.exit_code(), 14);
  EXPECT_NE(std::string(refused.what()).find("at position 12 "), std::string::npos)
      << refused.what();
}

TEST_F(Gated, TakesTheCpuOnThePromptWhereTheGpuIsNotForced) {
  for (const bool serial : {false, true}) {
    const Admitted admitted = run(false, [=](const EngineOptions&) {
      Alteration alteration = turned(5, 0.9);
      alteration.max_rows = serial ? 1 : 64;
      return alteration;
    });
    EXPECT_TRUE(is_cpu(admitted));
    EXPECT_TRUE(printed("\nwarning: GPU output diverges from CPU at position 5 (argmax "))
        << lines_;
    EXPECT_TRUE(printed(std::string("validated via ") + (serial ? "serial" : "batched") +
                        " prefill — falling back to CPU\n"))
        << lines_;
    EXPECT_FALSE(printed("selected:")) << lines_;
    EXPECT_EQ(admitted.parity.status, "FAILED");
  }
}

TEST_F(Gated, MeasuresFp16WhereFp8IsRejected) {
  const auto with_cosines = [](double fp8, double fp16) {
    return
        [=](const EngineOptions& engine) { return turned(5, engine.fp8_prefill_off ? fp16 : fp8); };
  };
  has_fp8_ = true;
  const Admitted admitted = run(true, with_cosines(0.93, 0.999));
  EXPECT_EQ(n_made_, 2);
  EXPECT_EQ(admitted.parity.status, "PASS");
  EXPECT_NEAR(*admitted.parity.min_cosine, 0.999, 1e-4);
  EXPECT_TRUE(printed("with FP8 products at position 5")) << lines_;
  EXPECT_NE(choice_.reason.find("FP16 products, as FP8 fails parity"), std::string::npos);
  revalidate_ = true;  // what stands for the GPU says nothing of FP8, so its receipts do not
  EXPECT_EQ(refusal(with_cosines(0.93, 0.94)).exit_code(), 14);  // FP16 is judged
  EXPECT_EQ(n_made_, 2);
  EXPECT_EQ(refusal(with_cosines(0.89, 0.999)).exit_code(), 14);  // not FP8's doing
  EXPECT_EQ(n_made_, 1);
  has_fp8_ = false;
  EXPECT_EQ(refusal(with_cosines(0.93, 0.999)).exit_code(), 14);
  EXPECT_EQ(n_made_, 1);
  has_fp8_ = true;
  most_made_ = 1;  // no memory for another: the first verdict stands
  EXPECT_EQ(refusal(with_cosines(0.93, 0.999)).exit_code(), 14);
}

TEST_F(Gated, IsClosedWhereTheGpuFails) {
  const struct {
    int64_t from_rows;
    ErrorCode code;
    int exit_code;
  } rows[] = {
      {1, ErrorCode::kBackendUnavailable, 14},  // at the load gate
      {1, ErrorCode::kInference, 13},           // NaN is an answer: the wrong one
      {2, ErrorCode::kBackendUnavailable, 14},  // in the prompt
      {2, ErrorCode::kInference, 14},
  };
  for (const auto& [from_rows, code, exit_code] : rows) {
    const AlterationOf bad = [&](const EngineOptions&) { return failing(code, from_rows); };
    const RefusedBackend refused = refusal(bad);
    EXPECT_EQ(refused.exit_code(), exit_code) << refused.what();
    EXPECT_NE(std::string(refused.what()).find("planted failure"), std::string::npos);
    if (from_rows == 2) {
      EXPECT_NE(
          std::string(refused.what()).find("while 12 tokens were validated via batched prefill"),
          std::string::npos)
          << refused.what();
    }
    const Admitted admitted = run(false, bad);
    EXPECT_TRUE(is_cpu(admitted));
    EXPECT_TRUE(printed("selected: cpu")) << lines_;
  }
}

TEST_F(Gated, OfAModelWithoutNumbersIsAnInferenceFailure) {
  test::GgufWriter writer =
      test::GgufWriter::copy_of(test::open_gguf(*test::model_path("tiny-qwen3-kmix")));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(writer.tensor("output_norm.weight").data.data(), &nan, sizeof nan);
  const std::filesystem::path path = cache_ / "nan.gguf";
  writer.write(path);
  model_ = std::make_unique<Model>(test::open_gguf(path));
  for (const bool forced : {false, true}) {
    test::expect_error(ErrorCode::kInference, "non-finite", [&] { run(forced); });
  }
}

TEST_F(Gated, LeavesACpuRunAlone) {
  choice_ = {"cpu", "cpu", "asked for by --no-gpu"};
  Progress progress(true);
  const GateRequest request{*model_,    "model.gguf", engine_, 100,     prompt_,
                            TokenId{2}, false,        nullptr, progress};
  const auto make = [&](const EngineOptions& engine, BackendChoice&) {
    return make_cpu(*model_, engine, 100, 1);
  };
  const Admitted admitted = admit(request, choice_, {make, [](const Backend&) { return false; }});
  EXPECT_EQ(admitted.parity.status, "not-run");
  EXPECT_TRUE(std::filesystem::is_empty(cache_.path()));
}

}  // namespace
}  // namespace apr::cli
