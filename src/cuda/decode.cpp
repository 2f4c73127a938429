// How CudaBackend decodes: one graph a token, and with the sampler in it a step ahead of the host.
// What a step needs (token id, position) is left in device memory by the sampler of the step before
// it, so a launch needs nothing from the host, and the device never waits: while the host reads
// token n and turns it into text, step n + 1 runs.
//
// A step that nobody asked for is harmless. After a stop id the sampler leaves id and position as
// they are: the step in flight computes the last one again and writes the same cache row with the
// same values. After a stop by the host it writes the row at n_past, which is read by no step
// before the step that feeds that position has written it. (Recurrent state will need two buffers.)
#include <algorithm>

#include "apr/error.h"
#include "cuda/backend.h"
#include "cuda/error.h"

namespace apr::cuda {

void CudaBackend::replay_decode(int sampler_kind) {
  const std::vector<int64_t> row_zero = {0};
  const Step step{&decode_, 1, row_zero};
  const auto launch_all = [&] {
    launch_stages(step);
    if (sampler_kind != 0) {
      sampler_->launch(value(step, plan_.logits));
    }
  };
  if (!options_.graphs) {
    return launch_all();
  }
  auto found = decode_graphs_.find(sampler_kind);
  if (found == decode_graphs_.end()) {
    const Graph graph = capture_graph(stream_, launch_all);
    const int64_t n_kernels = count_kernel_nodes(graph);
    found = decode_graphs_.emplace(sampler_kind, StepGraph{instantiate(graph), n_kernels}).first;
  }
  graph_kernels_ = found->second.n_kernels;
  APR_CUDA(api().cudaGraphLaunch(found->second.exec.get(), stream_.get()));
}

// The next step, if there may be one: its cache rows are mapped while the step before it runs.
void CudaBackend::launch_ahead() {
  if (decoding_.n_launched == decoding_.n_most) {
    return;
  }
  grow_caches(n_past_ + decoding_.n_launched - decoding_.n_taken + 1);
  replay_decode(sampler_->kind());
  const auto slot = static_cast<size_t>(decoding_.n_launched % kOutcomeSlots);
  APR_CUDA(api().cudaEventRecord(step_done_[slot].get(), stream_.get()));
  ++decoding_.n_launched;
}

bool CudaBackend::begin_decode(const DecodeOptions& options) {
  end_decode();
  if (sampler_ == nullptr || observer_ != nullptr ||
      static_cast<int64_t>(options.history.size()) > context_) {
    return false;
  }
  APR_CHECK(!options.history.empty() && options.max_tokens >= 1, "there is a token to feed");
  APR_CHECK(n_past_ < context_, "a step fits the context");
  const TokenId id = options.history.back();
  APR_CHECK(id >= 0 && id < desc().vocab_rows, "a token of the answer is in the vocabulary");
  Decoding next;
  next.active = true;
  next.first_step = options.step;
  next.n_most = std::min(options.max_tokens, context_ - n_past_);
  next.stop_ids.assign(options.stop_ids.begin(), options.stop_ids.end());

  *host_step_.as<StepState>() = {static_cast<int32_t>(n_past_), 1};
  *reinterpret_cast<TokenId*>(host_step_.data() + sizeof(StepState)) = id;
  APR_CUDA(api().cudaMemcpyAsync(step_state_.data(), host_step_.data(),
                                 sizeof(StepState) + sizeof(TokenId), cudaMemcpyHostToDevice,
                                 stream_.get()));
  sampler_->begin(options, next.n_most);
  decoding_ = std::move(next);
  launch_ahead();
  return true;
}

DecodedToken CudaBackend::next_token() {
  APR_CHECK(decoding_.active && decoding_.n_taken < decoding_.n_most, "a token is to come");
  launch_ahead();
  // Two slots do: the step launched just now has the other one, and the next is launched after this
  // outcome has been read.
  const auto slot = static_cast<size_t>(decoding_.n_taken % kOutcomeSlots);
  APR_CUDA(api().cudaEventSynchronize(step_done_[slot].get()));
  const SampleOutcome outcome = sampler_->outcome(decoding_.first_step + decoding_.n_taken);
  if (outcome.fault != SampleFault::kNone) {
    end_decode();
    const LogitFaultKind kind = outcome.fault == SampleFault::kNan ? LogitFaultKind::kNan
                                : outcome.fault == SampleFault::kInf
                                    ? LogitFaultKind::kInf
                                    : LogitFaultKind::kNothingFinite;
    return {-1, LogitFault{kind, outcome.token}};
  }
  ++decoding_.n_taken;
  ++n_past_;
  last_n_tokens_ = 1;
  if (std::find(decoding_.stop_ids.begin(), decoding_.stop_ids.end(), outcome.token) !=
      decoding_.stop_ids.end()) {
    decoding_.n_most = decoding_.n_taken;
  }
  return {outcome.token, std::nullopt};
}

void CudaBackend::end_decode() {
  if (!std::exchange(decoding_.active, false) || decoding_.n_launched == decoding_.n_taken) {
    return;
  }
  APR_CUDA(
      api().cudaStreamSynchronize(stream_.get()));  // what follows may change the step's memory
}

}  // namespace apr::cuda
