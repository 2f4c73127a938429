#include "cpu/reference/ops.h"

#include <cmath>
#include <cstring>

namespace apr::cpu::reference {
namespace {

float sigmoid(float x) {
  return 1.0F / (1.0F + std::exp(-x));
}

double mean_square(const float* x, int64_t n_elems) {
  double sum = 0.0;
  for (int64_t elem = 0; elem < n_elems; ++elem) {
    sum += static_cast<double>(x[elem]) * x[elem];
  }
  return sum / static_cast<double>(n_elems);
}

float inverse_rms(const float* x, int64_t n_elems, float eps) {
  return static_cast<float>(1.0 / std::sqrt(mean_square(x, n_elems) + static_cast<double>(eps)));
}

}  // namespace

void embed(const EmbedArgs& args) {
  for (int64_t token = 0; token < args.n_tokens; ++token) {
    args.table.type->dequantize(args.table.row(args.ids[token]),
                                args.table.n_cols / args.table.type->block_elems,
                                args.y + token * args.table.n_cols);
  }
}

void rms_norm(const RmsNormArgs& args) {
  for (int64_t row = 0; row < args.n_rows; ++row) {
    const float* x = args.x + row * args.dim;
    const float scale = inverse_rms(x, args.dim, args.eps);
    for (int64_t elem = 0; elem < args.dim; ++elem) {
      args.y[row * args.dim + elem] = x[elem] * scale * args.weight[elem];
    }
  }
}

void split_heads(const SplitHeadsArgs& args) {
  const size_t head_bytes = static_cast<size_t>(args.head_dim) * sizeof(float);
  for (int64_t head = 0; head < args.n_tokens * args.n_heads; ++head) {
    const float* x = args.x + head * 2 * args.head_dim;
    std::memcpy(args.q + head * args.head_dim, x, head_bytes);
    std::memcpy(args.gate + head * args.head_dim, x + args.head_dim, head_bytes);
  }
}

void rope(const RopeArgs& args) {
  const int64_t n_pairs = args.n_rot / 2;
  for (int64_t token = 0; token < args.n_tokens; ++token) {
    const float position = static_cast<float>(args.first_position + token);
    for (int64_t head = 0; head < args.n_heads; ++head) {
      const int64_t offset = (token * args.n_heads + head) * args.head_dim;
      for (int64_t pair = 0; pair < n_pairs; ++pair) {
        const double angle = static_cast<double>(position * args.inv_freq[pair]);
        const float cos = static_cast<float>(std::cos(angle)) * args.magnitude;
        const float sin = static_cast<float>(std::sin(angle)) * args.magnitude;
        const float a = args.x[offset + pair], b = args.x[offset + pair + n_pairs];
        args.y[offset + pair] = a * cos - b * sin;
        args.y[offset + pair + n_pairs] = a * sin + b * cos;
      }
      for (int64_t elem = args.n_rot; elem < args.head_dim; ++elem) {
        args.y[offset + elem] = args.x[offset + elem];
      }
    }
  }
}

void sigmoid_gate(const BinaryArgs& args) {
  for (int64_t elem = 0; elem < args.n_elems; ++elem) {
    args.y[elem] = args.a[elem] * sigmoid(args.b[elem]);
  }
}

void add(const BinaryArgs& args) {
  for (int64_t elem = 0; elem < args.n_elems; ++elem) {
    args.y[elem] = args.a[elem] + args.b[elem];
  }
}

void swiglu(const BinaryArgs& args) {
  for (int64_t elem = 0; elem < args.n_elems; ++elem) {
    args.y[elem] = args.a[elem] * sigmoid(args.a[elem]) * args.b[elem];
  }
}

void conv1d(const Conv1dArgs& args) {
  const int64_t n_past = args.conv_kernel - 1;
  const auto input = [&](int64_t token, int64_t channel) {
    return token >= 0 ? args.x[token * args.n_channels + channel]
                      : args.window_in[channel * n_past + n_past + token];
  };
  for (int64_t channel = 0; channel < args.n_channels; ++channel) {
    const float* kernel = args.kernel + channel * args.conv_kernel;
    for (int64_t token = 0; token < args.n_tokens; ++token) {
      float sum = 0.0F;
      for (int64_t tap = 0; tap < args.conv_kernel; ++tap) {
        sum += kernel[tap] * input(token - n_past + tap, channel);
      }
      args.y[token * args.n_channels + channel] = sum * sigmoid(sum);
    }
    for (int64_t past = 0; past < n_past; ++past) {
      args.window_out[channel * n_past + past] = input(args.n_tokens - n_past + past, channel);
    }
  }
}

void l2_norm(const L2NormArgs& args) {
  for (int64_t token = 0; token < args.n_tokens; ++token) {
    for (int64_t head = 0; head < args.n_heads; ++head) {
      const float* x = args.x + token * args.row_stride + head * args.head_dim;
      float* y = args.y + (token * args.n_heads + head) * args.head_dim;
      const double sum = mean_square(x, args.head_dim) * static_cast<double>(args.head_dim);
      const float scale = static_cast<float>(1.0 / std::sqrt(sum + static_cast<double>(args.eps)));
      for (int64_t elem = 0; elem < args.head_dim; ++elem) {
        y[elem] = x[elem] * scale;
      }
    }
  }
}

void delta_gates(const DeltaGatesArgs& args) {
  for (int64_t token = 0; token < args.n_tokens; ++token) {
    for (int64_t head = 0; head < args.n_heads; ++head) {
      const int64_t elem = token * args.n_heads + head;
      const float x = args.alpha[elem] + args.dt_bias[head];
      const float softplus = x > 20.0F ? x : std::log1p(std::exp(x));
      args.decay[elem] = softplus * args.ssm_a[head];
      args.beta[elem] = sigmoid(args.beta_raw[elem]);
    }
  }
}

void delta_net(const DeltaNetArgs& args) {
  const int64_t dim = args.head_dim;
  const size_t state_bytes = static_cast<size_t>(args.n_v_heads * dim * dim) * sizeof(float);
  std::memcpy(args.state_out, args.state_in, state_bytes);
  for (int64_t token = 0; token < args.n_tokens; ++token) {
    for (int64_t head = 0; head < args.n_v_heads; ++head) {
      const int64_t k_head = head % args.n_k_heads;
      const float* q = args.q + (token * args.n_k_heads + k_head) * dim;
      const float* k = args.k + (token * args.n_k_heads + k_head) * dim;
      const float* v = args.v + token * args.v_stride + head * dim;
      const float keep = std::exp(args.decay[token * args.n_v_heads + head]);
      const float beta = args.beta[token * args.n_v_heads + head];
      for (int64_t row = 0; row < dim; ++row) {
        float* state = args.state_out + (head * dim + row) * dim;  // [head_dim (key)]
        float recalled = 0.0F;
        for (int64_t col = 0; col < dim; ++col) {
          state[col] *= keep;
          recalled += state[col] * k[col];
        }
        const float delta = (v[row] - recalled) * beta;
        float out = 0.0F;
        for (int64_t col = 0; col < dim; ++col) {
          state[col] += k[col] * delta;
          out += state[col] * q[col];
        }
        args.y[(token * args.n_v_heads + head) * dim + row] = out * args.scale;
      }
    }
  }
}

void gated_rms_norm(const GatedRmsNormArgs& args) {
  for (int64_t row = 0; row < args.n_rows; ++row) {
    const float* x = args.x + row * args.dim;
    const float* gate = args.gate + row * args.dim;
    const float scale = inverse_rms(x, args.dim, args.eps);
    for (int64_t elem = 0; elem < args.dim; ++elem) {
      args.y[row * args.dim + elem] =
          x[elem] * scale * args.weight[elem] * (gate[elem] * sigmoid(gate[elem]));
    }
  }
}

void row_gate(const RowGateArgs& args) {
  for (int64_t token = 0; token < args.n_tokens; ++token) {
    const float gate = sigmoid(args.g[token]);
    for (int64_t elem = 0; elem < args.dim; ++elem) {
      args.y[token * args.dim + elem] = args.x[token * args.dim + elem] * gate;
    }
  }
}

void take_rows(const TakeRowsArgs& args) {
  for (int64_t row = 0; row < args.n_rows; ++row) {
    std::memcpy(args.y + row * args.dim, args.x + args.rows[row] * args.dim,
                static_cast<size_t>(args.dim) * sizeof(float));
  }
}

}  // namespace apr::cpu::reference
