#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/reference/ops.h"

namespace apr::cpu::reference {

void kv_append(const KvAppendArgs& args) {
  const size_t size_bytes = static_cast<size_t>(args.n_tokens * args.kv_dim) * sizeof(float);
  std::memcpy(args.k_cache + args.first_position * args.kv_dim, args.k, size_bytes);
  std::memcpy(args.v_cache + args.first_position * args.kv_dim, args.v, size_bytes);
}

void attention(const AttentionArgs& args) {
  const int64_t dim = args.head_dim, kv_dim = args.n_kv_heads * dim;
  const int64_t group = args.n_heads / args.n_kv_heads;
  std::vector<double> scores;
  std::vector<double> sum(static_cast<size_t>(dim));
  for (int64_t token = 0; token < args.n_tokens; ++token) {
    const int64_t n_keys = args.first_position + token + 1;
    scores.resize(static_cast<size_t>(n_keys));
    for (int64_t head = 0; head < args.n_heads; ++head) {
      const float* q = args.q + (token * args.n_heads + head) * dim;
      const int64_t kv_offset = head / group * dim;
      for (int64_t key = 0; key < n_keys; ++key) {
        const float* k = args.k_cache + key * kv_dim + kv_offset;
        double dot = 0.0;
        for (int64_t elem = 0; elem < dim; ++elem) {
          dot += static_cast<double>(q[elem]) * k[elem];
        }
        scores[static_cast<size_t>(key)] = dot * static_cast<double>(args.scale);
      }
      const double max_score = *std::max_element(scores.begin(), scores.end());
      double weight_sum = 0.0;
      std::fill(sum.begin(), sum.end(), 0.0);
      for (int64_t key = 0; key < n_keys; ++key) {
        const float* v = args.v_cache + key * kv_dim + kv_offset;
        const double weight = std::exp(scores[static_cast<size_t>(key)] - max_score);
        weight_sum += weight;
        for (int64_t elem = 0; elem < dim; ++elem) {
          sum[static_cast<size_t>(elem)] += weight * static_cast<double>(v[elem]);
        }
      }
      float* y = args.y + (token * args.n_heads + head) * dim;
      for (int64_t elem = 0; elem < dim; ++elem) {
        y[elem] = static_cast<float>(sum[static_cast<size_t>(elem)] / weight_sum);
      }
    }
  }
}

}  // namespace apr::cpu::reference
