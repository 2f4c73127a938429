// The rules of the fit as checks that say what is wrong, so that planted faults can be seen by
// them.
#pragma once

#include <fmt/format.h>

#include <string>

#include "apr/fit.h"

namespace apr::test {

// What the walk must find, from the names and types in the file alone.
inline std::string walk_difference(const Model& model) {
  const GgufFile& file = model.file();
  uint64_t weights_bytes = 0, n_elems = 0;
  int64_t n_matrices = 0;
  bool has_head = false;
  for (const GgufTensor& tensor : file.tensors()) {
    has_head = has_head || tensor.name == "output.weight";
  }
  for (const GgufTensor& tensor : file.tensors()) {
    const std::string name(tensor.name);
    if (tensor.shape.size() < 2 || name.find("ssm_conv1d") != name.npos ||
        (name.starts_with("token_embd") && has_head)) {
      continue;
    }
    ++n_matrices;
    weights_bytes += tensor.data.size();
    uint64_t product = 1;
    for (const int64_t axis : tensor.shape) {
      product *= static_cast<uint64_t>(axis);
    }
    n_elems += product;
  }
  const ResidentEstimate found = resident_estimate(model, 2);
  return found.n_matrices == n_matrices && found.weights_bytes == weights_bytes &&
                 found.n_elems == n_elems
             ? ""
             : fmt::format("{}: {} matrices, {} bytes, {} elements; found {}, {}, {}", file.name(),
                           n_matrices, weights_bytes, n_elems, found.n_matrices,
                           found.weights_bytes, found.n_elems);
}

// The terms of a model worked out by hand: 10 elements of 7 bytes, 3 bytes a position.
inline std::string need_difference() {
  const ResidentEstimate estimate{1, 7, 10, 3};
  const PrefillNeed need = prefill_need(estimate, 2, 5);
  const uint64_t expected = 7 + 10 * 2 + 3 * 5 + 4'573'741'824;
  if (need.total_bytes() == expected) {
    return "";
  }
  return fmt::format("need is {}, expected {}", need.total_bytes(), expected);
}

// need == free fits; one byte less does not.
inline std::string boundary_difference() {
  const bool at = serial_when_fp16_prefill_does_not_fit(true, {}, 1000, 1000);
  const bool above = serial_when_fp16_prefill_does_not_fit(true, {}, 1001, 1000);
  return !at && above ? "" : fmt::format("serial at need == free: {}, above: {}", at, above);
}

}  // namespace apr::test
