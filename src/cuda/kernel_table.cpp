#include "cuda/kernel_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <deque>
#include <utility>

#include "apr/error.h"
#include "cuda/quant_rows.h"
#include "flash_shape.h"
#include "split_shape.h"

namespace apr::cuda {
namespace {

std::span<const KernelRow> rows_in_force;  // of a ScopedKernelTable; else empty

struct Architecture {
  std::string_view name;
  int cc_major, cc_minor;
};

// "a": with the instructions of this one chip generation (wgmma, setmaxnreg).
constexpr std::array kArchitectures{
    Architecture{"sm_75", 7, 5},   Architecture{"sm_80", 8, 0},   Architecture{"sm_86", 8, 6},
    Architecture{"sm_89", 8, 9},   Architecture{"sm_90a", 9, 0},  Architecture{"sm_100", 10, 0},
    Architecture{"sm_120", 12, 0}, Architecture{"sm_121", 12, 1},
};

// sm_80 and later: cp.async, m16n8k16 with f16.
std::vector<std::string_view> with_tensor_cores() {
  std::vector<std::string_view> names;
  for (const Architecture& arch : kArchitectures) {
    if (arch.cc_major >= 8) {
      names.push_back(arch.name);
    }
  }
  return names;
}

// Of passes that end in rows for a product, the forms that make E4M3: sm_89 and later.
std::vector<KernelRow> e4m3_rows() {
  const std::vector<std::string_view> only = {"sm_89", "sm_90a", "sm_100", "sm_120", "sm_121"};
  std::vector<KernelRow> rows{
      {"scale_rows.vec4.e4m3", "scale_rows.cu", "apr::scale_rows<4, true>"},
      {"scale_rows.scalar.e4m3", "scale_rows.cu", "apr::scale_rows<1, true>"},
      {"swiglu_rows.vec4.e4m3", "product_rows.cu", "apr::swiglu_rows<4, true>", {}, {}, true},
      {"swiglu_rows.scalar.e4m3", "product_rows.cu", "apr::swiglu_rows<1, true>", {}, {}, true},
      {"sum_norm_rows.vec4.e4m3", "product_rows.cu", "apr::sum_norm_rows<4, true>", {}, {}, true},
      {"sum_norm_rows.scalar.e4m3", "product_rows.cu", "apr::sum_norm_rows<1, true>", {}, {}, true},
  };
  for (KernelRow& row : rows) {
    row.only = only;
  }
  return rows;
}

// One row for each head size, of decode for each cache type and number of query heads to a key
// head, too.
std::vector<KernelRow> attention_rows() {
  static std::deque<std::string> texts;  // what the rows' views name
  std::vector<KernelRow> rows;
  for (const auto& [head_dim, shared_bytes] :
       {std::pair{64, FlashShape<64>::kSharedBytes}, std::pair{128, FlashShape<128>::kSharedBytes},
        std::pair{256, FlashShape<256>::kSharedBytes}}) {
    const std::string& name = texts.emplace_back(fmt::format("attention_prefill.{}", head_dim));
    const std::string& expression =
        texts.emplace_back(fmt::format("apr::attention_prefill<{}>", head_dim));
    rows.push_back({.name = name,
                    .file = "attention_prefill.cu",
                    .name_expression = expression,
                    .only = with_tensor_cores(),
                    .shared_bytes = shared_bytes});
  }
  for (const int head_dim : {64, 128, 256}) {
    for (const bool fused : {false, true}) {
      const std::string& name =
          texts.emplace_back(fmt::format("attention_split{}.{}", fused ? "_fused" : "", head_dim));
      const std::string& expression =
          texts.emplace_back(fmt::format("apr::attention_split<{}, {}>", head_dim, fused));
      rows.push_back({.name = name,
                      .file = "attention_split.cu",
                      .name_expression = expression,
                      .only = with_tensor_cores(),
                      .shared_bytes = split_shared_bytes(head_dim, kMostSplitGroup, kMostSplits)});
    }
  }
  for (const bool half : {true, false}) {
    for (const int head_dim : {64, 128, 256}) {
      for (int group = 1; group <= 8; ++group) {
        const std::string& name = texts.emplace_back(
            fmt::format("attention_decode.{}.{}.{}", half ? "f16" : "f32", head_dim, group));
        const std::string& expression = texts.emplace_back(fmt::format(
            "apr::attention_decode<apr::{}, {}, {}>", half ? "KvF16" : "KvF32", head_dim, group));
        rows.push_back(
            {.name = name, .file = "attention_decode.cu", .name_expression = expression});
        if (half) {
          rows.back().only = {"sm_75"};  // the others have attention_split
        }
      }
    }
  }
  return rows;
}

}  // namespace

std::span<const std::string_view> tested_architectures() {
  static const std::array names = [] {
    std::array<std::string_view, kArchitectures.size()> result;
    std::transform(kArchitectures.begin(), kArchitectures.end(), result.begin(),
                   [](const Architecture& arch) { return arch.name; });
    return result;
  }();
  return names;
}

std::span<const KernelRow> kernel_table() {
  if (!rows_in_force.empty()) {
    return rows_in_force;
  }
  static const std::vector<KernelRow> rows = [] {
    std::vector<KernelRow> all{
        {"rms_norm.vec4", "rms_norm.cu", "apr::rms_norm<4>"},
        {"rms_norm.scalar", "rms_norm.cu", "apr::rms_norm<1>"},
        {"attention_softmax", "attention_exact.cu", "apr::attention_softmax"},
        {"attention_gate", "attention_exact.cu", "apr::attention_gate"},
        {"qk_rope_append.f16", "qk_rope_append.cu", "apr::qk_rope_append<apr::KvF16>"},
        {"qk_rope_append.f32", "qk_rope_append.cu", "apr::qk_rope_append<apr::KvF32>"},
        {"elementwise.add", "elementwise.cu", "apr::elementwise<apr::Binary::kAdd>"},
        {"elementwise.swiglu", "elementwise.cu", "apr::elementwise<apr::Binary::kSwiglu>"},
        {"quantize_rows", "quantize_rows.cu", "apr::quantize_rows"},
        {"sample_best", "sample_best.cu", "apr::sample_best"},
        {"sample_select.count", "sample_select.cu", "apr::sample_select<false>"},
        {"sample_select.weight", "sample_select.cu", "apr::sample_select<true>"},
        {"sample_draw", "sample_draw.cu", "apr::sample_draw"},
        {"scale_rows.vec4", "scale_rows.cu", "apr::scale_rows<4>"},
        {"scale_rows.scalar", "scale_rows.cu", "apr::scale_rows<1>"},
        {"unscale_rows.vec4", "scale_rows.cu", "apr::unscale_rows<4>"},
        {"unscale_rows.scalar", "scale_rows.cu", "apr::unscale_rows<1>"},
        {"moe_router.1", "moe_router.cu", "apr::moe_router<1, 1>", {}, {}, true},
        {"moe_router.8", "moe_router.cu", "apr::moe_router<8, 4>", {}, {}, true},
        {"moe_group", "moe_group.cu", "apr::moe_group"},
        {"moe_combine", "moe_combine.cu", "apr::moe_combine"},
        {"swiglu_rows.vec4", "product_rows.cu", "apr::swiglu_rows<4>", {}, {}, true},
        {"swiglu_rows.scalar", "product_rows.cu", "apr::swiglu_rows<1>", {}, {}, true},
        {"sum_norm_rows.vec4", "product_rows.cu", "apr::sum_norm_rows<4>", {}, {}, true},
        {"sum_norm_rows.scalar", "product_rows.cu", "apr::sum_norm_rows<1>", {}, {}, true},
    };
    for (KernelRow& row : e4m3_rows()) {
      all.push_back(std::move(row));
    }
    for (KernelRow& row : attention_rows()) {
      all.push_back(std::move(row));
    }
    for (KernelRow& row : quant_kernel_rows()) {
      all.push_back(std::move(row));
    }
    return all;
  }();
  return rows;
}

ScopedKernelTable::ScopedKernelTable(std::span<const KernelRow> rows)
    : previous_(std::exchange(rows_in_force, rows)) {}

ScopedKernelTable::~ScopedKernelTable() {
  rows_in_force = previous_;
}

const KernelRow& kernel_row(std::string_view name) {
  const auto rows = kernel_table();
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const KernelRow& candidate) { return candidate.name == name; });
  APR_CHECK(row != rows.end(), fmt::format("no kernel row {}", name));
  return *row;
}

bool runs_on(const KernelRow& row, std::string_view arch) {
  return row.only.empty() || std::find(row.only.begin(), row.only.end(), arch) != row.only.end();
}

CompileRequest compile_request(const KernelRow& row, std::string_view arch) {
  return {std::string(row.file), {std::string(row.name_expression)}, row.options,
          std::string(arch),     std::string(row.quant_file),        std::string(row.second_file)};
}

std::string device_architecture(int cc_major, int cc_minor) {
  std::string best = fmt::format("sm_{}{}", cc_major, cc_minor);
  for (const Architecture& arch : kArchitectures) {  // ascending
    // Code with an "a" runs on its own compute capability only.
    if (arch.cc_major == cc_major &&
        (arch.cc_minor == cc_minor || (arch.cc_minor < cc_minor && !arch.name.ends_with('a')))) {
      best = arch.name;
    }
  }
  return best;
}

int architecture_number(std::string_view arch) {
  constexpr std::string_view kPrefix = "sm_";
  APR_CHECK(arch.starts_with(kPrefix), fmt::format("{} is no architecture", arch));
  int number = 0;
  std::from_chars(arch.data() + kPrefix.size(), arch.data() + arch.size(), number);
  return number;
}

}  // namespace apr::cuda
