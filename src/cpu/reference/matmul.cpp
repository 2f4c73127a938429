#include <cmath>
#include <vector>

#include "cpu/reference/ops.h"

namespace apr::cpu::reference {
namespace {

double dot(const float* a, const float* b, int64_t n_elems) {
  double sum = 0.0;
  for (int64_t elem = 0; elem < n_elems; ++elem) {
    sum += static_cast<double>(a[elem]) * b[elem];
  }
  return sum;
}

// One weight row, dequantised: [n_cols] f32.
void load_row(const MatrixRef& w, int64_t row, std::vector<float>& out) {
  out.resize(static_cast<size_t>(w.n_cols));
  w.type->dequantize(w.row(row), w.n_cols / w.type->block_elems, out.data());
}

// y[out_row] = w[expert] x for one activation row.
void matvec(const MatrixRef& w, int64_t expert, const float* x, std::vector<float>& row, float* y) {
  for (int64_t out_row = 0; out_row < w.n_rows; ++out_row) {
    load_row(w, expert * w.n_rows + out_row, row);
    y[out_row] = static_cast<float>(dot(row.data(), x, w.n_cols));
  }
}

}  // namespace

void matmul(const MatmulArgs& args) {
  std::vector<float> row;
  for (int64_t out_row = 0; out_row < args.w.n_rows; ++out_row) {
    load_row(args.w, out_row, row);
    for (int64_t token = 0; token < args.n_tokens; ++token) {
      const float sum =
          static_cast<float>(dot(row.data(), args.x + token * args.w.n_cols, args.w.n_cols));
      args.y[token * args.w.n_rows + out_row] =
          args.bias == nullptr ? sum : sum + args.bias[out_row];
    }
  }
}

void moe_route(const MoeRouteArgs& args) {
  std::vector<double> exps(static_cast<size_t>(args.n_experts));
  for (int64_t token = 0; token < args.n_tokens; ++token) {
    const float* logits = args.logits + token * args.n_experts;
    int32_t* ids = args.ids + token * args.n_used;
    float* weights = args.weights + token * args.n_used;
    float max_logit = logits[0];
    for (int64_t expert = 1; expert < args.n_experts; ++expert) {
      max_logit = std::fmax(max_logit, logits[expert]);
    }
    std::vector<bool> taken(static_cast<size_t>(args.n_experts), false);
    double sum = 0.0;
    for (int64_t slot = 0; slot < args.n_used; ++slot) {
      int64_t best = -1;
      for (int64_t expert = 0; expert < args.n_experts; ++expert) {
        if (!taken[static_cast<size_t>(expert)] && (best < 0 || logits[expert] > logits[best])) {
          best = expert;
        }
      }
      taken[static_cast<size_t>(best)] = true;
      ids[slot] = static_cast<int32_t>(best);
      exps[static_cast<size_t>(slot)] =
          std::exp(static_cast<double>(logits[best]) - static_cast<double>(max_logit));
      sum += exps[static_cast<size_t>(slot)];
    }
    for (int64_t slot = 0; slot < args.n_used; ++slot) {
      weights[slot] = static_cast<float>(exps[static_cast<size_t>(slot)] / sum);
    }
  }
}

void moe_ffn(const MoeFfnArgs& args) {
  const int64_t dim = args.gate.n_cols, ffn_dim = args.gate.n_rows;
  std::vector<float> row, gate(static_cast<size_t>(ffn_dim)), up(static_cast<size_t>(ffn_dim)),
      down(static_cast<size_t>(dim));
  for (int64_t token = 0; token < args.n_tokens; ++token) {
    const float* x = args.x + token * dim;
    float* y = args.y + token * dim;
    for (int64_t elem = 0; elem < dim; ++elem) {
      y[elem] = args.init == nullptr ? 0.0F : args.init[token * dim + elem];
    }
    for (int64_t slot = 0; slot < args.n_used; ++slot) {
      const int64_t expert = args.ids[token * args.n_used + slot];
      matvec(args.gate, expert, x, row, gate.data());
      matvec(args.up, expert, x, row, up.data());
      swiglu({gate.data(), up.data(), ffn_dim, gate.data()});
      matvec(args.down, expert, gate.data(), row, down.data());
      const float weight = args.weights[token * args.n_used + slot];
      for (int64_t elem = 0; elem < dim; ++elem) {
        y[elem] += weight * down[static_cast<size_t>(elem)];
      }
    }
  }
}

}  // namespace apr::cpu::reference
