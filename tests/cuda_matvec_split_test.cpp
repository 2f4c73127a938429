// How matvec_mma shares its work among blocks and warps.
#include <gtest/gtest.h>

#include "cuda/launch_matvec.h"
#include "matvec_parts.h"

namespace apr::cuda {
namespace {

DeviceFacts h200() {
  DeviceFacts facts;
  facts.cc_major = 9;
  facts.n_sm = 132;
  facts.shared_bytes_per_block = 227 * 1024;
  return facts;
}

TEST(MatvecSplit, TakesTheFewestRoundsOfUnits) {
  struct Case {
    int64_t n_tiles, n_units;
    int n_col_warps;
    uint32_t n_blocks;
    int n_weights = 1;
  };
  const Case cases[] = {
      {1, 1, 16, 1},         // nothing to share
      {256, 16, 8, 128},     // 4096 x 4096: one tile of two units, not two of one
      {560, 6, 2, 70},       // 8960 x 1536: one tile
      {64, 8, 16, 64},       // 1024 x 2048
      {9496, 4, 1, 132},     // the head of a small model
      {192, 4, 8, 96, 2},    // gate and up of 3072 x 1024: a unit a warp
      {768, 16, 8, 132, 2},  // gate and up of 12288 x 4096
      {4096, 1, 2, 132, 2},  // a warp for each weight, not less
  };
  for (const Case& how : cases) {
    const MatvecSplit split = matvec_split(how.n_tiles, how.n_units, 132, how.n_weights);
    EXPECT_EQ(split.n_col_warps, how.n_col_warps) << how.n_tiles << " tiles";
    EXPECT_EQ(split.n_blocks, how.n_blocks) << how.n_tiles << " tiles";
  }
}

TEST(MatvecSplit, NumbersTheTilesOfItsParts) {
  MatvecParams params{};
  params.n_parts = 2;
  params.parts[0].w.n_rows = 33;
  params.parts[1].w.n_rows = 16;
  number_tiles(params, false);
  EXPECT_EQ(params.n_tiles, 4);
  EXPECT_EQ(params.parts[0].first_tile, 0);
  EXPECT_EQ(params.parts[1].first_tile, 3);
  EXPECT_GE(params.parts[2].first_tile, 4) << "no tile is of a part that is not there";
  params.parts[1].w.n_rows = 33;
  number_tiles(params, true);
  EXPECT_EQ(params.n_tiles, 3);
  EXPECT_EQ(params.parts[0].first_tile, 0);
  EXPECT_EQ(params.parts[1].first_tile, 0);
}

// Both end at about the same time, and no multiprocessor has two blocks.
TEST(MatvecSplit, SharesTheDeviceAmongAPair) {
  for (const auto& [first, second, n_units] :
       {std::tuple{MatvecWork{320, 2304}, MatvecWork{64, 3360}, 16},
        std::tuple{MatvecWork{192, 2304}, MatvecWork{64, 3360}, 4},
        std::tuple{MatvecWork{1, 2304}, MatvecWork{1, 2304}, 1}}) {
    for (const int n_sm : {2, 20, 132}) {
      SCOPED_TRACE(std::to_string(first.n_tiles) + " tiles, " + std::to_string(n_sm) + " SMs");
      const auto [a, b] = matvec_pair_split(first, second, n_units, n_sm);
      EXPECT_GE(a.n_blocks, 1U);
      EXPECT_GE(b.n_blocks, 1U);
      EXPECT_LE(a.n_blocks + b.n_blocks, static_cast<uint32_t>(n_sm));
      const int64_t ends = std::max(a.n_rounds * first.unit_bytes, b.n_rounds * second.unit_bytes);
      const int64_t in_turn =
          matvec_split(first.n_tiles, n_units, n_sm).n_rounds * first.unit_bytes +
          matvec_split(second.n_tiles, n_units, n_sm).n_rounds * second.unit_bytes;
      if (n_sm > 2) {
        EXPECT_LE(ends, in_turn + in_turn / 20) << "one after the other would be as early";
      }
    }
  }
}

TEST(MatvecPair, IsOfTheTypesThatMixesHave) {
  const QuantType &q4_k = *find_quant_type("Q4_K"), &q6_k = *find_quant_type("Q6_K");
  EXPECT_TRUE(matvec_pair_fits(q4_k, q6_k, 4096, h200()));
  EXPECT_FALSE(matvec_pair_fits(q6_k, q4_k, 4096, h200()));
  EXPECT_FALSE(matvec_pair_fits(q4_k, q4_k, 4096, h200()));
  EXPECT_FALSE(matvec_pair_fits(q4_k, q6_k, 100352, h200()));
}

TEST(MatvecMma, RunsWhereItsSharedMemoryFits) {
  const QuantType& q4_k = *find_quant_type("Q4_K");
  EXPECT_TRUE(matvec_mma_fits(q4_k, 4096, h200()));
  EXPECT_TRUE(matvec_mma_fits(q4_k, 25600, h200()));
  EXPECT_FALSE(matvec_mma_fits(q4_k, 100352, h200()));  // x alone does not fit
  EXPECT_FALSE(matvec_mma_fits(q4_k, 4112, h200()));    // columns of no whole 32
  EXPECT_FALSE(matvec_mma_fits(*find_quant_type("F16"), 4096, h200()));
  DeviceFacts turing = h200();
  turing.cc_major = 7;
  EXPECT_FALSE(matvec_mma_fits(q4_k, 4096, turing));
  DeviceFacts ada = h200();
  ada.cc_major = 8;
  ada.shared_bytes_per_block = 99 * 1024;
  EXPECT_TRUE(matvec_mma_fits(q4_k, 4096, ada));
  EXPECT_FALSE(matvec_mma_fits(q4_k, 25600, ada));
}

}  // namespace
}  // namespace apr::cuda
