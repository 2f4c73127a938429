// How CudaBackend launches the stages of a mixture of experts.
#include "apr/error.h"
#include "cuda/backend.h"

namespace apr::cuda {

void CudaBackend::moe_route(const Step& step, const Stage& stage) {
  MoeRouteCall call;
  call.n_tokens = step.n_tokens;
  for (int op_idx = stage.first_op; op_idx < stage.first_op + stage.n_ops; ++op_idx) {
    const Op& op = plan_.ops[static_cast<size_t>(op_idx)];
    if (call.x == nullptr) {
      call.x = value(step, op.inputs[0]);
    }
    if (op.kind == OpKind::kRmsNorm) {
      call.norm_weight = weights_->vector(op.weights[0]);
      call.eps = op.eps;
      call.normed = value(step, op.outputs[0]);
    } else if (op.kind == OpKind::kMatmul) {
      APR_CHECK(op.weights[1] == nullptr, "a router has no bias");
      call.router = op.weights[0];
    } else {
      call.ids = reinterpret_cast<int32_t*>(value(step, op.outputs[0]));
      call.weights = value(step, op.outputs[1]);
    }
  }
  moe_->route(call);
}

void CudaBackend::moe_ffn(const Step& step, const Stage& stage) {
  const Op& op = plan_.ops[static_cast<size_t>(stage.first_op)];
  MoeFfnCall call;
  call.gate = op.weights[0];
  call.up = op.weights[1];
  call.down = op.weights[2];
  call.x = value(step, op.inputs[0]);
  call.ids = reinterpret_cast<const int32_t*>(value(step, op.inputs[1]));
  call.weights = value(step, op.inputs[2]);
  call.init = op.inputs.size() > 3 ? value(step, op.inputs[3]) : nullptr;
  call.n_tokens = step.n_tokens;
  const Op& last = plan_.ops[static_cast<size_t>(stage.first_op + stage.n_ops - 1)];
  call.y = value(step, last.outputs[0]);
  if (last.kind == OpKind::kAdd) {
    call.residual = value(step, last.inputs[0]);
  }
  moe_->ffn(call);
}

}  // namespace apr::cuda
