#include "cuda/attention.h"

#include <fmt/format.h>

#include <algorithm>

#include "apr/error.h"
#include "cuda/error.h"
#include "cuda/launch.h"
#include "flash_shape.h"
#include "split_shape.h"

namespace apr::cuda {
namespace {

constexpr uint32_t kAppendWarps = 8;
constexpr uint32_t kTokenThreads = 128;  // of attention_decode

struct FlashLaunch {
  int64_t rows;  // of a block
  uint32_t threads, shared_bytes;
};

template <int kHeadDim>
constexpr FlashLaunch flash_launch() {
  using Shape = FlashShape<kHeadDim>;
  return {Shape::kRows, Shape::kWarps * 32, Shape::kSharedBytes};
}

FlashLaunch flash_launch_for(int64_t head_dim) {
  switch (head_dim) {
    case 64:
      return flash_launch<64>();
    case 128:
      return flash_launch<128>();
    default:
      return flash_launch<256>();
  }
}

}  // namespace

Attention::Attention(const KernelLibrary& kernels, const Stream& stream, const DeviceFacts& device,
                     const ModelDesc& desc, const StepState* step, const AttentionOptions& options)
    : kernels_(kernels),
      stream_(stream),
      step_(step),
      desc_(desc.attention),
      rope_(desc.rope),
      options_(options),
      tensor_cores_(device.cc_major >= 8),
      sizes_(attention_sizes(desc, device.n_sm, tensor_cores_, options)),
      inv_freq_(sizes_.frequencies, "rope frequencies"),
      partial_(sizes_.partial, "attention splits"),
      stats_(sizes_.stats, "attention splits"),
      counters_(sizes_.counters, "attention counters") {
  APR_CUDA(api().cudaMemcpy(inv_freq_.data(), rope_.inv_freq.data(), inv_freq_.size_bytes(),
                            cudaMemcpyHostToDevice));
  APR_CUDA(api().cudaMemsetAsync(counters_.data(), 0, counters_.size_bytes(), stream.get()));
  if (sizes_.scores > 0) {
    cublas_ = create_cublas(stream);
    APR_CUDA(api().cublasSetMathMode(cublas_.get(), CUBLAS_PEDANTIC_MATH));
    scores_ = DeviceBuffer(sizes_.scores, "attention scores");
  }
}

AttentionChoice Attention::choice(int64_t n_tokens) const {
  return choose_attention({n_tokens, options_.f32_cache, tensor_cores_});
}

int64_t Attention::device_bytes() const {
  return static_cast<int64_t>(inv_freq_.size_bytes() + partial_.size_bytes() + stats_.size_bytes() +
                              counters_.size_bytes() + scores_.size_bytes());
}

void Attention::run(const AttentionCall& call) const {
  const AttentionPath path = choice(call.n_tokens).path;
  if (path == AttentionPath::kSplits && call.n_tokens == 1) {
    return split(call, true);
  }
  append(call);
  switch (path) {
    case AttentionPath::kTokens:
      return token_by_token(call);
    case AttentionPath::kSplits:
      return split(call, false);
    case AttentionPath::kFlash:
      return flash(call);
    case AttentionPath::kQueryPasses:
      return query_passes(call);
  }
}

QkRopeAppendParams Attention::preparation(const AttentionCall& call) const {
  QkRopeAppendParams params{};
  params.step = step_;
  params.q = call.q;
  params.k = call.k;
  params.v = call.v;
  params.products = call.products;
  std::copy(std::begin(call.columns), std::end(call.columns), std::begin(params.columns));
  params.q_norm = call.q_norm;
  params.k_norm = call.k_norm;
  params.inv_freq = inv_freq_.as<float>();
  params.cache = call.cache;
  params.n_heads = static_cast<int32_t>(desc_.n_heads);
  params.n_kv_heads = static_cast<int32_t>(desc_.n_kv_heads);
  params.head_dim = static_cast<int32_t>(desc_.head_dim);
  params.n_rot = static_cast<int32_t>(rope_.n_rot);
  params.eps = call.eps;
  params.magnitude = rope_.magnitude;
  return params;
}

template <class Params>
Params Attention::unsplit(const AttentionCall& call) const {
  Params params{};
  params.step = step_;
  params.q = call.q;
  params.cache = call.cache;
  params.gate = call.gate;
  params.y = call.y;
  params.n_heads = static_cast<int32_t>(desc_.n_heads);
  params.n_kv_heads = static_cast<int32_t>(desc_.n_kv_heads);
  params.scale = call.scale;
  return params;
}

void Attention::append(const AttentionCall& call) const {
  launch(kernels_, options_.f32_cache ? "qk_rope_append.f32" : "qk_rope_append.f16",
         {.grid_x = static_cast<uint32_t>(call.n_tokens),
          .grid_y = blocks_for(desc_.n_heads + 2 * desc_.n_kv_heads, kAppendWarps),
          .block_x = kAppendWarps * 32,
          .shared_bytes = static_cast<uint32_t>(kAppendWarps * desc_.head_dim * 4),
          .overlap = true},
         stream_, preparation(call));
}

void Attention::token_by_token(const AttentionCall& call) const {
  auto params = unsplit<AttentionDecodeParams>(call);
  params.partial = partial_.as<float>();
  params.counters = counters_.as<uint32_t>();
  launch(kernels_,
         fmt::format("attention_decode.{}.{}.{}", options_.f32_cache ? "f32" : "f16",
                     desc_.head_dim, desc_.n_heads / desc_.n_kv_heads),
         {.grid_x = static_cast<uint32_t>(desc_.n_kv_heads),
          .grid_y = static_cast<uint32_t>(call.n_tokens == 1 ? kTokenSplits : 1),
          .grid_z = static_cast<uint32_t>(call.n_tokens),
          .block_x = kTokenThreads,
          .overlap = true},
         stream_, params);
}

void Attention::split(const AttentionCall& call, bool fused) const {
  AttentionSplitParams params{};
  params.in = preparation(call);
  params.gate = call.gate;
  params.y = call.y;
  params.partial = partial_.as<float>();
  params.stats = stats_.as<float>();
  params.counters = counters_.as<uint32_t>();
  params.scale = call.scale;
  const int group = static_cast<int>(desc_.n_heads / desc_.n_kv_heads);
  launch(kernels_, fmt::format("attention_split{}.{}", fused ? "_fused" : "", desc_.head_dim),
         {.grid_x = static_cast<uint32_t>(desc_.n_kv_heads),
          .grid_y = static_cast<uint32_t>(sizes_.n_splits),
          .grid_z = static_cast<uint32_t>(call.n_tokens),
          .block_x = kSplitThreads,
          .shared_bytes = static_cast<uint32_t>(split_shared_bytes(
              static_cast<int>(desc_.head_dim), group, static_cast<int>(sizes_.n_splits))),
          .overlap = true},
         stream_, params);
}

void Attention::flash(const AttentionCall& call) const {
  const FlashLaunch shape = flash_launch_for(desc_.head_dim);
  const auto params = unsplit<AttentionPrefillParams>(call);
  const int64_t group = desc_.n_heads / desc_.n_kv_heads;
  launch(kernels_, fmt::format("attention_prefill.{}", desc_.head_dim),
         {.grid_x = static_cast<uint32_t>(desc_.n_kv_heads),
          .grid_y = blocks_for(call.n_tokens * group, shape.rows),
          .block_x = shape.threads,
          .shared_bytes = shape.shared_bytes,
          .overlap = true},
         stream_, params);
}

// scores = scale * q K^T, softmax, y = scores V: the heads of a group share K and V, so that each
// product is one batch a kv head. cuBLAS counts columns first: what is [rows, cols] here is the
// transpose there.
void Attention::query_passes(const AttentionCall& call) const {
  const int64_t head_dim = desc_.head_dim, kv_dim = desc_.kv_dim(), q_dim = desc_.q_dim();
  const int64_t group = desc_.n_heads / desc_.n_kv_heads;
  const float zero = 0.0F, one = 1.0F;
  int64_t n_rows = 0;
  for (int64_t first = 0; first < call.n_tokens; first += n_rows) {
    const int64_t n_left = call.n_tokens - first;
    n_rows = query_pass_rows(desc_.n_heads, call.position + call.n_tokens, n_left,
                             static_cast<int64_t>(scores_.size_bytes()));
    const int64_t n_keys = call.position + first + n_rows;
    const int64_t head_stride = n_rows * n_keys;
    for (int64_t kv_head = 0; kv_head < desc_.n_kv_heads; ++kv_head) {
      const float* k = static_cast<const float*>(call.cache.k) + kv_head * head_dim;
      const float* q =
          call.q.q + first * call.q.token_stride + kv_head * group * call.q.head_stride;
      APR_CUDA(api().cublasSgemmStridedBatched_64(
          cublas_.get(), CUBLAS_OP_T, CUBLAS_OP_N, n_keys, n_rows, head_dim, &call.scale, k, kv_dim,
          0, q, call.q.token_stride, call.q.head_stride, &zero,
          scores_.as<float>() + kv_head * group * head_stride, n_keys, head_stride, group));
    }
    const SoftmaxParams softmax{scores_.as<float>(), head_stride,
                                static_cast<int32_t>(call.position + first),
                                static_cast<int32_t>(n_keys)};
    launch(kernels_, "attention_softmax",
           {.grid_x = static_cast<uint32_t>(n_rows),
            .grid_y = static_cast<uint32_t>(desc_.n_heads),
            .block_x = 256},
           stream_, softmax);
    for (int64_t kv_head = 0; kv_head < desc_.n_kv_heads; ++kv_head) {
      const float* v = static_cast<const float*>(call.cache.v) + kv_head * head_dim;
      float* y = call.y + first * q_dim + kv_head * group * head_dim;
      APR_CUDA(api().cublasSgemmStridedBatched_64(
          cublas_.get(), CUBLAS_OP_N, CUBLAS_OP_N, head_dim, n_rows, n_keys, &one, v, kv_dim, 0,
          scores_.as<float>() + kv_head * group * head_stride, n_keys, head_stride, &zero, y, q_dim,
          head_dim, group));
    }
  }
  if (call.gate.gate != nullptr) {
    const AttentionGateParams gate{call.y, call.gate, static_cast<int32_t>(desc_.n_heads),
                                   static_cast<int32_t>(head_dim)};
    launch(kernels_, "attention_gate",
           {.grid_x = static_cast<uint32_t>(call.n_tokens),
            .grid_y = blocks_for(q_dim, 256),
            .block_x = 256},
           stream_, gate);
  }
}

}  // namespace apr::cuda
