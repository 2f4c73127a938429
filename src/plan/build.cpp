// The forward pass of every supported model, once. Order and shapes of the hybrids follow
// Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464) as Qwen3.5 lays it out.
#include "apr/plan.h"
#include "plan/builder.h"

namespace apr {
namespace {

using Pair = PlanBuilder::Pair;

ValueId attention(PlanBuilder& b, const AttentionDesc& attn, ValueId h) {
  ValueId q = b.matmul_bias("attn_q", h, Role::kAttnQ, Role::kAttnQBias);  // [q_dim, or twice that]
  ValueId k = b.matmul_bias("attn_k", h, Role::kAttnK, Role::kAttnKBias);  // [kv_dim]
  const ValueId v = b.matmul_bias("attn_v", h, Role::kAttnV, Role::kAttnVBias);  // [kv_dim]
  ValueId gate = -1;
  if (attn.output_gate) {
    const Pair parts = b.split_heads("attn_q_part", "attn_q_gate", q);
    q = parts.first;
    gate = parts.second;
  }
  if (attn.qk_norm) {
    q = b.rms_norm("attn_q_norm", q, Role::kAttnQNorm);
    k = b.rms_norm("attn_k_norm", k, Role::kAttnKNorm);
  }
  q = b.rope("attn_q_rope", q, attn.n_heads);
  k = b.rope("attn_k_rope", k, attn.n_kv_heads);
  b.kv_append("kv_append", k, v);
  ValueId mixed = b.attention("attn", q);  // [n_heads, head_dim]
  if (attn.output_gate) {
    mixed = b.sigmoid_gate("attn_gated", mixed, gate);
  }
  return b.matmul("attn_output", mixed, Role::kAttnOutput);
}

ValueId delta_net(PlanBuilder& b, ValueId h) {
  const ValueId qkv = b.matmul("attn_qkv", h, Role::kAttnQkv);     // [conv_dim]: q | k | v
  const ValueId gate = b.matmul("attn_gate", h, Role::kAttnGate);  // [v_dim]
  const ValueId alpha = b.matmul("ssm_alpha", h, Role::kSsmAlpha);
  const ValueId beta = b.matmul("ssm_beta", h, Role::kSsmBeta);
  const ValueId conv = b.conv1d("ssm_conv1d", qkv, Role::kSsmConv1d);
  const Pair qk = b.l2_norm("ssm_q", "ssm_k", conv);
  const Pair gates = b.delta_gates("ssm_decay", "ssm_beta_gate", alpha, beta);
  const ValueId mixed = b.delta_net("delta_net", qk.first, qk.second, conv, gates);
  const ValueId normed = b.gated_rms_norm("ssm_norm", mixed, gate, Role::kSsmNorm);
  return b.matmul("ssm_out", normed, Role::kSsmOut);
}

ValueId dense_ffn(PlanBuilder& b, ValueId h) {
  const ValueId gate = b.matmul("ffn_gate", h, Role::kFfnGate);
  const ValueId up = b.matmul("ffn_up", h, Role::kFfnUp);
  return b.matmul("ffn_down", b.swiglu("ffn_act", gate, up), Role::kFfnDown);
}

ValueId shared_expert(PlanBuilder& b, ValueId h) {
  const ValueId gate = b.matmul("ffn_gate_shexp", h, Role::kFfnGateShexp);
  const ValueId up = b.matmul("ffn_up_shexp", h, Role::kFfnUpShexp);
  const ValueId act = b.swiglu("ffn_act_shexp", gate, up);
  const ValueId down = b.matmul("ffn_down_shexp", act, Role::kFfnDownShexp);
  const ValueId row_gate = b.matmul("ffn_gate_inp_shexp", h, Role::kFfnGateInpShexp);  // [1]
  return b.row_gate("ffn_shexp", down, row_gate);
}

ValueId moe_ffn(PlanBuilder& b, const MoeDesc& moe, ValueId h) {
  const ValueId logits = b.matmul("ffn_gate_inp", h, Role::kFfnGateInp);  // [n_experts]
  const Pair route = b.moe_route("ffn_expert_ids", "ffn_expert_weights", logits);
  const ValueId shared = moe.shared_ffn_dim > 0 ? shared_expert(b, h) : -1;
  return b.moe_ffn("ffn_moe", h, route, shared);
}

}  // namespace

Plan build_plan(const Model& model) {
  const ModelDesc& desc = model.desc();
  PlanBuilder b(model);
  ValueId x = b.embed("token_embd");  // [model_dim]
  for (int layer_idx = 0; layer_idx < desc.n_layers; ++layer_idx) {
    b.set_layer(layer_idx);
    const LayerDesc& layer = desc.layers[static_cast<size_t>(layer_idx)];
    ValueId h = b.rms_norm("attn_norm", x, Role::kAttnNorm);
    const ValueId mixed =
        layer.mixer == Mixer::kAttention ? attention(b, desc.attention, h) : delta_net(b, h);
    x = b.add("attn_residual", x, mixed);
    h = b.rms_norm("ffn_norm", x, Role::kFfnNorm);
    const ValueId ffn = layer.ffn == Ffn::kMoe ? moe_ffn(b, desc.moe, h) : dense_ffn(b, h);
    x = b.add("ffn_residual", x, ffn);
  }
  b.set_layer(-1);
  x = b.take_rows("last_hidden", x);
  x = b.rms_norm("output_norm", x, Role::kOutputNorm);
  return b.take(b.matmul("logits", x, desc.tied_head ? Role::kTokenEmbd : Role::kOutput));
}

}  // namespace apr
