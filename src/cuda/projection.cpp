#include "cuda/projection.h"

#include <fmt/format.h>

#include <algorithm>

#include "apr/error.h"
#include "cuda/error.h"
#include "cuda/launch_product_rows.h"

namespace apr::cuda {
namespace {

constexpr int64_t kDp4aTile = 64;
constexpr uint32_t kDp4aThreads = 256;

bool is_f32(const Weight& weight) {
  return weight.type->name == "F32";
}

void require(bool good, PrefillGemm mode, const ProjectionArgs& args, const std::string& what) {
  if (!good) {
    throw Error(ErrorCode::kInference,
                fmt::format("{} product of {}: {}", prefill_gemm_name(mode),
                            args.weight == nullptr ? "no weight" : args.weight->name, what));
  }
}

void check_args(PrefillGemm mode, const ProjectionArgs& args) {
  require(args.weight != nullptr, mode, args, "weight is null");
  require(args.x != nullptr, mode, args, "x is null");
  require(args.y != nullptr, mode, args, "y is null");
  require(
      args.ldc >= args.weight->n_rows, mode, args,
      fmt::format("ldc is {}, less than the {} rows of the matrix", args.ldc, args.weight->n_rows));
}

}  // namespace

Projection::Projection(const KernelLibrary& kernels, const Stream& stream,
                       const DeviceFacts& device, const DeviceWeights& weights,
                       std::span<const ProjectionGroup> groups, const Options& options)
    : kernels_(kernels),
      stream_(stream),
      weights_(weights),
      small_shared_(device.cc_major < 8),
      mode_(choose_prefill_gemm(options.requested, options.exact).ran),
      max_rows_(options.max_rows),
      dequantizer_(kernels, stream, weights),
      half_weights_(dequantizer_, stream, groups),
      cublas_workspace_(kCublasBytes, "cuBLAS"),
      cublas_(create_cublas(stream)) {
  APR_CUDA(api().cublasSetWorkspace(cublas_.get(), cublas_workspace_.data(), kCublasBytes));
  report_ = report_for(groups);
  report_.requested = options.requested;
  if (mode_ != options.requested) {
    report_.reason = choose_prefill_gemm(options.requested, options.exact).reason;
  }
  if (mode_ == PrefillGemm::kFp8) {
    e4m3_.emplace(stream, cublas_workspace_);
  }
  if (scales_rows(mode_) && options.few_tokens != FewTokensUse::kNever) {
    few_tokens_.emplace(kernels, stream, device, weights, options.few_tokens);
  }
  if (scales_rows(mode_)) {
    HalfStoreChoice choice = options.store;
    if (choice.store == HalfStore::kCached) {
      // Uploads went through another stream and may still be on their way.
      APR_CUDA(api().cudaDeviceSynchronize());
      const uint64_t free_bytes = device_memory().free_bytes;
      choice = half_weights_.prewarm(free_bytes - std::min(free_bytes, options.reserved_bytes));
    }
    half_store_ = choice.store;
    if (!choice.reason.empty()) {
      report_.reason += (report_.reason.empty() ? "" : "; ") + choice.reason;
    }
  }
  if (few_tokens_) {
    report_.tier = few_tokens_->describe(groups, half_store_);
  }
  allocate(groups, options.most_scratch_bytes);
}

PrefillGemmReport Projection::report_for(std::span<const ProjectionGroup> groups) const {
  PrefillGemmReport report{mode_, mode_};
  int n_ran = 0, n_refused = 0;
  PrefillGemm instead = mode_;
  for (const ProjectionGroup& group : groups) {
    if (mode_ == PrefillGemm::kFp8 && !group.every_row) {
      continue;  // the head is f16
    }
    for (const Weight* weight : group.weights) {
      const GemmChoice choice = choose_gemm(mode_, *weight, weight->n_rows);
      const bool runs = mode_ == PrefillGemm::kFp8 ? group.e4m3 : choice.ran == mode_;
      (runs ? n_ran : n_refused) += 1;
      if (report.reason.empty() && !choice.reason.empty()) {
        report.reason = choice.reason;
        instead = choice.ran;
      }
    }
  }
  if (n_refused > 0) {
    report.reason = fmt::format("{} for {} of {} matrices: {}", prefill_gemm_name(instead),
                                n_refused, n_ran + n_refused, report.reason);
    report.ran = n_ran > 0 ? mode_ : instead;
  }
  return report;
}

void Projection::allocate(std::span<const ProjectionGroup> groups, int64_t most_scratch_bytes) {
  const ProjectionSizes sizes = projection_sizes(groups, mode_, half_store_ == HalfStore::kCached,
                                                 max_rows_, most_scratch_bytes);
  weight_scratch_ = DeviceBuffer(sizes.weight_scratch, "prefill weight scratch");
  x_scratch_ = DeviceBuffer(sizes.x, "prefill scratch");
  undo_scratch_ = DeviceBuffer(sizes.undo, "prefill scratch");
  products_ = DeviceBuffer(sizes.products, "prefill scratch");
  q8_scale_ = DeviceBuffer(sizes.q8_scale, "prefill scratch");
  q8_sum_ = DeviceBuffer(sizes.q8_sum, "prefill scratch");
}

PrefillGemm Projection::project(const ProjectionArgs& args) {
  check_args(mode_, args);
  const PrefillGemm ran = mode_ != PrefillGemm::kFp8
                              ? choose_gemm(mode_, *args.weight, args.ldc).ran
                          : half_weights_.is_e4m3(*args.weight) ? PrefillGemm::kFp8
                                                                : PrefillGemm::kF16;
  if (args.n_tokens == 0) {
    return ran;
  }
  APR_CHECK(args.n_tokens <= max_rows_, "a product has the rows of a chunk at most");
  switch (ran) {
    case PrefillGemm::kF16:
    case PrefillGemm::kFp8:
      project_scaled(args);
      break;
    case PrefillGemm::kF32:
      project_f32(args);
      break;
    case PrefillGemm::kDp4a:
      project_dp4a(args);
      break;
  }
  return ran;
}

void Projection::project_scaled(const ProjectionArgs& args) {
  const Weight& weight = *args.weight;
  const bool e4m3 = half_weights_.is_e4m3(weight);
  const ScaledRows rows = scale_rows(args.x, args.n_tokens, weight.n_cols, e4m3);
  // E4M3 products have padded rows, and those of few tokens splits, which y has no room for.
  const bool own =
      e4m3 || (few_tokens_ && own_products(args.n_tokens, weight.n_rows).most_splits > 0);
  const ProductsTo to =
      own ? own_products(args.n_tokens, weight.n_rows) : ProductsTo{args.y, args.ldc, 0, 1};
  UnscaleParams params{};
  params.columns[0] = columns_of(weight, args.bias, 0);
  multiply_scaled({&args.weight, 1}, rows, args.n_tokens, to, {params.columns, 1});
  params.products = {to.data, rows.undo, to.stride, to.split_stride};
  params.y[0] = args.y;
  params.y_stride[0] = args.ldc;
  unscale(params, 1, args.n_tokens);
}

void Projection::project_f32(const ProjectionArgs& args) {
  const Weight& weight = *args.weight;
  const bool in_place = is_f32(weight);
  const int64_t n_tile = in_place ? weight.n_rows : tile_rows(weight, 4);
  for (int64_t first = 0; first < weight.n_rows; first += n_tile) {
    const int64_t n_rows = std::min(n_tile, weight.n_rows - first);
    const void* w = weights_.matrix(weight).data;
    if (!in_place) {
      dequantizer_.to_f32(weight, {first, n_rows}, weight_scratch_.as<float>());
      w = weight_scratch_.data();
    }
    gemm(CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC, w, n_rows, weight.n_cols, args.x, args.n_tokens,
         args.y + first, args.ldc);
  }
  if (args.bias != nullptr) {
    UnscaleParams params{};
    params.products = {args.y, nullptr, args.ldc};
    params.columns[0] = {nullptr, args.bias, 0, static_cast<int32_t>(weight.n_rows)};
    params.y[0] = args.y;
    params.y_stride[0] = args.ldc;
    unscale(params, 1, args.n_tokens);
  }
}

void Projection::project_dp4a(const ProjectionArgs& args) {
  const Weight& weight = *args.weight;
  const Q8Rows x{x_scratch_.as<int8_t>(), q8_scale_.as<float>(), q8_sum_.as<float>()};
  const auto blocks = [](int64_t n, int64_t per_block) {
    return static_cast<uint32_t>((n + per_block - 1) / per_block);
  };
  launch(kernels_, "quantize_rows",
         {.grid_x = static_cast<uint32_t>(args.n_tokens),
          .grid_y = blocks(weight.n_cols, kDp4aThreads),
          .block_x = kDp4aThreads,
          .overlap = true},
         stream_, QuantizeRowsParams{args.x, x, static_cast<int32_t>(weight.n_cols)});
  launch(kernels_, fmt::format("dp4a_gemm.{}", weight.type->name),
         {.grid_x = blocks(weight.n_rows, kDp4aTile),
          .grid_y = blocks(args.n_tokens, kDp4aTile),
          .block_x = kDp4aThreads,
          .overlap = true},
         stream_,
         Dp4aGemmParams{weights_.matrix(weight), x, args.bias, args.y,
                        static_cast<int32_t>(args.n_tokens)});
}

ScaledRows Projection::scale_rows(const float* x, int64_t n_tokens, int64_t n_cols, bool e4m3) {
  ScaleRowsParams params{x, {}, static_cast<int32_t>(n_cols)};
  float* undo = undo_scratch_.as<float>();
  if (e4m3) {
    params.y_e4m3 = {x_scratch_.as<uint8_t>(), undo};
  } else {
    params.y = {x_scratch_.as<uint16_t>(), undo};
  }
  launch_scale_rows(kernels_, stream_, params, n_tokens);
  return {x_scratch_.data(), undo};
}

ProductsTo Projection::own_products(int64_t n_tokens, int64_t stride) const {
  const int64_t split_stride = n_tokens * stride;
  return {products_.as<float>(), stride, split_stride,
          static_cast<int64_t>(products_.size_bytes() / sizeof(float)) / split_stride};
}

void Projection::multiply_scaled(std::span<const Weight* const> weights, const ScaledRows& rows,
                                 int64_t n_tokens, const ProductsTo& to,
                                 std::span<ProductColumns> columns) {
  float* products = to.data;
  const int64_t stride = to.stride;
  const bool e4m3 = half_weights_.is_e4m3(*weights[0]);
  const int64_t elem_bytes = half_weights_.elem_bytes(*weights[0]);
  const int64_t n_cols = weights[0]->n_cols;
  const auto multiply = [&](const void* w, int64_t n_rows, float* out) {
    if (e4m3) {
      e4m3_->multiply(w, n_rows, n_cols, rows.values, e4m3_values_bytes(n_tokens, 1), out, stride);
    } else {
      gemm(CUDA_R_16F, CUBLAS_COMPUTE_32F, w, n_rows, n_cols, rows.values, n_tokens, out, stride);
    }
  };
  for (size_t idx = 0; idx < weights.size();) {
    const Weight& weight = *weights[idx];
    if (size_t n_done =
            e4m3 || !few_tokens_
                ? 0
                : few_tokens_->multiply(weights.subspan(idx), half_store_,
                                        static_cast<const uint16_t*>(rows.values), n_tokens,
                                        {products, stride, to.split_stride, to.most_splits},
                                        columns.subspan(idx))) {
      for (; n_done > 0; --n_done) {
        products += weights[idx++]->n_rows;
      }
      continue;
    }
    if (const std::byte* w = half_weights_.kept(weight)) {
      int64_t n_rows = 0;  // of this matrix and those that lie behind it
      while (idx < weights.size() &&
             half_weights_.kept(*weights[idx]) == w + n_rows * n_cols * elem_bytes) {
        n_rows += weights[idx++]->n_rows;
      }
      multiply(w, n_rows, products);
      products += n_rows;
      continue;
    }
    const int64_t n_tile = tile_rows(weight, elem_bytes, e4m3 ? kE4m3Multiple : 1);
    for (int64_t first = 0; first < weight.n_rows; first += n_tile) {
      const int64_t n_rows = std::min(n_tile, weight.n_rows - first);
      half_weights_.make(weight, {first, n_rows}, weight_scratch_.data());
      multiply(weight_scratch_.data(), n_rows, products + first);
    }
    products += weight.n_rows;
    ++idx;
  }
}

// cuBLAS counts columns first: products^T [n_rows, n_tokens] = w [n_cols, n_rows]^T x^T.
void Projection::gemm(cudaDataType_t type, cublasComputeType_t compute, const void* w,
                      int64_t n_rows, int64_t n_cols, const void* rows, int64_t n_tokens,
                      float* products, int64_t stride) {
  const float one = 1.0F, zero = 0.0F;
  APR_CUDA(api().cublasGemmEx_64(cublas_.get(), CUBLAS_OP_T, CUBLAS_OP_N, n_rows, n_tokens, n_cols,
                                 &one, w, type, n_cols, rows, type, n_cols, &zero, products,
                                 CUDA_R_32F, stride, compute, CUBLAS_GEMM_DEFAULT));
}

int64_t Projection::tile_rows(const Weight& weight, int64_t elem_bytes, int64_t multiple) const {
  const int64_t n_rows = static_cast<int64_t>(weight_scratch_.size_bytes()) /
                         (weight.n_cols * elem_bytes) / multiple * multiple;
  APR_CHECK(n_rows >= 1, "the scratch holds a row of every matrix that needs it");
  return std::min(n_rows, weight.n_rows);
}

ProductColumns Projection::columns_of(const Weight& weight, const float* bias, int64_t first_col) {
  return {half_weights_.largest(weight), bias, static_cast<int32_t>(first_col),
          static_cast<int32_t>(weight.n_rows)};
}

void Projection::unscale(const UnscaleParams& params, int n_parts, int64_t n_tokens) {
  launch_unscale_rows(kernels_, stream_, params, n_parts, n_tokens);
}

bool Projection::keeps_row(int64_t n_cols) const {
  constexpr int64_t kSmallShared = 47 * 1024;
  return n_cols * 4 <= (small_shared_ ? kSmallShared : kLeastMostShared);
}

}  // namespace apr::cuda
