// What `apr bench` measured: statistics, JSON with the fields of llama.cpp's llama-bench, a table.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/load.h"

namespace apr::cli {

// One cell of the table: a prompt of n_prompt tokens, or n_gen tokens one after the other, after
// n_depth tokens that are not timed.
struct BenchTest {
  int64_t n_prompt = 0, n_gen = 0, n_depth = 0;
  int64_t n_tokens() const { return n_prompt + n_gen; }
  std::string name() const;  // "pp512", "tg128 @ d4096"
};

// The tests of lists as the flags give them, depths outermost; a zero in n_prompt or n_gen is none.
std::vector<BenchTest> bench_tests(const std::vector<int64_t>& n_prompt,
                                   const std::vector<int64_t>& n_gen,
                                   const std::vector<int64_t>& n_depth);

// What the machine reaches, measured in the same run; 0: not measured.
struct MachineSpeed {
  double bytes_per_s = 0.0, flops_per_s = 0.0;
  std::string how;  // for people
};

struct BenchModel {
  std::string path;  // as given
  std::string type;  // architecture, parameters, weight_types
  uint64_t size_bytes = 0, n_params = 0;
};

struct BenchResult {
  BenchTest test;
  std::string test_time;            // ISO 8601, UTC
  std::vector<int64_t> samples_ns;  // one a repetition
  double bytes = 0.0, flops = 0.0;  // of one repetition, at least
  double mean_ns() const;
  double stddev_ns() const;  // of the sample; 0 with one
  std::vector<double> samples_ts() const;
  double mean_ts() const;  // tokens a second: of the repetitions' rates, as llama-bench does
  double stddev_ts() const;
  // How near to the machine: bytes of decode to its bandwidth, operations of a prompt to its
  // products; 0 where that was not measured.
  double share_of_bound(const MachineSpeed& speed) const;
};

// What all results of one call have in common.
struct BenchSetup {
  BenchModel model;
  BackendChoice choice;
  std::string device_name;
  std::string cpu_name;
  int64_t chunk = 0;  // most tokens of one forward
  int n_threads = 0;
  bool exact = false;
  nlohmann::ordered_json prefill;       // as prefill_json
  nlohmann::ordered_json prefill_gemm;  // as prefill_gemm_json
  MachineSpeed speed;
};

nlohmann::ordered_json bench_json(const BenchSetup& setup, const BenchResult& result);

// The table of all results, in Markdown, with its heading, and the line below it.
std::string bench_table(const BenchSetup& setup, const std::vector<BenchResult>& results);

}  // namespace apr::cli
