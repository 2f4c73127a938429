// Logits of a token sequence at chosen positions, on any backend.
#pragma once

#include <atomic>
#include <functional>
#include <set>
#include <span>
#include <vector>

#include "apr/backend.h"

namespace apr {

struct LogitRowCallbacks {
  // Each wanted position, ascending, with its logits [vocab_rows] f32.
  std::function<void(int64_t position, std::span<const float> logits)> on_row;
  std::function<void(int64_t done_tokens, int64_t total_tokens)> on_chunk;  // may be empty
};

// Runs `ids` after what the sequence holds, in chunks as large as the backend takes; `wanted`
// counts from the first of `ids`. Returns false when `cancel` became true.
bool run_logit_rows(Backend& backend, std::span<const TokenId> ids, const std::set<int64_t>& wanted,
                    const LogitRowCallbacks& callbacks, const std::atomic<bool>* cancel);

// n_ids ids in [0, n_tokens) that look random and are the same every time.
std::vector<TokenId> arbitrary_ids(int64_t n_tokens, int64_t n_ids);

}  // namespace apr
