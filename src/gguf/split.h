// Split files: `<prefix>-00001-of-00003.gguf` names, and the keys split.no, split.count and
// split.tensors.count that each part carries (llama.cpp's gguf-split).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "gguf/parser.h"

namespace apr {

// Parts of one model: real ones have tens, and each costs a mapping and a head.
inline constexpr uint64_t kMaxParts = 1024;

// What a file name of the form `<prefix>-00001-of-00003.gguf` says.
struct SplitName {
  std::string prefix;  // the name before "-00001-of-00003.gguf"
  uint64_t part_idx;   // from 0
  uint64_t n_parts;
};

// Takes a file name (no folder) apart; nothing where it has another form.
std::optional<SplitName> parse_split_name(const std::string& file_name);

// The path of part `part_idx` beside `path`, where `name` is the split name of `path`.
std::filesystem::path split_part_path(const std::filesystem::path& path, const SplitName& name,
                                      uint64_t part_idx);

// What the keys of one image say; a file that is not split has n_parts 1.
struct SplitKeys {
  uint64_t part_idx = 0;
  uint64_t n_parts = 1;
  std::optional<uint64_t> n_tensors;  // of all parts
  bool present = false;               // whether split.count is there at all
};

// Reads the split keys. Throws kInvalidFormat where one has a wrong type, or where they
// contradict themselves.
SplitKeys read_split_keys(const GgufImage& image, const std::string& file_name);

// Checks the keys of part `part_idx` of `n_parts` (from the file names) against the names, and
// split.tensors.count against that of the first part. Throws kInvalidFormat.
void check_split_part(const SplitKeys& keys, const SplitKeys& first_keys, uint64_t part_idx,
                      uint64_t n_parts, const std::string& file_name);

}  // namespace apr
