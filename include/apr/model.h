// A GGUF model as the rest of the program sees it: dimensions, layers and named weights.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apr/gguf.h"
#include "apr/quant.h"

namespace apr {

enum class Mixer { kAttention, kDeltaNet };
enum class Ffn { kDense, kMoe };

// Rotary position embedding: angle(position, pair) = position * inv_freq[pair] in f32.
struct RopeDesc {
  enum class Scaling { kNone, kLinear, kYarn };
  int64_t n_rot = 0;  // rotated elements of a head, pairs (j, j + n_rot / 2)
  double freq_base = 10000.0;
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;                  // context extension of linear / yarn
  int64_t original_context_length = 0;  // yarn
  double ext_factor = 1.0, attn_factor = 1.0, beta_fast = 32.0, beta_slow = 1.0;  // yarn
  std::vector<float> inv_freq;  // [n_rot / 2] f32, computed in f64
  float magnitude = 1.0F;       // multiplies cos and sin (yarn), else 1
};

struct AttentionDesc {
  int64_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  bool qkv_bias = false;     // attn_{q,k,v}.bias may exist
  bool qk_norm = false;      // RMS norm of each q and k head
  bool output_gate = false;  // attn_q yields [q | gate] per head
  int64_t q_dim() const { return n_heads * head_dim; }
  int64_t kv_dim() const { return n_kv_heads * head_dim; }
};

struct DeltaNetDesc {
  int64_t n_k_heads = 0, n_v_heads = 0;  // value head h reads key head h % n_k_heads
  int64_t head_dim = 0;                  // of keys and of values
  int64_t conv_kernel = 0;
  int64_t k_dim() const { return n_k_heads * head_dim; }
  int64_t v_dim() const { return n_v_heads * head_dim; }
  int64_t conv_dim() const { return 2 * k_dim() + v_dim(); }
};

struct MoeDesc {
  int64_t n_experts = 0, n_used = 0;
  int64_t expert_ffn_dim = 0;
  int64_t shared_ffn_dim = 0;  // 0: no shared expert
};

struct LayerDesc {
  Mixer mixer = Mixer::kAttention;
  Ffn ffn = Ffn::kDense;
};

struct ModelDesc {
  std::string arch;  // general.architecture, for messages only
  std::string name;  // general.name, may be empty
  int64_t n_layers = 0, model_dim = 0, ffn_dim = 0, context_length = 0;
  int64_t vocab_rows = 0;  // rows of token_embd: tokens and padding
  int64_t n_tokens = 0;    // tokens of the tokenizer; rows beyond are never sampled
  float rms_eps = 0.0F;
  AttentionDesc attention;
  DeltaNetDesc delta_net;
  MoeDesc moe;
  RopeDesc rope;
  std::vector<LayerDesc> layers;  // [n_layers]
  bool tied_head = false;         // the head is token_embd
  int64_t n_mtp_layers = 0;       // multi-token-prediction blocks in the file, left out
};

// What a weight is for; its GGUF name stands in the architecture table (model/arch.cpp).
enum class Role {
  kTokenEmbd,
  kOutputNorm,
  kOutput,
  kAttnNorm,
  kAttnQ,
  kAttnK,
  kAttnV,
  kAttnQBias,
  kAttnKBias,
  kAttnVBias,
  kAttnQNorm,
  kAttnKNorm,
  kAttnOutput,
  kAttnQkv,
  kAttnGate,
  kSsmConv1d,
  kSsmDtBias,
  kSsmA,
  kSsmAlpha,
  kSsmBeta,
  kSsmNorm,
  kSsmOut,
  kFfnNorm,
  kFfnGate,
  kFfnUp,
  kFfnDown,
  kFfnGateInp,
  kFfnGateExps,
  kFfnUpExps,
  kFfnDownExps,
  kFfnGateInpShexp,
  kFfnGateShexp,
  kFfnUpShexp,
  kFfnDownShexp,
  kCount,
};

// One tensor of the file in use. As a matrix it is [n_experts,] [n_rows, n_cols]; rank 1 is one
// row.
struct Weight {
  std::string_view name;
  Role role = Role::kCount;
  int layer_idx = -1;  // -1: not of a layer
  const QuantType* type = nullptr;
  std::vector<int64_t> shape;  // slowest axis first
  const std::byte* data = nullptr;
  int64_t size_bytes = 0;
  int64_t n_experts = 1, n_rows = 0, n_cols = 0, row_bytes = 0;
  std::vector<float> values;  // f32 copy of vectors and of the conv kernel, else empty
};

class Model {
 public:
  // Reads dimensions and binds every tensor of `file`, which the model then owns. Throws
  // kModelLoad: architecture not supported (with the list), tensor missing, misshapen or unknown;
  // kInvalidFormat: a key missing or out of range. Does not touch tensor data beyond vectors.
  explicit Model(GgufFile file);

  const ModelDesc& desc() const { return desc_; }
  const GgufFile& file() const { return file_; }
  std::span<const Weight> weights() const { return weights_; }

  // The weight of a role; null where the model has none (optional biases, tied head).
  const Weight* find(Role role, int layer_idx = -1) const;

 private:
  GgufFile file_;
  ModelDesc desc_;
  std::vector<Weight> weights_;
  std::vector<std::array<int, static_cast<size_t>(Role::kCount)>> by_role_;  // [n_layers + 1]
};

}  // namespace apr
