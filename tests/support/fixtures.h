// Where the tests find models and references: tests/data first, then the wider set beside the
// checkout.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apr/model.h"
#include "support/open_gguf.h"

namespace apr::test {

// All fixture models, by file name without ".gguf".
inline const std::vector<std::string>& fixture_names() {
  static const std::vector<std::string> names = {
      "tiny-qwen2-Q4_K_M",     "tiny-qwen2-Q8_0",     "tiny-qwen2-float",
      "tiny-qwen2-legacy",     "tiny-qwen3-Q4_K_M",   "tiny-qwen3-Q8_0",
      "tiny-qwen3-hot",        "tiny-qwen3-iqmix",    "tiny-qwen3-kmix",
      "tiny-qwen3moe-Q4_K_M",  "tiny-qwen3moe-Q8_0",  "tiny-qwen3moe-mix",
      "tiny-qwen35-Q4_K_M",    "tiny-qwen35-Q8_0",    "tiny-qwen35-UD-IQ2_XXS",
      "tiny-qwen35moe-Q4_K_M", "tiny-qwen35moe-Q8_0", "tiny-qwen35moe-mix"};
  return names;
}

// The parameter of a test as part of its name: "tiny_qwen3_kmix".
template <class ParamInfo>
std::string param_name(const ParamInfo& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

inline std::optional<std::filesystem::path> first_existing(
    std::initializer_list<std::filesystem::path> paths) {
  for (const auto& path : paths) {
    if (std::filesystem::exists(path)) {
      return path;
    }
  }
  return std::nullopt;
}

inline std::optional<std::filesystem::path> model_path(const std::string& name) {
  return first_existing({std::filesystem::path(APR_TEST_DATA) / "models" / (name + ".gguf"),
                         std::filesystem::path(APR_SHARED) / "fixtures" / (name + ".gguf")});
}

inline std::optional<std::filesystem::path> ref_path(const std::string& file) {
  return first_existing({std::filesystem::path(APR_TEST_DATA) / "refs" / file,
                         std::filesystem::path(APR_SHARED) / "fixtures" / "refs" / file});
}

inline nlohmann::json load_json(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

inline std::vector<float> load_f32(const std::filesystem::path& path) {
  std::vector<float> values(std::filesystem::file_size(path) / sizeof(float));
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

}  // namespace apr::test
