// Loads that turn tiles of f16 in shared memory into fragments of mma.cuh (sm_80 and later).
#pragma once

#include "platform.cuh"

namespace apr {

// Four 8 x 8 matrices of f16; lane l holds elements 2 (l % 4), + 1 of row l / 4 of each, and names
// row l % 8 of matrix l / 8 by its shared address.
__device__ __forceinline__ void load_matrices(uint32_t (&d)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(address));
}

// As above, each matrix transposed.
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&d)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
               : "r"(address));
}

// The 8 x 8 matrix of f16 pairs that a warp holds (as load_matrices leaves one), transposed.
__device__ __forceinline__ uint32_t transpose_matrix(uint32_t pair) {
  uint32_t transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}

}  // namespace apr
