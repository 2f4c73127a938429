// Receipts: when one spares a validation, and when it does not.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "support/gated.h"

namespace apr::cli {
namespace {

using test::failing;

class Receipts : public test::Gated {};

TEST_F(Receipts, PassesOnceAndIsThenSparedByAReceipt) {
  const Admitted first = run(true);
  EXPECT_EQ(first.parity.status, "PASS");
  EXPECT_EQ(first.parity.source, "fresh");
  EXPECT_EQ(first.parity.positions, 1 + 11 + 1 + 7);
  EXPECT_GE(*first.parity.cosine, 0.99999);
  EXPECT_GE(*first.parity.min_cosine, 0.99999);
  EXPECT_TRUE(printed("validating once")) << lines_;
  EXPECT_TRUE(printed("no receipt for this model")) << lines_;
  EXPECT_TRUE(printed("parity: PASS cosine=")) << lines_;
  EXPECT_TRUE(printed("positions=20 threshold=0.98 basis=cpu")) << lines_;
  EXPECT_TRUE(printed("selected: gpu")) << lines_;
  ASSERT_EQ(receipts().size(), 1U);
  const auto json = test::load_json(receipts()[0]);
  EXPECT_EQ(json["schema"], 2);
  EXPECT_EQ(json["model_sha256"].get<std::string>() + ".json", receipts()[0].filename());
  EXPECT_EQ(json["apr_version"], "0.1.0");
  EXPECT_TRUE(json["build_id"].get<std::string>().starts_with("exe-sha256:"));
  EXPECT_TRUE(json["device"].get<std::string>().starts_with("altered CPU"));
  EXPECT_GT(json["validated_at"], 1700000000);
  EXPECT_EQ(json["positions_judged"], 20);

  const Admitted second = run(true, [](const EngineOptions&) {
    return failing(ErrorCode::kBackendUnavailable, 1);  // nothing is computed
  });
  EXPECT_EQ(second.parity.source, "receipt");
  EXPECT_EQ(second.parity.to_json()["cosine"], first.parity.to_json()["cosine"]);
  EXPECT_EQ(second.parity.positions, 20);
  EXPECT_TRUE(printed("parity: receipt cosine=")) << lines_;
  EXPECT_FALSE(printed("validating")) << lines_;

  revalidate_ = true;
  EXPECT_EQ(run(true).parity.source, "fresh");
  EXPECT_TRUE(printed("--revalidate")) << lines_;
}

TEST_F(Receipts, ValidatesWhereTheReceiptIsOfSomethingElseAndNamesIt) {
  run(true);
  ASSERT_EQ(receipts().size(), 1U);
  const auto path = receipts()[0];
  const nlohmann::json good = test::load_json(path);
  const struct {
    const char* field;
    nlohmann::json value;
    const char* reason;
  } rows[] = {
      {"schema", 1, "another schema"},
      {"model_sha256", "00", "another model"},
      {"apr_version", "0.0.9", "another version of apr"},
      {"build_id", "exe-sha256:00", "another build of apr"},
      {"device", "NVIDIA T4", "another device"},
      {"device", nullptr, "another device"},
      {"kernels", nlohmann::json::object(), "other kernels"},
      {"kernels", 7, "other kernels"},
      {"kernels", {{good["kernels"].begin().key(), {{"cosine", "x"}}}}, "other kernels"},
  };
  for (const auto& [field, value, reason] : rows) {
    nlohmann::json changed = good;
    changed[field] = value;
    std::ofstream(path) << changed;
    EXPECT_EQ(run(true).parity.source, "fresh") << field;
    EXPECT_TRUE(printed(reason)) << lines_;
    EXPECT_EQ(run(true).parity.source, "receipt") << field;  // a new one
  }
  for (const char* text : {"", "[]", "{\"schema\"", "\xff\xfe"}) {
    std::ofstream(path) << text;
    EXPECT_EQ(run(true).parity.source, "fresh");
    EXPECT_TRUE(printed("cannot be read")) << lines_;
  }
}

// What lies where a receipt should.
TEST_F(Receipts, IsNotStoppedByWhatIsNoReceipt) {
  run(true);
  ASSERT_EQ(receipts().size(), 1U);
  const auto path = receipts()[0];
  nlohmann::json good = test::load_json(path);
  for (const char* field : {"validated_at", "positions_judged", "batch_rows"}) {
    nlohmann::json changed = good;
    changed["kernels"].begin().value()[field] = 1e300;
    std::ofstream(path) << changed;
    EXPECT_EQ(run(true).parity.source, "fresh") << field;
  }
  good["kernels"] = nlohmann::json::object();
  std::string nested = good.dump();
  const std::string many(400000, '[');
  nested.insert(nested.find("{}") + 1, "\"x\": " + many + std::string(many.size(), ']'));
  std::ofstream(path) << nested;
  EXPECT_EQ(run(true).parity.source, "fresh");
  EXPECT_TRUE(printed("other kernels")) << lines_;
  EXPECT_EQ(run(true).parity.source, "receipt");

  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);  // nobody writes to it
  EXPECT_EQ(run(true).parity.source, "fresh");
  EXPECT_TRUE(printed("cannot be read")) << lines_;
  EXPECT_EQ(run(true).parity.source, "receipt");

  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/zero", path);
  EXPECT_EQ(run(true).parity.source, "fresh");
  EXPECT_EQ(run(true).parity.source, "receipt");

  std::filesystem::remove(path);
  std::filesystem::create_symlink(path, path);
  EXPECT_EQ(run(true).parity.source, "fresh");
  EXPECT_EQ(run(true).parity.source, "receipt");

  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_EQ(run(true).parity.source, "fresh");
  EXPECT_TRUE(printed("no receipt is kept: ")) << lines_;
}

TEST_F(Receipts, HasAReceiptForEachSetOfKernels) {
  run(true);
  engine_.exact = true;
  EXPECT_EQ(run(true).parity.source, "fresh");
  EXPECT_TRUE(printed("other kernels")) << lines_;
  EXPECT_EQ(run(true).parity.source, "receipt");
  engine_.exact = false;
  EXPECT_EQ(run(true).parity.source, "receipt");
  ::setenv("APR_QWEN35_PREFILL_ATTENTION", "f32", 1);
  EXPECT_EQ(run(true).parity.source, "fresh");
  ::unsetenv("APR_QWEN35_PREFILL_ATTENTION");
}

TEST_F(Receipts, GoesOnWithoutAFolderForReceipts) {
  for (const char* dir : {"/proc/no/such", "/dev/null/x"}) {
    ::setenv("APR_F2_RECEIPT_DIR", dir, 1);
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(run(true).parity.source, "fresh");
      EXPECT_TRUE(printed("no receipt is kept: ")) << lines_;
    }
  }
  ::setenv("APR_F2_RECEIPT_DIR", (cache_ / "elsewhere").c_str(), 1);
  run(true);
  EXPECT_EQ(run(true).parity.source, "receipt");
  ::unsetenv("APR_F2_RECEIPT_DIR");
  ::setenv("XDG_CACHE_HOME", "relative", 1);
  const char* home = std::getenv("HOME");
  const std::string kept = home == nullptr ? "" : home;
  ::unsetenv("HOME");
  EXPECT_EQ(run(true).parity.source, "fresh");
  EXPECT_TRUE(printed("APR_F2_RECEIPT_DIR")) << lines_;
  ::setenv("HOME", kept.c_str(), 1);
}

}  // namespace
}  // namespace apr::cli
