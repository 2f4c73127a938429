// How CudaBackend launches the stages of a plan.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apr/error.h"
#include "cuda/backend.h"
#include "cuda/error.h"
#include "cuda/launch.h"
#include "cuda/launch_matvec.h"
#include "cuda/launch_rms_norm.h"

namespace apr::cuda {
namespace {

constexpr uint32_t kStageThreads = 256;
constexpr int64_t kMostMatvecRows = 4;  // logit rows that are cheaper one by one

// The columns of a row in blocks of 256 threads with 8 values each.
uint32_t octet_blocks(int64_t n_cols) {
  return blocks_for(n_cols, 8 * kStageThreads);
}

}  // namespace

void CudaBackend::launch_stage(const Step& step, const Stage& stage) {
  const Op& op = plan_.ops[static_cast<size_t>(stage.first_op)];
  if (stage.kernel == "matvec" || stage.kernel == "matvec_swiglu") {
    return matvec(step, stage);
  }
  if (stage.kernel == "attention" || stage.kernel == "project_attention") {
    return attention(step, stage);
  }
  if (stage.kernel == "moe_route") {
    return moe_route(step, stage);
  }
  if (stage.kernel == "moe_ffn") {
    return moe_ffn(step, stage);
  }
  if (stage.kernel == "norm_rows" || stage.kernel.starts_with("project")) {
    return projection_->run(*step.exec, stage, workspace_.data(), step.n_tokens);
  }
  switch (op.kind) {
    case OpKind::kEmbed: {
      const Weight& table = *op.weights[0];
      const EmbedParams params{
          reinterpret_cast<const int32_t*>(step_state_.data() + sizeof(StepState)),
          weights_->matrix(table), value(step, op.outputs[0])};
      // No overlap: the kernels of a step may read its state before their dependency wait.
      launch(*kernels_, fmt::format("embed.{}", table.type->name),
             {.grid_x = octet_blocks(table.n_cols),
              .grid_y = static_cast<uint32_t>(step.n_tokens),
              .block_x = kStageThreads},
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
    case OpKind::kMatmul: {
      const int64_t n_rows = rows_of(step, op.outputs[0]);
      const bool is_head =
          plan_.values[static_cast<size_t>(op.outputs[0])].rows == RowDomain::kLogitRows;
      if (is_head && n_rows <= kMostMatvecRows) {
        for (int64_t row = 0; row < n_rows; ++row) {
          matvec(step, stage, row);
        }
        return;
      }
      projection_->project({op.weights[0], weights_->vector(op.weights[1]),
                            value(step, op.inputs[0]), value(step, op.outputs[0]), n_rows,
                            op.weights[0]->n_rows});
      return;
    }
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

void CudaBackend::matvec(const Step& step, const Stage& stage, int64_t row) {
  const float* norm = nullptr;
  float eps = 0.0F;
  const float* x = nullptr;
  std::vector<const Op*> matmuls;
  const Op* add = nullptr;
  const Op* swiglu = nullptr;
  for (int op_idx = stage.first_op; op_idx < stage.first_op + stage.n_ops; ++op_idx) {
    const Op& op = plan_.ops[static_cast<size_t>(op_idx)];
    if (x == nullptr) {
      x = value(step, op.inputs[0]) +
          row * plan_.values[static_cast<size_t>(op.inputs[0])].row_elems();
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
  // Neighbours of one type share a launch, with SwiGLU all do, and two such runs where there is a
  // kernel for both types.
  struct Run {
    const QuantType* type;
    MatvecParams params;
  };
  std::vector<Run> runs;
  for (const Op* op : matmuls) {
    const QuantType* type = op->weights[0]->type;
    if (runs.empty() || runs.back().type != type ||
        runs.back().params.n_parts == kMostMatvecParts) {
      Run& run = runs.emplace_back(Run{type, {}});
      run.params.x = x;
      run.params.norm_weight = norm;
      run.params.residual = add != nullptr ? value(step, add->inputs[0]) : nullptr;
      run.params.eps = eps;
    }
    MatvecParams& params = runs.back().params;
    const ValueId y = add != nullptr      ? add->outputs[0]
                      : swiglu != nullptr ? swiglu->outputs[0]
                                          : op->outputs[0];
    params.parts[params.n_parts++] = {weights_->matrix(*op->weights[0]),
                                      weights_->vector(op->weights[1]),
                                      value(step, y) + row * op->weights[0]->n_rows};
  }
  if (runs.size() == 2 && swiglu == nullptr && !options_.exact &&
      matvec_pair_fits(*runs[0].type, *runs[1].type, matmuls[0]->weights[0]->n_cols, device_)) {
    return launch_matvec_pair(*kernels_, stream_, device_, *runs[0].type, runs[0].params,
                              *runs[1].type, runs[1].params);
  }
  for (const Run& run : runs) {
    launch_matvec(*kernels_, stream_, device_, *run.type, run.params, swiglu != nullptr,
                  options_.exact);
  }
}

void CudaBackend::attention(const Step& step, const Stage& stage) {
  const AttentionDesc& attn = desc().attention;
  AttentionCall call;
  call.n_tokens = step.n_tokens;
  call.position = n_past_;
  const auto head_dim = static_cast<int32_t>(attn.head_dim);
  const Op& first = plan_.ops[static_cast<size_t>(stage.first_op)];
  const Op& last = plan_.ops[static_cast<size_t>(stage.first_op + stage.n_ops - 1)];
  call.y = value(step, last.outputs[0]);
  const bool has_products = stage.kernel == "project_attention";
  if (has_products) {
    const GroupProducts qkv =
        projection_->multiply(*step.exec, stage, workspace_.data(), step.n_tokens);
    call.products = qkv.products;
    std::copy(qkv.columns.begin(), qkv.columns.end(), std::begin(call.columns));
    call.q = {qkv.data, qkv.products.stride, head_dim};
  } else {
    call.q = {value(step, first.inputs[0]), attn.q_dim(), head_dim};
  }
  std::vector<const Op*> norms, ropes;
  for (int op_idx = stage.first_op; op_idx < stage.first_op + stage.n_ops; ++op_idx) {
    const Op& op = plan_.ops[static_cast<size_t>(op_idx)];
    switch (op.kind) {
      case OpKind::kSplitHeads:  // each head's q is followed by its gate
        call.q.token_stride = 2 * attn.q_dim();
        call.q.head_stride = 2 * head_dim;
        call.gate = {call.q.q + head_dim, call.q.token_stride, call.q.head_stride};
        break;
      case OpKind::kRmsNorm:
        norms.push_back(&op);
        break;
      case OpKind::kRope:
        ropes.push_back(&op);
        break;
      case OpKind::kMatmul:
        break;  // multiplied already
      case OpKind::kKvAppend: {
        if (!has_products) {
          const Op& k = norms.empty() ? *ropes[1] : *norms[1];
          call.k = value(step, k.inputs[0]);
          call.v = value(step, op.inputs[1]);
        }
        call.cache = {k_cache_[static_cast<size_t>(op.state_idx)].data(),
                      v_cache_[static_cast<size_t>(op.state_idx)].data()};
        break;
      }
      case OpKind::kAttention:
        call.scale = op.scale;
        break;
      case OpKind::kSigmoidGate:
        break;
      default:
        check_failed("an op of attention", __FILE__, __LINE__, op.name);
    }
  }
  if (!norms.empty()) {
    call.q_norm = weights_->vector(norms[0]->weights[0]);
    call.k_norm = weights_->vector(norms[1]->weights[0]);
    call.eps = norms[0]->eps;
  }
  attention_->run(call);
}

void CudaBackend::elementwise(const Step& step, const Op& op, const char* kernel) {
  const int64_t n_elems =
      rows_of(step, op.outputs[0]) * plan_.values[static_cast<size_t>(op.outputs[0])].row_elems();
  const BinaryParams params{value(step, op.inputs[0]), value(step, op.inputs[1]),
                            value(step, op.outputs[0]), n_elems};
  launch(*kernels_, kernel,
         {.grid_x = blocks_for(n_elems, kStageThreads), .block_x = kStageThreads}, stream_, params);
}

}  // namespace apr::cuda
