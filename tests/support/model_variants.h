// Changes to a fixture model that make the models the fixtures lack. Each works on a GgufWriter
// made by GgufWriter::copy_of and leaves a whole, consistent model; they combine.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "support/gguf_writer.h"
#include "support/quant_encode.h"

namespace apr::test {

// The values of a tensor; [prod(shape)] f32.
std::vector<float> decode_tensor(const WriterTensor& tensor);

// Encodes a tensor in another type (those of quant_encode.h), from its decoded values.
void retype_tensor(WriterTensor& tensor, uint32_t type_id);

// Retypes every quantised or 16-bit matrix of a layer (not its F32 vectors, router and conv
// kernel).
void retype_layer(GgufWriter& model, int layer_idx, uint32_t type_id);

// Adds output.weight, a copy of token_embd.weight: answers stay the same, bit for bit.
void untie_head(GgufWriter& model);

// Adds a multi-token-prediction block as llama.cpp's converter lays it out: one more block with
// the tensors of the last attention layer and blk.N.nextn.{eh_proj, enorm, hnorm,
// shared_head_norm}, counted in block_count and nextn_predict_layers. Answers stay the same.
void add_mtp_block(GgufWriter& model);

// Adds yarn keys: context extended `factor` times over original_context_length.
void set_yarn(GgufWriter& model, float factor, uint32_t original_context_length);

// Adds rows to token_embd.weight (and output.weight) beyond the tokens of the vocabulary: row
// n + k is row k % n times 4, so that a padded id wins wherever it is not masked. Answers stay the
// same.
void pad_vocabulary(GgufWriter& model, int64_t n_extra_rows);

// Multiplies every ffn_up by 8192 and divides every ffn_down (then F32) by it, both exactly: the
// input of ffn_down leaves the range of FP16, and the answers stay the same, bit for bit, in f32.
void make_hot(GgufWriter& model);

// Raises the number of experts of each MoE layer to n_experts: experts repeat, the routers' new
// rows are zero. A new expert is chosen only where fewer than n_used old ones have a positive
// logit, so most get no token.
void add_experts(GgufWriter& model, int64_t n_experts);

// Keeps the first n_heads query heads and n_kv_heads key/value heads of each attention layer
// (attn_output becomes F32). The answers of such a model mean nothing.
void keep_heads(GgufWriter& model, int64_t n_heads, int64_t n_kv_heads);

}  // namespace apr::test
