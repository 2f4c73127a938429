// SHA-256: vectors of NIST (FIPS 180-4 examples), and the two ways against each other.
#include "base/sha256.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

namespace apr {
namespace {

std::string hash(std::string_view text, Sha256Blocks blocks) {
  Sha256 sha(blocks);
  sha.add(std::as_bytes(std::span(text)));
  return sha.hex();
}

// The plain way, and the processor's where it has one.
std::vector<Sha256Blocks> ways() {
  std::vector<Sha256Blocks> all{sha256_blocks_plain};
  if (sha256_blocks_native() != nullptr) {
    all.push_back(sha256_blocks_native());
  }
  return all;
}

TEST(Sha256, GivesTheVectorsOfNist) {
  const struct {
    std::string text;
    const char* digest;
  } vectors[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqr"
       "lmnopqrsmnopqrstnopqrstu",
       "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
      {std::string(1000000, 'a'),
       "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
  };
  for (const Sha256Blocks blocks : ways()) {
    for (const auto& [text, digest] : vectors) {
      EXPECT_EQ(hash(text, blocks), digest) << text.substr(0, 20);
    }
  }
}

TEST(Sha256, OfEveryLengthAndCutIsTheSameBothWays) {
  if (sha256_blocks_native() == nullptr) {
    GTEST_SKIP() << "SKIPPED: this processor has no SHA instructions; the plain way ran alone";
  }
  std::string text;
  uint32_t word = 1;
  for (int n_bytes = 0; n_bytes < 300; ++n_bytes) {
    const std::string expected = hash(text, sha256_blocks_plain);
    EXPECT_EQ(hash(text, sha256_blocks_native()), expected) << n_bytes;
    Sha256 in_parts;
    for (size_t done = 0; done < text.size();) {
      word = word * 1664525 + 1013904223;
      const size_t n = std::min<size_t>(text.size() - done, word >> 25);
      in_parts.add(std::as_bytes(std::span(text).subspan(done, n)));
      done += n;
    }
    EXPECT_EQ(in_parts.hex(), expected) << n_bytes;
    text += static_cast<char>(word >> 24);
  }
}

TEST(Sha256, Speed) {
  const std::vector<std::byte> data(size_t{64} << 20, std::byte{7});
  for (const Sha256Blocks blocks : ways()) {
    const std::clock_t start = std::clock();  // of the processor: others may run beside
    Sha256 sha(blocks);
    sha.add(data);
    const std::string digest = sha.hex();
    const double elapsed_s = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    std::printf("  %s: %.2f GB/s, %s\n", blocks == sha256_blocks_plain ? "plain" : "native",
                static_cast<double>(data.size()) / elapsed_s / 1e9, digest.c_str());
    EXPECT_EQ(digest,
              hash({reinterpret_cast<const char*>(data.data()), data.size()}, sha256_blocks_plain));
  }
}

}  // namespace
}  // namespace apr
