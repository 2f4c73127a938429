// The CUDA backend, as the rest of the program makes it. No CUDA header needed; in a build without
// CUDA these functions throw kFeatureDisabled.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "apr/backend.h"
#include "apr/fit.h"

namespace apr::cuda {

// The products of a prefill: 16-bit operands with f32 sums; f32; 8-bit activations with Q4_K; E4M3
// operands with f32 sums, 16-bit ones for the head and where a matrix does not take E4M3.
enum class PrefillGemm { kF16, kF32, kDp4a, kFp8 };

// Attention of a prefill: flash with an f16 cache, or f32 products with an f32 cache.
enum class PrefillAttention { kFlash, kF32 };

struct CudaBackendOptions {
  int device = 0;
  int64_t context = 0;        // positions; 0: the model's
  int64_t prefill_chunk = 0;  // rows of one forward; 0: 2048, or less where the context is
  int64_t max_logit_rows = 1;
  bool exact = false;  // f32 products and cache, kernels in the reference's order of sums
  bool graphs = true;  // false: the kernels of a step are launched one by one
  // none: APR_QWEN35_PREFILL_GEMM, else f16, and fp8 in place of f16 where FP8_PREFILL=1; fp8: as
  // with FP8_PREFILL=1
  std::optional<PrefillGemm> prefill_gemm = {};
  // none: APR_QWEN35_PREFILL_ATTENTION, else flash; exact mode is f32
  std::optional<PrefillAttention> prefill_attention = {};
  std::optional<PrefillPath> prefill_path = {};  // none: BATCHED_PREFILL, else memory decides
  bool fp8_prefill_off = false;  // FP8_PREFILL is not followed: a guard refused what it gave
  // Memory of the card that is decided for; 0: the real one's. The decision sees no more free
  // memory than such a card has.
  uint64_t vram_bytes = 0;
  // Few tokens of a prefill are multiplied straight from quants wherever that can be, not where it
  // is faster.
  bool few_tokens_always = false;
};

// What of `model` has no kernel on the GPU: "blk.0.ffn_moe (moe_ffn, layer 0) has no GPU kernel
// yet"; nothing where all has. Looks at no device.
std::optional<std::string> missing_kernel(const Model& model, const CudaBackendOptions& options);

// The backend for `model`, which must outlive it, on device `options.device`: compiles kernels and
// uploads. Throws kBackendUnavailable: the device is not ready, a kernel is missing, memory is out.
std::unique_ptr<Backend> make_cuda_backend(const Model& model, const CudaBackendOptions& options);

// What a backend's prefill products were asked to run, what they run, and why that differs (empty:
// it does not), by the names of APR_QWEN35_PREFILL_GEMM, and fp8; `tier`: what multiplies how many
// tokens, where that is not one for all.
struct PrefillGemmFacts {
  std::string requested, ran, reason, tier = {};
};

// Nothing where `backend` is not of a GPU.
std::optional<PrefillGemmFacts> prefill_gemm_facts(const Backend& backend);

// Which prefill a backend runs and why; what decided.
struct PrefillFacts {
  std::string path, precision, reason;  // "batched", "f16", ...
  uint64_t need_bytes = 0, free_bytes = 0, planned_bytes = 0;
  int64_t chunk = 0;  // rows of a forward
};

// Nothing where `backend` is not of a GPU.
std::optional<PrefillFacts> prefill_facts(const Backend& backend);

// Who makes the machine code of kernels: "NVRTC 13.0, driver for CUDA 13.0"; "" without CUDA.
std::string toolchain();

// What a device reaches, measured.
struct DeviceSpeed {
  double bytes_per_s = 0.0;  // read and written together by a copy of 512 MiB on the device
  double flops_per_s = 0.0;  // of cuBLAS: f16 matrices of 8192 x 8192, sums in f32
};

// Takes 1 GiB of device memory for as long as it runs. Throws kBackendUnavailable.
DeviceSpeed measure_speed(int device);

}  // namespace apr::cuda
