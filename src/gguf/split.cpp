#include "gguf/split.h"

#include <fmt/format.h>

#include <string_view>

#include "apr/error.h"
#include "gguf/name_index.h"

namespace apr {
namespace {

constexpr size_t kNumDigits = 5;
constexpr std::string_view kExtension = ".gguf";
constexpr std::string_view kOf = "-of-";

std::optional<uint64_t> parse_digits(std::string_view text) {
  uint64_t value = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9') {
      return std::nullopt;
    }
    value = value * 10 + static_cast<uint64_t>(digit - '0');
  }
  return value;
}

std::optional<uint64_t> read_count(const GgufImage& image, std::string_view key,
                                   const std::string& file_name) {
  const GgufKeyValue* entry = find_by_name(image.metadata, image.by_key, &GgufKeyValue::key, key);
  if (entry == nullptr) {
    return std::nullopt;
  }
  const std::optional<uint64_t> value = entry->value.as_u64();
  if (!value) {
    throw Error(ErrorCode::kInvalidFormat,
                fmt::format("{}: metadata key {}: expected an integer of at least 0, found {}",
                            file_name, key, entry->value.type_name()));
  }
  return value;
}

[[noreturn]] void fail_key(const std::string& file_name, std::string_view key,
                           const std::string& expected, const std::string& found) {
  throw Error(ErrorCode::kInvalidFormat, fmt::format("{}: metadata key {}: expected {}, found {}",
                                                     file_name, key, expected, found));
}

}  // namespace

std::optional<SplitName> parse_split_name(const std::string& file_name) {
  std::string_view rest = file_name;
  const size_t tail_bytes = 1 + kNumDigits + kOf.size() + kNumDigits + kExtension.size();
  if (rest.size() <= tail_bytes || !rest.ends_with(kExtension)) {
    return std::nullopt;
  }
  const std::string_view tail = rest.substr(rest.size() - tail_bytes);
  const auto part_no = parse_digits(tail.substr(1, kNumDigits));
  const auto n_parts = parse_digits(tail.substr(1 + kNumDigits + kOf.size(), kNumDigits));
  if (tail[0] != '-' || tail.substr(1 + kNumDigits, kOf.size()) != kOf || !part_no || !n_parts ||
      *part_no < 1 || *part_no > *n_parts) {
    return std::nullopt;
  }
  return SplitName{std::string(rest.substr(0, rest.size() - tail_bytes)), *part_no - 1, *n_parts};
}

std::filesystem::path split_part_path(const std::filesystem::path& path, const SplitName& name,
                                      uint64_t part_idx) {
  return path.parent_path() /
         fmt::format("{}-{:05}-of-{:05}.gguf", name.prefix, part_idx + 1, name.n_parts);
}

SplitKeys read_split_keys(const GgufImage& image, const std::string& file_name) {
  SplitKeys keys;
  const auto n_parts = read_count(image, "split.count", file_name);
  const auto part_idx = read_count(image, "split.no", file_name);
  keys.n_tensors = read_count(image, "split.tensors.count", file_name);
  keys.present = n_parts.has_value();
  keys.n_parts = n_parts && *n_parts > 0 ? *n_parts : 1;  // gguf-split --merge leaves a count of 0
  if (keys.n_parts > kMaxParts) {
    fail_key(file_name, "split.count", fmt::format("at most {} parts", kMaxParts),
             std::to_string(keys.n_parts));
  }
  if (keys.n_parts == 1) {
    keys.n_tensors.reset();
    return keys;
  }
  if (!part_idx) {
    fail_key(file_name, "split.no", fmt::format("the number of one of {} parts", keys.n_parts),
             "no such key");
  }
  if (*part_idx >= keys.n_parts) {
    fail_key(file_name, "split.no", fmt::format("less than split.count, {}", keys.n_parts),
             std::to_string(*part_idx));
  }
  keys.part_idx = *part_idx;
  return keys;
}

void check_split_part(const SplitKeys& keys, const SplitKeys& first_keys, uint64_t part_idx,
                      uint64_t n_parts, const std::string& file_name) {
  if (keys.n_parts != n_parts) {
    fail_key(file_name, "split.count", fmt::format("{} as in the file name", n_parts),
             keys.present ? std::to_string(keys.n_parts)
                          : "no such key; rename the file if it is whole");
  }
  if (keys.part_idx != part_idx) {
    fail_key(file_name, "split.no",
             fmt::format("{} for part {} of the file name", part_idx, part_idx + 1),
             std::to_string(keys.part_idx));
  }
  if (keys.n_tensors && first_keys.n_tensors && *keys.n_tensors != *first_keys.n_tensors) {
    fail_key(file_name, "split.tensors.count",
             fmt::format("{} as in the first part", *first_keys.n_tensors),
             std::to_string(*keys.n_tensors));
  }
}

}  // namespace apr
