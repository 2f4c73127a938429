// GGUF files of real models' shapes whose weights are holes: what walks tensors needs no values.
#pragma once

#include <cstdint>
#include <string>

#include "support/gguf_writer.h"
#include "support/open_gguf.h"

namespace apr::test {

constexpr uint32_t kTypeQ4K = 12, kTypeQ6K = 14;

struct DenseShape {
  int64_t model_dim, n_layers, n_heads, n_kv_heads, ffn_dim, context, head_dim = 128,
                                                                      vocab_rows = 151936;
  bool tied_head = true;
};

inline constexpr DenseShape kQwen3Small{2048, 28, 16, 8, 6144, 40960};   // of 1.7e9 weights
inline constexpr DenseShape kQwen3Medium{2560, 36, 32, 8, 9728, 40960};  // of 4e9
inline constexpr DenseShape kQwen3Large{.model_dim = 4096,               // of 8e9
                                        .n_layers = 36,
                                        .n_heads = 32,
                                        .n_kv_heads = 8,
                                        .ffn_dim = 12288,
                                        .context = 40960,
                                        .tied_head = false};

// A model with QK-norm in Q4_K_M: Q6_K the head, attn_v and ffn_down, Q4_K the rest. Metadata and
// tokenizer are a fixture's.
inline GgufWriter dense_writer(const DenseShape& shape) {
  GgufWriter model = GgufWriter::copy_of(open_gguf(model_fixture("tiny-qwen3-kmix")));
  const auto set = [&](const std::string& key, int64_t value) {
    model.set("qwen3." + key, static_cast<uint32_t>(value));
  };
  set("block_count", shape.n_layers);
  set("context_length", shape.context);
  set("embedding_length", shape.model_dim);
  set("feed_forward_length", shape.ffn_dim);
  set("attention.head_count", shape.n_heads);
  set("attention.head_count_kv", shape.n_kv_heads);
  set("attention.key_length", shape.head_dim);
  set("attention.value_length", shape.head_dim);
  model.tensors().clear();
  const auto matrix = [&](const std::string& name, int64_t n_rows, int64_t n_cols, bool large) {
    model.add_tensor({name + ".weight", {n_rows, n_cols}, large ? kTypeQ6K : kTypeQ4K, {}});
  };
  const auto norm = [&](const std::string& name, int64_t n_elems) {
    model.add_tensor({name + ".weight", {n_elems}, 0, {}});
  };
  matrix("token_embd", shape.vocab_rows, shape.model_dim, shape.tied_head);
  if (!shape.tied_head) {
    matrix("output", shape.vocab_rows, shape.model_dim, true);
  }
  norm("output_norm", shape.model_dim);
  for (int64_t layer = 0; layer < shape.n_layers; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    const int64_t q_dim = shape.n_heads * shape.head_dim;
    const int64_t kv_dim = shape.n_kv_heads * shape.head_dim;
    norm(block + "attn_norm", shape.model_dim);
    norm(block + "ffn_norm", shape.model_dim);
    norm(block + "attn_q_norm", shape.head_dim);
    norm(block + "attn_k_norm", shape.head_dim);
    matrix(block + "attn_q", q_dim, shape.model_dim, false);
    matrix(block + "attn_k", kv_dim, shape.model_dim, false);
    matrix(block + "attn_v", kv_dim, shape.model_dim, true);
    matrix(block + "attn_output", shape.model_dim, q_dim, false);
    matrix(block + "ffn_gate", shape.ffn_dim, shape.model_dim, false);
    matrix(block + "ffn_up", shape.ffn_dim, shape.model_dim, false);
    matrix(block + "ffn_down", shape.model_dim, shape.ffn_dim, true);
  }
  return model;
}

}  // namespace apr::test
