// The GPU's dequantisation, for comparing it with the CPU's. No CUDA header needed.
#pragma once

#include <memory>
#include <set>

#include "model/tensor_decoder.h"

namespace apr::cuda {

// Decodes weights of `types` on device `ordinal`: as they lie for a model, uploaded by the same
// code ("planes"; "raw" of plain types), and block types also as in the file ("raw"). Compiles
// kernels. What no kernel writes reads as the bits kUnwrittenBits. Throws as use_device, and
// kBackendUnavailable.
std::unique_ptr<TensorDecoder> make_tensor_decoder(int ordinal,
                                                   const std::set<const QuantType*>& types);

constexpr uint32_t kUnwrittenBits = 0xffffffff;

}  // namespace apr::cuda
