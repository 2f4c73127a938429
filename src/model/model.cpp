#include "apr/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "apr/error.h"
#include "base/format.h"
#include "model/arch.h"
#include "model/desc.h"

namespace apr {
namespace {

// The layer of "blk.<n>.<rest>", or nothing.
std::optional<int64_t> layer_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) {
    return std::nullopt;
  }
  name.remove_prefix(kPrefix.size());
  int64_t layer_idx = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer_idx);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') {
    return std::nullopt;
  }
  return layer_idx;
}

bool is_vector_role(const Weight& weight) {
  return weight.shape.size() == 1 || weight.role == Role::kSsmConv1d;
}

Weight make_weight(const GgufTensor& tensor, Role role, int layer_idx) {
  Weight weight;
  weight.name = tensor.name;
  weight.role = role;
  weight.layer_idx = layer_idx;
  weight.type = find_quant_type(tensor.type_id);
  APR_CHECK(weight.type != nullptr, "the reader refuses types outside of the table");
  weight.shape = tensor.shape;
  weight.data = tensor.data.data();
  weight.size_bytes = static_cast<int64_t>(tensor.data.size());
  const size_t rank = tensor.shape.size();
  weight.n_cols = tensor.shape[rank - 1];
  weight.n_rows = rank >= 2 ? tensor.shape[rank - 2] : 1;
  weight.n_experts = rank >= 3 ? tensor.shape[rank - 3] : 1;
  weight.row_bytes = weight.type->row_bytes(weight.n_cols);
  if (is_vector_role(weight)) {
    weight.values.resize(static_cast<size_t>(weight.n_rows * weight.n_cols));
    weight.type->dequantize(weight.data, weight.n_rows * weight.n_cols / weight.type->block_elems,
                            weight.values.data());
  }
  return weight;
}

}  // namespace

Model::Model(GgufFile file) : file_(std::move(file)) {
  const auto arch_name = file_.get_string("general.architecture");
  if (!arch_name) {
    throw Error(ErrorCode::kInvalidFormat,
                fmt::format("{}: key general.architecture is missing", file_.name()));
  }
  const ArchRow& arch = find_arch(*arch_name, file_.name());
  desc_ = read_model_desc(file_, arch);

  std::array<int, static_cast<size_t>(Role::kCount)> none;
  none.fill(-1);
  by_role_.assign(static_cast<size_t>(desc_.n_layers) + 1, none);
  weights_.reserve(file_.tensors().size());
  std::set<std::string_view> used;

  const auto bind = [&](const TensorRow& row, int layer_idx) {
    const std::string name = tensor_name(row, arch, layer_idx);
    const std::vector<int64_t> shape = expected_shape(row.role, desc_);
    const GgufTensor* tensor = file_.find_tensor(name);
    if (tensor == nullptr) {
      if (row.required) {
        throw Error(ErrorCode::kModelLoad,
                    fmt::format("{}: tensor {} {} is missing ({}, {} layers)", file_.name(), name,
                                format_shape(shape), desc_.arch, desc_.n_layers));
      }
      return;
    }
    if (tensor->shape != shape) {
      throw Error(ErrorCode::kModelLoad,
                  fmt::format("{}: tensor {} has shape {}, expected {}", file_.name(), name,
                              format_shape(tensor->shape), format_shape(shape)));
    }
    by_role_[static_cast<size_t>(layer_idx + 1)][static_cast<size_t>(row.role)] =
        static_cast<int>(weights_.size());
    weights_.push_back(make_weight(*tensor, row.role, layer_idx));
    used.insert(tensor->name);
  };

  for (const TensorRow& row : tensor_table()) {
    if (row.scope == TensorScope::kModel) {
      bind(row, -1);
    }
  }
  for (int layer_idx = 0; layer_idx < desc_.n_layers; ++layer_idx) {
    for (const TensorRow& row : tensor_table()) {
      if (tensor_belongs(row, arch, desc_.layers[static_cast<size_t>(layer_idx)])) {
        bind(row, layer_idx);
      }
    }
  }
  for (const GgufTensor& tensor : file_.tensors()) {
    const auto layer_idx = layer_of(tensor.name);
    const bool of_mtp_block = layer_idx && *layer_idx >= desc_.n_layers &&
                              *layer_idx < desc_.n_layers + desc_.n_mtp_layers;
    if (!of_mtp_block && !used.contains(tensor.name)) {
      throw Error(ErrorCode::kModelLoad,
                  fmt::format("{}: tensor {} {} is unknown to architecture {}; running without it "
                              "would be a different model",
                              file_.name(), tensor.name, format_shape(tensor.shape), desc_.arch));
    }
  }
}

const Weight* Model::find(Role role, int layer_idx) const {
  const int weight_idx = by_role_[static_cast<size_t>(layer_idx + 1)][static_cast<size_t>(role)];
  return weight_idx < 0 ? nullptr : &weights_[static_cast<size_t>(weight_idx)];
}

}  // namespace apr
