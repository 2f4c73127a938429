#include "support/model_variants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "apr/quant.h"

namespace apr::test {
namespace {

constexpr float kHotFactor = 8192.0f;

// "qwen3.block_count" for "block_count".
std::string arch_key(const GgufWriter& model, std::string_view key) {
  const WriterValue& arch = model.value("general.architecture");
  return std::string(reinterpret_cast<const char*>(arch.payload.data()), arch.payload.size()) +
         "." + std::string(key);
}

uint32_t get_u32(const GgufWriter& model, const std::string& key) {
  const WriterValue& value = model.value(key);
  if (value.type != GgufValueType::kU32) {
    throw std::runtime_error(key + " is no u32");
  }
  uint32_t number = 0;
  std::memcpy(&number, value.payload.data(), sizeof(number));
  return number;
}

bool is_of_layer(const WriterTensor& tensor, int layer_idx) {
  return tensor.name.starts_with(fmt::format("blk.{}.", layer_idx));
}

// The bytes of one index of the slowest axis.
size_t slice_bytes(const WriterTensor& tensor) {
  return tensor.data.size() / static_cast<size_t>(tensor.shape.front());
}

// Keeps the first n_slices of the slowest axis.
void keep_slices(WriterTensor& tensor, int64_t n_slices) {
  tensor.data.resize(slice_bytes(tensor) * static_cast<size_t>(n_slices));
  tensor.shape.front() = n_slices;
}

// Repeats the slices of the slowest axis from the first on until there are n_slices.
void repeat_slices(WriterTensor& tensor, int64_t n_slices) {
  const size_t n_bytes = slice_bytes(tensor) * static_cast<size_t>(n_slices);
  const size_t n_old_bytes = tensor.data.size();
  tensor.data.resize(n_bytes);
  for (size_t at = n_old_bytes; at < n_bytes; at += n_old_bytes) {
    std::copy_n(tensor.data.begin(), std::min(n_old_bytes, n_bytes - at),
                tensor.data.begin() + static_cast<int64_t>(at));
  }
  tensor.shape.front() = n_slices;
}

// Keeps the first n_cols of the fastest axis; the tensor becomes F32.
void keep_columns(WriterTensor& tensor, int64_t n_cols) {
  const std::vector<float> values = decode_tensor(tensor);
  const size_t n_old_cols = static_cast<size_t>(tensor.shape.back());
  std::vector<float> kept;
  for (size_t row_at = 0; row_at < values.size(); row_at += n_old_cols) {
    kept.insert(kept.end(), values.begin() + static_cast<int64_t>(row_at),
                values.begin() + static_cast<int64_t>(row_at) + n_cols);
  }
  tensor.shape.back() = n_cols;
  tensor.type_id = kTypeF32;
  tensor.data = encode(kTypeF32, kept);
}

// A matrix or vector of small values that differ, as F32.
WriterTensor small_values(std::string name, std::vector<int64_t> shape, float middle,
                          float spread) {
  size_t n_elems = 1;
  for (const int64_t axis : shape) {
    n_elems *= static_cast<size_t>(axis);
  }
  std::vector<float> values(n_elems);
  uint32_t state = 12345;
  for (float& value : values) {
    state = state * 1664525 + 1013904223;  // Numerical Recipes' generator
    value = middle + spread * (static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
  }
  return {std::move(name), std::move(shape), kTypeF32, encode(kTypeF32, values)};
}

}  // namespace

std::vector<float> decode_tensor(const WriterTensor& tensor) {
  return decode(tensor.type_id, tensor.data);
}

void retype_tensor(WriterTensor& tensor, uint32_t type_id) {
  tensor.data = encode(type_id, decode_tensor(tensor));
  tensor.type_id = type_id;
}

void retype_layer(GgufWriter& model, int layer_idx, uint32_t type_id) {
  for (WriterTensor& tensor : model.tensors()) {
    if (is_of_layer(tensor, layer_idx) && tensor.shape.size() >= 2 && tensor.type_id != kTypeF32) {
      retype_tensor(tensor, type_id);
    }
  }
}

void untie_head(GgufWriter& model) {
  WriterTensor head = model.tensor("token_embd.weight");
  head.name = "output.weight";
  model.add_tensor(std::move(head));
}

void add_mtp_block(GgufWriter& model) {
  const uint32_t n_blocks = get_u32(model, arch_key(model, "block_count"));
  const int64_t model_dim = model.tensor("token_embd.weight").shape.back();
  int source_layer = static_cast<int>(n_blocks) - 1;
  while (!model.has_tensor(fmt::format("blk.{}.attn_q.weight", source_layer))) {
    --source_layer;
  }
  const std::vector<WriterTensor> old_tensors = model.tensors();
  for (const WriterTensor& tensor : old_tensors) {
    if (is_of_layer(tensor, source_layer)) {
      WriterTensor copy = tensor;
      copy.name = fmt::format("blk.{}{}", n_blocks, tensor.name.substr(tensor.name.find('.', 4)));
      model.add_tensor(std::move(copy));
    }
  }
  const std::string prefix = fmt::format("blk.{}.nextn.", n_blocks);
  model.add_tensor(
      small_values(prefix + "eh_proj.weight", {model_dim, 2 * model_dim}, 0.0f, 0.05f));
  for (const char* norm : {"enorm", "hnorm", "shared_head_norm"}) {
    model.add_tensor(
        small_values(fmt::format("{}{}.weight", prefix, norm), {model_dim}, 1.0f, 0.1f));
  }
  model.set<uint32_t>(arch_key(model, "block_count"), n_blocks + 1);
  model.set<uint32_t>(arch_key(model, "nextn_predict_layers"), 1);
  const std::string pattern_key = arch_key(model, "attention.recurrent_layers");
  if (model.has_value(pattern_key)) {
    WriterValue pattern = model.value(pattern_key);  // one bool a block
    pattern.payload.push_back(std::byte{0});
    ++pattern.count;
    model.set_value(std::move(pattern));
  }
}

void set_yarn(GgufWriter& model, float factor, uint32_t original_context_length) {
  model.set_string(arch_key(model, "rope.scaling.type"), "yarn");
  model.set<float>(arch_key(model, "rope.scaling.factor"), factor);
  model.set<uint32_t>(arch_key(model, "rope.scaling.original_context_length"),
                      original_context_length);
}

void pad_vocabulary(GgufWriter& model, int64_t n_extra_rows) {
  for (const char* name : {"token_embd.weight", "output.weight"}) {
    if (model.has_tensor(name)) {
      WriterTensor& tensor = model.tensor(name);
      const size_t n_old_bytes = tensor.data.size();
      repeat_slices(tensor, tensor.shape.front() + n_extra_rows);
      scale_exactly(tensor.type_id, std::span(tensor.data).subspan(n_old_bytes), 4.0f);
    }
  }
}

void make_hot(GgufWriter& model) {
  for (WriterTensor& tensor : model.tensors()) {
    if (tensor.name.ends_with(".ffn_up.weight")) {
      scale_exactly(tensor.type_id, tensor.data, kHotFactor);
    } else if (tensor.name.ends_with(".ffn_down.weight")) {
      std::vector<float> values = decode_tensor(tensor);
      for (float& value : values) {
        const float scaled = value / kHotFactor;
        if (scaled * kHotFactor != value) {
          throw std::runtime_error(fmt::format("{} / {} is not exact", value, kHotFactor));
        }
        value = scaled;
      }
      tensor.data = encode(kTypeF32, values);
      tensor.type_id = kTypeF32;
    }
  }
}

void add_experts(GgufWriter& model, int64_t n_experts) {
  for (WriterTensor& tensor : model.tensors()) {
    if (tensor.name.find("_exps.") != std::string::npos) {
      repeat_slices(tensor, n_experts);
    } else if (tensor.name.ends_with(".ffn_gate_inp.weight")) {
      tensor.data.resize(slice_bytes(tensor) * static_cast<size_t>(n_experts));  // zeros
      tensor.shape.front() = n_experts;
    }
  }
  model.set<uint32_t>(arch_key(model, "expert_count"), static_cast<uint32_t>(n_experts));
}

void keep_heads(GgufWriter& model, int64_t n_heads, int64_t n_kv_heads) {
  const int64_t n_old_heads = get_u32(model, arch_key(model, "attention.head_count"));
  const int64_t n_old_kv_heads = get_u32(model, arch_key(model, "attention.head_count_kv"));
  uint32_t head_dim = 0;
  for (WriterTensor& tensor : model.tensors()) {
    const auto is = [&](const char* part) { return tensor.name.find(part) != std::string::npos; };
    if (is(".attn_q.")) {  // rows of a head: queries, with an output gate queries and gate
      keep_slices(tensor, tensor.shape.front() / n_old_heads * n_heads);
    } else if (is(".attn_k.") || is(".attn_v.")) {
      head_dim = static_cast<uint32_t>(tensor.shape.front() / n_old_kv_heads);
      keep_slices(tensor, head_dim * n_kv_heads);
    } else if (is(".attn_output.")) {
      keep_columns(tensor, tensor.shape.back() / n_old_heads * n_heads);
    }
  }
  model.set<uint32_t>(arch_key(model, "attention.head_count"), static_cast<uint32_t>(n_heads));
  model.set<uint32_t>(arch_key(model, "attention.head_count_kv"),
                      static_cast<uint32_t>(n_kv_heads));
  // Where these are absent they follow from the number of heads, which no longer holds.
  model.set<uint32_t>(arch_key(model, "attention.key_length"), head_dim);
  model.set<uint32_t>(arch_key(model, "attention.value_length"), head_dim);
}

}  // namespace apr::test
