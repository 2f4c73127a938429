// How CudaBackend launches the stages of a plan.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apr/error.h"
#include "cuda/backend.h"
#include "cuda/error.h"
#include "cuda/launch.h"
#include "cuda/launch_rms_norm.h"

namespace apr::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr int64_t kTileRows = 16;  // of matvec_mma
constexpr int64_t kAttentionSplits = 16;

uint32_t blocks_for(int64_t n_elems, int64_t per_block) {
  return static_cast<uint32_t>((n_elems + per_block - 1) / per_block);
}

// The columns of a row in blocks of 256 threads with 8 values each.
uint32_t octet_blocks(int64_t n_cols) {
  return blocks_for(n_cols, 8 * kThreads);
}

}  // namespace

void CudaBackend::launch_stage(const Step& step, const Stage& stage) {
  const Op& op = plan_.ops[static_cast<size_t>(stage.first_op)];
  if (stage.kernel == "matvec" || stage.kernel == "matvec_swiglu") {
    return matvec(step, stage);
  }
  if (stage.kernel == "qk_rope_append") {
    return qk_rope_append(step, stage);
  }
  if (stage.kernel == "attention_decode") {
    return attention(step, stage);
  }
  switch (op.kind) {
    case OpKind::kEmbed: {
      const Weight& table = *op.weights[0];
      const EmbedParams params{
          reinterpret_cast<const int32_t*>(step_state_.data() + sizeof(StepState)),
          weights_->matrix(table), value(step, op.outputs[0])};
      launch(*kernels_, fmt::format("embed.{}", table.type->name),
             {.grid_x = octet_blocks(table.n_cols),
              .grid_y = static_cast<uint32_t>(step.n_tokens),
              .block_x = kThreads},
             stream_, params);
      return;
    }
    case OpKind::kRmsNorm: {
      const RmsNormParams params{value(step, op.inputs[0]), weights_->vector(op.weights[0]),
                                 value(step, op.outputs[0]), static_cast<int32_t>(op.head_dim),
                                 op.eps};
      const int64_t n_rows = rows_of(step, op.outputs[0]) * op.n_heads;
      if (n_rows > 0) {
        launch_rms_norm(*kernels_, stream_, params, n_rows);
      }
      return;
    }
    case OpKind::kMatmul:
      return matmul(step, op);
    case OpKind::kAttention:
      return attention(step, stage);
    case OpKind::kAdd:
      return elementwise(step, op, "elementwise.add");
    case OpKind::kSwiglu:
      return elementwise(step, op, "elementwise.swiglu");
    case OpKind::kTakeRows: {
      const size_t row_bytes =
          static_cast<size_t>(plan_.values[static_cast<size_t>(op.outputs[0])].row_elems()) * 4;
      for (size_t row = 0; row < step.logit_rows.size(); ++row) {
        APR_CUDA(api().cudaMemcpyAsync(
            reinterpret_cast<std::byte*>(value(step, op.outputs[0])) + row * row_bytes,
            reinterpret_cast<const std::byte*>(value(step, op.inputs[0])) +
                static_cast<size_t>(step.logit_rows[row]) * row_bytes,
            row_bytes, cudaMemcpyDeviceToDevice, stream_.get()));
      }
      return;
    }
    default:
      break;
  }
  check_failed("stage has a kernel", __FILE__, __LINE__, stage.kernel);
}

void CudaBackend::matvec(const Step& step, const Stage& stage) {
  const float* norm = nullptr;
  float eps = 0.0F;
  const float* x = nullptr;
  std::vector<const Op*> matmuls;
  const Op* add = nullptr;
  const Op* swiglu = nullptr;
  for (int op_idx = stage.first_op; op_idx < stage.first_op + stage.n_ops; ++op_idx) {
    const Op& op = plan_.ops[static_cast<size_t>(op_idx)];
    if (x == nullptr) {
      x = value(step, op.inputs[0]);
    }
    if (op.kind == OpKind::kRmsNorm) {
      norm = weights_->vector(op.weights[0]);
      eps = op.eps;
    } else if (op.kind == OpKind::kMatmul) {
      matmuls.push_back(&op);
    } else if (op.kind == OpKind::kAdd) {
      add = &op;
    } else if (op.kind == OpKind::kSwiglu) {
      swiglu = &op;
    }
  }
  for (size_t idx = 0; idx < (swiglu != nullptr ? 1 : matmuls.size()); ++idx) {
    const Op& op = *matmuls[idx];
    const Weight& weight = *op.weights[0];
    MatvecParams params{};
    params.x = x;
    params.norm_weight = norm;
    params.w = weights_->matrix(weight);
    params.w2 = swiglu != nullptr ? weights_->matrix(*matmuls[1]->weights[0]) : params.w;
    params.bias = op.weights[1] == nullptr ? nullptr : weights_->vector(op.weights[1]);
    params.residual = add != nullptr ? value(step, add->inputs[0]) : nullptr;
    params.y = value(step, add != nullptr      ? add->outputs[0]
                           : swiglu != nullptr ? swiglu->outputs[0]
                                               : op.outputs[0]);
    params.y_stride = weight.n_rows;
    params.n_tokens = 1;
    params.eps = eps;
    const char* suffix = swiglu != nullptr ? ".swiglu" : "";
    const std::span<const int> segments = block_segments(*weight.type);
    const bool tensor_cores = !options_.exact && !segments.empty() && weight.n_rows >= kTileRows &&
                              weight.n_cols % 32 == 0 && device_.cc_major >= 8;
    const uint32_t most_blocks = static_cast<uint32_t>(device_.n_sm) * 4;
    if (tensor_cores) {
      launch(*kernels_, fmt::format("matvec_mma.{}{}", weight.type->name, suffix),
             {.grid_x = std::min(blocks_for(weight.n_rows, kTileRows), most_blocks),
              .block_x = kThreads,
              .shared_bytes = static_cast<uint32_t>(weight.n_cols * 2 + weight.n_cols / 16 * 4),
              .overlap = true},
             stream_, params);
    } else {
      launch(*kernels_, fmt::format("matvec_fma.{}{}", weight.type->name, suffix),
             {.grid_x = std::min(blocks_for(weight.n_rows, kThreads / 32), most_blocks),
              .block_x = kThreads,
              .shared_bytes = static_cast<uint32_t>(weight.n_cols * 4),
              .overlap = true},
             stream_, params);
    }
  }
}

void CudaBackend::launch_over_rows(const std::string& kernel, const Weight& weight, std::byte* out,
                                   int64_t out_row_bytes, float scale) {
  constexpr int64_t kMostRows = 65535;  // the second axis of a grid
  DequantParams params{weights_->matrix(weight), out, 0, static_cast<int32_t>(weight.n_cols),
                       scale};
  for (int64_t first = 0; first < weight.n_rows; first += kMostRows) {
    params.first_row = static_cast<int32_t>(first);
    params.out = out + first * out_row_bytes;
    launch(*kernels_, kernel,
           {.grid_x = octet_blocks(weight.n_cols),
            .grid_y = static_cast<uint32_t>(std::min(kMostRows, weight.n_rows - first)),
            .block_x = kThreads},
           stream_, params);
  }
}

void CudaBackend::dequantise(const Weight& weight, bool half, std::byte* out, float scale) {
  const bool is_plain = block_segments(*weight.type).empty();
  launch_over_rows(fmt::format("dequant.{}.{}.{}", weight.type->name, is_plain ? "raw" : "planes",
                               half ? "f16" : "f32"),
                   weight, out, weight.n_cols * (half ? 2 : 4), scale);
}

void CudaBackend::matmul(const Step& step, const Op& op) {
  const Weight& weight = *op.weights[0];
  const int64_t n_rows = rows_of(step, op.outputs[0]);
  if (n_rows == 0) {
    return;
  }
  float* x = value(step, op.inputs[0]);
  float* y = value(step, op.outputs[0]);
  const bool half = !options_.exact && options_.prefill_gemm == PrefillGemm::kF16;
  const float weight_scale = half ? weight_scale_.at(&weight) : 1.0F;
  dequantise(weight, half, weight_scratch_.data(), weight_scale);
  const float one = 1.0F, zero = 0.0F;
  UnscaleRowsParams undo{
      y,    undo_scratch_.as<float>(),          weights_->vector(op.weights[1]), y,
      1.0F, static_cast<int32_t>(weight.n_rows)};
  if (half) {
    const ScaleRowsParams scale{x, rows_scratch_.as<uint16_t>(), undo_scratch_.as<float>(),
                                static_cast<int32_t>(weight.n_cols)};
    launch(*kernels_, "scale_rows", {.grid_x = static_cast<uint32_t>(n_rows), .block_x = kThreads},
           stream_, scale);
    APR_CUDA(api().cublasGemmEx_64(cublas_.get(), CUBLAS_OP_T, CUBLAS_OP_N, weight.n_rows, n_rows,
                                   weight.n_cols, &one, weight_scratch_.data(), CUDA_R_16F,
                                   weight.n_cols, rows_scratch_.data(), CUDA_R_16F, weight.n_cols,
                                   &zero, y, CUDA_R_32F, weight.n_rows, CUBLAS_COMPUTE_32F,
                                   CUBLAS_GEMM_DEFAULT));
    undo.undo_weight = 1.0F / weight_scale;
    launch(*kernels_, "unscale_rows",
           {.grid_x = static_cast<uint32_t>(n_rows), .block_x = kThreads}, stream_, undo);
    return;
  }
  APR_CUDA(api().cublasSetMathMode(cublas_.get(), CUBLAS_PEDANTIC_MATH));
  APR_CUDA(api().cublasSgemm_64(cublas_.get(), CUBLAS_OP_T, CUBLAS_OP_N, weight.n_rows, n_rows,
                                weight.n_cols, &one, weight_scratch_.as<float>(), weight.n_cols, x,
                                weight.n_cols, &zero, y, weight.n_rows));
  if (undo.bias != nullptr) {
    undo.undo = nullptr;
    launch(*kernels_, "unscale_rows",
           {.grid_x = static_cast<uint32_t>(n_rows), .block_x = kThreads}, stream_, undo);
  }
}

// A power of two for each matrix that brings its largest |weight| to [2^13, 2^14).
void CudaBackend::find_weight_scales() {
  std::vector<const Weight*> matrices;
  for (const Op& op : plan_.ops) {
    if (op.kind == OpKind::kMatmul) {
      matrices.push_back(op.weights[0]);
    }
  }
  DeviceBuffer largest(matrices.size() * 4, "weight scales");
  APR_CUDA(api().cudaMemsetAsync(largest.data(), 0, largest.size_bytes(), stream_.get()));
  for (size_t idx = 0; idx < matrices.size(); ++idx) {
    const Weight& weight = *matrices[idx];
    // Every row goes into the one maximum: no step from row to row.
    launch_over_rows(fmt::format("absmax.{}", weight.type->name), weight, largest.data() + idx * 4,
                     0, 1.0F);
  }
  std::vector<float> found(matrices.size());
  APR_CUDA(api().cudaStreamSynchronize(stream_.get()));
  APR_CUDA(
      api().cudaMemcpy(found.data(), largest.data(), largest.size_bytes(), cudaMemcpyDeviceToHost));
  for (size_t idx = 0; idx < matrices.size(); ++idx) {
    const bool scalable = std::isfinite(found[idx]) && found[idx] > 0.0F;
    weight_scale_[matrices[idx]] =
        scalable ? std::ldexp(1.0F, std::clamp(13 - std::ilogb(found[idx]), -100, 100)) : 1.0F;
  }
}

void CudaBackend::qk_rope_append(const Step& step, const Stage& stage) {
  const AttentionDesc& attn = desc().attention;
  QkRopeAppendParams params{};
  params.step = step_state_.as<StepState>();
  params.inv_freq = inv_freq_.as<float>();
  params.n_heads = static_cast<int32_t>(attn.n_heads);
  params.n_kv_heads = static_cast<int32_t>(attn.n_kv_heads);
  params.head_dim = static_cast<int32_t>(attn.head_dim);
  params.n_rot = static_cast<int32_t>(desc().rope.n_rot);
  params.magnitude = desc().rope.magnitude;
  params.k_stride = params.v_stride = attn.kv_dim();
  params.q_stride = attn.q_dim();
  params.q_head_stride = params.head_dim;
  std::vector<const Op*> norms, ropes;
  const Op* append = nullptr;
  for (int op_idx = stage.first_op; op_idx < stage.first_op + stage.n_ops; ++op_idx) {
    const Op& op = plan_.ops[static_cast<size_t>(op_idx)];
    if (op.kind == OpKind::kRmsNorm) {
      norms.push_back(&op);
    } else if (op.kind == OpKind::kRope) {
      ropes.push_back(&op);
    } else if (op.kind == OpKind::kKvAppend) {
      append = &op;
    }
  }
  const bool has_norms = norms.size() == 2;
  params.q = value(step, has_norms ? norms[0]->inputs[0] : ropes[0]->inputs[0]);
  params.k = value(step, has_norms ? norms[1]->inputs[0] : ropes[1]->inputs[0]);
  params.v = value(step, append->inputs[1]);
  if (has_norms) {
    params.q_norm = weights_->vector(norms[0]->weights[0]);
    params.k_norm = weights_->vector(norms[1]->weights[0]);
    params.eps = norms[0]->eps;
  }
  params.q_out = value(step, ropes[0]->outputs[0]);
  params.k_cache = k_cache_[static_cast<size_t>(append->state_idx)].data();
  params.v_cache = v_cache_[static_cast<size_t>(append->state_idx)].data();
  launch(*kernels_, f16_cache() ? "qk_rope_append.f16" : "qk_rope_append.f32",
         {.grid_x = static_cast<uint32_t>(attn.n_heads + 2 * attn.n_kv_heads),
          .grid_y = static_cast<uint32_t>(step.n_tokens),
          .block_x = 32,
          .shared_bytes = static_cast<uint32_t>(attn.head_dim * 4),
          .overlap = true},
         stream_, params);
}

void CudaBackend::attention(const Step& step, const Stage& stage) {
  const AttentionDesc& attn = desc().attention;
  const Op& op = plan_.ops[static_cast<size_t>(stage.first_op)];
  AttentionDecodeParams params{};
  params.step = step_state_.as<StepState>();
  params.q = value(step, op.inputs[0]);
  params.k_cache = k_cache_[static_cast<size_t>(op.state_idx)].data();
  params.v_cache = v_cache_[static_cast<size_t>(op.state_idx)].data();
  params.y = value(step, op.outputs[0]);
  params.partial = partial_.as<float>();
  params.counters = counters_.as<uint32_t>();
  params.n_heads = static_cast<int32_t>(attn.n_heads);
  params.n_kv_heads = static_cast<int32_t>(attn.n_kv_heads);
  params.scale = op.scale;
  launch(*kernels_,
         fmt::format("attention_decode.{}.{}.{}", f16_cache() ? "f16" : "f32", attn.head_dim,
                     attn.n_heads / attn.n_kv_heads),
         {.grid_x = static_cast<uint32_t>(attn.n_kv_heads),
          .grid_y = static_cast<uint32_t>(step.n_tokens == 1 ? kAttentionSplits : 1),
          .grid_z = static_cast<uint32_t>(step.n_tokens),
          .block_x = 128,
          .overlap = true},
         stream_, params);
}

void CudaBackend::elementwise(const Step& step, const Op& op, const char* kernel) {
  const int64_t n_elems =
      rows_of(step, op.outputs[0]) * plan_.values[static_cast<size_t>(op.outputs[0])].row_elems();
  const BinaryParams params{value(step, op.inputs[0]), value(step, op.inputs[1]),
                            value(step, op.outputs[0]), n_elems};
  launch(*kernels_, kernel, {.grid_x = blocks_for(n_elems, kThreads), .block_x = kThreads}, stream_,
         params);
}

}  // namespace apr::cuda
