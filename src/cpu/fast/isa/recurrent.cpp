// The ops that carry a state from token to token.
#include "cpu/fast/isa/math.h"
#include "cpu/fast/isa/ops.h"
#include "cpu/fast/scratch.h"

namespace apr::cpu::fast::APR_CPU_ISA {
namespace {

constexpr int kConvChannels = 128;  // of one task
constexpr int kStateRows = 32;      // of one task: 32 x 128 f32 stay in the first-level cache

// Convolution of channels [begin, end): taps and window are turned to [tap, channel] first.
void conv_channels(const Conv1dArgs& args, int64_t begin, int64_t end) {
  const int64_t n_taps = args.conv_kernel, n_past = n_taps - 1, n_channels = end - begin;
  auto* taps = static_cast<float*>(
      scratch(ScratchUse::kTask, (n_taps + n_past) * kConvChannels * int64_t{sizeof(float)}));
  float* window = taps + n_taps * kConvChannels;  // [n_past, kConvChannels], oldest first
  for (int64_t channel = 0; channel < n_channels; ++channel) {
    for (int64_t tap = 0; tap < n_taps; ++tap) {
      taps[tap * kConvChannels + channel] = args.kernel[(begin + channel) * n_taps + tap];
    }
    for (int64_t past = 0; past < n_past; ++past) {
      window[past * kConvChannels + channel] = args.window_in[(begin + channel) * n_past + past];
    }
  }
  const auto input = [&](int64_t token) {
    return token >= 0 ? args.x + token * args.n_channels + begin
                      : window + (n_past + token) * kConvChannels;
  };
  for (int64_t token = 0; token < args.n_tokens; ++token) {
    float* y = args.y + token * args.n_channels + begin;
    for (int64_t channel = 0; channel < n_channels; channel += kLanes) {
      const int64_t n = n_channels - channel;
      const auto part = [&](const float* from) __attribute__((always_inline)) {
        return n >= kLanes ? load(from + channel) : load_first(from + channel, n);
      };
      Vec sum = zero();
      for (int64_t tap = 0; tap < n_taps; ++tap) {
        sum = hn::MulAdd(load(taps + tap * kConvChannels + channel),
                         part(input(token - n_past + tap)), sum);
      }
      const Vec result = silu(sum);
      if (n >= kLanes) {
        store(result, y + channel);
      } else {
        store_first(result, y + channel, n);
      }
    }
  }
  for (int64_t past = 0; past < n_past; ++past) {
    const float* from = input(args.n_tokens - n_past + past);
    for (int64_t channel = 0; channel < n_channels; ++channel) {
      args.window_out[(begin + channel) * n_past + past] = from[channel];
    }
  }
}

// One token for kRows rows of a head's state: y = scale * S q after S = keep S + delta k^T.
// state: [kRows, dim]; v, y: [kRows].
template <int kRows>
APR_ALWAYS_INLINE void delta_rows(float* state, int64_t dim, const float* q, const float* k,
                                  const float* v, float keep, float beta, float scale, float* y) {
  const Vec keep_vec = broadcast(keep);
  Vec sum[4] = {zero(), zero(), zero(), zero()};
  int64_t col = 0;
  for (; col + kLanes <= dim; col += kLanes) {
    const Vec k_vec = load(k + col);
    for (int r = 0; r < kRows; ++r) {
      const Vec kept = hn::Mul(load(state + r * dim + col), keep_vec);
      store(kept, state + r * dim + col);
      sum[r] = hn::MulAdd(kept, k_vec, sum[r]);
    }
  }
  const int64_t n_last = dim - col;
  for (int r = 0; n_last > 0 && r < kRows; ++r) {
    float* last = state + r * dim + col;
    const Vec kept = hn::Mul(load_first(last, n_last), keep_vec);
    store_first(kept, last, n_last);
    sum[r] = hn::MulAdd(kept, load_first(k + col, n_last), sum[r]);
  }
  float recalled[4];
  hn::StoreU(sum_lanes4(sum[0], sum[1], sum[2], sum[3]), kQuad, recalled);

  Vec delta[kRows];
  for (int r = 0; r < kRows; ++r) {
    delta[r] = broadcast((v[r] - recalled[r]) * beta);
    sum[r] = zero();
  }
  for (col = 0; col + kLanes <= dim; col += kLanes) {
    const Vec k_vec = load(k + col), q_vec = load(q + col);
    for (int r = 0; r < kRows; ++r) {
      const Vec next = hn::MulAdd(k_vec, delta[r], load(state + r * dim + col));
      store(next, state + r * dim + col);
      sum[r] = hn::MulAdd(next, q_vec, sum[r]);
    }
  }
  for (int r = 0; n_last > 0 && r < kRows; ++r) {
    float* last = state + r * dim + col;
    const Vec next = hn::MulAdd(load_first(k + col, n_last), delta[r], load_first(last, n_last));
    store_first(next, last, n_last);
    sum[r] = hn::MulAdd(next, load_first(q + col, n_last), sum[r]);
  }
  float out[4];
  hn::StoreU(sum_lanes4(sum[0], sum[1], sum[2], sum[3]), kQuad, out);
  for (int r = 0; r < kRows; ++r) {
    y[r] = out[r] * scale;
  }
}

// All tokens for rows [begin, end) of value head `head`.
void delta_state_rows(const DeltaNetArgs& args, int64_t head, int64_t begin, int64_t end) {
  const int64_t dim = args.head_dim, k_head = head % args.n_k_heads;
  float* state = args.state_out + (head * dim + begin) * dim;
  std::memcpy(state, args.state_in + (head * dim + begin) * dim,
              static_cast<size_t>((end - begin) * dim) * sizeof(float));
  for (int64_t token = 0; token < args.n_tokens; ++token) {
    const float* q = args.q + (token * args.n_k_heads + k_head) * dim;
    const float* k = args.k + (token * args.n_k_heads + k_head) * dim;
    const float* v = args.v + token * args.v_stride + head * dim;
    const float keep = __builtin_expf(args.decay[token * args.n_v_heads + head]);
    const float beta = args.beta[token * args.n_v_heads + head];
    float* y = args.y + (token * args.n_v_heads + head) * dim;
    int64_t row = begin;
    for (; row + 4 <= end; row += 4) {
      delta_rows<4>(state + (row - begin) * dim, dim, q, k, v + row, keep, beta, args.scale,
                    y + row);
    }
    for (; row < end; ++row) {
      delta_rows<1>(state + (row - begin) * dim, dim, q, k, v + row, keep, beta, args.scale,
                    y + row);
    }
  }
}

}  // namespace

void conv1d(const Conv1dArgs& args, ThreadPool& pool) {
  const auto task = [&](int64_t task_idx) {
    const int64_t begin = task_idx * kConvChannels;
    const int64_t end = begin + kConvChannels;
    conv_channels(args, begin, end < args.n_channels ? end : args.n_channels);
  };
  pool.run((args.n_channels + kConvChannels - 1) / kConvChannels, task);
}

void delta_net(const DeltaNetArgs& args, ThreadPool& pool) {
  const int64_t n_parts = (args.head_dim + kStateRows - 1) / kStateRows;
  const auto task = [&](int64_t task_idx) {
    const int64_t begin = task_idx % n_parts * kStateRows;
    const int64_t end = begin + kStateRows;
    delta_state_rows(args, task_idx / n_parts, begin, end < args.head_dim ? end : args.head_dim);
  };
  pool.run(args.n_v_heads * n_parts, task);
}

}  // namespace apr::cpu::fast::APR_CPU_ISA
