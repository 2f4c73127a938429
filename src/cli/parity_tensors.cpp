#include "cli/parity_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <numeric>

#include "apr/error.h"
#include "cpu/fast/ops.h"
#include "cuda/dequant_check.h"

namespace apr::cli {
namespace {

constexpr int64_t kMostCols = int64_t{1} << 24;  // sixteen rows of them are 1 GiB
constexpr int64_t kRowsOfATile = 16;             // or a multiple

// What two decoders made of the rows [first, first + n) of a tile.
struct RowsDifference {
  int64_t n_different = 0;
  int64_t first = -1;  // value of the tile
};

bool differs(float found, float expected) {
  const auto bits = std::bit_cast<uint32_t>(found), wanted = std::bit_cast<uint32_t>(expected);
  const bool both_nan = found != found && expected != expected;
  return bits != wanted && (!both_nan || bits == cuda::kUnwrittenBits);
}

// The file's tensors as matrices, all experts one below the other. Throws kInvalidFormat.
std::vector<Weight> matrices_of(const GgufFile& file) {
  std::vector<Weight> matrices;
  for (const GgufTensor& tensor : file.tensors()) {
    Weight weight;
    weight.name = tensor.name;
    weight.type = find_quant_type(tensor.type_id);
    weight.shape = tensor.shape;
    weight.data = tensor.data.data();
    weight.size_bytes = static_cast<int64_t>(tensor.data.size());
    weight.n_cols = tensor.shape.back();
    weight.n_rows = std::accumulate(tensor.shape.begin(), tensor.shape.end() - 1, int64_t{1},
                                    [](int64_t a, int64_t b) { return a * b; });
    weight.row_bytes = weight.type->row_bytes(weight.n_cols);
    if (weight.n_cols > kMostCols || weight.n_rows > std::numeric_limits<int32_t>::max()) {
      throw Error(ErrorCode::kInvalidFormat,
                  fmt::format("{} has {} rows of {} values; at most {} rows of {} can be compared",
                              tensor.name, weight.n_rows, weight.n_cols,
                              std::numeric_limits<int32_t>::max(), kMostCols));
    }
    if (weight.size_bytes > 0) {
      matrices.push_back(std::move(weight));
    }
  }
  return matrices;
}

// Compares weights tile by tile.
class Comparison {
 public:
  Comparison(TensorDecoder& decoder, cpu::ThreadPool& pool, const TensorParityOptions& options,
             TensorParityReport& report)
      : decoder_(decoder), pool_(pool), options_(options), report_(report) {}

  void compare(const Weight& weight) {
    report_.n_tensors += 1;
    report_.n_values += weight.n_rows * weight.n_cols;
    for (const std::string& layout : decoder_.layouts(*weight.type)) {
      compare(weight, layout);
    }
  }

  // By type and layout, in the order of their names.
  std::vector<TensorTypeCount> counts() const {
    std::vector<TensorTypeCount> counts;
    for (const auto& [name, count] : counts_) {
      counts.push_back(count);
    }
    return counts;
  }

 private:
  void compare(const Weight& weight, const std::string& layout) {
    TensorMismatch mismatch{std::string(weight.name), std::string(weight.type->name), layout};
    const int64_t rows_of_a_tile =
        std::max(options_.tile_values / weight.n_cols / kRowsOfATile, int64_t{1}) * kRowsOfATile;
    for (int64_t first = 0; first < weight.n_rows; first += rows_of_a_tile) {
      if (options_.cancel != nullptr && options_.cancel->load()) {
        throw Error(ErrorCode::kInterrupted, "interrupted");
      }
      compare_tile(weight, layout, first, std::min(rows_of_a_tile, weight.n_rows - first),
                   mismatch);
    }
    TensorTypeCount& count = counts_[{mismatch.type, layout}];
    count.type = mismatch.type;
    count.layout = layout;
    count.n_tensors += 1;
    count.n_values += weight.n_rows * weight.n_cols;
    if (mismatch.n_different > 0) {
      count.n_failed += 1;
      report_.failed.push_back(std::move(mismatch));
    }
  }

  void compare_tile(const Weight& weight, const std::string& layout, int64_t first_row,
                    int64_t n_rows, TensorMismatch& mismatch) {
    const auto n_values = static_cast<size_t>(n_rows * weight.n_cols);
    found_.resize(std::max(found_.size(), n_values));
    expected_.resize(std::max(expected_.size(), n_values));
    decoder_.decode(weight, layout, first_row, n_rows, found_.data());
    std::vector<RowsDifference> differences(static_cast<size_t>(n_rows));
    pool_.run(n_rows, [&](int64_t row) {
      float* expected = expected_.data() + row * weight.n_cols;
      const float* found = found_.data() + row * weight.n_cols;
      weight.type->dequantize(weight.data + (first_row + row) * weight.row_bytes,
                              weight.n_cols / weight.type->block_elems, expected);
      RowsDifference& difference = differences[static_cast<size_t>(row)];
      for (int64_t col = 0; col < weight.n_cols; ++col) {
        if (differs(found[col], expected[col]) && difference.n_different++ == 0) {
          difference.first = row * weight.n_cols + col;
        }
      }
    });
    for (const RowsDifference& difference : differences) {
      if (difference.n_different > 0 && mismatch.n_different == 0) {
        const auto at = static_cast<size_t>(difference.first);
        mismatch.row = first_row + difference.first / weight.n_cols;
        mismatch.col = difference.first % weight.n_cols;
        mismatch.found_bits = std::bit_cast<uint32_t>(found_[at]);
        mismatch.expected_bits = std::bit_cast<uint32_t>(expected_[at]);
      }
      mismatch.n_different += difference.n_different;
    }
  }

  TensorDecoder& decoder_;
  cpu::ThreadPool& pool_;
  const TensorParityOptions& options_;
  TensorParityReport& report_;
  std::map<std::pair<std::string, std::string>, TensorTypeCount> counts_;
  std::vector<float> found_, expected_;  // of a tile
};

class CpuTensorDecoder final : public TensorDecoder {
 public:
  explicit CpuTensorDecoder(cpu::ThreadPool& pool) : pool_(pool) {}

  std::string device_name() const override {
    return fmt::format("CPU, {} threads, {}", pool_.n_threads(), cpu::fast::isa_name());
  }
  std::vector<std::string> layouts(const QuantType&) const override { return {"raw"}; }
  void load(std::span<const Weight>) override {}
  void decode(const Weight& weight, const std::string&, int64_t first_row, int64_t n_rows,
              float* out) override {
    std::vector<int32_t> rows(static_cast<size_t>(n_rows));  // the lookup of embeddings decodes
    std::iota(rows.begin(), rows.end(), 0);
    const cpu::MatrixRef table{
        weight.type,     weight.data + first_row * weight.row_bytes, 1, n_rows, weight.n_cols,
        weight.row_bytes};
    cpu::fast::embed({rows.data(), table, n_rows, out}, pool_);
  }

 private:
  cpu::ThreadPool& pool_;
};

std::string mismatch_line(const TensorMismatch& mismatch) {
  return fmt::format(
      "{} ({}, {}): {} value{} differ{}, the first at row {} column {}: {} ({:#010x}) instead of "
      "{} ({:#010x})",
      mismatch.tensor, mismatch.type, mismatch.layout, mismatch.n_different,
      mismatch.n_different == 1 ? "" : "s", mismatch.n_different == 1 ? "s" : "", mismatch.row,
      mismatch.col, std::bit_cast<float>(mismatch.found_bits), mismatch.found_bits,
      std::bit_cast<float>(mismatch.expected_bits), mismatch.expected_bits);
}

}  // namespace

std::set<const QuantType*> tensor_types(const GgufFile& file) {
  std::set<const QuantType*> types;
  for (const GgufTensor& tensor : file.tensors()) {
    types.insert(find_quant_type(tensor.type_id));
  }
  return types;
}

TensorParityReport compare_tensors(const GgufFile& file, TensorDecoder& decoder,
                                   cpu::ThreadPool& pool, const TensorParityOptions& options) {
  TensorParityReport report;
  report.device = decoder.device_name();
  const std::vector<Weight> matrices = matrices_of(file);
  Comparison comparison(decoder, pool, options, report);
  for (size_t first = 0; first < matrices.size();) {
    size_t end = first;
    for (int64_t n_bytes = 0; end < matrices.size(); ++end) {
      n_bytes += matrices[end].size_bytes;
      if (end > first && n_bytes > options.load_bytes) {
        break;
      }
    }
    const auto part = std::span(matrices).subspan(first, end - first);
    decoder.load(part);
    for (const Weight& weight : part) {
      if (options.on_tensor) {
        options.on_tensor(std::string(weight.name));
      }
      try {
        comparison.compare(weight);
      } catch (const Error& error) {
        throw Error(error.code(), fmt::format("{}: {}", weight.name, error.what()));
      }
    }
    first = end;
  }
  report.types = comparison.counts();
  return report;
}

std::unique_ptr<TensorDecoder> make_cpu_tensor_decoder(cpu::ThreadPool& pool) {
  return std::make_unique<CpuTensorDecoder>(pool);
}

std::string TensorParityReport::failure() const {
  return fmt::format("parity failed: {}", failed.empty() ? "" : mismatch_line(failed[0]));
}

nlohmann::ordered_json parity_json(const TensorParityReport& report) {
  using Json = nlohmann::ordered_json;
  Json types = Json::array(), failed = Json::array();
  for (const TensorTypeCount& count : report.types) {
    types.push_back({{"type", count.type},
                     {"layout", count.layout},
                     {"tensors", count.n_tensors},
                     {"values", count.n_values},
                     {"failed", count.n_failed}});
  }
  for (const TensorMismatch& mismatch : report.failed) {
    failed.push_back({{"tensor", mismatch.tensor},
                      {"type", mismatch.type},
                      {"layout", mismatch.layout},
                      {"row", mismatch.row},
                      {"column", mismatch.col},
                      {"found_bits", mismatch.found_bits},
                      {"expected_bits", mismatch.expected_bits},
                      {"different", mismatch.n_different}});
  }
  return {{"model", report.model},
          {"passed", report.passed()},
          {"reason", report.passed() ? "" : report.failure()},
          {"oracle", "the scalar reference"},
          {"device", report.device},
          {"backend", report.choice.to_json()},
          {"tensors", report.n_tensors},
          {"values", report.n_values},
          {"types", types},
          {"failed", failed}};
}

std::string parity_text(const TensorParityReport& report) {
  std::string text;
  for (const TensorMismatch& mismatch : report.failed) {
    text += mismatch_line(mismatch) + "\n";
  }
  for (const TensorTypeCount& count : report.types) {
    text += fmt::format(
        "  {:<8} {:<7} {:>5} tensors {:>14} values: {}\n", count.type, count.layout,
        count.n_tensors, count.n_values,
        count.n_failed == 0 ? "equal" : fmt::format("{} tensors differ", count.n_failed));
  }
  text += fmt::format(
      "tensors {}: {} tensors, {} values, on {} against the scalar reference, bit for bit\n",
      report.passed() ? "PASS" : "FAIL", report.n_tensors, report.n_values, report.device);
  return text;
}

}  // namespace apr::cli
