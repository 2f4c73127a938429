// GGUF keys -> ModelDesc.
#pragma once

#include "apr/model.h"
#include "model/arch.h"

namespace apr {

// Reads every dimension of `file`. Throws kModelLoad / kInvalidFormat naming the key, the value and
// what is allowed.
ModelDesc read_model_desc(const GgufFile& file, const ArchRow& arch);

// Inverse frequencies and magnitude of `rope`, in f64, rounded to f32 once. Linear scaling divides
// by factor; YaRN mixes both by a ramp over the pairs (Peng et al. 2023, arXiv:2309.00071, section
// 3).
void compute_rope_frequencies(RopeDesc& rope);

}  // namespace apr
