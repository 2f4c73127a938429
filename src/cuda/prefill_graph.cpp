// A prefill of few tokens is a graph as a decode step is: its kernels are so short that a slow host
// takes longer to launch them one by one than the device to run them. Kernels read the position
// from device memory, so one graph serves every prefill of so many tokens.
#include <fmt/format.h>

#include <algorithm>

#include "apr/error.h"
#include "base/log.h"
#include "cuda/backend.h"
#include "cuda/error.h"

namespace apr::cuda {
namespace {

// With more, the device is behind the host.
constexpr int64_t kMostGraphTokens = 32;

}  // namespace

int64_t CudaBackend::n_prefill_graphs() const {
  return std::count_if(prefill_graphs_.begin(), prefill_graphs_.end(),
                       [](const auto& graph) { return graph.second.exec.get() != nullptr; });
}

// Query passes take the position from the host, so a graph of them would keep it, and logit rows
// are chosen there, too: of others than the last none is kept. Other products than f16 are for
// comparison.
bool CudaBackend::has_prefill_graph(const Step& step) const {
  const AttentionPath attention = attention_->choice(step.n_tokens).path;
  return options_.graphs && observer_ == nullptr && step.n_tokens > 1 &&
         step.n_tokens <= kMostGraphTokens && decision_.gemm == PrefillGemm::kF16 &&
         (attention == AttentionPath::kSplits || attention == AttentionPath::kFlash) &&
         step.logit_rows.size() == 1 && step.logit_rows[0] == step.n_tokens - 1;
}

// The second prefill of a size is captured: making a graph costs as much as some launches save. One
// that cannot be made, for memory say, is not tried again.
void CudaBackend::replay_prefill(const Step& step) {
  PrefillGraph& graph = prefill_graphs_[step.n_tokens];
  if (graph.exec.get() == nullptr && graph.n_launched++ == 1) {
    try {
      graph.exec = instantiate(capture_graph(stream_, [&] { launch_stages(step); }));
    } catch (const Error& error) {
      log_note(fmt::format("prefills of {} tokens are launched kernel by kernel: {}", step.n_tokens,
                           error.what()));
    }
  }
  if (graph.exec.get() == nullptr) {
    return launch_stages(step);
  }
  APR_CUDA(api().cudaGraphLaunch(graph.exec.get(), stream_.get()));
}

}  // namespace apr::cuda
