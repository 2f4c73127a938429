#include "cuda/launch_product_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "row_threads.h"

namespace apr::cuda {
namespace {

constexpr int64_t kVectorElems = 4;
constexpr int64_t kMostThreadsOfMany = 512;
constexpr int64_t kFewRows = 32;  // leave multiprocessors idle: each row is to end soon
constexpr int64_t kWarpThreads = 32;

// Whether rows can be read and written four values at a time: all of `elems` (columns, strides,
// first columns) are multiples of 4, all of `pointers` 16-byte aligned; null pointers do not count.
bool has_vectors(std::initializer_list<int64_t> elems,
                 std::initializer_list<const void*> pointers) {
  return std::all_of(elems.begin(), elems.end(), [](int64_t n) { return n % kVectorElems == 0; }) &&
         std::all_of(pointers.begin(), pointers.end(), [](const void* pointer) {
           return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
         });
}

bool has_vectors(const Products& products, const ProductColumns& columns) {
  return has_vectors({products.stride, products.split_stride, columns.first_col, columns.n_cols},
                     {products.data, columns.bias});
}

// The form of a kernel that makes E4M3 rows where there are some to make.
std::string form(const char* kernel, bool vectors, const E4m3Rows& rows = {}) {
  return fmt::format("{}.{}{}", kernel, vectors ? "vec4" : "scalar",
                     rows.values != nullptr ? ".e4m3" : "");
}

// A block for each row and part, with a thread for each vector up to the most; `kept` columns of
// f32 in shared memory.
template <class Params>
void launch_rows(const KernelLibrary& kernels, const Stream& stream, const std::string& kernel,
                 const Params& params, bool vectors, int64_t n_rows, int64_t n_cols, int64_t n_kept,
                 int n_parts = 1) {
  const int64_t n_vectors = vectors ? n_cols / kVectorElems : n_cols;
  const int64_t n_warps = (n_vectors + kWarpThreads - 1) / kWarpThreads;
  int64_t most_threads = most_row_threads(vectors ? kVectorElems : 1);
  if (n_rows > kFewRows) {
    most_threads = std::min(most_threads, kMostThreadsOfMany);
  }
  launch(kernels, kernel,
         {.grid_x = static_cast<uint32_t>(n_rows),
          .grid_y = static_cast<uint32_t>(n_parts),
          .block_x = static_cast<uint32_t>(std::min(n_warps * kWarpThreads, most_threads)),
          .shared_bytes = static_cast<uint32_t>(n_kept * 4),
          .overlap = true},
         stream, params);
}

}  // namespace

void launch_scale_rows(const KernelLibrary& kernels, const Stream& stream,
                       const ScaleRowsParams& params, int64_t n_rows) {
  const bool vectors =
      has_vectors({params.n_cols}, {params.x, params.y.values, params.y_e4m3.values});
  launch_rows(kernels, stream, form("scale_rows", vectors, params.y_e4m3), params, vectors, n_rows,
              params.n_cols, 0);
}

void launch_unscale_rows(const KernelLibrary& kernels, const Stream& stream,
                         const UnscaleParams& params, int n_parts, int64_t n_rows) {
  bool vectors = true;
  int64_t most_cols = 0;
  for (int part = 0; part < n_parts; ++part) {
    vectors = vectors && has_vectors(params.products, params.columns[part]) &&
              has_vectors({params.y_stride[part]}, {params.y[part]});
    most_cols = std::max<int64_t>(most_cols, params.columns[part].n_cols);
  }
  launch_rows(kernels, stream, form("unscale_rows", vectors), params, vectors, n_rows, most_cols, 0,
              n_parts);
}

void launch_swiglu_rows(const KernelLibrary& kernels, const Stream& stream,
                        const SwigluRowsParams& params, int64_t n_rows) {
  const int64_t n_cols = params.gate.n_cols;
  const bool vectors = has_vectors(params.products, params.gate) &&
                       has_vectors(params.products, params.up) &&
                       has_vectors({}, {params.y.values, params.y_f32, params.y_e4m3.values});
  launch_rows(kernels, stream, form("swiglu_rows", vectors, params.y_e4m3), params, vectors, n_rows,
              n_cols, params.keep ? n_cols : 0);
}

void launch_sum_norm_rows(const KernelLibrary& kernels, const Stream& stream,
                          const SumNormRowsParams& params, int64_t n_rows) {
  const bool has_products = params.products.data != nullptr;
  const bool vectors =
      (!has_products || has_vectors(params.products, params.columns)) &&
      has_vectors({params.n_cols}, {params.x, params.sum, params.norm_weight, params.y.values,
                                    params.y_f32, params.y_e4m3.values});
  launch_rows(kernels, stream, form("sum_norm_rows", vectors, params.y_e4m3), params, vectors,
              n_rows, params.n_cols, params.keep ? params.n_cols : 0);
}

}  // namespace apr::cuda
