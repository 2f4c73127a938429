#include "cpu/sequence_state.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "apr/error.h"
#include "base/format.h"

namespace apr::cpu {

LazyBuffer::LazyBuffer(int64_t n_elems) : n_elems_(n_elems) {
  const size_t size_bytes = static_cast<size_t>(n_elems) * sizeof(float);
  void* memory = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(ErrorCode::kGeneric,
                fmt::format("cannot reserve {} for the sequence: {}; try a smaller --context",
                            format_bytes(size_bytes), std::strerror(errno)));
  }
  data_ = static_cast<float*>(memory);
}

LazyBuffer::LazyBuffer(LazyBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), n_elems_(other.n_elems_) {}

LazyBuffer::~LazyBuffer() {
  if (data_ != nullptr) {
    ::munmap(data_, static_cast<size_t>(n_elems_) * sizeof(float));
  }
}

SequenceState::SequenceState(const Plan& plan, int64_t context) : context_(context) {
  for (const StateSpec& spec : plan.states) {
    const bool is_recurrent = spec.kind != StateKind::kKvCache;
    const int64_t n_elems = is_recurrent ? spec.elems : spec.elems_per_position / 2 * context;
    recurrent_.push_back(is_recurrent);
    buffers_.emplace_back(n_elems);
    buffers_.emplace_back(n_elems);
  }
}

const LazyBuffer& SequenceState::buffer(int state_idx, int which) const {
  return buffers_[static_cast<size_t>(2 * state_idx + which)];
}

float* SequenceState::k_cache(int state_idx) const {
  return buffer(state_idx, 0).data();
}
float* SequenceState::v_cache(int state_idx) const {
  return buffer(state_idx, 1).data();
}

const float* SequenceState::recurrent_in(int state_idx) const {
  return buffer(state_idx, parity_).data();
}

float* SequenceState::recurrent_out(int state_idx) const {
  return buffer(state_idx, 1 - parity_).data();
}

void SequenceState::commit(int64_t n_tokens) {
  n_past_ += n_tokens;
  last_n_tokens_ = n_tokens;
  parity_ = 1 - parity_;
}

void SequenceState::undo() {
  APR_CHECK(last_n_tokens_ > 0, "one step can be taken back once");
  n_past_ -= std::exchange(last_n_tokens_, 0);
  parity_ = 1 - parity_;
}

void SequenceState::reset() {
  n_past_ = last_n_tokens_ = 0;
  for (size_t state_idx = 0; state_idx < recurrent_.size(); ++state_idx) {
    if (recurrent_[state_idx]) {
      const LazyBuffer& current = buffer(static_cast<int>(state_idx), parity_);
      std::fill_n(current.data(), current.n_elems(), 0.0F);
    }
  }
}

}  // namespace apr::cpu
