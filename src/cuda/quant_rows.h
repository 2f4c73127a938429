// Rows of the kernel table that exist once for each quant type.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cuda/kernel_table.h"

namespace apr::cuda {

// "dequant.Q4_K.planes.f16", "absmax.Q4_K", "embed.Q4_K", "matvec_fma.Q4_K",
// "matvec_fma.Q4_K.swiglu", "matvec_mma.Q4_K", "matvec_mma.Q4_K.swiglu", "moe_fma.Q4_K",
// "moe_gemm.Q4_K", "moe_matvec.Q4_K", "moe_matvec.Q4_K.swiglu", ...
std::vector<KernelRow> quant_kernel_rows();

// Whether there is a row matvec_pair.<first>.<second>.
bool has_matvec_pair(std::string_view first, std::string_view second);

}  // namespace apr::cuda
