// Picks the kernels of the machine's instruction set once, at run time.
#include <atomic>

#include "cpu/fast/kernel_table.h"
#include "cpu/fast/ops.h"

namespace apr::cpu::fast {
namespace {

// The kernels of `isa`; null where the build or this machine lacks it.
const KernelTable* table_of(Isa isa) {
  if (isa == Isa::kBaseline) {
    return &isa_baseline::kTable;
  }
#if defined(__x86_64__)
  // The levels of the x86-64 psABI, by the features that our code needs; those that a compiler's
  // check cannot name (F16C, MOVBE, LZCNT) come with AVX2 on every processor made.
  const bool has_v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  if (isa == Isa::kAvx2) {
    return has_v3 ? &isa_avx2::kTable : nullptr;
  }
  const bool has_v4 = has_v3 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has_v4 ? &isa_avx512::kTable : nullptr;
#else
  return nullptr;
#endif
}

std::atomic<const KernelTable*>& current() {
  static std::atomic<const KernelTable*> table{table_of(best_isa())};
  return table;
}

}  // namespace

Isa best_isa() {
  for (const Isa isa : {Isa::kAvx512, Isa::kAvx2}) {
    if (table_of(isa) != nullptr) {
      return isa;
    }
  }
  return Isa::kBaseline;
}

bool set_isa(Isa isa) {
  const KernelTable* table = table_of(isa);
  if (table != nullptr) {
    current().store(table, std::memory_order_release);
  }
  return table != nullptr;
}

const char* isa_name() {
  return kernels().isa_name;
}

const KernelTable& kernels() {
  return *current().load(std::memory_order_acquire);
}

#define APR_CPU_OP(name, Args)                    \
  void name(const Args& args, ThreadPool& pool) { \
    kernels().name(args, pool);                   \
  }
APR_CPU_ISA_OPS(APR_CPU_OP)
#undef APR_CPU_OP

}  // namespace apr::cpu::fast
