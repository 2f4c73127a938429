#include "cli/prompt.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cerrno>
#include <cstring>

#include "apr/error.h"
#include "cli/interrupt.h"
#include "cli/output.h"

namespace apr::cli {
namespace {

constexpr size_t kMaxTextBytes = size_t{256} * 1024 * 1024;

std::string read_descriptor(int descriptor, const std::string& name) {
  std::string text;
  std::array<char, 65536> buffer;
  while (true) {
    const ssize_t n_bytes = ::read(descriptor, buffer.data(), buffer.size());
    if (n_bytes == 0) {
      return text;
    }
    if (n_bytes < 0) {
      if (errno == EINTR) {
        check_interrupted();
        continue;
      }
      throw Error(ErrorCode::kIo, fmt::format("reading {} failed: {}", name, std::strerror(errno)));
    }
    text.append(buffer.data(), static_cast<size_t>(n_bytes));
    if (text.size() > kMaxTextBytes) {
      throw Error(ErrorCode::kInvalidFormat,
                  fmt::format("{} holds more than {} bytes of text", name, kMaxTextBytes));
    }
  }
}

}  // namespace

std::string read_whole_file(const std::string& path) {
  if (path == "-") {
    return read_descriptor(STDIN_FILENO, "stdin");
  }
  struct Descriptor {
    int value;
    ~Descriptor() { ::close(value); }
  };
  int opened = -1;
  while ((opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC)) < 0 && errno == EINTR) {
    check_interrupted();  // a pipe that nobody writes to
  }
  if (opened < 0) {
    const bool is_absent = errno == ENOENT || errno == ENOTDIR;
    throw Error(is_absent ? ErrorCode::kFileNotFound : ErrorCode::kIo,
                fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  }
  const Descriptor descriptor{opened};
  return read_descriptor(descriptor.value, path);
}

std::optional<TextInput> read_text(const TextSources& sources) {
  const int n_sources =
      sources.argument.has_value() + sources.flag.has_value() + sources.file.has_value();
  if (n_sources > 1) {
    throw Error(ErrorCode::kUsage,
                "the text is given more than once; use one of: an argument, -p, -i");
  }
  if (sources.flag) {
    return TextInput{*sources.flag};
  }
  if (sources.file) {
    return TextInput{read_whole_file(*sources.file), true};
  }
  if (sources.argument && *sources.argument != "-") {
    return TextInput{*sources.argument};
  }
  if (sources.argument || !stdin_is_terminal()) {
    return TextInput{read_whole_file("-"), true};
  }
  return std::nullopt;
}

namespace {

// Of a JSON value where an id should be; never all of one that holds others, which may be deeper
// than the stack.
std::string describe(const nlohmann::json& element) {
  constexpr size_t kMostBytes = 60;
  if (element.is_structured()) {
    return element.is_array() ? "an array" : "an object";
  }
  const std::string text = element.dump();
  return text.size() <= kMostBytes ? text : fmt::format("a {}", element.type_name());
}

}  // namespace

std::vector<TokenId> read_ids(const std::string& path, int64_t vocab_rows) {
  const std::string text = read_whole_file(path);
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_array() || json.empty()) {
    throw Error(ErrorCode::kInvalidFormat,
                fmt::format("{} must hold a JSON array of token ids, such as [1, 298, 207]", path));
  }
  std::vector<TokenId> ids;
  for (const nlohmann::json& element : json) {
    const int64_t id = element.is_number_integer() ? element.get<int64_t>() : -1;
    if (id < 0 || id >= vocab_rows) {
      throw Error(ErrorCode::kInvalidFormat,
                  fmt::format("{}: element {} is {}; it must be a token id from 0 to {}", path,
                              ids.size(), describe(element), vocab_rows - 1));
    }
    ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

}  // namespace apr::cli
