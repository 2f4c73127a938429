#include "cpu/kernel_table.h"

#include <fmt/format.h>

#include "cpu/fast/ops.h"
#include "cpu/op_args.h"
#include "cpu/reference/ops.h"

namespace apr::cpu {
namespace {

const float* in(const StageIo& io, size_t idx) {
  return static_cast<const float*>(io.in[idx]);
}
float* out(const StageIo& io, size_t idx) {
  return static_cast<float*>(io.out[idx]);
}
const Weight& weight(const StageIo& io, size_t idx) {
  return *io.op->weights[idx];
}

MatrixRef matrix(const Weight& w) {
  return {w.type, w.data, w.n_experts, w.n_rows, w.n_cols, w.row_bytes};
}

EmbedArgs embed_args(const StageIo& io) {
  return {io.ids, matrix(weight(io, 0)), io.n_tokens, out(io, 0)};
}

RmsNormArgs rms_norm_args(const StageIo& io) {
  return {in(io, 0),
          weight(io, 0).values.data(),
          io.n_rows * io.op->n_heads,
          io.op->head_dim,
          io.op->eps,
          out(io, 0)};
}

MatmulArgs matmul_args(const StageIo& io) {
  const Weight* bias = io.op->weights[1];
  return {in(io, 0), matrix(weight(io, 0)), bias == nullptr ? nullptr : bias->values.data(),
          io.n_rows, out(io, 0)};
}

SplitHeadsArgs split_heads_args(const StageIo& io) {
  return {in(io, 0), io.n_tokens, io.op->n_heads, io.op->head_dim, out(io, 0), out(io, 1)};
}

RopeArgs rope_args(const StageIo& io) {
  return {in(io, 0),         io.n_tokens, io.op->n_heads,    io.op->head_dim, io.op->n_rot,
          io.first_position, io.inv_freq, io.rope_magnitude, out(io, 0)};
}

KvAppendArgs kv_append_args(const StageIo& io) {
  return {in(io, 0),         in(io, 1),  io.n_tokens, io.op->n_kv_heads * io.op->head_dim,
          io.first_position, io.k_cache, io.v_cache};
}

AttentionArgs attention_args(const StageIo& io) {
  return {in(io, 0),      io.k_cache,        io.v_cache,      io.n_tokens,  io.first_position,
          io.op->n_heads, io.op->n_kv_heads, io.op->head_dim, io.op->scale, out(io, 0)};
}

BinaryArgs binary_args(const StageIo& io) {
  return {in(io, 0), in(io, 1), io.n_rows * io.row_elems, out(io, 0)};
}

Conv1dArgs conv1d_args(const StageIo& io) {
  const Weight& kernel = weight(io, 0);
  return {in(io, 0),     kernel.values.data(), io.n_tokens,  kernel.n_rows,
          kernel.n_cols, io.state_in,          io.state_out, out(io, 0)};
}

// A convolved row is [q | k | v], q and k of one size.
L2NormArgs l2_norm_args(const StageIo& io, size_t part) {
  const int64_t part_elems = io.op->n_heads * io.op->head_dim;
  return {in(io, 0) + static_cast<int64_t>(part) * part_elems,
          io.n_tokens,
          io.op->n_heads,
          io.op->head_dim,
          io.in_row_elems,
          io.op->eps,
          out(io, part)};
}

DeltaGatesArgs delta_gates_args(const StageIo& io) {
  return {in(io, 0),
          in(io, 1),
          weight(io, 0).values.data(),
          weight(io, 1).values.data(),
          io.n_tokens,
          io.op->n_heads,
          out(io, 0),
          out(io, 1)};
}

DeltaNetArgs delta_net_args(const StageIo& io) {
  const Op& op = *io.op;
  return {in(io, 0),
          in(io, 1),
          in(io, 2) + 2 * op.n_kv_heads * op.head_dim,
          2 * op.n_kv_heads * op.head_dim + op.n_heads * op.head_dim,
          in(io, 3),
          in(io, 4),
          io.n_tokens,
          op.n_kv_heads,
          op.n_heads,
          op.head_dim,
          op.scale,
          io.state_in,
          io.state_out,
          out(io, 0)};
}

GatedRmsNormArgs gated_rms_norm_args(const StageIo& io) {
  return {in(io, 0),
          in(io, 1),
          weight(io, 0).values.data(),
          io.n_tokens * io.op->n_heads,
          io.op->head_dim,
          io.op->eps,
          out(io, 0)};
}

MoeRouteArgs moe_route_args(const StageIo& io) {
  return {in(io, 0), io.n_tokens, io.in_row_elems, io.op->n_used, static_cast<int32_t*>(io.out[0]),
          out(io, 1)};
}

MoeFfnArgs moe_ffn_args(const StageIo& io) {
  return {in(io, 0),
          static_cast<const int32_t*>(io.in[1]),
          in(io, 2),
          matrix(weight(io, 0)),
          matrix(weight(io, 1)),
          matrix(weight(io, 2)),
          io.op->inputs.size() > 3 ? in(io, 3) : nullptr,
          io.n_tokens,
          io.op->n_used,
          out(io, 0)};
}

RowGateArgs row_gate_args(const StageIo& io) {
  return {in(io, 0), in(io, 1), io.n_tokens, io.row_elems, out(io, 0)};
}

TakeRowsArgs take_rows_args(const StageIo& io) {
  return {in(io, 0), io.logit_rows, io.n_logit_rows, io.row_elems, out(io, 0)};
}

struct KernelRow {
  OpKind kind;
  KernelFn reference, fast;
};

template <auto kArgs, auto kReference, auto kFast>
constexpr KernelRow row(OpKind kind) {
  return {kind, [](const StageIo& io) { kReference(kArgs(io)); },
          [](const StageIo& io) { kFast(kArgs(io), *io.pool); }};
}

constexpr KernelRow kRows[] = {
    row<embed_args, reference::embed, fast::embed>(OpKind::kEmbed),
    row<rms_norm_args, reference::rms_norm, fast::rms_norm>(OpKind::kRmsNorm),
    row<matmul_args, reference::matmul, fast::matmul>(OpKind::kMatmul),
    row<split_heads_args, reference::split_heads, fast::split_heads>(OpKind::kSplitHeads),
    row<rope_args, reference::rope, fast::rope>(OpKind::kRope),
    row<kv_append_args, reference::kv_append, fast::kv_append>(OpKind::kKvAppend),
    row<attention_args, reference::attention, fast::attention>(OpKind::kAttention),
    row<binary_args, reference::sigmoid_gate, fast::sigmoid_gate>(OpKind::kSigmoidGate),
    row<binary_args, reference::add, fast::add>(OpKind::kAdd),
    row<binary_args, reference::swiglu, fast::swiglu>(OpKind::kSwiglu),
    row<conv1d_args, reference::conv1d, fast::conv1d>(OpKind::kConv1d),
    {OpKind::kL2Norm,
     [](const StageIo& io) {
       reference::l2_norm(l2_norm_args(io, 0));
       reference::l2_norm(l2_norm_args(io, 1));
     },
     [](const StageIo& io) {
       fast::l2_norm(l2_norm_args(io, 0), *io.pool);
       fast::l2_norm(l2_norm_args(io, 1), *io.pool);
     }},
    row<delta_gates_args, reference::delta_gates, fast::delta_gates>(OpKind::kDeltaGates),
    row<delta_net_args, reference::delta_net, fast::delta_net>(OpKind::kDeltaNet),
    row<gated_rms_norm_args, reference::gated_rms_norm, fast::gated_rms_norm>(
        OpKind::kGatedRmsNorm),
    row<moe_route_args, reference::moe_route, fast::moe_route>(OpKind::kMoeRoute),
    row<moe_ffn_args, reference::moe_ffn, fast::moe_ffn>(OpKind::kMoeFfn),
    row<row_gate_args, reference::row_gate, fast::row_gate>(OpKind::kRowGate),
    row<take_rows_args, reference::take_rows, fast::take_rows>(OpKind::kTakeRows),
};

}  // namespace

KernelFn find_kernel(std::string_view name) {
  for (const KernelRow& kernel : kRows) {
    const std::string_view op = op_kind_name(kernel.kind);
    if (name.starts_with(op) && name.substr(op.size()) == ".reference") {
      return kernel.reference;
    }
    if (name.starts_with(op) && name.substr(op.size()) == ".fast") {
      return kernel.fast;
    }
  }
  return nullptr;
}

}  // namespace apr::cpu
