// Lookup by name over items that stay in file order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace apr {

// Indices into `items`, ascending by the name that the member `name_of` holds; equal names in
// item order.
template <typename Item>
std::vector<uint32_t> index_by_name(const std::vector<Item>& items,
                                    std::string_view Item::*name_of) {
  std::vector<uint32_t> by_name(items.size());
  std::iota(by_name.begin(), by_name.end(), 0u);
  std::stable_sort(by_name.begin(), by_name.end(), [&](uint32_t left, uint32_t right) {
    return items[left].*name_of < items[right].*name_of;
  });
  return by_name;
}

// The item called `name`, or null.
template <typename Item>
const Item* find_by_name(const std::vector<Item>& items, std::span<const uint32_t> by_name,
                         std::string_view Item::*name_of, std::string_view name) {
  const auto found = std::lower_bound(
      by_name.begin(), by_name.end(), name,
      [&](uint32_t idx, std::string_view key) { return items[idx].*name_of < key; });
  return found != by_name.end() && items[*found].*name_of == name ? &items[*found] : nullptr;
}

// The first two items of one name (earlier, later), or nothing.
template <typename Item>
std::optional<std::pair<uint32_t, uint32_t>> find_duplicate(const std::vector<Item>& items,
                                                            std::span<const uint32_t> by_name,
                                                            std::string_view Item::*name_of) {
  const auto found = std::adjacent_find(
      by_name.begin(), by_name.end(),
      [&](uint32_t left, uint32_t right) { return items[left].*name_of == items[right].*name_of; });
  if (found == by_name.end()) {
    return std::nullopt;
  }
  return std::pair(*found, *std::next(found));
}

}  // namespace apr
