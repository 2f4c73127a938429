// The architecture table: everything that tells one architecture from another.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "apr/model.h"

namespace apr {

// One supported value of general.architecture, which is also the prefix of its keys.
struct ArchRow {
  std::string_view name;
  Ffn ffn;
  bool delta_net_layers;  // Gated DeltaNet in all but every Nth layer
  bool qkv_bias;
  bool qk_norm;
  bool output_gate;
  bool shared_expert;
  std::string_view ffn_norm_suffix;  // GGUF name of the norm before the FFN
};

std::span<const ArchRow> arch_table();

// The row of an architecture. Throws kModelLoad with the list of supported names.
const ArchRow& find_arch(std::string_view name, const std::string& file_name);

// Where a tensor belongs.
enum class TensorScope { kModel, kLayer, kAttention, kDeltaNet, kDenseFfn, kMoeFfn, kSharedExpert };

// One expected tensor: "blk.<layer>." + suffix in layers, else the suffix alone.
struct TensorRow {
  Role role;
  TensorScope scope;
  std::string_view suffix;
  bool required;
};

// All tensors any architecture knows; arch decides the name of the FFN norm and which of the
// optional ones may exist.
std::span<const TensorRow> tensor_table();
std::string tensor_name(const TensorRow& row, const ArchRow& arch, int layer_idx);
bool tensor_belongs(const TensorRow& row, const ArchRow& arch, const LayerDesc& layer);

// The shape a tensor must have, slowest axis first.
std::vector<int64_t> expected_shape(Role role, const ModelDesc& desc);

}  // namespace apr
