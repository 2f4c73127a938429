// The oracle: every op in plain loops, one thread, f32 activations, dots and norms summed in f64.
// Kernels of cpu/fast and of the GPU are compared with these. Argument shapes: cpu/op_args.h.
#pragma once

#include "cpu/op_args.h"

namespace apr::cpu::reference {

void embed(const EmbedArgs& args);
void rms_norm(const RmsNormArgs& args);
void matmul(const MatmulArgs& args);
void split_heads(const SplitHeadsArgs& args);
void rope(const RopeArgs& args);
void kv_append(const KvAppendArgs& args);
void attention(const AttentionArgs& args);
void sigmoid_gate(const BinaryArgs& args);  // y = a * sigmoid(b)
void add(const BinaryArgs& args);
void swiglu(const BinaryArgs& args);  // y = silu(a) * b
void conv1d(const Conv1dArgs& args);
void l2_norm(const L2NormArgs& args);
void delta_gates(const DeltaGatesArgs& args);
void delta_net(const DeltaNetArgs& args);
void gated_rms_norm(const GatedRmsNormArgs& args);
void moe_route(const MoeRouteArgs& args);
void moe_ffn(const MoeFfnArgs& args);
void row_gate(const RowGateArgs& args);
void take_rows(const TakeRowsArgs& args);

}  // namespace apr::cpu::reference
