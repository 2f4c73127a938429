#include "generate/exact_ops.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "apr/error.h"

namespace apr {
namespace {

using Doubles = std::vector<double>;

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

// Row `row` of input `idx`.
Doubles input_row(const ExactStep& step, size_t idx, int64_t row) {
  const ValueId id = step.op.inputs[idx];
  const int64_t n_elems = step.plan.values[static_cast<size_t>(id)].row_elems();
  const float* first = step.inputs[idx].data() + row * n_elems;
  return {first, first + n_elems};
}

Doubles weight_row(const Weight& weight, int64_t row_idx) {
  std::vector<float> row(static_cast<size_t>(weight.n_cols));
  weight.type->dequantize(weight.data + row_idx * weight.row_bytes,
                          weight.n_cols / weight.type->block_elems, row.data());
  return {row.begin(), row.end()};
}

double dot(const Doubles& a, const Doubles& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// w x of rows [first_row, first_row + weight.n_rows).
Doubles product(const Weight& weight, int64_t first_row, const Doubles& x) {
  Doubles y;
  for (int64_t row = 0; row < weight.n_rows; ++row) {
    y.push_back(dot(weight_row(weight, first_row + row), x));
  }
  return y;
}

Doubles matmul(const ExactStep& step, int64_t row) {
  Doubles y = product(*step.op.weights[0], 0, input_row(step, 0, row));
  if (const Weight* bias = step.op.weights[1]; bias != nullptr) {
    for (size_t idx = 0; idx < y.size(); ++idx) {
      y[idx] += static_cast<double>(bias->values[idx]);
    }
  }
  return y;
}

// Scales each group of group_elems: to unit RMS, or to unit length.
Doubles normed(Doubles x, int64_t group_elems, double eps, bool to_rms) {
  for (auto first = x.begin(); first != x.end(); first += group_elems) {
    double sum = std::inner_product(first, first + group_elems, first, 0.0);
    if (to_rms) {
      sum /= static_cast<double>(group_elems);
    }
    const double scale = 1.0 / std::sqrt(sum + eps);
    std::for_each(first, first + group_elems, [&](double& value) { value *= scale; });
  }
  return x;
}

Doubles rms_norm(const ExactStep& step, int64_t row) {
  const Op& op = step.op;
  Doubles y = normed(input_row(step, 0, row), op.head_dim, static_cast<double>(op.eps), true);
  for (size_t idx = 0; idx < y.size(); ++idx) {
    y[idx] *= static_cast<double>(op.weights[0]->values[idx % static_cast<size_t>(op.head_dim)]);
  }
  return y;
}

Doubles gated_rms_norm(const ExactStep& step, int64_t row) {
  Doubles y = rms_norm(step, row);
  const Doubles gate = input_row(step, 1, row);
  for (size_t idx = 0; idx < y.size(); ++idx) {
    y[idx] *= gate[idx] * sigmoid(gate[idx]);
  }
  return y;
}

Doubles rope(const ExactStep& step, int64_t row) {
  const RopeDesc& desc = step.plan.model->desc().rope;
  Doubles y = input_row(step, 0, row);
  const auto n_pairs = static_cast<size_t>(step.op.n_rot / 2);
  const float position = static_cast<float>(step.first_position + row);
  for (size_t head = 0; head < y.size(); head += static_cast<size_t>(step.op.head_dim)) {
    for (size_t pair = 0; pair < n_pairs; ++pair) {
      const double angle = static_cast<double>(position * desc.inv_freq[pair]);
      const double cos = std::cos(angle) * static_cast<double>(desc.magnitude);
      const double sin = std::sin(angle) * static_cast<double>(desc.magnitude);
      const double a = y[head + pair], b = y[head + pair + n_pairs];
      y[head + pair] = a * cos - b * sin;
      y[head + pair + n_pairs] = a * sin + b * cos;
    }
  }
  return y;
}

Doubles attention(const ExactStep& step, int64_t row) {
  const Op& op = step.op;
  const Doubles q = input_row(step, 0, row);
  const auto dim = static_cast<size_t>(op.head_dim);
  const auto kv_dim = static_cast<size_t>(op.n_kv_heads) * dim;
  const auto n_keys = static_cast<size_t>(step.first_position + row + 1);
  Doubles y(q.size(), 0.0), scores(n_keys);
  for (size_t head = 0; head < static_cast<size_t>(op.n_heads); ++head) {
    const size_t offset = head / static_cast<size_t>(op.n_heads / op.n_kv_heads) * dim;
    for (size_t key = 0; key < n_keys; ++key) {
      const auto k = step.keys.subspan(key * kv_dim + offset, dim);
      scores[key] = static_cast<double>(op.scale) *
                    std::inner_product(k.begin(), k.end(), &q[head * dim], 0.0);
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double total = 0.0;
    for (size_t key = 0; key < n_keys; ++key) {
      const double weight = std::exp(scores[key] - largest);
      total += weight;
      for (size_t elem = 0; elem < dim; ++elem) {
        y[head * dim + elem] +=
            weight * static_cast<double>(step.values[key * kv_dim + offset + elem]);
      }
    }
    for (size_t elem = 0; elem < dim; ++elem) {
      y[head * dim + elem] /= total;
    }
  }
  return y;
}

template <class Function>
Doubles elementwise(const ExactStep& step, int64_t row, const Function& function) {
  const Doubles a = input_row(step, 0, row), b = input_row(step, 1, row);
  Doubles y(a.size());
  std::transform(a.begin(), a.end(), b.begin(), y.begin(), function);
  return y;
}

// The window's columns are the inputs before row 0, oldest first.
Doubles conv1d(const ExactStep& step, int64_t row) {
  const Weight& kernel = *step.op.weights[0];  // [n_channels, taps]
  const auto taps = static_cast<size_t>(kernel.n_cols), n_past = taps - 1;
  const auto n_channels = static_cast<size_t>(kernel.n_rows);
  Doubles y(n_channels);
  for (size_t channel = 0; channel < n_channels; ++channel) {
    double sum = 0.0;
    for (size_t tap = 0; tap < taps; ++tap) {
      const int64_t token = row - static_cast<int64_t>(n_past) + static_cast<int64_t>(tap);
      const float x = token >= 0 ? step.inputs[0][static_cast<size_t>(token) * n_channels + channel]
                                 : step.state[channel * n_past + static_cast<size_t>(row) + tap];
      sum += static_cast<double>(kernel.values[channel * taps + tap]) * static_cast<double>(x);
    }
    y[channel] = sum * sigmoid(sum);
  }
  return y;
}

Doubles l2_norm(const ExactStep& step, size_t out_idx, int64_t row) {
  const Doubles qkv = input_row(step, 0, row);
  const int64_t part = step.op.n_heads * step.op.head_dim;
  const auto first = qkv.begin() + static_cast<int64_t>(out_idx) * part;
  return normed({first, first + part}, step.op.head_dim, static_cast<double>(step.op.eps), false);
}

Doubles delta_gates(const ExactStep& step, size_t out_idx, int64_t row) {
  Doubles y = input_row(step, out_idx, row);
  for (size_t head = 0; head < y.size(); ++head) {
    if (out_idx == 1) {
      y[head] = sigmoid(y[head]);
      continue;
    }
    const double x = y[head] + static_cast<double>(step.op.weights[0]->values[head]);
    y[head] = (x > 20.0 ? x : std::log1p(std::exp(x))) *
              static_cast<double>(step.op.weights[1]->values[head]);
  }
  return y;
}

// The recurrence over all rows up to `row`.
Doubles delta_net(const ExactStep& step, int64_t row) {
  const Op& op = step.op;
  const auto dim = static_cast<size_t>(op.head_dim);
  const auto n_heads = static_cast<size_t>(op.n_heads),
             n_k_heads = static_cast<size_t>(op.n_kv_heads);
  Doubles state(step.state.begin(), step.state.end());  // [n_heads, dim (value), dim (key)]
  Doubles y(n_heads * dim);
  for (int64_t token = 0; token <= row; ++token) {
    const Doubles q = input_row(step, 0, token), k = input_row(step, 1, token);
    const Doubles qkv = input_row(step, 2, token);
    const Doubles decay = input_row(step, 3, token), beta = input_row(step, 4, token);
    for (size_t head = 0; head < n_heads; ++head) {
      const size_t k_first = head % n_k_heads * dim;
      for (size_t idx = 0; idx < dim; ++idx) {
        double* s = &state[(head * dim + idx) * dim];
        double recalled = 0.0, out = 0.0;
        for (size_t col = 0; col < dim; ++col) {
          s[col] *= std::exp(decay[head]);
          recalled += s[col] * k[k_first + col];
        }
        const double v = qkv[2 * n_k_heads * dim + head * dim + idx];
        const double delta = (v - recalled) * beta[head];
        for (size_t col = 0; col < dim; ++col) {
          s[col] += k[k_first + col] * delta;
          out += s[col] * q[k_first + col];
        }
        y[head * dim + idx] = out * static_cast<double>(op.scale);
      }
    }
  }
  return y;
}

Doubles moe_weights(const ExactStep& step, int64_t row) {
  Doubles logits = input_row(step, 0, row);
  std::sort(logits.begin(), logits.end(), std::greater<>());
  Doubles weights;
  for (int64_t used = 0; used < step.op.n_used; ++used) {
    weights.push_back(std::exp(logits[static_cast<size_t>(used)] - logits[0]));
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::for_each(weights.begin(), weights.end(), [&](double& weight) { weight /= total; });
  return weights;
}

Doubles moe_ffn(const ExactStep& step, int64_t row) {
  const Op& op = step.op;
  const Doubles x = input_row(step, 0, row), weights = input_row(step, 2, row);
  const auto* ids = reinterpret_cast<const int32_t*>(step.inputs[1].data()) + row * op.n_used;
  const Weight &gate_w = *op.weights[0], &up_w = *op.weights[1], &down_w = *op.weights[2];
  Doubles y = op.inputs.size() > 3 ? input_row(step, 3, row) : Doubles(x.size(), 0.0);
  for (size_t used = 0; used < static_cast<size_t>(op.n_used); ++used) {
    Doubles act = product(gate_w, ids[used] * gate_w.n_rows, x);
    const Doubles up = product(up_w, ids[used] * up_w.n_rows, x);
    for (size_t idx = 0; idx < act.size(); ++idx) {
      act[idx] *= sigmoid(act[idx]) * up[idx];
    }
    const Doubles down = product(down_w, ids[used] * down_w.n_rows, act);
    for (size_t idx = 0; idx < y.size(); ++idx) {
      y[idx] += weights[used] * down[idx];
    }
  }
  return y;
}

Doubles split_heads(const ExactStep& step, size_t out_idx, int64_t row) {
  const Doubles x = input_row(step, 0, row);
  Doubles y;
  for (int64_t head = 0; head < step.op.n_heads; ++head) {
    const auto first = x.begin() + (2 * head + static_cast<int64_t>(out_idx)) * step.op.head_dim;
    y.insert(y.end(), first, first + step.op.head_dim);
  }
  return y;
}

}  // namespace

std::vector<double> exact_row(const ExactStep& step, size_t out_idx, int64_t row) {
  switch (step.op.kind) {
    case OpKind::kEmbed:
      return weight_row(*step.op.weights[0], step.ids[static_cast<size_t>(row)]);
    case OpKind::kRmsNorm:
      return rms_norm(step, row);
    case OpKind::kMatmul:
      return matmul(step, row);
    case OpKind::kSplitHeads:
      return split_heads(step, out_idx, row);
    case OpKind::kRope:
      return rope(step, row);
    case OpKind::kKvAppend:
      return input_row(step, out_idx, row);
    case OpKind::kAttention:
      return attention(step, row);
    case OpKind::kSigmoidGate:
      return elementwise(step, row, [](double x, double gate) { return x * sigmoid(gate); });
    case OpKind::kAdd:
      return elementwise(step, row, std::plus<>());
    case OpKind::kSwiglu:
      return elementwise(step, row,
                         [](double gate, double up) { return gate * sigmoid(gate) * up; });
    case OpKind::kConv1d:
      return conv1d(step, row);
    case OpKind::kL2Norm:
      return l2_norm(step, out_idx, row);
    case OpKind::kDeltaGates:
      return delta_gates(step, out_idx, row);
    case OpKind::kDeltaNet:
      return delta_net(step, row);
    case OpKind::kGatedRmsNorm:
      return gated_rms_norm(step, row);
    case OpKind::kMoeRoute:
      return out_idx == 1 ? moe_weights(step, row) : Doubles();
    case OpKind::kMoeFfn:
      return moe_ffn(step, row);
    case OpKind::kRowGate: {
      Doubles y = input_row(step, 0, row);
      const double gate = sigmoid(input_row(step, 1, row)[0]);
      std::for_each(y.begin(), y.end(), [&](double& value) { value *= gate; });
      return y;
    }
    case OpKind::kTakeRows:
      return input_row(step, 0, step.logit_rows[static_cast<size_t>(row)]);
  }
  APR_CHECK(false, "a kind of op");
}

}  // namespace apr
