// Attention on the GPU, from the projections of a step to what the output projection reads.
#pragma once

#include "attention_params.h"
#include "cuda/device.h"
#include "cuda/handles.h"
#include "cuda/kernel_library.h"
#include "cuda/prefill_attention.h"

namespace apr::cuda {

// One layer of one step; shapes as in attention_params.h.
struct AttentionCall {
  QueryRef q{};  // before norm and rotation; is overwritten
  const float *k = nullptr, *v = nullptr;
  Products products{};  // or these, of which q is the first columns, k and v null
  ProductColumns columns[3]{};
  const float *q_norm = nullptr, *k_norm = nullptr;
  float eps = 0.0F, scale = 0.0F;
  KvCacheRef cache{};  // mapped for position + n_tokens
  AttentionGate gate{};
  float* y = nullptr;
  int64_t n_tokens = 0;
  int64_t position = 0;  // of the first token: what *step says; kQueryPasses reads it here
};

class Attention {
 public:
  // `step`: in device memory. Everything passed by reference must outlive this. Throws
  // kBackendUnavailable.
  Attention(const KernelLibrary& kernels, const Stream& stream, const DeviceFacts& device,
            const ModelDesc& desc, const StepState* step, const AttentionOptions& options);

  // Launches norm, rotation, append and attention. Only kQueryPasses reads the position here: a
  // graph may capture the others.
  void run(const AttentionCall& call) const;

  AttentionChoice choice(int64_t n_tokens) const;
  int64_t device_bytes() const;

 private:
  QkRopeAppendParams preparation(const AttentionCall& call) const;
  // AttentionPrefillParams, and the part of AttentionDecodeParams that is alike.
  template <class Params>
  Params unsplit(const AttentionCall& call) const;
  void append(const AttentionCall& call) const;
  void token_by_token(const AttentionCall& call) const;
  void split(const AttentionCall& call, bool fused) const;
  void flash(const AttentionCall& call) const;
  void query_passes(const AttentionCall& call) const;

  const KernelLibrary& kernels_;
  const Stream& stream_;
  const StepState* step_;
  AttentionDesc desc_;
  RopeDesc rope_;
  AttentionOptions options_;
  bool tensor_cores_;
  AttentionSizes sizes_;
  CublasHandle cublas_;  // where the cache is f32
  DeviceBuffer inv_freq_, partial_, stats_, counters_, scores_;
};

}  // namespace apr::cuda
