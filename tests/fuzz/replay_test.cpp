// Runs a fuzz target over its corpus in every build: seeds, and inputs that once broke something.
// The build names the target: APR_FUZZ_SUITE (GgufFuzz) and APR_FUZZ_CORPUS (its folder).
#include <gtest/gtest.h>

#include "support/gguf_writer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace apr {
namespace {

TEST(APR_FUZZ_SUITE, CorpusReplays) {
  int n_inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(APR_FUZZ_CORPUS)) {
    SCOPED_TRACE(entry.path().string());
    const std::vector<std::byte> input = test::read_file(entry.path());
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size()),
              0);
    ++n_inputs;
  }
  EXPECT_GE(n_inputs, 8);
}

}  // namespace
}  // namespace apr
