// The table of kernels: what is compiled, from which file, for which architectures.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/nvrtc.h"

namespace apr::cuda {

// "sm_" names as NVRTC takes them, ascending: those that the tests compile every row for.
std::span<const std::string_view> tested_architectures();

// What every architecture from sm_80 on gives a block that asks, less what kernels have static.
constexpr int64_t kLeastMostShared = 94 * 1024;

struct KernelRow {
  std::string_view name;             // "rms_norm.vec4": what stages and tests call it
  std::string_view file;             // under kernels/
  std::string_view name_expression;  // "apr::rms_norm<4>"
  std::vector<std::string> options = {};
  std::vector<std::string_view> only = {};  // architectures it is for; empty: every one
  bool all_shared = false;           // launches ask for as much dynamic shared memory as there is
  std::string_view quant_type = {};  // "Q4_K" where the kernel is of one type
  std::string_view quant_file = {};  // and its file: "quant/q4_k.cuh"
  std::string_view second_type = {}, second_file = {};  // of a kernel of two
  int shared_bytes = 0;  // of dynamic shared memory, where a launch asks for more than 48 KiB
};

// Every row once.
std::span<const KernelRow> kernel_table();

// Puts `rows`, which must outlive it, in the table's place until the end of its scope. For tests;
// not while other threads look at the table.
class ScopedKernelTable {
 public:
  explicit ScopedKernelTable(std::span<const KernelRow> rows);
  ~ScopedKernelTable();
  ScopedKernelTable(const ScopedKernelTable&) = delete;
  ScopedKernelTable& operator=(const ScopedKernelTable&) = delete;

 private:
  std::span<const KernelRow> previous_;
};

// The row named `name`; aborts where there is none (our own bug).
const KernelRow& kernel_row(std::string_view name);

// Whether `row` is for `arch`.
bool runs_on(const KernelRow& row, std::string_view arch);

CompileRequest compile_request(const KernelRow& row, std::string_view arch);

// The architecture to compile for on a device of this compute capability: its own where it is one
// of tested_architectures(), else the nearest older one of the same major version, whose code runs
// there too, else its own by number.
std::string device_architecture(int cc_major, int cc_minor);

// 90 for "sm_90a".
int architecture_number(std::string_view arch);

}  // namespace apr::cuda
