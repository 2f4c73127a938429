#include "cuda/moe.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "apr/error.h"
#include "cuda/error.h"
#include "cuda/launch_matvec.h"
#include "cuda/launch_product_rows.h"
#include "cuda/quant_traits.h"
#include "matvec_layout.cuh"
#include "moe_gemm_layout.cuh"

namespace apr::cuda {
namespace {

constexpr uint32_t kMoeThreads = 256;
constexpr int64_t kWarps = 8;                   // of kMoeThreads
constexpr int64_t kRouterTokens = 8;            // of a block of moe_router.8
constexpr int64_t kRouterExperts = 4 * kWarps;  // of it at once
constexpr int64_t kFmaBlocksOfSm = 8;

// Of moe_gemm; 0 of a plain type.
int64_t gemm_shared_bytes(const QuantType& type) {
  return visit_quant_type(type, []<class T>() -> int64_t {
    if constexpr (T::kBlockElems == 1) {
      return 0;
    } else {
      return moe_gemm_shared_bytes<T>();
    }
  });
}

int64_t dynamic_shared_bytes(const DeviceFacts& device) {
  return static_cast<int64_t>(device.shared_bytes_per_block) - kStaticSharedBytes;
}

bool is_f32_router(const Weight& router) {
  return router.type->name == "F32";
}

}  // namespace

std::optional<std::string> missing_moe(std::span<const Weight> weights) {
  for (const Weight& weight : weights) {
    if ((is_expert_stack(weight) || weight.role == Role::kFfnGateInp) && weight.n_cols % 8 != 0) {
      return fmt::format("{}: experts of {} columns have no GPU kernel (a multiple of 8 has)",
                         weight.name, weight.n_cols);
    }
  }
  return std::nullopt;
}

std::vector<std::string> moe_kernels(std::span<const Weight> weights, bool exact,
                                     const DeviceFacts& device) {
  std::set<std::string> names;
  for (const Weight& weight : weights) {
    if (!is_expert_stack(weight)) {
      continue;
    }
    names.insert({"moe_router.1", "moe_router.8", "moe_group", "moe_combine"});
    names.insert(fmt::format("moe_fma.{}", weight.type->name));
    if (choose_moe_path(weight, exact, device.cc_major >= 8) == MoePath::kTensorCores) {
      names.insert(fmt::format("moe_gemm.{}", weight.type->name));
      names.insert(fmt::format("moe_matvec.{}", weight.type->name));
      names.insert(fmt::format("moe_matvec.{}.swiglu", weight.type->name));
    }
  }
  return {names.begin(), names.end()};
}

Moe::Moe(const KernelLibrary& kernels, const Stream& stream, const DeviceFacts& device,
         const DeviceWeights& weights, std::span<const Weight> model, const MoeDesc& desc,
         const Options& options)
    : kernels_(kernels),
      stream_(stream),
      device_(device),
      weights_(weights),
      options_(options),
      dequantizer_(kernels, stream, weights),
      desc_(desc),
      n_experts_(desc.n_experts),
      n_used_(desc.n_used) {
  allocate(model);
  int64_t router_bytes = 0;
  for (const Weight& weight : model) {
    if (weight.role == Role::kFfnGateInp && !is_f32_router(weight)) {
      router_offset_bytes_[&weight] = router_bytes;
      dequantizer_.to_f32(weight, {0, weight.n_rows},
                          reinterpret_cast<float*>(routers_.data() + router_bytes));
      router_bytes += divide_up(weight.n_rows * weight.n_cols * 4, kMoeAlignBytes) * kMoeAlignBytes;
    }
    if (is_expert_stack(weight) && path_of(weight) == MoePath::kTensorCores) {
      const size_t idx = largest_idx_.size();
      largest_idx_.emplace(&weight, idx);
      dequantizer_.find_largest(weight, largest_.as<float>() + idx);
    }
  }
}

void Moe::allocate(std::span<const Weight> model) {
  int64_t most_cols = 0;
  for (const Weight& weight : model) {
    most_cols = std::max(most_cols, is_expert_stack(weight) ? weight.n_cols : 0);
  }
  if (most_cols * 4 > dynamic_shared_bytes(device_)) {
    throw Error(ErrorCode::kBackendUnavailable,
                fmt::format("experts of {} columns do not fit in this GPU's shared memory of {} "
                            "bytes; use --no-gpu",
                            most_cols, device_.shared_bytes_per_block));
  }
  const MoeSizes sizes =
      moe_sizes(model, desc_, options_.exact, device_.cc_major >= 8, options_.max_rows);
  const auto buffer = [](uint64_t n_bytes) {
    return DeviceBuffer(n_bytes, "scratch of the experts");
  };
  routers_ = buffer(sizes.routers);
  largest_ = buffer(sizes.largest);
  logits_ = buffer(sizes.logits);
  arrived_ = buffer(sizes.arrived);
  pairs_ = buffer(sizes.pairs);
  first_ = buffer(sizes.first);
  tiles_ = buffer(sizes.tiles);
  n_tiles_ = buffer(sizes.n_tiles);
  hidden_ = buffer(sizes.hidden);
  parts_ = buffer(sizes.parts);
  halves_ = buffer(sizes.halves);
  undo_ = buffer(sizes.undo);
  for (const DeviceBuffer* zeros : {&largest_, &arrived_}) {
    if (zeros->size_bytes() > 0) {
      APR_CUDA(api().cudaMemsetAsync(zeros->data(), 0, zeros->size_bytes(), stream_.get()));
    }
  }
}

void Moe::route(const MoeRouteCall& call) {
  const Weight& router = *call.router;
  APR_CHECK(call.n_tokens >= 1 && call.n_tokens <= options_.max_rows, "tokens fit");
  MoeRouterParams params{};
  params.x = call.x;
  params.norm_weight = call.norm_weight;
  params.normed = call.normed;
  params.w =
      is_f32_router(router)
          ? reinterpret_cast<const float*>(weights_.matrix(router).data)
          : reinterpret_cast<const float*>(routers_.data() + router_offset_bytes_.at(&router));
  params.logits = logits_.as<float>();
  params.ids = call.ids;
  params.weights = call.weights;
  params.arrived = arrived_.as<uint32_t>();
  params.n_tokens = static_cast<int32_t>(call.n_tokens);
  params.n_cols = static_cast<int32_t>(router.n_cols);
  params.n_experts = static_cast<int32_t>(n_experts_);
  params.n_used = static_cast<int32_t>(n_used_);
  params.eps = call.eps;
  const int64_t row_bytes = router.n_cols * 4;
  const bool many = call.n_tokens > 1 && kRouterTokens * row_bytes <= dynamic_shared_bytes(device_);
  const int64_t n_tokens = many ? kRouterTokens : 1;  // of a block
  const int64_t n_tiles = divide_up(call.n_tokens, n_tokens);
  const int64_t most_splits = divide_up(n_experts_, many ? kRouterExperts : kWarps);
  const int64_t n_splits = std::clamp<int64_t>(device_.n_sm / n_tiles, 1, most_splits);
  launch(kernels_, many ? "moe_router.8" : "moe_router.1",
         {.grid_x = static_cast<uint32_t>(n_tiles),
          .grid_y = static_cast<uint32_t>(n_splits),
          .block_x = kMoeThreads,
          .shared_bytes = static_cast<uint32_t>(n_tokens * row_bytes),
          .overlap = true},
         stream_, params);
}

void Moe::ffn(const MoeFfnCall& call) {
  APR_CHECK(call.n_tokens >= 1 && call.n_tokens <= options_.max_rows, "tokens fit");
  call.n_tokens == 1 ? ffn_of_one(call) : ffn_of_many(call);
}

bool Moe::has_matvec(const Weight& stack, int64_t n_staged) const {
  return path_of(stack) == MoePath::kTensorCores && n_used_ <= kMostMoeMatvecUsed &&
         matvec_mma_fits(*stack.type, n_staged * staged_cols(static_cast<int>(stack.n_cols)),
                         device_);
}

void Moe::matvec(const Weight& stack, const Weight* second, MoeMatvecParams params) {
  params.w[0] = weights_.matrix(stack);
  params.w[1] = second == nullptr ? WeightRef{} : weights_.matrix(*second);
  params.n_rows = static_cast<int32_t>(stack.n_rows);
  params.n_used = static_cast<int32_t>(n_used_);
  const int64_t tiles_of_slot = stack.n_rows / quant::kUnitRows;
  const int64_t n_units = quant::units_of(stack.n_cols) * (params.sums != 0 ? n_used_ : 1);
  const MatvecSplit split = matvec_split(params.sums != 0 ? tiles_of_slot : n_used_ * tiles_of_slot,
                                         n_units, device_.n_sm, second == nullptr ? 1 : 2);
  params.n_col_warps = split.n_col_warps;
  const MatvecShared shared = matvec_shared(*stack.type);
  launch(kernels_,
         fmt::format("moe_matvec.{}{}", stack.type->name, second == nullptr ? "" : ".swiglu"),
         {.grid_x = split.n_blocks,
          .block_x = kMatvecWarps * 32,
          .shared_bytes = static_cast<uint32_t>(
              staged_x_bytes(static_cast<int>(n_units) * quant::kUnitCols, shared.group_elems) +
              shared.ring_bytes),
          .overlap = true},
         stream_, params);
}

void Moe::ffn_of_one(const MoeFfnCall& call) {
  float* hidden = hidden_.as<float>();
  MoeMatvecParams params{};
  params.x = call.x;
  params.ids = call.ids;
  params.y = hidden;
  if (call.gate->type == call.up->type && has_matvec(*call.gate, 1)) {
    matvec(*call.gate, call.up, params);
  } else {
    for (const Weight* stack : {call.gate, call.up}) {
      params.gate = stack == call.up ? hidden : nullptr;
      params.ids_are_settled = stack == call.up ? 1 : 0;  // the product before has waited for them
      if (has_matvec(*stack, 1)) {
        matvec(*stack, nullptr, params);
      } else {
        multiply_fma({stack, call.x, n_used_, params.gate, hidden}, call.ids, n_used_);
      }
    }
  }
  if (has_matvec(*call.down, n_used_)) {
    params = {};
    params.x = hidden;
    params.ids = call.ids;
    params.weights = call.weights;
    params.init = call.init;
    params.residual = call.residual;
    params.y = call.y;
    params.sums = 1;
    params.ids_are_settled = 1;  // the products above have waited for them
    return matvec(*call.down, nullptr, params);
  }
  multiply_fma({call.down, hidden, 1, nullptr, parts_.as<float>()}, call.ids, n_used_);
  combine(call);
}

void Moe::ffn_of_many(const MoeFfnCall& call) {
  const int64_t n_pairs = call.n_tokens * n_used_;
  float* hidden = hidden_.as<float>();
  group(call);
  F16Rows halves{};
  for (const Weight* stack : {call.gate, call.up}) {
    const Product product{stack, call.x, n_used_, stack == call.up ? hidden : nullptr, hidden};
    if (path_of(*stack) == MoePath::kFma) {
      multiply_fma(product, nullptr, n_pairs);
      continue;
    }
    if (halves.values == nullptr) {
      halves = half_rows(call.x, call.n_tokens, stack->n_cols);
    }
    multiply_gemm(product, halves, n_pairs);
  }
  const Product product{call.down, hidden, 1, nullptr, parts_.as<float>()};
  if (path_of(*call.down) == MoePath::kFma) {
    multiply_fma(product, nullptr, n_pairs);
  } else {
    multiply_gemm(product, half_rows(hidden, n_pairs, call.down->n_cols), n_pairs);
  }
  combine(call);
}

void Moe::group(const MoeFfnCall& call) {
  MoeGroupParams params{};
  params.ids = call.ids;
  params.to = {pairs_.as<int32_t>(), first_.as<int32_t>(), tiles_.as<MoeTile>(),
               n_tiles_.as<int32_t>()};
  params.arrived = arrived_.as<uint32_t>() + options_.max_rows;
  params.n_pairs = static_cast<int32_t>(call.n_tokens * n_used_);
  params.n_experts = static_cast<int32_t>(n_experts_);
  params.tile_pairs = kMoeGemmPairs;
  launch(kernels_, "moe_group",
         {.grid_x = static_cast<uint32_t>(n_experts_), .block_x = kMoeThreads, .overlap = true},
         stream_, params);
}

F16Rows Moe::half_rows(const float* x, int64_t n_rows, int64_t n_cols) {
  const F16Rows rows{halves_.as<uint16_t>(), undo_.as<float>()};
  launch_scale_rows(kernels_, stream_, {x, rows, static_cast<int32_t>(n_cols)}, n_rows);
  return rows;
}

void Moe::multiply_fma(const Product& product, const int32_t* ids, int64_t n_pairs) {
  const Weight& stack = *product.stack;
  MoeProductParams params{};
  params.w = weights_.matrix(stack);
  params.n_rows = static_cast<int32_t>(stack.n_rows);
  if (ids == nullptr) {
    params.groups = {pairs_.as<int32_t>(), first_.as<int32_t>(), tiles_.as<MoeTile>(),
                     n_tiles_.as<int32_t>()};
  }
  params.ids = ids;
  params.x = product.x;
  params.pairs_of_row = static_cast<int32_t>(product.pairs_of_row);
  params.gate = product.gate;
  params.y = product.y;
  const int64_t row_bytes = stack.n_cols * 4;
  params.batch_pairs = static_cast<int32_t>(
      ids != nullptr
          ? 1
          : std::clamp<int64_t>(dynamic_shared_bytes(device_) / row_bytes, 1, kMoeFmaPairs));
  const int64_t n_tiles = ids != nullptr ? n_pairs : most_moe_tiles(n_pairs, n_experts_);
  const int64_t n_blocks = std::clamp<int64_t>(divide_up(device_.n_sm * kFmaBlocksOfSm, n_tiles), 1,
                                               divide_up(stack.n_rows, kWarps));
  launch(kernels_, fmt::format("moe_fma.{}", stack.type->name),
         {.grid_x = static_cast<uint32_t>(n_tiles),
          .grid_y = static_cast<uint32_t>(n_blocks),
          .block_x = kMoeThreads,
          .shared_bytes = static_cast<uint32_t>(params.batch_pairs * row_bytes),
          .overlap = true},
         stream_, params);
}

void Moe::multiply_gemm(const Product& product, const F16Rows& x, int64_t n_pairs) {
  const Weight& stack = *product.stack;
  MoeProductParams params{};
  params.w = weights_.matrix(stack);
  params.n_rows = static_cast<int32_t>(stack.n_rows);
  params.groups = {pairs_.as<int32_t>(), first_.as<int32_t>(), tiles_.as<MoeTile>(),
                   n_tiles_.as<int32_t>()};
  params.x_f16 = x;
  params.pairs_of_row = static_cast<int32_t>(product.pairs_of_row);
  params.largest = largest_.as<float>() + largest_idx_.at(&stack);
  params.gate = product.gate;
  params.y = product.y;
  launch(kernels_, fmt::format("moe_gemm.{}", stack.type->name),
         {.grid_x = static_cast<uint32_t>(most_moe_tiles(n_pairs, n_experts_)),
          .grid_y = static_cast<uint32_t>(divide_up(stack.n_rows, kMoeGemmRows)),
          .block_x = kMoeGemmWarps * 32,
          .shared_bytes = static_cast<uint32_t>(gemm_shared_bytes(*stack.type)),
          .overlap = true},
         stream_, params);
}

void Moe::combine(const MoeFfnCall& call) {
  const auto n_cols = static_cast<int32_t>(call.down->n_rows);
  launch(kernels_, "moe_combine",
         {.grid_x = static_cast<uint32_t>(call.n_tokens),
          .grid_y = static_cast<uint32_t>(divide_up(n_cols, kMoeThreads)),
          .block_x = kMoeThreads,
          .overlap = true},
         stream_,
         MoeCombineParams{parts_.as<float>(), call.weights, call.init, call.residual, call.y,
                          static_cast<int32_t>(n_used_), n_cols});
}

}  // namespace apr::cuda
