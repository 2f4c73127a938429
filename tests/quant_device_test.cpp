// The dequant kernel of every quant type, run on the host, in both layouts: bit for bit the
// reference.
#include <gtest/gtest.h>

#include <cmath>

#include "support/host_dequant.h"
#include "support/quant_encode.h"

namespace apr {
namespace {

class QuantDevice : public testing::TestWithParam<const QuantType*> {
 protected:
  const QuantType& type() const { return *GetParam(); }
  bool is_plain() const { return type().block_elems == 1; }
};

TEST_P(QuantDevice, EqualsTheReference) {
  // Whole and partial last blocks; fewer rows than a unit of the planes layout, and more.
  const int64_t block = std::max(type().block_elems, 32);
  for (const auto& [n_rows, n_cols, n_missing] :
       {std::tuple{int64_t{501}, block, 0}, std::tuple{int64_t{1}, 5 * block, 1},
        std::tuple{int64_t{2}, 3 * block, 8}, std::tuple{int64_t{17}, 2 * block, 13},
        std::tuple{int64_t{3}, block, 31}}) {
    const test::DequantProblem problem =
        test::random_problem(type(), n_rows, n_cols, n_cols - n_missing);
    EXPECT_EQ(test::host_difference(problem, false), "") << "raw";
    if (!is_plain()) {
      EXPECT_EQ(test::host_difference(problem, true), "") << "planes";
    }
  }
}

TEST_P(QuantDevice, AsHalfIsTheNearestHalfOfTheScaledValue) {
  const int64_t n_cols = 3 * std::max(type().block_elems, 32);
  const test::DequantProblem problem = test::random_problem(type(), 9, n_cols, n_cols - 3);
  for (const float scale : {1.0F, 0x1p-9F, 0x1p11F}) {
    std::vector<uint16_t> output = test::unwritten_output<uint16_t>(problem);
    const std::vector<uint16_t> before = output;
    test::run_host_dequant(problem, !is_plain(), true, scale, output.data() + test::kGuardElems);
    const auto n_elems = static_cast<int64_t>(problem.expected.size());
    for (int64_t elem = -test::kGuardElems; elem < n_elems + test::kGuardElems; ++elem) {
      const auto at = static_cast<size_t>(elem + test::kGuardElems);
      if (elem < 0 || elem >= n_elems) {
        ASSERT_EQ(output[at], before[at]) << "guard element " << at;
        continue;
      }
      const float wanted = problem.expected[static_cast<size_t>(elem)] * scale;
      ASSERT_EQ(output[at], std::isnan(wanted) ? 0x7fff : test::to_f16(wanted))
          << problem.name() << " element " << elem << ": " << wanted;
    }
  }
}

std::vector<const QuantType*> all_types() {
  std::vector<const QuantType*> types;
  for (const QuantType& type : quant_types()) {
    types.push_back(&type);
  }
  return types;
}

INSTANTIATE_TEST_SUITE_P(Type, QuantDevice, testing::ValuesIn(all_types()),
                         [](const auto& param) { return std::string(param.param->name); });

template <class T>
void check_segments(const QuantType& type) {
  if constexpr (T::kBlockElems > 1) {
    int bytes = 0;
    for (const int segment : T::kSegmentBytes) {
      bytes += segment;
    }
    EXPECT_EQ(bytes, T::kBlockBytes) << type.name;
  } else {
    EXPECT_EQ(T::kRawAlign, type.block_bytes) << type.name;
  }
}

TEST(QuantSegments, CoverTheBlock) {
#define APR_QUANT_TYPE(type_id, name, Traits, file) \
  check_segments<quant::Traits>(*find_quant_type(uint32_t{type_id}));
#include "quant/type_rows.inc"
#undef APR_QUANT_TYPE
}

// The check itself: it must see each of these.
TEST(DequantCheck, SeesWhatIsWrittenWronglyOrNotAtAll) {
  const test::DequantProblem problem = test::random_problem(*find_quant_type("Q8_0"), 3, 64, 61);
  std::vector<uint32_t> good = test::unwritten_output<uint32_t>(problem);
  std::memcpy(good.data() + test::kGuardElems, problem.expected.data(),
              problem.expected.size() * 4);
  EXPECT_EQ(test::difference(problem, good), "");
  const size_t first = static_cast<size_t>(test::kGuardElems);
  const size_t end = first + problem.expected.size();
  for (const size_t at :
       {size_t{0}, first - 1, first, first + 100, end - 1, end, good.size() - 1}) {
    std::vector<uint32_t> output = good;
    output[at] ^= 1;
    EXPECT_NE(test::difference(problem, output), "") << at;
    output[at] = test::kUnwritten;
    EXPECT_EQ(test::difference(problem, output).empty(), at < first || at >= end) << at;
  }
}

TEST(F16Bits, RoundsToTheNearestTiesToEven) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = test::from_f16(static_cast<uint16_t>(bits));
    if (value == value) {
      ASSERT_EQ(f16_bits(value), bits);
    }
  }
  for (uint64_t bits = 0; bits < 0x100000000; bits += 2049) {
    const float value = f32_from_bits(static_cast<uint32_t>(bits));
    ASSERT_EQ(f16_bits(value), value == value ? test::to_f16(value) : 0x7fff) << bits;
  }
}

}  // namespace
}  // namespace apr
