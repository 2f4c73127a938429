#include "cpu/fast/isa/math.h"
#include "cpu/fast/isa/ops.h"

namespace apr::cpu::fast::APR_CPU_ISA {
namespace {

void exp_elems(const float* x, int64_t n_elems, float* y) {
  map(
      n_elems, y, [](Vec v) __attribute__((always_inline)) { return exp(v); }, x);
}

}  // namespace

extern const KernelTable kTable;
const KernelTable kTable = {
    APR_CPU_ISA_NAME,
#define APR_CPU_OP(name, Args) name,
    APR_CPU_ISA_OPS(APR_CPU_OP)
#undef APR_CPU_OP
        exp_elems,
};

}  // namespace apr::cpu::fast::APR_CPU_ISA
