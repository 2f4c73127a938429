// Which prefill runs: the card's profile, the environment, a flag, memory. Tables of the spec.
#include <gtest/gtest.h>

#include <set>

#include "support/fit_checks.h"

namespace apr {
namespace {

struct ProfileRow {
  int capability;
  const char* batched_prefill;  // null: not set
  const char* fp8_prefill;
  bool has_qk_norm;
  bool batched;
  std::string_view path_reason;
  PrefillPrecision precision;
  bool refused;  // a line says that FP8_PREFILL is not followed
};

constexpr auto kFp16 = PrefillPrecision::kFp16;
constexpr auto kFp8 = PrefillPrecision::kFp8;

TEST(GpuProfile, FollowsItsTable) {
  const ProfileRow rows[] = {
      {89, nullptr, nullptr, false, true, "default", kFp16, false},  // FP8 is asked for, or off
      {90, nullptr, nullptr, false, true, "default", kFp16, false},
      {89, nullptr, nullptr, true, true, "default", kFp16, false},  // QK-norm stays batched
      {89, nullptr, "0", false, true, "default", kFp16, false},
      {89, nullptr, "1", false, true, "default", kFp8, false},
      {88, nullptr, "1", false, true, "default", kFp16, true},
      {75, nullptr, "1", false, true, "default", kFp16, true},
      {90, nullptr, "1", false, true, "default", kFp8, false},
      {100, nullptr, "1", false, true, "default", kFp8, false},
      {89, nullptr, "1", true, true, "default", kFp16, true},  // refused with QK-norm
      {90, nullptr, "1", true, true, "default", kFp16, true},
      {89, nullptr, "yes", false, true, "default", kFp16, true},  // a bad value: the default
      {89, nullptr, "", false, true, "default", kFp16, false},
      {89, "0", nullptr, false, false, "env=0", kFp16, false},
      {89, "1", nullptr, false, true, "env forced", kFp16, false},
      {89, "yes", nullptr, false, true, "env forced", kFp16, false},
      {89, "", nullptr, false, true, "env forced", kFp16, false},
      {89, "0", "1", false, false, "env=0", kFp8, false},
      {89, "0", "1", true, false, "env=0", kFp16, true},  // the path is kept
      {119, nullptr, nullptr, false, true, "default", kFp16, false},
      {120, nullptr, nullptr, false, true, "default", kFp16, false},  // no special case for 12
      {121, nullptr, nullptr, true, true, "default", kFp16, false},
      {120, nullptr, "1", false, true, "default", kFp8, false},
      {120, "0", nullptr, false, false, "env=0", kFp16, false},
  };
  for (const ProfileRow& row : rows) {
    FitEnvironment environment;
    if (row.batched_prefill != nullptr) {
      environment.batched_prefill = row.batched_prefill;
    }
    if (row.fp8_prefill != nullptr) {
      environment.fp8_prefill = row.fp8_prefill;
    }
    const GpuProfile found = gpu_profile(row.capability, environment, row.has_qk_norm, "anarch");
    const std::string which =
        fmt::format("cc {}, BATCHED_PREFILL {}, FP8_PREFILL {}, qk-norm {}", row.capability,
                    environment.batched_prefill.value_or("unset"),
                    environment.fp8_prefill.value_or("unset"), row.has_qk_norm);
    EXPECT_EQ(found.batched, row.batched) << which;
    EXPECT_EQ(found.path_reason, row.path_reason) << which;
    EXPECT_EQ(found.precision, row.precision) << which;
    EXPECT_EQ(!found.refusal.empty(), row.refused) << which << ": " << found.refusal;
    EXPECT_EQ(found.refusal.find('\n'), std::string::npos);
    EXPECT_NE(found.precision_line().find(fmt::format("cc={};", row.capability)),
              std::string::npos);
  }
}

TEST(GpuProfile, TurnsFp8OffForQkNormAndTouchesNothingElse) {
  GpuProfile profile = gpu_profile(89, {.fp8_prefill = "1"}, false, "anarch");
  EXPECT_TRUE(profile.disable_fp8_for_qk_norm("anarch"));
  EXPECT_EQ(profile.precision, kFp16);
  EXPECT_TRUE(profile.batched);
  EXPECT_TRUE(profile.refusal.starts_with("[#3413] ")) << profile.refusal;
  EXPECT_NE(profile.refusal.find("anarch"), std::string::npos);
  EXPECT_NE(profile.refusal.find("FP16 is used"), std::string::npos);
  EXPECT_FALSE(profile.disable_fp8_for_qk_norm("anarch"));  // nothing left to change
}

TEST(GpuProfile, SaysWhichPrecisionHolds) {
  EXPECT_TRUE(gpu_profile(89, {}, false, "")
                  .precision_line()
                  .starts_with("[#3785] prefill GEMM precision: FP16 (cc=89; "));
  EXPECT_TRUE(gpu_profile(90, {.fp8_prefill = "1"}, false, "")
                  .precision_line()
                  .starts_with("[#3785] prefill GEMM precision: FP8 (E4M3) (cc=90; "));
}

TEST(SerialWhenFp16PrefillDoesNotFit, FollowsItsTable) {
  EXPECT_EQ(test::boundary_difference(), "");
  const FitEnvironment unset, zero{.batched_prefill = "0"}, one{.batched_prefill = "1"};
  EXPECT_TRUE(serial_when_fp16_prefill_does_not_fit(true, unset, 25'000, 24'000));
  EXPECT_FALSE(serial_when_fp16_prefill_does_not_fit(true, unset, 23'000, 24'000));
  EXPECT_FALSE(serial_when_fp16_prefill_does_not_fit(false, unset, 25'000, 24'000));
  EXPECT_FALSE(serial_when_fp16_prefill_does_not_fit(true, zero, 25'000, 24'000));
  EXPECT_FALSE(serial_when_fp16_prefill_does_not_fit(true, one, 25'000, 24'000));
  EXPECT_TRUE(serial_when_fp16_prefill_does_not_fit(true, unset, 1, 0));
  EXPECT_FALSE(serial_when_fp16_prefill_does_not_fit(true, unset, 0, 0));
}

constexpr uint64_t kFree = 24'000'000'000;

PrefillCase of_memory(uint64_t need, uint64_t batched, uint64_t streamed) {
  PrefillCase of;
  of.has_qk_norm = true;
  of.need_bytes = need;
  of.free_bytes = kFree;
  of.batched_bytes = batched;
  of.streamed_bytes = streamed;
  return of;
}

TEST(ChoosePrefill, AsksMemoryWhereNobodyForces) {
  const PrefillChoice fits = choose_prefill(of_memory(kFree, kFree, kFree));
  EXPECT_EQ(fits.path, PrefillPath::kBatched);
  EXPECT_EQ(fits.line, "");
  EXPECT_FALSE(fits.is_forced);
  const PrefillChoice streamed = choose_prefill(of_memory(24'660'000'000, 1, kFree));
  EXPECT_EQ(streamed.path, PrefillPath::kStreamed);
  EXPECT_EQ(streamed.line,
            "[#3715] streamed prefill: the FP16 batched prefill needs 24.7 GB and 24.0 GB is free "
            "(BATCHED_PREFILL=1 overrides)");
  const PrefillChoice serial = choose_prefill(of_memory(24'660'000'000, 1, kFree + 1));
  EXPECT_EQ(serial.path, PrefillPath::kSerial);
  EXPECT_EQ(serial.line,
            "[#3715] serial prefill: the FP16 batched prefill needs 24.7 GB and 24.0 GB is free "
            "(BATCHED_PREFILL=1 overrides)");
  // What it would allocate counts, even where the seed's sum fits.
  EXPECT_EQ(choose_prefill(of_memory(kFree, kFree + 1, kFree)).path, PrefillPath::kStreamed);
}

TEST(ChoosePrefill, WithoutQkNormAsksWhatIsAllocatedAlone) {
  PrefillCase of = of_memory(kFree + 1, kFree, kFree);
  of.has_qk_norm = false;
  EXPECT_EQ(choose_prefill(of).path, PrefillPath::kBatched);
  of.batched_bytes = kFree + 1;
  EXPECT_EQ(choose_prefill(of).path, PrefillPath::kStreamed);
  of.streamed_bytes = kFree + 1;
  EXPECT_EQ(choose_prefill(of).path, PrefillPath::kSerial);
}

TEST(ChoosePrefill, FollowsTheVariableWhateverFits) {
  for (const uint64_t bytes : {kFree, kFree + 1}) {
    PrefillCase of = of_memory(bytes, bytes, bytes);
    of.environment.batched_prefill = "0";
    of.batched_by_profile = false;
    EXPECT_EQ(choose_prefill(of).path, PrefillPath::kSerial);
    EXPECT_EQ(choose_prefill(of).reason, "BATCHED_PREFILL=0");
    EXPECT_TRUE(choose_prefill(of).is_forced);
    of.environment.batched_prefill = "1";
    of.batched_by_profile = true;
    EXPECT_EQ(choose_prefill(of).path, PrefillPath::kBatched);
    EXPECT_EQ(choose_prefill(of).line, "");
  }
}

TEST(ChoosePrefill, FollowsTheFlagBeforeTheVariable) {
  for (const PrefillPath path :
       {PrefillPath::kBatched, PrefillPath::kStreamed, PrefillPath::kSerial}) {
    PrefillCase of = of_memory(kFree + 1, kFree + 1, kFree + 1);
    of.requested = path;
    of.environment.batched_prefill = "0";
    of.batched_by_profile = false;
    const PrefillChoice choice = choose_prefill(of);
    EXPECT_EQ(choice.path, path);
    EXPECT_EQ(choice.reason, fmt::format("--prefill {}", prefill_path_name(path)));
    EXPECT_EQ(find_prefill_path(prefill_path_name(path)), path);
  }
  EXPECT_EQ(find_prefill_path("auto"), std::nullopt);
}

TEST(FreeBytesOfCard, IsWhatTheSeedsCardHad) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  EXPECT_EQ(free_bytes_of_card(24 * kGiB), uint64_t{23300} << 20);
  EXPECT_EQ(free_bytes_of_card(80 * kGiB), (uint64_t{80 * 1024 - 1276} << 20));
  EXPECT_EQ(free_bytes_of_card(kGiB), 0U);
}

}  // namespace
}  // namespace apr
