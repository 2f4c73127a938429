#include "model/arch.h"

#include <fmt/format.h>

#include <array>

#include "apr/error.h"

namespace apr {
namespace {

constexpr std::array kArchs = {
    ArchRow{.name = "qwen2",
            .ffn = Ffn::kDense,
            .delta_net_layers = false,
            .qkv_bias = true,
            .qk_norm = false,
            .output_gate = false,
            .shared_expert = false,
            .ffn_norm_suffix = "ffn_norm.weight"},
    ArchRow{.name = "qwen3",
            .ffn = Ffn::kDense,
            .delta_net_layers = false,
            .qkv_bias = false,
            .qk_norm = true,
            .output_gate = false,
            .shared_expert = false,
            .ffn_norm_suffix = "ffn_norm.weight"},
    ArchRow{.name = "qwen3moe",
            .ffn = Ffn::kMoe,
            .delta_net_layers = false,
            .qkv_bias = false,
            .qk_norm = true,
            .output_gate = false,
            .shared_expert = false,
            .ffn_norm_suffix = "ffn_norm.weight"},
    ArchRow{.name = "qwen35",
            .ffn = Ffn::kDense,
            .delta_net_layers = true,
            .qkv_bias = false,
            .qk_norm = true,
            .output_gate = true,
            .shared_expert = false,
            .ffn_norm_suffix = "post_attention_norm.weight"},
    ArchRow{.name = "qwen35moe",
            .ffn = Ffn::kMoe,
            .delta_net_layers = true,
            .qkv_bias = false,
            .qk_norm = true,
            .output_gate = true,
            .shared_expert = true,
            .ffn_norm_suffix = "post_attention_norm.weight"},
};

using S = TensorScope;
constexpr std::array kTensors = {
    TensorRow{Role::kTokenEmbd, S::kModel, "token_embd.weight", true},
    TensorRow{Role::kOutputNorm, S::kModel, "output_norm.weight", true},
    TensorRow{Role::kOutput, S::kModel, "output.weight", false},
    TensorRow{Role::kAttnNorm, S::kLayer, "attn_norm.weight", true},
    TensorRow{Role::kAttnQ, S::kAttention, "attn_q.weight", true},
    TensorRow{Role::kAttnK, S::kAttention, "attn_k.weight", true},
    TensorRow{Role::kAttnV, S::kAttention, "attn_v.weight", true},
    TensorRow{Role::kAttnQBias, S::kAttention, "attn_q.bias", false},
    TensorRow{Role::kAttnKBias, S::kAttention, "attn_k.bias", false},
    TensorRow{Role::kAttnVBias, S::kAttention, "attn_v.bias", false},
    TensorRow{Role::kAttnQNorm, S::kAttention, "attn_q_norm.weight", true},
    TensorRow{Role::kAttnKNorm, S::kAttention, "attn_k_norm.weight", true},
    TensorRow{Role::kAttnOutput, S::kAttention, "attn_output.weight", true},
    TensorRow{Role::kAttnQkv, S::kDeltaNet, "attn_qkv.weight", true},
    TensorRow{Role::kAttnGate, S::kDeltaNet, "attn_gate.weight", true},
    TensorRow{Role::kSsmConv1d, S::kDeltaNet, "ssm_conv1d.weight", true},
    TensorRow{Role::kSsmDtBias, S::kDeltaNet, "ssm_dt.bias", true},
    TensorRow{Role::kSsmA, S::kDeltaNet, "ssm_a", true},
    TensorRow{Role::kSsmAlpha, S::kDeltaNet, "ssm_alpha.weight", true},
    TensorRow{Role::kSsmBeta, S::kDeltaNet, "ssm_beta.weight", true},
    TensorRow{Role::kSsmNorm, S::kDeltaNet, "ssm_norm.weight", true},
    TensorRow{Role::kSsmOut, S::kDeltaNet, "ssm_out.weight", true},
    TensorRow{Role::kFfnNorm, S::kLayer, "", true},
    TensorRow{Role::kFfnGate, S::kDenseFfn, "ffn_gate.weight", true},
    TensorRow{Role::kFfnUp, S::kDenseFfn, "ffn_up.weight", true},
    TensorRow{Role::kFfnDown, S::kDenseFfn, "ffn_down.weight", true},
    TensorRow{Role::kFfnGateInp, S::kMoeFfn, "ffn_gate_inp.weight", true},
    TensorRow{Role::kFfnGateExps, S::kMoeFfn, "ffn_gate_exps.weight", true},
    TensorRow{Role::kFfnUpExps, S::kMoeFfn, "ffn_up_exps.weight", true},
    TensorRow{Role::kFfnDownExps, S::kMoeFfn, "ffn_down_exps.weight", true},
    TensorRow{Role::kFfnGateInpShexp, S::kSharedExpert, "ffn_gate_inp_shexp.weight", true},
    TensorRow{Role::kFfnGateShexp, S::kSharedExpert, "ffn_gate_shexp.weight", true},
    TensorRow{Role::kFfnUpShexp, S::kSharedExpert, "ffn_up_shexp.weight", true},
    TensorRow{Role::kFfnDownShexp, S::kSharedExpert, "ffn_down_shexp.weight", true},
};

}  // namespace

std::span<const ArchRow> arch_table() {
  return kArchs;
}

const ArchRow& find_arch(std::string_view name, const std::string& file_name) {
  std::string names;
  for (const ArchRow& row : kArchs) {
    if (row.name == name) {
      return row;
    }
    names += names.empty() ? "" : ", ";
    names += row.name;
  }
  throw Error(ErrorCode::kModelLoad, fmt::format("{}: architecture '{}' is not supported; this "
                                                 "version runs {}",
                                                 file_name, name, names));
}

std::span<const TensorRow> tensor_table() {
  return kTensors;
}

std::string tensor_name(const TensorRow& row, const ArchRow& arch, int layer_idx) {
  const std::string_view suffix = row.role == Role::kFfnNorm ? arch.ffn_norm_suffix : row.suffix;
  return row.scope == TensorScope::kModel ? std::string(suffix)
                                          : fmt::format("blk.{}.{}", layer_idx, suffix);
}

bool tensor_belongs(const TensorRow& row, const ArchRow& arch, const LayerDesc& layer) {
  switch (row.role) {
    case Role::kAttnQBias:
    case Role::kAttnKBias:
    case Role::kAttnVBias:
      return arch.qkv_bias && layer.mixer == Mixer::kAttention;
    case Role::kAttnQNorm:
    case Role::kAttnKNorm:
      return arch.qk_norm && layer.mixer == Mixer::kAttention;
    default:
      break;
  }
  switch (row.scope) {
    case TensorScope::kModel:
      return false;
    case TensorScope::kLayer:
      return true;
    case TensorScope::kAttention:
      return layer.mixer == Mixer::kAttention;
    case TensorScope::kDeltaNet:
      return layer.mixer == Mixer::kDeltaNet;
    case TensorScope::kDenseFfn:
      return layer.ffn == Ffn::kDense;
    case TensorScope::kMoeFfn:
      return layer.ffn == Ffn::kMoe;
    case TensorScope::kSharedExpert:
      return layer.ffn == Ffn::kMoe && arch.shared_expert;
  }
  return false;
}

std::vector<int64_t> expected_shape(Role role, const ModelDesc& desc) {
  const AttentionDesc& attn = desc.attention;
  const DeltaNetDesc& delta = desc.delta_net;
  const MoeDesc& moe = desc.moe;
  const int64_t dim = desc.model_dim;
  switch (role) {
    case Role::kTokenEmbd:
    case Role::kOutput:
      return {desc.vocab_rows, dim};
    case Role::kOutputNorm:
    case Role::kAttnNorm:
    case Role::kFfnNorm:
    case Role::kFfnGateInpShexp:
      return {dim};
    case Role::kAttnQ:
      return {attn.q_dim() * (attn.output_gate ? 2 : 1), dim};
    case Role::kAttnK:
    case Role::kAttnV:
      return {attn.kv_dim(), dim};
    case Role::kAttnQBias:
      return {attn.q_dim()};
    case Role::kAttnKBias:
    case Role::kAttnVBias:
      return {attn.kv_dim()};
    case Role::kAttnQNorm:
    case Role::kAttnKNorm:
      return {attn.head_dim};
    case Role::kAttnOutput:
      return {dim, attn.q_dim()};
    case Role::kAttnQkv:
      return {delta.conv_dim(), dim};
    case Role::kAttnGate:
      return {delta.v_dim(), dim};
    case Role::kSsmConv1d:
      return {delta.conv_dim(), delta.conv_kernel};
    case Role::kSsmDtBias:
    case Role::kSsmA:
      return {delta.n_v_heads};
    case Role::kSsmAlpha:
    case Role::kSsmBeta:
      return {delta.n_v_heads, dim};
    case Role::kSsmNorm:
      return {delta.head_dim};
    case Role::kSsmOut:
      return {dim, delta.v_dim()};
    case Role::kFfnGate:
    case Role::kFfnUp:
      return {desc.ffn_dim, dim};
    case Role::kFfnDown:
      return {dim, desc.ffn_dim};
    case Role::kFfnGateInp:
      return {moe.n_experts, dim};
    case Role::kFfnGateExps:
    case Role::kFfnUpExps:
      return {moe.n_experts, moe.expert_ffn_dim, dim};
    case Role::kFfnDownExps:
      return {moe.n_experts, dim, moe.expert_ffn_dim};
    case Role::kFfnGateShexp:
    case Role::kFfnUpShexp:
      return {moe.shared_ffn_dim, dim};
    case Role::kFfnDownShexp:
      return {dim, moe.shared_ffn_dim};
    case Role::kCount:
      break;
  }
  check_failed("role has a shape", __FILE__, __LINE__, std::to_string(static_cast<int>(role)));
}

}  // namespace apr
