// Opens GGUF files and images with this build's table of tensor types.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "apr/gguf.h"
#include "apr/quant.h"

namespace apr::test {

inline GgufFile open_gguf(const std::filesystem::path& path) {
  return GgufFile::open(path, quant_type_layout, quant_type_label);
}

// `image` must outlive the result.
inline GgufFile open_gguf_image(std::span<const std::byte> image) {
  return GgufFile::from_memory(image, "test.gguf", quant_type_layout, quant_type_label);
}

// A fixture of the tree: "tiny-qwen3-kmix".
inline std::filesystem::path model_fixture(const std::string& name) {
  return std::filesystem::path(APR_TEST_DATA) / "models" / (name + ".gguf");
}

}  // namespace apr::test
