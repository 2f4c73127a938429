// The mixture-of-experts kernels on the GPU against f64 within derived bounds, and the router
// against the CPU's reference.
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "cpu/reference/ops.h"
#include "cuda/launch_matvec.h"
#include "cuda/moe.h"
#include "support/gpu.h"
#include "support/moe_problem.h"

namespace apr::cuda {
namespace {

using test::MoeArithmetic;
using test::MoeProblem;
using test::MoeStack;

using test::kGuard;

Weight weight_of(Role role, const QuantType& type, std::vector<int64_t> shape,
                 const std::byte* data) {
  Weight weight;
  weight.name = "experts of a test";
  weight.role = role;
  weight.layer_idx = 0;
  weight.type = &type;
  weight.n_experts = shape.size() > 2 ? shape[0] : 1;
  weight.n_rows = shape[shape.size() - 2];
  weight.n_cols = shape.back();
  weight.row_bytes = type.row_bytes(weight.n_cols);
  weight.shape = std::move(shape);
  weight.data = data;
  weight.size_bytes = weight.n_experts * weight.n_rows * weight.row_bytes;
  return weight;
}

Weight weight_of(Role role, const MoeStack& stack) {
  return weight_of(role, *stack.type, {stack.n_experts, stack.n_rows, stack.n_cols},
                   stack.raw.data());
}

// The experts of a problem on the device.
class Experts {
 public:
  Experts(std::vector<Weight> model, const MoeDesc& desc, int64_t max_rows, bool exact)
      : model_(std::move(model)), device_(use_device(0)), stream_(create_stream()) {
    std::vector<KernelRow> rows;
    const std::vector<std::string> names = moe_kernels(model_, exact, device_);
    for (const KernelRow& row : kernel_table()) {
      const bool of_type =
          std::any_of(model_.begin(), model_.end(),
                      [&](const Weight& weight) { return row.quant_type == weight.type->name; }) &&
          (row.name.starts_with("absmax.") || row.name.starts_with("dequant."));
      if (runs_on(row, device_.architecture) &&
          (of_type || row.name.starts_with("scale_rows.") ||
           std::find(names.begin(), names.end(), row.name) != names.end())) {
        rows.push_back(row);
      }
    }
    KernelCompiler compiler(APR_TEST_KERNEL_CACHE);
    kernels_ = std::make_unique<KernelLibrary>(
        compiler, rows, device_.architecture,
        static_cast<int64_t>(device_.shared_bytes_per_block) - kStaticSharedBytes);
    weights_ = std::make_unique<DeviceWeights>(model_);
    moe_ = std::make_unique<Moe>(*kernels_, stream_, device_, *weights_, model_, desc,
                                 Moe::Options{exact, max_rows});
  }
  Moe& moe() { return *moe_; }
  const Stream& stream() const { return stream_; }
  const Weight& weight(size_t idx) const { return model_[idx]; }
  MoePath path(size_t idx, bool exact) const {
    return choose_moe_path(model_[idx], exact, device_.cc_major >= 8);
  }

 private:
  std::vector<Weight> model_;
  DeviceFacts device_;
  Stream stream_;
  std::unique_ptr<KernelLibrary> kernels_;
  std::unique_ptr<DeviceWeights> weights_;
  std::unique_ptr<Moe> moe_;
};

// A problem and the experts that compute it.
class Runner {
 public:
  Runner(const MoeProblem& problem, bool exact)
      : problem_(problem),
        exact_(exact),
        experts_(
            {weight_of(Role::kFfnGateExps, problem.gate), weight_of(Role::kFfnUpExps, problem.up),
             weight_of(Role::kFfnDownExps, problem.down)},
            {.n_experts = problem.n_experts, .n_used = problem.n_used}, problem.n_tokens, exact),
        x_(test::to_device<float>(problem.x)),
        init_(test::to_device<float>(problem.init)),
        residual_(test::to_device<float>(problem.residual)),
        weights_(test::to_device<float>(problem.weights)),
        ids_(test::to_device<int32_t>(problem.ids)) {}

  // y of n_tokens tokens from first_token on.
  std::vector<float> run(int64_t first_token, int64_t n_tokens, bool with_init,
                         bool with_residual) {
    const int64_t dim = problem_.model_dim;
    const DeviceBuffer y =
        test::to_device<float>(std::vector<float>(static_cast<size_t>(n_tokens * dim) + 2, kGuard));
    MoeFfnCall call;
    call.gate = &experts_.weight(0);
    call.up = &experts_.weight(1);
    call.down = &experts_.weight(2);
    call.x = x_.as<float>() + first_token * dim;
    call.ids = ids_.as<int32_t>() + first_token * problem_.n_used;
    call.weights = weights_.as<float>() + first_token * problem_.n_used;
    call.init = with_init ? init_.as<float>() + first_token * dim : nullptr;
    call.residual = with_residual ? residual_.as<float>() + first_token * dim : nullptr;
    call.y = y.as<float>() + 1;
    call.n_tokens = n_tokens;
    experts_.moe().ffn(call);
    APR_CUDA(api().cudaStreamSynchronize(experts_.stream().get()));
    std::vector<float> values = test::to_host<float>(y);
    EXPECT_EQ(values.front(), kGuard) << problem_.name();
    EXPECT_EQ(values.back(), kGuard) << problem_.name();
    return {values.begin() + 1, values.end() - 1};
  }

  // Runs and checks some of the tokens.
  void check(int64_t first_token, int64_t n_tokens, bool with_init, bool with_residual) {
    SCOPED_TRACE(fmt::format("exact {}, {} tokens from {}, init {}, residual {}", exact_, n_tokens,
                             first_token, with_init, with_residual));
    const std::vector<float> y = run(first_token, n_tokens, with_init, with_residual);
    const auto how = [&](size_t idx) {
      return experts_.path(idx, exact_) == MoePath::kFma ? MoeArithmetic::kF32
             : n_tokens == 1                             ? MoeArithmetic::kStaged
                                                         : MoeArithmetic::kHalf;
    };
    const int64_t step = std::max<int64_t>(1, n_tokens / 6);
    for (int64_t token = 0; token < n_tokens; token += step) {
      problem_.check(first_token + token, y.data() + token * problem_.model_dim, how(0), how(1),
                     how(2), with_init, with_residual);
      if (::testing::Test::HasFatalFailure()) {
        return;
      }
    }
  }

 private:
  const MoeProblem& problem_;
  bool exact_;
  Experts experts_;
  DeviceBuffer x_, init_, residual_, weights_, ids_;
};

const QuantType& type_of(const char* name) {
  return *find_quant_type(name);
}

TEST(GpuMoe, IsWithinItsBoundForEveryType) {
  APR_NEED_GPU();
  for (const QuantType& type : quant_types()) {
    const MoeProblem problem(type, type, type, {7, 6, 2, 512, 256});
    SCOPED_TRACE(problem.name());
    for (const bool exact : {false, true}) {
      Runner runner(problem, exact);
      runner.check(0, 7, false, true);
      runner.check(3, 1, true, false);
      if (HasFatalFailure()) {
        return;
      }
    }
  }
}

TEST(GpuMoe, TakesAnyNumberOfTokensTypesAndShapes) {
  APR_NEED_GPU();
  struct Case {
    const char *gate, *up, *down;
    MoeProblem::Shape shape;
  };
  for (const Case& c : {
           Case{"Q4_K", "Q4_K", "Q6_K", {300, 16, 2, 256, 256}},
           Case{"Q8_0", "Q8_0", "Q8_0", {300, 256, 8, 128, 64}},
           Case{"IQ3_S", "IQ3_XXS", "Q5_K", {300, 8, 2, 256, 256}},
           Case{"Q8_0", "F16", "Q4_0", {64, 5, 5, 96, 160}},  // every expert, every path
           Case{"F16", "F16", "F16", {64, 7, 3, 72, 40}},     // rows and columns of no tile
           Case{"Q5_1", "Q5_1", "Q4_1", {64, 7, 3, 64, 32}},  // half a unit
           Case{"Q8_0", "Q8_0", "Q8_0", {64, 5, 3, 96, 160}},
           Case{"Q8_0", "Q8_0", "Q8_0", {300, 2, 1, 2048, 32}},
       }) {
    const MoeProblem problem(type_of(c.gate), type_of(c.up), type_of(c.down), c.shape);
    SCOPED_TRACE(problem.name());
    for (const bool exact : {false, true}) {
      Runner runner(problem, exact);
      for (const int64_t n_tokens : {1, 2, 7, 64, 300}) {
        if (n_tokens <= c.shape.n_tokens) {
          runner.check(0, n_tokens, n_tokens == 7, n_tokens != 2);
        }
      }
      runner.check(c.shape.n_tokens - 1, 1, false, true);
      if (HasFatalFailure()) {
        return;
      }
    }
  }
}

// Neither repetition nor the other tokens of a chunk change a bit.
TEST(GpuMoe, GivesATokenTheSameBitsInAnyCompany) {
  APR_NEED_GPU();
  const MoeProblem problem(type_of("Q4_K"), type_of("Q4_K"), type_of("Q6_K"),
                           {300, 12, 3, 512, 256});
  for (const bool exact : {false, true}) {
    Runner runner(problem, exact);
    const std::vector<float> all = runner.run(0, 300, false, true);
    EXPECT_EQ(runner.run(0, 300, false, true), all) << exact;
    const std::vector<float> some = runner.run(40, 33, false, true);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + 40 * problem.model_dim))
        << exact;
    const std::vector<float> one = runner.run(17, 1, false, true);
    for (int repeat = 0; repeat < 10; ++repeat) {
      ASSERT_EQ(runner.run(17, 1, false, true), one) << exact;
    }
    if (exact) {
      EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + 17 * problem.model_dim));
    }
  }
}

TEST(GpuMoe, KeepsWhatIsNotFinite) {
  APR_NEED_GPU();
  MoeProblem problem(type_of("Q4_K"), type_of("Q4_K"), type_of("Q6_K"), {4, 6, 2, 256, 256});
  problem.x[2 * 256 + 9] = std::numeric_limits<float>::quiet_NaN();
  for (const bool exact : {false, true}) {
    Runner runner(problem, exact);
    const std::vector<float> many = runner.run(0, 4, false, false);
    const std::vector<float> one = runner.run(2, 1, false, false);
    for (size_t col = 0; col < 256; ++col) {
      ASSERT_TRUE(std::isfinite(many[256 + col])) << exact << ", " << col;
      ASSERT_FALSE(std::isfinite(many[2 * 256 + col])) << exact << ", " << col;
      ASSERT_FALSE(std::isfinite(one[col])) << exact << ", " << col;
    }
  }
}

// With a router of `type`, whose experts 1 and 3 are alike: ties.
void check_router(const QuantType& type, int64_t n_tokens, int64_t n_experts, int64_t n_used,
                  int64_t n_cols, bool norm) {
  SCOPED_TRACE(fmt::format("{}: {} tokens, {} experts, {} used, {} columns, norm {}, seed 5",
                           type.name, n_tokens, n_experts, n_used, n_cols, norm));
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  MoeStack router(type, 1, n_experts, n_cols, random);
  if (n_experts > 3) {
    const auto row_bytes = static_cast<size_t>(type.row_bytes(n_cols));
    std::memcpy(router.raw.data() + 3 * row_bytes, router.raw.data() + row_bytes, row_bytes);
    std::copy_n(router.values.begin() + n_cols, n_cols, router.values.begin() + 3 * n_cols);
  }
  // Moe is of models with experts.
  const MoeStack stack(type_of("F16"), n_experts, 8, 8, random);
  Experts experts({weight_of(Role::kFfnGateInp, type, {n_experts, n_cols}, router.raw.data()),
                   weight_of(Role::kFfnGateExps, stack)},
                  {.n_experts = n_experts, .n_used = n_used}, n_tokens, false);
  std::vector<float> x, norm_weight;
  for (int64_t elem = 0; elem < n_tokens * n_cols; ++elem) {
    x.push_back(normal(random));
  }
  for (int64_t col = 0; col < n_cols; ++col) {
    norm_weight.push_back(1.0F + 0.2F * normal(random));
  }
  const auto n_pairs = static_cast<size_t>(n_tokens * n_used);
  const DeviceBuffer x_in = test::to_device<float>(x),
                     norm_in = test::to_device<float>(norm_weight);
  const DeviceBuffer normed_out = test::to_device<float>(std::vector<float>(x.size(), kGuard));
  const DeviceBuffer weights_out = test::to_device<float>(std::vector<float>(n_pairs + 1, kGuard));
  const DeviceBuffer ids_out = test::to_device<int32_t>(std::vector<int32_t>(n_pairs + 1, -1));
  MoeRouteCall call;
  call.router = &experts.weight(0);
  call.x = x_in.as<float>();
  call.norm_weight = norm ? norm_in.as<float>() : nullptr;
  call.eps = 1e-6F;
  call.normed = norm ? normed_out.as<float>() : nullptr;
  call.n_tokens = n_tokens;
  call.ids = ids_out.as<int32_t>();
  call.weights = weights_out.as<float>();
  for (int repeat = 0; repeat < 3; ++repeat) {  // what counts blocks is zero again
    experts.moe().route(call);
  }
  APR_CUDA(api().cudaStreamSynchronize(experts.stream().get()));
  const std::vector<float> normed = norm ? test::to_host<float>(normed_out) : x;
  const std::vector<float> weights = test::to_host<float>(weights_out);
  const std::vector<int32_t> ids = test::to_host<int32_t>(ids_out);
  EXPECT_EQ(ids.back(), -1);
  EXPECT_EQ(weights.back(), kGuard);
  for (int64_t token = 0; token < n_tokens; ++token) {
    const float* row = x.data() + token * n_cols;
    const float* normed_row = normed.data() + token * n_cols;
    if (norm) {  // another order of n_cols squares, three roundings
      double squares = 0.0;
      for (int64_t col = 0; col < n_cols; ++col) {
        squares += static_cast<double>(row[col]) * row[col];
      }
      const double scale = 1.0 / std::sqrt(squares / static_cast<double>(n_cols) + 1e-6);
      for (int64_t col = 0; col < n_cols; ++col) {
        const double wanted = row[col] * scale * norm_weight[static_cast<size_t>(col)];
        ASSERT_NEAR(normed_row[col], wanted,
                    (static_cast<double>(n_cols) / 256.0 + 20.0) * 0x1p-24 * std::abs(wanted));
      }
    }
    // Each lane adds n_cols / 32 products, then five times across.
    std::vector<double> logits, bounds;
    for (int64_t expert = 0; expert < n_experts; ++expert) {
      double sum = 0.0, size = 0.0;
      for (int64_t col = 0; col < n_cols; ++col) {
        const double product =
            static_cast<double>(router.values[static_cast<size_t>(expert * n_cols + col)]) *
            normed_row[col];
        sum += product;
        size += std::abs(product);
      }
      logits.push_back(sum);
      bounds.push_back((static_cast<double>(n_cols) / 32.0 + 12.0) * 0x1p-24 * size);
    }
    std::vector<int32_t> order(static_cast<size_t>(n_experts));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    double total = 0.0;
    std::vector<double> exps;
    const int32_t* found = ids.data() + token * n_used;
    for (int64_t slot = 0; slot < n_used; ++slot) {
      const auto wanted = static_cast<size_t>(order[static_cast<size_t>(slot)]);
      ASSERT_GE(found[slot], 0);
      ASSERT_LT(found[slot], n_experts);
      ASSERT_EQ(std::count(found, found + n_used, found[slot]), 1);
      const auto chosen = static_cast<size_t>(found[slot]);
      ASSERT_LE(std::abs(logits[chosen] - logits[wanted]), bounds[chosen] + bounds[wanted])
          << "token " << token << ", slot " << slot;
      exps.push_back(std::exp(logits[chosen] - logits[static_cast<size_t>(found[0])]));
      total += exps.back();
    }
    // Equal logits in the order of the ids: experts 1 and 3 have the same bits.
    const auto* one = std::find(found, found + n_used, 1);
    const auto* three = std::find(found, found + n_used, 3);
    if (n_experts > 3 && three != found + n_used) {
      ASSERT_LT(one, three) << "token " << token;
    }
    for (int64_t slot = 0; slot < n_used; ++slot) {
      const double wanted = exps[static_cast<size_t>(slot)] / total;
      const double bound = 4.0 * (bounds[static_cast<size_t>(found[slot])] +
                                  *std::max_element(bounds.begin(), bounds.end())) +
                           0x1p-22;
      ASSERT_NEAR(weights[static_cast<size_t>(token * n_used + slot)], wanted,
                  bound * wanted + 1e-30)
          << "token " << token << ", slot " << slot;
    }
  }
}

TEST(GpuMoe, RouterChoosesAsTheReference) {
  APR_NEED_GPU();
  const QuantType& f32 = type_of("F32");
  for (const int64_t n_tokens : {1, 2, 7, 64, 300}) {
    check_router(f32, n_tokens, 8, 2, 256, true);
    check_router(f32, n_tokens, 128, 8, 2048, n_tokens == 1);
    check_router(f32, n_tokens, 256, 8, 520, true);
  }
  check_router(f32, 9, 300, 40, 64, false);
  check_router(f32, 3, 4, 4, 16384, true);  // one token at a time
  check_router(f32, 1, 1, 1, 8, false);
  check_router(type_of("F16"), 20, 60, 4, 256, true);
  check_router(type_of("Q8_0"), 1, 60, 4, 256, true);
}

}  // namespace
}  // namespace apr::cuda
