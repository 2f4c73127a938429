// A loaded model on a device, with the state of one sequence.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "apr/lower.h"
#include "apr/tokenizer.h"

namespace apr {

class Backend {
 public:
  virtual ~Backend() = default;

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
