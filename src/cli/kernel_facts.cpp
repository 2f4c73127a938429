#include "cli/kernel_facts.h"

#include <fmt/format.h>

#include <cstdlib>

#include "apr/cuda.h"
#include "base/sha256.h"
#include "cli/load.h"

namespace apr::cli {
namespace {

std::string demo_sha256() {
  Sha256 sha;
  sha.add(demo_image());
  return sha.hex();
}

}  // namespace

std::string kernel_facts(const Backend& backend, const EngineOptions& engine) {
  std::string text = fmt::format("exact={} chunk={}", engine.exact ? 1 : 0, engine.prefill_chunk);
  if (const auto prefill = cuda::prefill_facts(backend)) {
    text += fmt::format(" path={} precision={}", prefill->path, prefill->precision);
  }
  if (const auto gemm = cuda::prefill_gemm_facts(backend)) {
    text += fmt::format(" gemm={}", gemm->ran);
  }
  for (const char* name : {"APR_QWEN35_PREFILL_ATTENTION", "APR_QWEN35_SESSION_PREFILL"}) {
    if (const char* value = std::getenv(name)) {
      text += fmt::format(" {}={}", name, value);
    }
  }
  return fmt::format("{} {}", text, cuda::toolchain());
}

ReceiptKey receipt_key(const Model& model, const std::string& name, const Backend& backend,
                       const EngineOptions& engine, const HashProgress& on_progress) {
  return {name == "demo" ? demo_sha256() : files_sha256(model.file().part_names(), on_progress),
          APR_VERSION, build_id(), backend.device_name(), kernel_facts(backend, engine)};
}

}  // namespace apr::cli
