// The ops that are compiled once for each instruction set, as a table of functions.
#pragma once

#include "cpu/op_args.h"
#include "cpu/thread_pool.h"

// X(op, argument struct)
#define APR_CPU_ISA_OPS(X)            \
  X(embed, EmbedArgs)                 \
  X(rms_norm, RmsNormArgs)            \
  X(matmul, MatmulArgs)               \
  X(attention, AttentionArgs)         \
  X(sigmoid_gate, BinaryArgs)         \
  X(add, BinaryArgs)                  \
  X(swiglu, BinaryArgs)               \
  X(conv1d, Conv1dArgs)               \
  X(l2_norm, L2NormArgs)              \
  X(delta_net, DeltaNetArgs)          \
  X(gated_rms_norm, GatedRmsNormArgs) \
  X(moe_ffn, MoeFfnArgs)              \
  X(row_gate, RowGateArgs)

namespace apr::cpu::fast {

struct KernelTable {
  const char* isa_name;
#define APR_CPU_OP(name, Args) void (*name)(const Args&, ThreadPool&);
  APR_CPU_ISA_OPS(APR_CPU_OP)
#undef APR_CPU_OP
  // Evaluates exp over n_elems elements; for the test of its bound.
  void (*exp)(const float* x, int64_t n_elems, float* y);
};

namespace isa_baseline {
extern const KernelTable kTable;
}
namespace isa_avx2 {
extern const KernelTable kTable;
}
namespace isa_avx512 {
extern const KernelTable kTable;
}

// The table in use.
const KernelTable& kernels();

}  // namespace apr::cpu::fast
