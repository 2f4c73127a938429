// Every tensor of a file, decoded by a device and by the scalar reference: bit for bit.
#pragma once

#include <atomic>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "apr/gguf.h"
#include "cli/load.h"
#include "cpu/thread_pool.h"
#include "model/tensor_decoder.h"

namespace apr::cli {

// Of one tensor in one layout: where it differs first.
struct TensorMismatch {
  std::string tensor, type, layout;
  int64_t row = 0, col = 0;  // rows of all experts
  uint32_t found_bits = 0, expected_bits = 0;
  int64_t n_different = 0;  // values
};

struct TensorTypeCount {
  std::string type, layout;
  int64_t n_tensors = 0, n_values = 0, n_failed = 0;  // tensors that differ
};

struct TensorParityReport {
  std::string model, device;
  BackendChoice choice;
  int64_t n_tensors = 0, n_values = 0;  // of the file
  std::vector<TensorTypeCount> types;   // by type, then layout
  std::vector<TensorMismatch> failed;   // in the order of the file
  bool passed() const { return failed.empty(); }
  std::string failure() const;  // one line
};

struct TensorParityOptions {
  int64_t tile_values = int64_t{1} << 22;  // decoded at a time: 16 MiB on either side
  int64_t load_bytes = int64_t{1} << 30;   // of the file, handed to the decoder at a time
  const std::atomic<bool>* cancel = nullptr;
  std::function<void(const std::string& tensor)> on_tensor;  // may be empty
};

// The types that `file` has.
std::set<const QuantType*> tensor_types(const GgufFile& file);

// Compares every tensor in every layout of `decoder`. Of two NaNs the bits may differ: a product's
// are the machine's choice. Throws kInterrupted, kInvalidFormat for rows too long to compare, and
// what the decoder throws, with the tensor's name.
TensorParityReport compare_tensors(const GgufFile& file, TensorDecoder& decoder,
                                   cpu::ThreadPool& pool, const TensorParityOptions& options);

// The CPU's fast decoders, of the instruction set in use.
std::unique_ptr<TensorDecoder> make_cpu_tensor_decoder(cpu::ThreadPool& pool);

nlohmann::ordered_json parity_json(const TensorParityReport& report);
std::string parity_text(const TensorParityReport& report);

}  // namespace apr::cli
