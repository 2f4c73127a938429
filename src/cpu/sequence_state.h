// What a sequence leaves behind between steps: KV caches and double-buffered recurrent state.
#pragma once

#include <cstdint>
#include <vector>

#include "apr/plan.h"

namespace apr::cpu {

// Zeroed anonymous memory whose pages exist once they are touched.
class LazyBuffer {
 public:
  // Reserves n_elems floats. Throws kGeneric when the address space cannot be had.
  explicit LazyBuffer(int64_t n_elems);
  LazyBuffer(LazyBuffer&& other) noexcept;
  LazyBuffer& operator=(LazyBuffer&&) = delete;
  ~LazyBuffer();
  float* data() const { return data_; }
  int64_t n_elems() const { return n_elems_; }

 private:
  float* data_ = nullptr;
  int64_t n_elems_ = 0;
};

// Recurrent state is read from one buffer and written to the other; commit() swaps them, so a step
// that was stopped or failed leaves no trace, and the last one can be taken back.
class SequenceState {
 public:
  SequenceState(const Plan& plan, int64_t context);

  int64_t context() const { return context_; }
  int64_t n_past() const { return n_past_; }

  float* k_cache(int state_idx) const;  // [context, kv_dim] f32
  float* v_cache(int state_idx) const;
  const float* recurrent_in(int state_idx) const;  // as the last committed step left it
  float* recurrent_out(int state_idx) const;

  void commit(int64_t n_tokens);
  void undo();   // of the last commit; once
  void reset();  // an empty sequence

 private:
  const LazyBuffer& buffer(int state_idx, int which) const;

  int64_t context_;
  int64_t n_past_ = 0, last_n_tokens_ = 0;
  int parity_ = 0;                   // which buffer of a recurrent state is current
  std::vector<LazyBuffer> buffers_;  // two per state: k and v, or both parities
  std::vector<bool> recurrent_;      // [n_states]
};

}  // namespace apr::cpu
