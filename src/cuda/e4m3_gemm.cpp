#include "cuda/e4m3_gemm.h"

#include <fmt/format.h>

#include <algorithm>

#include "apr/error.h"
#include "apr/lower.h"
#include "cuda/error.h"

namespace apr::cuda {
namespace {

template <class Value>
void set(const MatmulDesc& desc, cublasLtMatmulDescAttributes_t attribute, Value value) {
  APR_CUDA(api().cublasLtMatmulDescSetAttribute(desc.get(), attribute, &value, sizeof value));
}

uint32_t alignment(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return static_cast<uint32_t>(std::min<uintptr_t>(address & (~address + 1), 256));
}

}  // namespace

E4m3Gemm::E4m3Gemm(const Stream& stream, const DeviceBuffer& workspace)
    : stream_(stream),
      workspace_(workspace),
      handle_(create_cublas_lt()),
      desc_(create_matmul_desc(CUBLAS_COMPUTE_32F, CUDA_R_32F)),
      preference_(create_matmul_preference(workspace.size_bytes())) {
  // cuBLASLt has E4M3 kernels for w^T x in its column order alone, before compute capability 10.
  set(desc_, CUBLASLT_MATMUL_DESC_TRANSA, static_cast<int32_t>(CUBLAS_OP_T));
  set(desc_, CUBLASLT_MATMUL_DESC_TRANSB, static_cast<int32_t>(CUBLAS_OP_N));
  // The fast sums of sm_89 and sm_90 keep 14 bits throughout; these go to f32 every few steps.
  set(desc_, CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{0});
}

void E4m3Gemm::multiply(const void* w, int64_t n_rows, int64_t n_cols, const void* rows,
                        int64_t n_tokens, float* products, int64_t stride) {
  APR_CHECK(n_rows % kE4m3Multiple == 0 && n_cols % kE4m3Multiple == 0 &&
                n_tokens % kE4m3Multiple == 0 && stride % 4 == 0,
            "sizes of an E4M3 product");
  const Choice& chosen = choice(
      {n_rows, n_cols, n_tokens, stride, alignment(w), alignment(rows), alignment(products)});
  const float one = 1.0F, zero = 0.0F;
  APR_CUDA(api().cublasLtMatmul(handle_.get(), desc_.get(), &one, w, chosen.w.get(), rows,
                                chosen.rows.get(), &zero, products, chosen.products.get(), products,
                                chosen.products.get(), &chosen.algorithm, workspace_.data(),
                                workspace_.size_bytes(), stream_.get()));
}

const E4m3Gemm::Choice& E4m3Gemm::choice(const Shape& shape) {
  if (const auto found = choices_.find(shape); found != choices_.end()) {
    return found->second;
  }
  const auto [n_rows, n_cols, n_tokens, stride, w_align, rows_align, products_align] = shape;
  const auto sized = [](int64_t n) { return static_cast<uint64_t>(n); };
  Choice chosen{
      create_matrix_layout(CUDA_R_8F_E4M3, sized(n_cols), sized(n_rows), n_cols),
      create_matrix_layout(CUDA_R_8F_E4M3, sized(n_cols), sized(n_tokens), n_cols),
      create_matrix_layout(CUDA_R_32F, sized(n_rows), sized(n_tokens), stride),
      {},
  };
  for (const auto& [attribute, bytes] :
       {std::pair{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, w_align},
        std::pair{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, rows_align},
        std::pair{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, products_align},
        std::pair{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, products_align}}) {
    APR_CUDA(api().cublasLtMatmulPreferenceSetAttribute(preference_.get(), attribute, &bytes,
                                                        sizeof bytes));
  }
  cublasLtMatmulHeuristicResult_t best{};
  int n_found = 0;
  APR_CUDA(api().cublasLtMatmulAlgoGetHeuristic(
      handle_.get(), desc_.get(), chosen.w.get(), chosen.rows.get(), chosen.products.get(),
      chosen.products.get(), preference_.get(), 1, &best, &n_found));
  if (n_found == 0) {
    throw Error(ErrorCode::kBackendUnavailable,
                fmt::format("cublasLtMatmulAlgoGetHeuristic has no E4M3 product of [{}, {}] with "
                            "{} rows; unset FP8_PREFILL",
                            n_rows, n_cols, n_tokens));
  }
  chosen.algorithm = best.algo;
  return choices_.emplace(shape, std::move(chosen)).first->second;
}

}  // namespace apr::cuda
