// The fused stages of a prefill in modes f16 and fp8: one input, its products, and what follows
// them.
#include "apr/error.h"
#include "cuda/launch_product_rows.h"
#include "cuda/projection.h"

namespace apr::cuda {
namespace {

// The ops of such a stage; null where it has none.
struct StageOps {
  std::vector<const Op*> matmuls;
  const Op* swiglu = nullptr;
  const Op* add = nullptr;
  const Op* norm = nullptr;
};

StageOps ops_of(const Plan& plan, const Stage& stage) {
  StageOps ops;
  for (int op_idx = stage.first_op; op_idx < stage.first_op + stage.n_ops; ++op_idx) {
    const Op& op = plan.ops[static_cast<size_t>(op_idx)];
    switch (op.kind) {
      case OpKind::kMatmul:
        ops.matmuls.push_back(&op);
        break;
      case OpKind::kSwiglu:
        ops.swiglu = &op;
        break;
      case OpKind::kAdd:
        ops.add = &op;
        break;
      case OpKind::kRmsNorm:
        ops.norm = &op;
        break;
      default:  // of an attention, which launches them
        break;
    }
  }
  return ops;
}

// The values of a plan in its workspace.
class Values {
 public:
  Values(const ExecPlan& exec, std::byte* workspace) : exec_(exec), workspace_(workspace) {}

  ValueFormat format(ValueId id) const { return exec_.value_format[static_cast<size_t>(id)]; }
  float* f32(ValueId id) const { return reinterpret_cast<float*>(at(id)); }
  ScaledRows scaled(ValueId id) const {
    const bool e4m3 = format(id) == ValueFormat::kE4m3Rows;
    const E4m3Rows bytes = e4m3_rows(id);
    const F16Rows halves = f16_rows(id);
    return e4m3 ? ScaledRows{bytes.values, bytes.undo} : ScaledRows{halves.values, halves.undo};
  }
  // Where a kernel that makes any of the forms puts the value: the others are null.
  float* f32_or_null(ValueId id) const {
    return format(id) == ValueFormat::kF32 ? f32(id) : nullptr;
  }
  F16Rows f16_or_null(ValueId id) const {
    return format(id) == ValueFormat::kF16Rows ? f16_rows(id) : F16Rows{};
  }
  E4m3Rows e4m3_or_null(ValueId id) const {
    return format(id) == ValueFormat::kE4m3Rows ? e4m3_rows(id) : E4m3Rows{};
  }

 private:
  int64_t row_elems(ValueId id) const {
    return exec_.plan->values[static_cast<size_t>(id)].row_elems();
  }
  F16Rows f16_rows(ValueId id) const {
    std::byte* values = at(id);
    return {reinterpret_cast<uint16_t*>(values),
            reinterpret_cast<float*>(values + exec_.target.max_rows * row_elems(id) * 2)};
  }
  E4m3Rows e4m3_rows(ValueId id) const {
    std::byte* values = at(id);
    return {
        reinterpret_cast<uint8_t*>(values),
        reinterpret_cast<float*>(values + e4m3_values_bytes(exec_.target.max_rows, row_elems(id)))};
  }
  std::byte* at(ValueId id) const {
    const int64_t offset = exec_.value_offset_bytes[static_cast<size_t>(id)];
    APR_CHECK(offset >= 0, exec_.plan->values[static_cast<size_t>(id)].name);
    return workspace_ + offset;
  }

  const ExecPlan& exec_;
  std::byte* workspace_;
};

}  // namespace

GroupProducts Projection::multiply(const ExecPlan& exec, const Stage& stage, std::byte* workspace,
                                   int64_t n_tokens) {
  APR_CHECK(scales_rows(mode_), "fused stages are of modes f16 and fp8");
  const StageOps ops = ops_of(*exec.plan, stage);
  const Values values(exec, workspace);
  GroupProducts group;
  if (ops.matmuls.empty()) {
    return group;
  }
  std::vector<const Weight*> weights;
  int64_t n_cols = 0;
  for (const Op* op : ops.matmuls) {
    weights.push_back(op->weights[0]);
    group.columns.push_back(columns_of(*op->weights[0], weights_.vector(op->weights[1]), n_cols));
    n_cols += op->weights[0]->n_rows;
  }
  const ValueId x = ops.matmuls[0]->inputs[0];
  const ScaledRows rows = values.format(x) != ValueFormat::kF32
                              ? values.scaled(x)
                              : scale_rows(values.f32(x), n_tokens, weights[0]->n_cols,
                                           half_weights_.is_e4m3(*weights[0]));
  group.data = products_.as<float>();
  const ProductsTo to = own_products(n_tokens, n_cols);
  group.products = {group.data, rows.undo, to.stride, to.split_stride};
  multiply_scaled(weights, rows, n_tokens, to, group.columns);
  return group;
}

void Projection::run(const ExecPlan& exec, const Stage& stage, std::byte* workspace,
                     int64_t n_tokens) {
  const StageOps ops = ops_of(*exec.plan, stage);
  const Values values(exec, workspace);
  const GroupProducts group = multiply(exec, stage, workspace, n_tokens);
  const Products& products = group.products;
  const std::vector<ProductColumns>& columns = group.columns;
  if (ops.swiglu != nullptr) {
    const ValueId y = ops.swiglu->outputs[0];
    launch_swiglu_rows(
        kernels_, stream_,
        {products, columns[0], columns[1], values.f16_or_null(y), values.f32_or_null(y),
         keeps_row(columns[0].n_cols), values.e4m3_or_null(y)},
        n_tokens);
    return;
  }
  if (ops.add == nullptr && ops.norm == nullptr) {
    UnscaleParams params{};
    params.products = products;
    for (size_t part = 0; part < columns.size(); ++part) {
      params.columns[part] = columns[part];
      params.y[part] = values.f32(ops.matmuls[part]->outputs[0]);
      params.y_stride[part] = columns[part].n_cols;
    }
    launch_unscale_rows(kernels_, stream_, params, static_cast<int>(columns.size()), n_tokens);
    return;
  }
  SumNormRowsParams params{};
  params.x = values.f32(ops.add != nullptr ? ops.add->inputs[0] : ops.norm->inputs[0]);
  if (ops.add != nullptr) {
    params.products = products;
    params.columns = columns[0];
    params.sum = values.f32(ops.add->outputs[0]);
    params.n_cols = columns[0].n_cols;
  }
  if (ops.norm != nullptr) {
    const ValueId y = ops.norm->outputs[0];
    params.norm_weight = weights_.vector(ops.norm->weights[0]);
    params.y = values.f16_or_null(y);
    params.y_e4m3 = values.e4m3_or_null(y);
    params.y_f32 = values.f32_or_null(y);
    params.eps = ops.norm->eps;
    params.n_cols = static_cast<int32_t>(ops.norm->head_dim);
    params.keep = keeps_row(params.n_cols);
  }
  launch_sum_norm_rows(kernels_, stream_, params, n_tokens);
}

}  // namespace apr::cuda
