// A prefill of few tokens is a graph as a decode step is: its kernels are so short that launching
// them one by one takes the host longer than running them takes the device. Kernels read the
// position from device memory, so one graph serves every prefill of so many tokens.
#include <algorithm>

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

// Query passes of cuBLAS take the position from the host, and so does the choice of logit rows: of
// the others' ends there is one, the last row.
bool CudaBackend::has_prefill_graph(const Step& step) const {
  const AttentionPath attention = attention_->choice(step.n_tokens).path;
  return options_.graphs && observer_ == nullptr && step.n_tokens > 1 &&
         step.n_tokens <= kMostGraphTokens && decision_.gemm == PrefillGemm::kF16 &&
         (attention == AttentionPath::kSplits || attention == AttentionPath::kFlash) &&
         step.logit_rows.size() == 1 && step.logit_rows[0] == step.n_tokens - 1;
}

// The second prefill of a size is captured: making a graph costs as much as some launches save.
void CudaBackend::replay_prefill(const Step& step) {
  const auto [found, is_first] = prefill_graphs_.try_emplace(step.n_tokens);
  if (is_first) {
    return launch_stages(step);
  }
  StepGraph& graph = found->second;
  if (graph.exec.get() == nullptr) {
    const Graph captured = capture_graph(stream_, [&] { launch_stages(step); });
    graph = {instantiate(captured), count_kernel_nodes(captured)};
  }
  APR_CUDA(api().cudaGraphLaunch(graph.exec.get(), stream_.get()));
}

}  // namespace apr::cuda
