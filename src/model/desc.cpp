#include "model/desc.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "apr/error.h"

namespace apr {
namespace {

constexpr int64_t kMaxDim = int64_t{1} << 24;

// Typed reads of "<arch>.<suffix>" keys with ranges.
class Keys {
 public:
  Keys(const GgufFile& file, const ArchRow& arch) : file_(file), arch_(arch) {}

  std::string full(std::string_view suffix) const {
    return fmt::format("{}.{}", arch_.name, suffix);
  }
  bool has(std::string_view suffix) const { return file_.find(full(suffix)) != nullptr; }

  int64_t count(std::string_view suffix, int64_t min, int64_t max = kMaxDim) const {
    const std::string key = full(suffix);
    const auto value = file_.get_u64(key);
    if (!value) {
      throw Error(ErrorCode::kInvalidFormat,
                  fmt::format("{}: key {} is missing", file_.name(), key));
    }
    return in_range(key, *value, min, max);
  }

  int64_t count_or(std::string_view suffix, int64_t fallback, int64_t min,
                   int64_t max = kMaxDim) const {
    return has(suffix) ? count(suffix, min, max) : fallback;
  }

  double number_or(std::string_view suffix, double fallback, double min, double max) const {
    const std::string key = full(suffix);
    const double value = file_.get_f64(key).value_or(fallback);
    if (!(value >= min && value <= max)) {
      throw Error(ErrorCode::kInvalidFormat, fmt::format("{}: key {} is {}, expected {} to {}",
                                                         file_.name(), key, value, min, max));
    }
    return value;
  }

  [[noreturn]] void fail(std::string_view suffix, const std::string& what) const {
    throw Error(ErrorCode::kInvalidFormat,
                fmt::format("{}: key {}: {}", file_.name(), full(suffix), what));
  }

 private:
  int64_t in_range(const std::string& key, uint64_t value, int64_t min, int64_t max) const {
    if (value < static_cast<uint64_t>(min) || value > static_cast<uint64_t>(max)) {
      throw Error(ErrorCode::kInvalidFormat, fmt::format("{}: key {} is {}, expected {} to {}",
                                                         file_.name(), key, value, min, max));
    }
    return static_cast<int64_t>(value);
  }

  const GgufFile& file_;
  const ArchRow& arch_;
};

AttentionDesc read_attention(const Keys& keys, const ArchRow& arch, int64_t model_dim) {
  AttentionDesc attn;
  attn.n_heads = keys.count("attention.head_count", 1, 1 << 16);
  attn.n_kv_heads = keys.count_or("attention.head_count_kv", attn.n_heads, 1, attn.n_heads);
  attn.head_dim = keys.count_or("attention.key_length", model_dim / attn.n_heads, 1, 1 << 16);
  const int64_t value_dim = keys.count_or("attention.value_length", attn.head_dim, 1, 1 << 16);
  if (value_dim != attn.head_dim) {
    keys.fail("attention.value_length",
              fmt::format("{} differs from the key length {}", value_dim, attn.head_dim));
  }
  if (attn.n_heads % attn.n_kv_heads != 0) {
    keys.fail("attention.head_count_kv",
              fmt::format("{} does not divide the {} heads", attn.n_kv_heads, attn.n_heads));
  }
  if (!keys.has("attention.key_length") && model_dim % attn.n_heads != 0) {
    keys.fail("attention.head_count",
              fmt::format("{} does not divide the embedding length {}", attn.n_heads, model_dim));
  }
  attn.qkv_bias = arch.qkv_bias;
  attn.qk_norm = arch.qk_norm;
  attn.output_gate = arch.output_gate;
  return attn;
}

DeltaNetDesc read_delta_net(const Keys& keys) {
  DeltaNetDesc delta;
  delta.head_dim = keys.count("ssm.state_size", 1, 1 << 12);
  delta.n_k_heads = keys.count("ssm.group_count", 1, 1 << 12);
  delta.n_v_heads = keys.count("ssm.time_step_rank", 1, 1 << 12);
  delta.conv_kernel = keys.count("ssm.conv_kernel", 2, 64);
  if (delta.n_v_heads % delta.n_k_heads != 0) {
    keys.fail("ssm.time_step_rank", fmt::format("{} value heads are no multiple of {} key heads",
                                                delta.n_v_heads, delta.n_k_heads));
  }
  const int64_t inner = keys.count_or("ssm.inner_size", delta.v_dim(), 1);
  if (inner != delta.v_dim()) {
    keys.fail("ssm.inner_size",
              fmt::format("{}, expected {} heads x {}", inner, delta.n_v_heads, delta.head_dim));
  }
  return delta;
}

MoeDesc read_moe(const Keys& keys, const ArchRow& arch, int64_t ffn_dim) {
  MoeDesc moe;
  moe.n_experts = keys.count("expert_count", 1, 1 << 14);
  moe.n_used = keys.count("expert_used_count", 1, moe.n_experts);
  moe.expert_ffn_dim = keys.count_or("expert_feed_forward_length", ffn_dim / moe.n_used, 1);
  if (moe.expert_ffn_dim < 1) {
    keys.fail("expert_feed_forward_length", "is missing");
  }
  if (arch.shared_expert) {
    moe.shared_ffn_dim = keys.count_or("expert_shared_feed_forward_length", moe.expert_ffn_dim, 1);
  }
  constexpr int64_t kSoftmaxGating = 1;
  if (keys.count_or("expert_gating_func", kSoftmaxGating, 0) != kSoftmaxGating) {
    keys.fail("expert_gating_func", "only softmax (1) is supported");
  }
  return moe;
}

RopeDesc read_rope(const GgufFile& file, const Keys& keys, const AttentionDesc& attn) {
  RopeDesc rope;
  rope.freq_base = keys.number_or("rope.freq_base", 10000.0, 1.0, 1e12);
  const auto sections = file.get_i64_array(keys.full("rope.dimension_sections"));
  int64_t n_rot = attn.head_dim;
  if (sections) {
    int64_t n_pairs = 0;
    for (const int64_t section : *sections) {
      if (section < 0 || section > attn.head_dim) {
        keys.fail("rope.dimension_sections",
                  fmt::format("{} is no part of a head of {}", section, attn.head_dim));
      }
      n_pairs += section;
    }
    n_rot = 2 * n_pairs;
  }
  rope.n_rot = keys.count_or("rope.dimension_count", n_rot, 2);
  if (rope.n_rot > attn.head_dim || rope.n_rot % 2 != 0 || rope.n_rot < 2) {
    keys.fail("rope.dimension_count",
              fmt::format("{} must be even and at most the head's {}", rope.n_rot, attn.head_dim));
  }
  if (sections && n_rot != rope.n_rot) {
    keys.fail("rope.dimension_sections",
              fmt::format("cover {} elements, expected {}", n_rot, rope.n_rot));
  }
  const std::string_view scaling = file.get_string(keys.full("rope.scaling.type")).value_or("none");
  if (scaling == "none") {
    rope.scaling = RopeDesc::Scaling::kNone;
  } else if (scaling == "linear" || scaling == "yarn") {
    rope.scaling = scaling == "yarn" ? RopeDesc::Scaling::kYarn : RopeDesc::Scaling::kLinear;
    rope.factor = keys.number_or("rope.scaling.factor", 1.0, 1e-3, 1e6);
  } else {
    throw Error(ErrorCode::kModelLoad,
                fmt::format("{}: rope scaling '{}' is not supported; known are none, linear, yarn",
                            file.name(), scaling));
  }
  if (rope.scaling == RopeDesc::Scaling::kYarn) {
    rope.original_context_length = keys.count("rope.scaling.original_context_length", 1, INT32_MAX);
    rope.ext_factor = keys.number_or("rope.scaling.yarn_ext_factor", 1.0, 0.0, 1e3);
    rope.attn_factor =
        keys.number_or("rope.scaling.yarn_attn_factor",
                       keys.number_or("rope.scaling.attn_factor", 1.0, 1e-3, 1e3), 1e-3, 1e3);
    rope.beta_fast = keys.number_or("rope.scaling.yarn_beta_fast", 32.0, 1e-3, 1e6);
    rope.beta_slow = keys.number_or("rope.scaling.yarn_beta_slow", 1.0, 1e-3, 1e6);
  }
  compute_rope_frequencies(rope);
  return rope;
}

std::vector<LayerDesc> read_layers(const GgufFile& file, const Keys& keys, const ArchRow& arch,
                                   int64_t n_layers, int64_t n_blocks) {
  std::vector<LayerDesc> layers(static_cast<size_t>(n_layers));
  for (LayerDesc& layer : layers) {
    layer.ffn = arch.ffn;
  }
  if (!arch.delta_net_layers) {
    return layers;
  }
  const auto recurrent = file.get_i64_array(keys.full("attention.recurrent_layers"));
  if (recurrent && static_cast<int64_t>(recurrent->size()) != n_blocks) {
    keys.fail("attention.recurrent_layers",
              fmt::format("has {} entries, expected {}", recurrent->size(), n_blocks));
  }
  const int64_t interval = keys.count_or("full_attention_interval", 4, 1);
  for (int64_t layer_idx = 0; layer_idx < n_layers; ++layer_idx) {
    const bool is_recurrent = recurrent ? (*recurrent)[static_cast<size_t>(layer_idx)] != 0
                                        : (layer_idx + 1) % interval != 0;
    layers[static_cast<size_t>(layer_idx)].mixer =
        is_recurrent ? Mixer::kDeltaNet : Mixer::kAttention;
  }
  return layers;
}

}  // namespace

void compute_rope_frequencies(RopeDesc& rope) {
  const int64_t n_pairs = rope.n_rot / 2;
  const double n_rot = static_cast<double>(rope.n_rot);
  rope.inv_freq.resize(static_cast<size_t>(n_pairs));
  double low = 0.0, high = 0.0;
  const bool yarn = rope.scaling == RopeDesc::Scaling::kYarn;
  if (yarn) {
    // The pair whose wavelength turns `beta` times within the original context.
    const auto pair_of = [&](double beta) {
      return n_rot *
             std::log(static_cast<double>(rope.original_context_length) / (beta * 2.0 * M_PI)) /
             (2.0 * std::log(rope.freq_base));
    };
    low = std::max(0.0, std::floor(pair_of(rope.beta_fast)));
    high = std::min(n_rot - 1.0, std::ceil(pair_of(rope.beta_slow)));
    rope.magnitude = static_cast<float>(
        rope.attn_factor *
        (rope.ext_factor != 0.0 ? 1.0 + 0.1 * std::log(std::max(1.0, rope.factor)) : 1.0));
  }
  for (int64_t pair = 0; pair < n_pairs; ++pair) {
    const double base = std::pow(rope.freq_base, -2.0 * static_cast<double>(pair) / n_rot);
    double freq = rope.scaling == RopeDesc::Scaling::kNone ? base : base / rope.factor;
    if (yarn) {
      const double ramp = (static_cast<double>(pair) - low) / std::max(0.001, high - low);
      const double mix = (1.0 - std::clamp(ramp, 0.0, 1.0)) * rope.ext_factor;
      freq = freq * (1.0 - mix) + base * mix;
    }
    rope.inv_freq[static_cast<size_t>(pair)] = static_cast<float>(freq);
  }
}

ModelDesc read_model_desc(const GgufFile& file, const ArchRow& arch) {
  const Keys keys(file, arch);
  ModelDesc desc;
  desc.arch = arch.name;
  desc.name = file.get_string("general.name").value_or("");
  const int64_t n_blocks = keys.count("block_count", 1, 4096);
  desc.n_mtp_layers = keys.count_or("nextn_predict_layers", 0, 0, n_blocks - 1);
  desc.n_layers = n_blocks - desc.n_mtp_layers;
  desc.model_dim = keys.count("embedding_length", 1);
  desc.context_length = keys.count("context_length", 1, INT32_MAX);
  desc.ffn_dim = arch.ffn == Ffn::kDense ? keys.count("feed_forward_length", 1)
                                         : keys.count_or("feed_forward_length", 0, 0);
  desc.rms_eps =
      static_cast<float>(keys.number_or("attention.layer_norm_rms_epsilon", 1e-6, 1e-12, 1.0));
  desc.attention = read_attention(keys, arch, desc.model_dim);
  if (arch.delta_net_layers) {
    desc.delta_net = read_delta_net(keys);
  }
  if (arch.ffn == Ffn::kMoe) {
    desc.moe = read_moe(keys, arch, desc.ffn_dim);
  }
  desc.rope = read_rope(file, keys, desc.attention);
  desc.layers = read_layers(file, keys, arch, desc.n_layers, n_blocks);

  const GgufTensor* embedding = file.find_tensor("token_embd.weight");
  if (embedding == nullptr) {
    throw Error(ErrorCode::kModelLoad,
                fmt::format("{}: tensor token_embd.weight is missing{}", file.name(),
                            file.tensors().empty() ? " (a vocabulary-only file)" : ""));
  }
  desc.vocab_rows = embedding->shape[0];
  const GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  desc.n_tokens = tokens != nullptr ? static_cast<int64_t>(tokens->count()) : desc.vocab_rows;
  if (desc.n_tokens > desc.vocab_rows || desc.vocab_rows > kMaxDim) {
    throw Error(ErrorCode::kModelLoad,
                fmt::format("{}: token_embd.weight has {} rows, expected at least the {} tokens of "
                            "the vocabulary and at most {}",
                            file.name(), desc.vocab_rows, desc.n_tokens, kMaxDim));
  }
  desc.tied_head = file.find_tensor("output.weight") == nullptr;
  return desc;
}

}  // namespace apr
