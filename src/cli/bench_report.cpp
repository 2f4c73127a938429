#include "cli/bench_report.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "base/format.h"

namespace apr::cli {
namespace {

constexpr double kNsPerSecond = 1e9;

double mean(const std::vector<double>& values) {
  return values.empty() ? 0.0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

double sample_stddev(const std::vector<double>& values) {
  if (values.size() < 2) {
    return 0.0;
  }
  const double centre = mean(values);
  double sum = 0.0;
  for (const double value : values) {
    sum += (value - centre) * (value - centre);
  }
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

std::vector<double> as_doubles(const std::vector<int64_t>& values) {
  return {values.begin(), values.end()};
}

std::string share_text(double share) {
  return share > 0.0 ? fmt::format("{:.1f} %", share * 100.0) : "-";
}

}  // namespace

std::string BenchTest::name() const {
  std::string text = n_prompt > 0 ? fmt::format("pp{}", n_prompt) : fmt::format("tg{}", n_gen);
  if (n_depth > 0) {
    text += fmt::format(" @ d{}", n_depth);
  }
  return text;
}

std::vector<BenchTest> bench_tests(const std::vector<int64_t>& n_prompt,
                                   const std::vector<int64_t>& n_gen,
                                   const std::vector<int64_t>& n_depth) {
  std::vector<BenchTest> tests;
  for (const int64_t depth : n_depth) {
    for (const int64_t n : n_prompt) {
      if (n > 0) {
        tests.push_back({n, 0, depth});
      }
    }
    for (const int64_t n : n_gen) {
      if (n > 0) {
        tests.push_back({0, n, depth});
      }
    }
  }
  return tests;
}

double BenchResult::mean_ns() const {
  return mean(as_doubles(samples_ns));
}

double BenchResult::stddev_ns() const {
  return sample_stddev(as_doubles(samples_ns));
}

std::vector<double> BenchResult::samples_ts() const {
  std::vector<double> rates;
  for (const int64_t ns : samples_ns) {
    rates.push_back(static_cast<double>(test.n_tokens()) * kNsPerSecond / static_cast<double>(ns));
  }
  return rates;
}

double BenchResult::mean_ts() const {
  return mean(samples_ts());
}

double BenchResult::stddev_ts() const {
  return sample_stddev(samples_ts());
}

double BenchResult::share_of_bound(const MachineSpeed& speed) const {
  const double seconds = mean_ns() / kNsPerSecond;
  const double work = test.n_gen > 0 ? bytes : flops;
  const double bound = test.n_gen > 0 ? speed.bytes_per_s : speed.flops_per_s;
  return bound > 0.0 && seconds > 0.0 ? work / seconds / bound : 0.0;
}

nlohmann::ordered_json bench_json(const BenchSetup& setup, const BenchResult& result) {
  const double seconds = result.mean_ns() / kNsPerSecond;
  const bool used_gpu = setup.choice.used_gpu();
  const auto or_null = [](double value) {
    return value > 0.0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
  };
  const char* kv_type = used_gpu && !setup.exact ? "f16" : "f32";
  return {{"build_commit", "apr " APR_VERSION},
          {"cpu_info", setup.cpu_name},
          {"gpu_info", used_gpu ? setup.device_name : ""},
          {"backends", used_gpu ? "CUDA" : "CPU"},
          {"model_filename", setup.model.path},
          {"model_type", setup.model.type},
          {"model_size", setup.model.size_bytes},
          {"model_n_params", setup.model.n_params},
          {"n_batch", setup.chunk},
          {"n_ubatch", setup.chunk},
          {"n_threads", setup.n_threads},
          {"type_k", kv_type},
          {"type_v", kv_type},
          {"n_gpu_layers", used_gpu ? -1 : 0},  // -1: all, as llama-bench writes it
          {"devices", setup.device_name},
          {"n_prompt", result.test.n_prompt},
          {"n_gen", result.test.n_gen},
          {"n_depth", result.test.n_depth},
          {"test_time", result.test_time},
          {"avg_ns", static_cast<int64_t>(result.mean_ns())},
          {"stddev_ns", static_cast<int64_t>(result.stddev_ns())},
          {"avg_ts", result.mean_ts()},
          {"stddev_ts", result.stddev_ts()},
          {"samples_ns", result.samples_ns},
          {"samples_ts", result.samples_ts()},
          {"exact", setup.exact},
          {"gb_per_s", result.bytes / seconds / 1e9},
          {"tflop_per_s", result.flops / seconds / 1e12},
          {"bound_gb_per_s", or_null(setup.speed.bytes_per_s / 1e9)},
          {"bound_tflop_per_s", or_null(setup.speed.flops_per_s / 1e12)},
          {"share_of_bound", or_null(result.share_of_bound(setup.speed))},
          {"bound_is", setup.speed.how},
          {"backend", setup.choice.to_json()},
          {"prefill", setup.prefill},
          {"prefill_gemm", setup.prefill_gemm}};
}

std::string bench_table(const BenchSetup& setup, const std::vector<BenchResult>& results) {
  std::string text = fmt::format(
      "| {:<30} | {:>9} | {:>8} | {:<7} | {:>16} | {:>20} | {:>9} | {:>8} | {:>8} |\n", "model",
      "size", "params", "backend", "test", "t/s", "GB/s", "TFLOP/s", "of bound");
  text +=
      fmt::format("|{:-<32}|{:->10}:|{:->9}:|{:-<9}|{:->17}:|{:->21}:|{:->10}:|{:->9}:|{:->9}:|\n",
                  "", "", "", "", "", "", "", "", "");
  for (const BenchResult& result : results) {
    const double seconds = result.mean_ns() / kNsPerSecond;
    text += fmt::format(
        "| {:<30} | {:>9} | {:>8} | {:<7} | {:>16} | {:>20} | {:>9.1f} | {:>8.2f} | {:>8} |\n",
        setup.model.type, format_bytes(setup.model.size_bytes),
        fmt::format("{:.2f} B", static_cast<double>(setup.model.n_params) / 1e9),
        setup.choice.used_gpu() ? "CUDA" : "CPU", result.test.name(),
        fmt::format("{:.2f} ± {:.2f}", result.mean_ts(), result.stddev_ts()),
        result.bytes / seconds / 1e9, result.flops / seconds / 1e12,
        share_text(result.share_of_bound(setup.speed)));
  }
  text += fmt::format("\n{}; bound: {}\n", setup.device_name, setup.speed.how);
  return text;
}

}  // namespace apr::cli
