// Runs the fuzz target over its corpus in every build: seeds, and inputs that once broke something.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace apr {
namespace {

TEST(TemplateFuzz, CorpusReplays) {
  int n_inputs = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(APR_SOURCE_DIR "/tests/fuzz/corpus/template_fuzz")) {
    SCOPED_TRACE(entry.path().string());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size()),
              0);
    ++n_inputs;
  }
  EXPECT_GE(n_inputs, 8);
}

}  // namespace
}  // namespace apr
