// Speed of the CPU's matrix product, per weight type, rows of activations and instruction set.
//
//   cmake -G Ninja -B build -DAPR_BENCH=ON && ninja -C build cpu_matmul_bench
//   build/tools/bench/cpu_matmul_bench --benchmark_filter=Q4_K
//
// Names are matmul/TYPE/ROWSxCOLUMNS/tokens:T/threads:N/ISA. `weights/s` counts weights times calls
// (what limits decoding), `flop/s` two operations for each weight and token (what limits prefill).
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "apr/quant.h"
#include "cpu/fast/ops.h"

namespace apr::cpu {
namespace {

struct Shape {
  int64_t n_rows, n_cols;
};

// Activations, aligned as the executor aligns them.
struct Rows {
  float* data;
  Rows(int64_t n_elems, float value)
      : data(static_cast<float*>(
            ::operator new (static_cast<size_t>(n_elems) * sizeof(float), std::align_val_t{64}))) {
    std::fill(data, data + n_elems, value);
  }
  ~Rows() { ::operator delete (data, std::align_val_t{64}); }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
};

// Weights of any bits would hold infinities; zero bytes with a scale of about 1 do not.
std::vector<std::byte> weights_of(const QuantType& type, const Shape& shape) {
  std::vector<std::byte> bytes(static_cast<size_t>(shape.n_rows * type.row_bytes(shape.n_cols)));
  std::minstd_rand random(1);
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(0x20 +
                                  random() % 0x18);  // as the top byte of any float: small, normal
  }
  return bytes;
}

void run(benchmark::State& state, const QuantType& type, Shape shape, int64_t n_tokens,
         int n_threads, fast::Isa isa) {
  if (!fast::set_isa(isa)) {
    state.SkipWithError("this machine lacks the instruction set");
    return;
  }
  const std::vector<std::byte> bytes = weights_of(type, shape);
  const Rows x(n_tokens * shape.n_cols, 0.01F), y(n_tokens * shape.n_rows, 0.0F);
  const MatrixRef w{&type,        bytes.data(), 1,
                    shape.n_rows, shape.n_cols, type.row_bytes(shape.n_cols)};
  ThreadPool pool(n_threads);
  for (auto _ : state) {
    fast::matmul({x.data, w, nullptr, n_tokens, y.data}, pool);
    benchmark::DoNotOptimize(y.data);
  }
  const auto n_weights = static_cast<double>(shape.n_rows * shape.n_cols);
  state.counters["weights/s"] =
      benchmark::Counter(n_weights, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["flop/s"] = benchmark::Counter(2.0 * n_weights * static_cast<double>(n_tokens),
                                                benchmark::Counter::kIsIterationInvariantRate);
}

void register_all() {
  // A feed-forward matrix each way and attention's key rows of Qwen2.5-0.5B; one large matrix.
  const Shape shapes[] = {{4864, 896}, {896, 4864}, {128, 896}, {16384, 2048}};
  const struct {
    fast::Isa isa;
    const char* name;
  } isas[] = {{fast::Isa::kBaseline, "baseline"},
              {fast::Isa::kAvx2, "avx2"},
              {fast::Isa::kAvx512, "avx512"}};
  for (const QuantType& type : quant_types()) {
    for (const Shape& shape : shapes) {
      if (shape.n_cols % type.block_elems != 0) {
        continue;
      }
      for (const int64_t n_tokens : {1, 4, 64, 512}) {
        for (const int n_threads : {1, 2}) {
          for (const auto& isa : isas) {
            const std::string name =
                fmt::format("matmul/{}/{}x{}/tokens:{}/threads:{}/{}", type.name, shape.n_rows,
                            shape.n_cols, n_tokens, n_threads, isa.name);
            benchmark::RegisterBenchmark(name.c_str(), run, type, shape, n_tokens, n_threads,
                                         isa.isa);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace apr::cpu

int main(int argc, char** argv) {
  apr::cpu::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
