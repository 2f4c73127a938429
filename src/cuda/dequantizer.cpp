#include "cuda/dequantizer.h"

#include <fmt/format.h>

#include <algorithm>

namespace apr::cuda {
namespace {

constexpr uint32_t kDequantThreads = 256;
constexpr int64_t kDequantBlockCols = 8 * kDequantThreads;
constexpr int64_t kDequantGridRows = 65535;  // the second axis of a grid

std::string dequant_row(const Weight& weight, const char* form) {
  const char* layout = has_planes(*weight.type) ? "planes" : "raw";
  return fmt::format("dequant.{}.{}.{}", weight.type->name, layout, form);
}

}  // namespace

std::optional<std::string> missing_dequant(std::span<const Weight> weights,
                                           std::span<const KernelRow> rows) {
  for (const Weight& weight : weights) {
    for (const char* form : {"f32", "f16"}) {
      const std::string name = dequant_row(weight, form);
      const bool as_it_is = weight.type->name == "F32" && std::string_view(form) == "f32";
      if (!as_it_is && std::none_of(rows.begin(), rows.end(),
                                    [&](const KernelRow& row) { return row.name == name; })) {
        return fmt::format("no {} dequant kernel for {} ({})", form, weight.type->name,
                           weight.name);
      }
    }
  }
  return std::nullopt;
}

int64_t launch_dequant(const KernelLibrary& kernels, const Stream& stream,
                       const std::string& kernel, DequantParams params, int64_t n_rows,
                       int64_t out_row_bytes) {
  auto* const out = static_cast<std::byte*>(params.out);
  const int32_t first_row = params.first_row;
  int64_t n_launches = 0;
  for (int64_t done = 0; done < n_rows; done += kDequantGridRows, ++n_launches) {
    params.first_row = static_cast<int32_t>(first_row + done);
    params.out = out + done * out_row_bytes;
    launch(kernels, kernel,
           {.grid_x = blocks_for(params.n_cols, kDequantBlockCols),
            .grid_y = static_cast<uint32_t>(std::min(kDequantGridRows, n_rows - done)),
            .block_x = kDequantThreads},
           stream, params);
  }
  return n_launches;
}

void Dequantizer::launch_over_rows(const std::string& kernel, const Weight& weight, RowRange rows,
                                   std::byte* out, int64_t out_row_bytes, const float* largest) {
  const DequantParams params{weights_.matrix(weight),
                             out,
                             static_cast<int32_t>(rows.first),
                             static_cast<int32_t>(weight.n_cols),
                             1.0F,
                             largest};
  launches_[kernel] +=
      launch_dequant(kernels_, stream_, kernel, params, rows.n_rows, out_row_bytes);
}

void Dequantizer::to_f32(const Weight& weight, RowRange rows, float* out) {
  launch_over_rows(dequant_row(weight, "f32"), weight, rows, reinterpret_cast<std::byte*>(out),
                   weight.n_cols * 4, nullptr);
}

void Dequantizer::to_f16(const Weight& weight, RowRange rows, const float* largest, uint16_t* out) {
  launch_over_rows(dequant_row(weight, "f16"), weight, rows, reinterpret_cast<std::byte*>(out),
                   weight.n_cols * 2, largest);
}

void Dequantizer::to_e4m3(const Weight& weight, RowRange rows, const float* largest, uint8_t* out) {
  launch_over_rows(dequant_row(weight, "e4m3"), weight, rows, reinterpret_cast<std::byte*>(out),
                   weight.n_cols, largest);
}

void Dequantizer::find_largest(const Weight& weight, float* largest) {
  // Every row goes into the one maximum: no step from row to row.
  launch_over_rows(fmt::format("absmax.{}", weight.type->name), weight,
                   {0, weight.n_experts * weight.n_rows}, reinterpret_cast<std::byte*>(largest), 0,
                   nullptr);
}

}  // namespace apr::cuda
