// The texts of kernels/, inside the program: a virtual include tree for NVRTC.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace apr::cuda {

struct KernelSource {
  std::string_view path;  // relative to kernels/: "quant/q4_k.cuh"; includes name files so
  std::string_view text;
};

// Every file of kernels/, ascending by path.
std::span<const KernelSource> embedded_sources();

// `path` and what it includes with quotes, directly or not, each once: `path` first, then
// ascending. Conditions are not looked at. Throws kGeneric for a file that is not in `sources`.
std::vector<KernelSource> with_includes(std::span<const KernelSource> sources,
                                        std::string_view path);

}  // namespace apr::cuda
