// apr logits: logits of a token sequence at chosen positions, as raw f32.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <span>

#include "apr/error.h"
#include "cli/ignored_flags.h"
#include "cli/interrupt.h"
#include "cli/load.h"
#include "cli/numbers.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/prompt.h"
#include "cli/verb.h"
#include "generate/logit_rows.h"

namespace apr::cli {
namespace {

using Json = nlohmann::ordered_json;

// The output file: rows are written where they belong, and nothing is left behind on failure.
class RowFile {
 public:
  // row_bytes: of one row of logits. Throws kIo.
  RowFile(const std::string& path, size_t row_bytes)
      : path_(path),
        row_bytes_(row_bytes),
        descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) {
      fail("cannot write");
    }
  }
  ~RowFile() {
    if (descriptor_ >= 0) {
      struct stat info {};
      const bool is_regular = ::fstat(descriptor_, &info) == 0 && S_ISREG(info.st_mode);
      ::close(descriptor_);
      if (is_regular) {  // never a device such as /dev/full
        ::unlink(path_.c_str());
      }
    }
  }
  RowFile(const RowFile&) = delete;
  RowFile& operator=(const RowFile&) = delete;

  // Writes `row` [vocab_rows] f32 as row `row_idx`. Throws kIo.
  void write(size_t row_idx, std::span<const float> row) {
    std::span<const std::byte> bytes = std::as_bytes(row);
    auto offset = static_cast<off_t>(row_idx * row_bytes_);
    while (!bytes.empty()) {
      const ssize_t n_bytes = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
      if (n_bytes < 0 && errno == EINTR) {
        continue;
      }
      if (n_bytes < 0) {
        fail("writing failed:");
      }
      bytes = bytes.subspan(static_cast<size_t>(n_bytes));
      offset += n_bytes;
    }
  }

  // Keeps the file. Throws kIo.
  void close() {
    const int descriptor = std::exchange(descriptor_, -1);
    if (::close(descriptor) != 0) {
      fail("closing failed:");
    }
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw Error(ErrorCode::kIo, fmt::format("{} {}: {}", what, path_, std::strerror(errno)));
  }
  std::string path_;
  size_t row_bytes_;
  int descriptor_;
};

class LogitsVerb : public Verb {
 public:
  void add_options(CLI::App& app) override;
  int run() override;

 private:
  std::vector<int64_t> parse_positions(size_t n_ids) const;

  std::string model_, ids_path_, positions_, out_path_;
  BackendOptions backend_;
  EngineOptions engine_;
};

void LogitsVerb::add_options(CLI::App& app) {
  add_model(app, model_);
  const auto add_text = [&app](const char* flag, std::string& target, const char* type,
                               const char* help) {
    add_value(
        app, flag, type, [&target](const std::string& text) { target = text; }, help, true);
  };
  add_text("--ids", ids_path_, "FILE", "A JSON array of token ids; - reads it from stdin");
  add_text("--positions", positions_, "LIST",
           "Positions separated by commas, from 0, in any order; the rows come in this order");
  add_text("--out", out_path_, "FILE", "Gets the rows: vocabulary f32, little endian, each");
  add_engine(app, engine_);
  add_prefill(app, engine_);
  add_backend(app, backend_);
  add_output(app, output, false);
}

std::vector<int64_t> LogitsVerb::parse_positions(size_t n_ids) const {
  std::vector<int64_t> positions;
  std::string_view left = positions_;
  while (true) {
    const size_t comma = left.find(',');
    positions.push_back(parse_whole("--positions", std::string(left.substr(0, comma)), 0,
                                    static_cast<int64_t>(n_ids) - 1));
    if (comma == std::string_view::npos) {
      return positions;
    }
    left.remove_prefix(comma + 1);
  }
}

int LogitsVerb::run() {
  BackendChoice choice = choose_backend(backend_);
  const std::atomic<bool>* cancel = catch_interrupts();
  const Model model(open_model_file(model_));
  const ModelDesc& desc = model.desc();
  const std::vector<TokenId> ids = read_ids(ids_path_, desc.vocab_rows);
  const std::vector<int64_t> positions = parse_positions(ids.size());
  const auto n_ids = static_cast<int64_t>(ids.size());
  const int64_t context = engine_.context != 0 ? engine_.context : n_ids;
  if (n_ids > std::min(context, desc.context_length)) {
    throw Error(ErrorCode::kInvalidFormat,
                fmt::format("{} holds {} ids and the context {} (the model's is {})", ids_path_,
                            n_ids, std::min(context, desc.context_length), desc.context_length));
  }
  std::multimap<int64_t, size_t> rows_of;  // position -> its rows in the output
  for (size_t row = 0; row < positions.size(); ++row) {
    rows_of.emplace(positions[row], row);
  }
  const std::set<int64_t> wanted(positions.begin(), positions.end());
  constexpr int64_t kMaxLogitRows = 64;  // of one step: 39 MB for 152,000 tokens
  const std::unique_ptr<Backend> backend =
      make_backend(model, engine_, choice, context,
                   std::min(kMaxLogitRows, static_cast<int64_t>(wanted.size())));
  announce(choice, *backend);
  warn_of_ignored(given, run_facts(backend_, choice, backend.get()));
  RowFile file(out_path_, static_cast<size_t>(desc.vocab_rows) * sizeof(float));
  Progress progress(output.quiet);
  LogitRowCallbacks callbacks;
  callbacks.on_row = [&](int64_t position, std::span<const float> row) {
    const auto [first, last] = rows_of.equal_range(position);
    for (auto it = first; it != last; ++it) {
      file.write(it->second, row);
    }
  };
  callbacks.on_chunk = [&](int64_t done, int64_t total) { progress.show_prefill(done, total); };
  if (!run_logit_rows(*backend, ids, wanted, callbacks, cancel)) {
    check_interrupted();
  }
  file.close();
  progress.clear();
  if (output.is_json()) {
    write_json({{"model", model_},
                {"out", out_path_},
                {"rows", positions.size()},
                {"vocab", desc.vocab_rows},
                {"positions", positions},
                {"used_gpu", choice.used_gpu()},
                {"backend", choice.to_json()},
                {"prefill_gemm", prefill_gemm_json(*backend)}},
               true);
  }
  return 0;
}

}  // namespace

std::unique_ptr<Verb> make_logits_verb() {
  return std::make_unique<LogitsVerb>();
}

}  // namespace apr::cli
