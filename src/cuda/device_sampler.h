// Sampling on the device: the memory of one answer, and the launches that choose a token from
// logits and prepare the next decode step (kernels/sample_*.cu).
#pragma once

#include <cstdint>
#include <span>

#include "apr/backend.h"
#include "cuda/handles.h"
#include "cuda/kernel_library.h"
#include "cuda/sampler_settings.h"
#include "sample_params.h"

namespace apr::cuda {

class DeviceSampler {
 public:
  // n_tokens: ids that may be chosen, at most kMostSampleTokens; `step` and `ids`: of the decode
  // step, where a chosen token becomes the next one. All that is given must outlive the sampler.
  DeviceSampler(const KernelLibrary& kernels, const Stream& stream, int64_t n_tokens,
                int64_t context, StepState* step, int32_t* ids);

  // Uploads a new answer, in stream order. At most `n_left` tokens will be chosen; the history must
  // have room for them in twice the context.
  void begin(const DecodeOptions& options, int64_t n_left);

  // Which launches the answer needs: equal numbers, equal launches. Not zero.
  int kind() const;

  // Chooses from `logits` [n_tokens] f32 (penalties change them); for the kind that begin() left.
  void launch(float* logits) const;

  // What step `step` of the answer chose, once it is done and until step + kOutcomeSlots runs.
  SampleOutcome outcome(int64_t step) const;

 private:
  const KernelLibrary& kernels_;
  const Stream& stream_;
  int64_t n_tokens_, context_;
  SamplerSizes sizes_;
  SamplePasses passes_{};
  DeviceBuffer answer_, history_, counts_, partials_, histogram_;
  PinnedBuffer outcomes_;
  SampleParams params_{};
};

}  // namespace apr::cuda
