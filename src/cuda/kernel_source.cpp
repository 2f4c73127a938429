#include "cuda/kernel_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "apr/error.h"

namespace apr::cuda {
namespace {

// The name in `#include "name"`, or nothing.
std::string_view quoted_include(std::string_view line) {
  constexpr std::string_view kBlanks = " \t";
  const auto skip_blanks = [&line] {
    line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  };
  const auto take = [&line](std::string_view token) {
    const bool starts = line.starts_with(token);
    line.remove_prefix(starts ? token.size() : 0);
    return starts;
  };
  skip_blanks();
  if (!take("#")) {
    return {};
  }
  skip_blanks();
  if (!take("include")) {
    return {};
  }
  skip_blanks();
  if (!take("\"")) {
    return {};
  }
  return line.substr(0, line.find('"'));
}

}  // namespace

std::vector<KernelSource> with_includes(std::span<const KernelSource> sources,
                                        std::string_view path) {
  std::vector<KernelSource> found;
  std::vector<std::string_view> wanted{path};
  for (size_t next = 0; next < wanted.size(); ++next) {
    const auto source =
        std::find_if(sources.begin(), sources.end(),
                     [&](const KernelSource& candidate) { return candidate.path == wanted[next]; });
    if (source == sources.end()) {
      throw Error(ErrorCode::kGeneric,
                  fmt::format("kernels/{} is not in this program; kernels/{} needs it; includes "
                              "name files by their path under kernels/",
                              wanted[next], path));
    }
    found.push_back(*source);
    for (std::string_view text = source->text; !text.empty();) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      const std::string_view name = quoted_include(line);
      if (!name.empty() && std::find(wanted.begin(), wanted.end(), name) == wanted.end()) {
        wanted.push_back(name);
      }
    }
  }
  std::sort(found.begin() + 1, found.end(),
            [](const KernelSource& a, const KernelSource& b) { return a.path < b.path; });
  return found;
}

}  // namespace apr::cuda
