// The CPU kernels that run by default: SIMD of the machine's best instruction set, on a thread
// pool.
//
// Weights are dequantised exactly as the scalar reference does, activations and sums are f32. Each
// row's result has the same bits whatever the number of rows of the call and of threads: lanes and
// reduction trees depend on the position within a row alone, attention visits keys in blocks
// counted from position 0, recurrences run in token order. Bits may differ between instruction sets
// and from cpu/reference; the tests derive the bounds.
#pragma once

#include "cpu/op_args.h"
#include "cpu/thread_pool.h"

namespace apr::cpu::fast {

// Ascending; a machine that has one has those before it. kBaseline is x86-64-v2, or the plain
// instruction set of another architecture.
enum class Isa { kBaseline, kAvx2, kAvx512 };

// The widest instruction set of this machine that the build has kernels for.
Isa best_isa();

// Makes the ops use `isa`; for tests, while no op runs. Returns false, changing nothing, where the
// machine or the build lacks it.
bool set_isa(Isa isa);

// The instruction set in use: "avx512", "avx2", "sse4" (on arm64: "neon").
const char* isa_name();

// One function for each op kind; the formulas stand at the argument structs.
void embed(const EmbedArgs& args, ThreadPool& pool);
void rms_norm(const RmsNormArgs& args, ThreadPool& pool);
void matmul(const MatmulArgs& args, ThreadPool& pool);
void split_heads(const SplitHeadsArgs& args, ThreadPool& pool);
void rope(const RopeArgs& args, ThreadPool& pool);
void kv_append(const KvAppendArgs& args, ThreadPool& pool);
void attention(const AttentionArgs& args, ThreadPool& pool);
void sigmoid_gate(const BinaryArgs& args, ThreadPool& pool);  // y = a * sigmoid(b)
void add(const BinaryArgs& args, ThreadPool& pool);
void swiglu(const BinaryArgs& args, ThreadPool& pool);  // y = silu(a) * b
void conv1d(const Conv1dArgs& args, ThreadPool& pool);
void l2_norm(const L2NormArgs& args, ThreadPool& pool);
void delta_gates(const DeltaGatesArgs& args, ThreadPool& pool);
void delta_net(const DeltaNetArgs& args, ThreadPool& pool);
void gated_rms_norm(const GatedRmsNormArgs& args, ThreadPool& pool);
void moe_route(const MoeRouteArgs& args, ThreadPool& pool);
void moe_ffn(const MoeFfnArgs& args, ThreadPool& pool);
void row_gate(const RowGateArgs& args, ThreadPool& pool);
void take_rows(const TakeRowsArgs& args, ThreadPool& pool);

}  // namespace apr::cpu::fast
