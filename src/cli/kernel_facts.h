// What a receipt is for: the model's bytes, the program, the card, and the kernels that run.
#pragma once

#include <string>

#include "apr/backend.h"
#include "cli/file_hash.h"
#include "cli/options.h"
#include "cli/receipt.h"

namespace apr::cli {

// All that decides which kernels a run takes, in one line: precision and path of the prefill,
// variables that change them, and who compiles.
std::string kernel_facts(const Backend& backend, const EngineOptions& engine);

// The key of a model on a backend; reads the whole file where its hash is not known. `name`: as
// the user gave it. Throws as file_sha256.
ReceiptKey receipt_key(const Model& model, const std::string& name, const Backend& backend,
                       const EngineOptions& engine, const HashProgress& on_progress);

}  // namespace apr::cli
