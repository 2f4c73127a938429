// Blocks of a kernel on the host: every thread is a fiber, threads meet at barriers and in what a
// warp does together. Kernels are compiled as they are, with the headers beside this one over those
// of kernels/ (tests/CMakeLists.txt). One block runs at a time, and copies are done at once: what
// depends on the order of threads between barriers is not found here.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(uint32_t x, uint32_t y) {
  return {x, y};
}
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
  return {x, y, z, w};
}

namespace apr::simt {

constexpr int kLanes = 32;
constexpr size_t kMostExchangedBytes = 32;

struct Index {
  unsigned x, y, z;
};

// What the lanes of a warp give each other, of this exchange and the one before: a lane that is
// ahead by one does not disturb the others.
struct Warp {
  alignas(16) std::byte given[2][kLanes][kMostExchangedBytes];
  int n_arrived = 0;
  uint64_t n_exchanges = 0;
};

struct Fiber {
  ucontext_t context;
  std::unique_ptr<std::byte[]> stack;
  Index thread_idx;
  int warp, lane;
  bool done;
};

struct Machine {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  size_t current = 0;
  ucontext_t scheduler;
  int n_alive = 0, n_at_barrier = 0;
  uint64_t n_barriers = 0;
  int n_at_named_barrier[16] = {};
  uint64_t n_named_barriers[16] = {};
  Index block_idx, grid_dim, block_dim;
  std::byte* dynamic_shared = nullptr;
  std::function<void()> kernel;
};

inline Machine& machine() {
  static Machine the;
  return the;
}

inline Fiber& self() {
  return machine().fibers[machine().current];
}

inline void yield() {
  swapcontext(&self().context, &machine().scheduler);
}

// What lane `lane` gave to the exchange in which this lane gave `mine`; all lanes must take part.
template <class T>
class Exchange {
 public:
  explicit Exchange(const T& mine) : warp_(machine().warps[static_cast<size_t>(self().warp)]) {
    static_assert(sizeof(T) <= kMostExchangedBytes);
    const uint64_t exchange = warp_.n_exchanges;
    slot_ = exchange % 2;
    std::memcpy(warp_.given[slot_][self().lane], &mine, sizeof(T));
    if (++warp_.n_arrived == kLanes) {
      warp_.n_arrived = 0;
      ++warp_.n_exchanges;
      return;
    }
    while (warp_.n_exchanges == exchange) {
      yield();
    }
  }
  const T& of(int lane) const { return *reinterpret_cast<const T*>(warp_.given[slot_][lane]); }

 private:
  Warp& warp_;
  uint64_t slot_;
};

inline void block_barrier() {
  Machine& m = machine();
  const uint64_t barrier = m.n_barriers;
  if (++m.n_at_barrier == m.n_alive) {
    m.n_at_barrier = 0;
    ++m.n_barriers;
    return;
  }
  while (m.n_barriers == barrier) {
    yield();
  }
}

inline void fiber_main() {
  machine().kernel();
  self().done = true;
  --machine().n_alive;
  yield();
}

inline void run_block(int n_threads) {
  constexpr size_t kStackBytes = 128 * 1024;
  Machine& m = machine();
  m.fibers.resize(static_cast<size_t>(n_threads));
  m.warps.assign(static_cast<size_t>(n_threads / kLanes), Warp{});
  m.n_alive = n_threads;
  m.n_at_barrier = 0;
  for (int thread = 0; thread < n_threads; ++thread) {
    Fiber& fiber = m.fibers[static_cast<size_t>(thread)];
    if (fiber.stack == nullptr) {
      fiber.stack = std::make_unique<std::byte[]>(kStackBytes);
    }
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, fiber_main, 0);
    fiber.thread_idx = {static_cast<unsigned>(thread), 0, 0};
    fiber.warp = thread / kLanes;
    fiber.lane = thread % kLanes;
    fiber.done = false;
  }
  while (m.n_alive > 0) {
    for (m.current = 0; m.current < m.fibers.size(); ++m.current) {
      if (!self().done) {
        swapcontext(&m.scheduler, &self().context);
      }
    }
  }
}

// Runs `kernel` for every thread of every block; shared memory starts as 0xff bytes, NaN.
inline void launch(Index grid, int n_threads, size_t shared_bytes, std::function<void()> kernel) {
  constexpr size_t kAlign = 128;
  Machine& m = machine();
  const std::unique_ptr<std::byte[]> shared(new std::byte[shared_bytes + kAlign]);
  const uintptr_t begin = reinterpret_cast<uintptr_t>(shared.get());
  m.dynamic_shared = shared.get() + (kAlign - begin % kAlign) % kAlign;
  m.grid_dim = grid;
  m.block_dim = {static_cast<unsigned>(n_threads), 1, 1};
  m.kernel = std::move(kernel);
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        m.block_idx = {x, y, z};
        std::memset(m.dynamic_shared, 0xff, shared_bytes);
        run_block(n_threads);
      }
    }
  }
}

}  // namespace apr::simt

#define threadIdx (::apr::simt::self().thread_idx)
#define blockIdx (::apr::simt::machine().block_idx)
#define gridDim (::apr::simt::machine().grid_dim)
#define blockDim (::apr::simt::machine().block_dim)
#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static

inline void __syncthreads() {
  apr::simt::block_barrier();
}
inline void __syncwarp() {
  apr::simt::Exchange<int>(0);
}
inline void __threadfence() {}

template <class T>
T __shfl_xor_sync(unsigned, T value, int distance) {
  return apr::simt::Exchange<T>(value).of(apr::simt::self().lane ^ distance);
}
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return apr::simt::Exchange<T>(value).of(lane);
}
template <class T>
T __shfl_up_sync(unsigned, T value, int distance) {
  const apr::simt::Exchange<T> given(value);
  const int lane = apr::simt::self().lane;
  return given.of(lane < distance ? lane : lane - distance);
}
inline bool __any_sync(unsigned, bool value) {
  const apr::simt::Exchange<bool> votes(value);
  bool any = false;
  for (int lane = 0; lane < apr::simt::kLanes; ++lane) {
    any = any || votes.of(lane);
  }
  return any;
}
inline uint32_t atomicAdd(uint32_t* sum, uint32_t value) {
  return std::exchange(*sum, *sum + value);
}
template <class T>
T __ldcg(const T* from) {
  return *from;
}
inline uint32_t __float_as_uint(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float __uint_as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline float __frsqrt_rn(float a) {
  return 1.0f / std::sqrt(a);
}
inline float __fsqrt_rn(float a) {
  return std::sqrt(a);
}
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  uint32_t result = 0;
  for (unsigned byte = 0; byte < 4; ++byte) {
    const uint64_t taken = bytes >> (selector >> 4 * byte & 7) * 8 & 0xff;
    result |= static_cast<uint32_t>(taken) << 8 * byte;
  }
  return result;
}
inline int __clz(int bits) {
  return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits));
}
inline int __popc(uint32_t bits) {
  return __builtin_popcount(bits);
}
inline int __float2int_rn(float a) {
  return static_cast<int>(std::nearbyint(a));
}
using std::max;
using std::min;
