// What is said when no token can be chosen, wherever that was found.
#pragma once

#include "apr/backend.h"

namespace apr {

// Throws kInference. n_tokens: of the vocabulary; step: index of the token being chosen.
[[noreturn]] void throw_logit_fault(const LogitFault& fault, int64_t n_tokens, int64_t step);

}  // namespace apr
