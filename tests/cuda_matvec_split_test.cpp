// How matvec_mma shares its work among blocks and warps.
#include <gtest/gtest.h>

#include "cuda/launch_matvec.h"

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
  };
  const Case cases[] = {
      {1, 1, 16, 1},       // nothing to share
      {256, 16, 16, 132},  // 4096 x 4096: two rounds either way, the columns first
      {560, 6, 8, 132},    // 8960 x 1536: three rounds; of 16 warps ten would idle for five
      {64, 8, 16, 64},     // 1024 x 2048
      {9496, 4, 4, 132},   // the head of a small model
  };
  for (const Case& how : cases) {
    const MatvecSplit split = matvec_split(how.n_tiles, how.n_units, 132);
    EXPECT_EQ(split.n_col_warps, how.n_col_warps) << how.n_tiles << " tiles";
    EXPECT_EQ(split.n_blocks, how.n_blocks) << how.n_tiles << " tiles";
  }
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
