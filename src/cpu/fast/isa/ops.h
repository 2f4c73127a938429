// The ops of one instruction set, for the table of kernel_table.h.
#pragma once

#include "cpu/fast/kernel_table.h"

namespace apr::cpu::fast::APR_CPU_ISA {

#define APR_CPU_OP(name, Args) void name(const Args& args, ThreadPool& pool);
APR_CPU_ISA_OPS(APR_CPU_OP)
#undef APR_CPU_OP

}  // namespace apr::cpu::fast::APR_CPU_ISA
