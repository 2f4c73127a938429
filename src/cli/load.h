// Opens a model and puts it on the backend asked for.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>

#include "apr/backend.h"
#include "apr/error.h"
#include "apr/model.h"
#include "cli/options.h"
#include "cuda/device.h"

namespace apr::cli {

// What was asked, what runs and why: printed once and part of every JSON answer.
struct BackendChoice {
  std::string requested;  // "gpu", "cpu", "default"
  std::string ran;        // "gpu", "cpu"
  std::string reason;
  int device = 0;              // of the GPU
  bool gpu_was_tried = false;  // and left, where the CPU ran
  bool used_gpu() const { return ran == "gpu"; }
  // Only a forced backend can fall back; one that is not forced runs where it says.
  bool fell_back() const { return requested == "gpu" && !used_gpu(); }
  nlohmann::ordered_json to_json() const;
};

// A forced backend that could not run: nothing did. `choice.reason` is the message.
class RefusedBackend : public Error {
 public:
  // `parity`: what the gates found, where they did.
  RefusedBackend(ErrorCode code, const std::string& message, nlohmann::ordered_json parity = {})
      : Error(code, message), choice_{"gpu", "none", message}, parity_(std::move(parity)) {}
  const BackendChoice& choice() const { return choice_; }
  const nlohmann::ordered_json& parity() const { return parity_; }

 private:
  BackendChoice choice_;
  nlohmann::ordered_json parity_;
};

// Decides before any file is touched. `check_gpu` answers whether a GPU can be used; it is not
// called where the CPU is asked for. Throws kUsage for flags that contradict each other; for a
// forced GPU RefusedBackend with the code of what is missing (kFeatureDisabled,
// kBackendUnavailable) with the remedy.
BackendChoice choose_backend(const BackendOptions& options,
                             const std::function<cuda::Readiness()>& check_gpu);

// The same for this machine.
BackendChoice choose_backend(const BackendOptions& options);

// The GGUF file of a MODEL argument; "demo" is the model inside the program. Throws as
// GgufFile::open, kUsage for a URL.
GgufFile open_model_file(const std::string& model);

// The bytes of the model inside the program.
std::span<const std::byte> demo_image();

// Throws kUsage for a --context above the model's.
void check_context(const Model& model, int64_t context);

// A backend for `model` (which must outlive it) with `context` positions. Where the GPU that
// nothing but a default chose cannot run the model, `choice` becomes the CPU and says why. Throws
// kUsage for a context above the model's, RefusedBackend (kBackendUnavailable) where a forced GPU
// cannot.
std::unique_ptr<Backend> make_backend(const Model& model, const EngineOptions& engine,
                                      BackendChoice& choice, int64_t context,
                                      int64_t max_logit_rows);

// The same on the CPU, whatever was chosen.
std::unique_ptr<Backend> make_cpu(const Model& model, const EngineOptions& engine, int64_t context,
                                  int64_t max_logit_rows, KernelSet kernels = KernelSet::kFast);

// {"requested", "ran", "reason", "tier"} of the products of a GPU's prefill; null of the CPU.
nlohmann::ordered_json prefill_gemm_json(const Backend& backend);

// {"path", "precision", "reason", "need_bytes", "free_bytes", "planned_bytes", "chunk"} of a GPU's
// prefill; null of the CPU.
nlohmann::ordered_json prefill_json(const Backend& backend);

// Says once on stderr which backend runs and why.
void announce(const BackendChoice& choice, const Backend& backend);

}  // namespace apr::cli
