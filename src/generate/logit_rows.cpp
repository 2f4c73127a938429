#include "generate/logit_rows.h"

#include <algorithm>

namespace apr {

bool run_logit_rows(Backend& backend, std::span<const TokenId> ids, const std::set<int64_t>& wanted,
                    const LogitRowCallbacks& callbacks, const std::atomic<bool>* cancel) {
  const auto n_ids = static_cast<int64_t>(ids.size());
  const auto vocab_rows = static_cast<size_t>(backend.desc().vocab_rows);
  std::vector<float> logits;  // [rows.size(), vocab_rows] f32
  std::vector<int64_t> rows;  // indices into the chunk
  for (int64_t done = 0; done < n_ids;) {
    // A chunk ends early where it would ask for more logits than fit.
    int64_t n_rows = std::min(backend.max_rows(), n_ids - done);
    rows.clear();
    for (auto it = wanted.lower_bound(done); it != wanted.end() && *it < done + n_rows; ++it) {
      if (static_cast<int64_t>(rows.size()) == backend.max_logit_rows()) {
        n_rows = *it - done;
        break;
      }
      rows.push_back(*it - done);
    }
    logits.resize(rows.size() * vocab_rows);
    if (!backend.forward(ids.subspan(static_cast<size_t>(done), static_cast<size_t>(n_rows)), rows,
                         logits, cancel)) {
      return false;
    }
    for (size_t idx = 0; idx < rows.size(); ++idx) {
      callbacks.on_row(done + rows[idx], std::span(logits).subspan(idx * vocab_rows, vocab_rows));
    }
    done += n_rows;
    if (callbacks.on_chunk) {
      callbacks.on_chunk(done, n_ids);
    }
  }
  return true;
}

std::vector<TokenId> arbitrary_ids(int64_t n_tokens, int64_t n_ids) {
  std::vector<TokenId> ids;
  uint64_t word = 299792458;
  for (int64_t idx = 0; idx < n_ids; ++idx) {
    // Knuth's MMIX generator; its upper bits are the good ones.
    word = word * 6364136223846793005U + 1442695040888963407U;
    ids.push_back(static_cast<TokenId>((word >> 33) % static_cast<uint64_t>(n_tokens)));
  }
  return ids;
}

}  // namespace apr
