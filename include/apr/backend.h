// A loaded model on a device, with the state of one sequence.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apr/error.h"
#include "apr/lower.h"
#include "apr/sampling.h"
#include "apr/tokenizer.h"

namespace apr {

// What a running step has computed so far, for comparing backends. Rows of 32-bit integers are read
// and written as their bits.
class StepValues {
 public:
  virtual ~StepValues() = default;

  // A value that exists in the workspace now: [rows of the step, row_elems] f32.
  virtual std::vector<float> read(ValueId id) const = 0;
  virtual void write(ValueId id, std::span<const float> rows) = 0;

  // What the step's op wrote to a state: of a KV cache the step's rows, [2 (keys, values),
  // n_tokens, kv_dim] f32; of recurrent state all of it.
  virtual std::vector<float> read_state(int state_idx) const = 0;
  virtual void write_state(int state_idx, std::span<const float> state) = 0;
};

class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // After `stage` has run; what is written to `values` is what later stages read.
  virtual void after_stage(const ExecPlan& exec, const Stage& stage, StepValues& values) = 0;
};

// Why no token can be chosen from logits.
enum class LogitFaultKind { kNan, kInf, kNothingFinite };
struct LogitFault {
  LogitFaultKind kind;
  TokenId id;  // the first NaN or +inf
};

// An answer whose tokens the backend chooses itself, as Sampler does.
struct DecodeOptions {
  SamplingParams sampling;            // in range
  std::span<const TokenId> history;   // prompt and answer, oldest first; the last id is not fed yet
  int64_t step = 0;                   // index in the answer of the next token
  int64_t max_tokens = 0;             // how many are wanted at most; at least 1
  std::span<const TokenId> stop_ids;  // none is wanted after one of these
};

struct DecodedToken {
  TokenId id = -1;
  std::optional<LogitFault> fault;  // then there is no token, and none will come
};

class Backend {
 public:
  virtual ~Backend() = default;

  // From now on every forward runs stage by stage and shows each to `observer`, which must outlive
  // that; null ends it. Slow: for comparing backends.
  virtual void observe(StepObserver* observer) = 0;

  // Runs `ids` at positions [n_past, n_past + ids.size()) and writes the logits of `logit_rows`
  // (indices into ids, ascending): logits [logit_rows.size(), vocab_rows] f32. Returns false, with
  // the sequence unchanged, when `cancel` became true. At most max_rows() ids and
  // max_logit_rows() rows a call, n_past + ids.size() <= context(). Throws kInference naming op,
  // layer and position for a non-finite result.
  virtual bool forward(std::span<const TokenId> ids, std::span<const int64_t> logit_rows,
                       std::span<float> logits, const std::atomic<bool>* cancel) = 0;

  // Takes the last forward back: position and recurrent state are as before it. Once per forward.
  virtual void undo_last() = 0;

  // Forgets the sequence; memory stays.
  virtual void reset() = 0;

  // Decoding with the sampler beside the model. begin_decode feeds the last id of the history and
  // goes on with each token chosen, a step ahead of the caller; false: not here, with nothing
  // changed, so call forward() and sample. Each next_token() is one token, in order, at most
  // max_tokens of them and none after a stop id; it counts as a forward of the id before it. Both
  // throw as forward. end_decode() takes back the step that nobody asked for: position and state
  // are those of the tokens handed out. forward() and reset() end decoding, too.
  virtual bool begin_decode(const DecodeOptions&) { return false; }
  virtual DecodedToken next_token() { APR_CHECK(false, "this backend does not decode"); }
  virtual void end_decode() {}

  virtual int64_t n_past() const = 0;
  virtual int64_t context() const = 0;  // positions that fit
  virtual int64_t max_rows() const = 0;
  virtual int64_t max_logit_rows() const = 0;
  virtual const ModelDesc& desc() const = 0;
  virtual std::string device_name() const = 0;  // for people: "CPU, 2 threads, avx512"
};

struct CpuBackendOptions {
  int n_threads = 0;          // 0: the cores this process may use
  int64_t context = 0;        // positions to reserve; 0: the model's
  int64_t prefill_chunk = 0;  // rows of one forward; 0: 512, or less where the context is
  int64_t max_logit_rows = 1;
  KernelSet kernels = KernelSet::kFast;
};

// The CPU backend for `model`, which must outlive it. Throws kUsage for bad options.
std::unique_ptr<Backend> make_cpu_backend(const Model& model, const CpuBackendOptions& options);

}  // namespace apr
