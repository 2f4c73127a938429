#include "cli/cached_json.h"

#include "base/cache_file.h"

namespace apr::cli {

nlohmann::ordered_json read_cached_json(const std::filesystem::path& path) {
  using Json = nlohmann::ordered_json;
  constexpr int kMostDepth = 8;
  const auto text = read_cache_file(path);
  const auto is_shallow = [](int depth, Json::parse_event_t, const Json&) {
    return depth <= kMostDepth;
  };
  Json json = text ? Json::parse(*text, is_shallow, false) : Json();
  return json.is_object() ? json : Json();
}

}  // namespace apr::cli
