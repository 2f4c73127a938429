// The CPU's kernel table: the rows a lowered stage names ("matmul.fast").
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "apr/plan.h"
#include "cpu/thread_pool.h"

namespace apr::cpu {

// What a stage works on: memory of its op's values and state, and what changes per step.
struct StageIo {
  const Op* op = nullptr;
  std::array<void*, 5> in{};            // [n_rows of the value, row_elems], order of op->inputs
  std::array<void*, 2> out{};           // order of op->outputs
  const int32_t* ids = nullptr;         // [n_tokens]
  const int64_t* logit_rows = nullptr;  // [n_logit_rows]
  int64_t n_tokens = 0, n_logit_rows = 0, first_position = 0;
  int64_t n_rows = 0;                            // of the outputs: n_tokens or n_logit_rows
  int64_t row_elems = 0;                         // of the first output
  int64_t in_row_elems = 0;                      // of the first input
  float *k_cache = nullptr, *v_cache = nullptr;  // [context, kv_dim]
  const float* state_in = nullptr;               // recurrent state before this step
  float* state_out = nullptr;                    // and after it
  const float* inv_freq = nullptr;               // [n_rot / 2]
  float rope_magnitude = 1.0F;
  ThreadPool* pool = nullptr;
};

using KernelFn = void (*)(const StageIo& io);

// The kernel of a row; null where the table has none.
KernelFn find_kernel(std::string_view name);

}  // namespace apr::cpu
