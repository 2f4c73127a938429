// A run through the gates whose GPU is a CPU backend with its logits changed.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "cli/gates.h"
#include "generate/logit_rows.h"
#include "support/altered_backend.h"
#include "support/fixtures.h"
#include "support/gguf_writer.h"

namespace apr::test {

using AlterationOf = std::function<Alteration(const cli::EngineOptions&)>;

inline Alteration turned(int64_t first_position, double cosine) {
  return {.change = [=](int64_t position, int64_t, std::span<float> logits) {
    if (position >= first_position) {
      turn_away(logits, cosine);
    }
  }};
}

inline Alteration failing(ErrorCode code, int64_t from_rows) {
  return {.before = [=](int64_t, int64_t n_rows) {
    if (n_rows >= from_rows) {
      throw Error(code, "planted failure");
    }
  }};
}

class Gated : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("XDG_CACHE_HOME", cache_.path().c_str(), 1);
    ::unsetenv("APR_F2_RECEIPT_DIR");
    ::unsetenv("SKIP_PARITY_GATE");
  }

  // A run on a "GPU" changed by `alteration`; the lines on stderr are kept.
  cli::Admitted run(bool forced, const AlterationOf& alteration = {}) {
    choice_ = {forced ? "gpu" : "default", "gpu", "a test"};
    n_made_ = 0;
    cli::Progress progress(true);
    const cli::GateRequest request{*model_,    "model.gguf", engine_, 100,     prompt_,
                                   TokenId{2}, revalidate_,  nullptr, progress};
    ::testing::internal::CaptureStderr();
    try {
      const auto make = [&](const cli::EngineOptions& engine,
                            cli::BackendChoice&) -> std::unique_ptr<Backend> {
        fp8_ = has_fp8_ && !engine.fp8_prefill_off;
        ++n_made_;
        if (n_made_ > most_made_) {
          throw cli::RefusedBackend(ErrorCode::kBackendUnavailable, "planted refusal");
        }
        return std::make_unique<AlteredBackend>(
            cli::make_cpu(*model_, engine, 100, 65),
            alteration ? alteration(engine) : Alteration{.max_logit_rows = 1});
      };
      cli::Admitted admitted =
          cli::admit(request, choice_, {make, [&](const Backend&) { return fp8_; }});
      lines_ = ::testing::internal::GetCapturedStderr();
      EXPECT_EQ(admitted.backend->n_past(), 0);
      return admitted;
    } catch (...) {
      lines_ = ::testing::internal::GetCapturedStderr();
      throw;
    }
  }

  // A forced run that must be refused.
  cli::RefusedBackend refusal(const AlterationOf& alteration) {
    try {
      run(true, alteration);
    } catch (const cli::RefusedBackend& refused) {
      EXPECT_EQ(refused.choice().to_json()["fell_back"], true);
      EXPECT_EQ(refused.choice().ran, "none");
      EXPECT_EQ(refused.parity()["status"], "FAILED");
      return refused;
    }
    ADD_FAILURE() << "no refusal";
    return {ErrorCode::kGeneric, ""};
  }

  bool printed(const std::string& text) const { return lines_.find(text) != std::string::npos; }
  bool is_cpu(const cli::Admitted& admitted) const {
    return choice_.ran == "cpu" && admitted.backend->device_name().starts_with("CPU");
  }
  std::vector<std::filesystem::path> receipts() const {
    std::vector<std::filesystem::path> found;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(cache_ / "apr/f2-receipts", error)) {
      found.push_back(entry.path());
    }
    return found;
  }

  TempFolder cache_;
  std::unique_ptr<Model> model_ =
      std::make_unique<Model>(open_gguf(*model_path("tiny-qwen3-kmix")));
  std::vector<TokenId> prompt_ = arbitrary_ids(model_->desc().n_tokens, 12);
  cli::EngineOptions engine_;
  bool revalidate_ = false;
  cli::BackendChoice choice_;
  int n_made_ = 0, most_made_ = 9;
  bool has_fp8_ = false, fp8_ = false;  // asked for, and what the last backend runs
  std::string lines_;
};

}  // namespace apr::test
