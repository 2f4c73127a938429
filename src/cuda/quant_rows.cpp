#include "cuda/quant_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

namespace apr::cuda {
namespace {

// Keeps texts alive for the views of KernelRow.
std::string_view keep(std::string text) {
  static std::deque<std::string> texts;
  return texts.emplace_back(std::move(text));
}

void add_rows(std::vector<KernelRow>& rows, std::string_view name, std::string_view traits,
              std::string_view file, bool is_plain) {
  const std::string_view quant_file = keep(fmt::format("quant/{}", file));
  const std::string type = fmt::format("apr::quant::{}", traits);
  const auto add = [&](std::string row, std::string_view kernel_file, std::string expression,
                       std::vector<std::string_view> only = {}, bool all_shared = false) {
    rows.push_back({keep(std::move(row)),
                    kernel_file,
                    keep(std::move(expression)),
                    {},
                    std::move(only),
                    all_shared,
                    name,
                    quant_file});
  };
  const char* resident = is_plain ? "false" : "true";
  for (const bool planes : {false, true}) {
    if (planes && is_plain) {
      continue;
    }
    for (const auto& [form, value] : {std::pair{"f32", "kF32"}, std::pair{"f16", "kF16"}}) {
      add(fmt::format("dequant.{}.{}.{}", name, planes ? "planes" : "raw", form), "dequant.cu",
          fmt::format("apr::dequant<{}, {}, apr::DequantForm::{}>", type, planes, value));
    }
  }
  add(fmt::format("dequant.{}.{}.e4m3", name, is_plain ? "raw" : "planes"), "dequant.cu",
      fmt::format("apr::dequant<{}, {}, apr::DequantForm::kE4m3>", type, resident),
      {"sm_89", "sm_90a", "sm_100", "sm_120", "sm_121"});
  add(fmt::format("absmax.{}", name), "dequant.cu",
      fmt::format("apr::weight_absmax<{}, {}>", type, resident));
  add(fmt::format("embed.{}", name), "embed.cu", fmt::format("apr::embed<{}, {}>", type, resident));
  if (name == "Q4_K") {
    add("dp4a_gemm.Q4_K", "dp4a_gemm.cu", fmt::format("apr::dp4a_gemm<{}>", type));
  }
  const std::vector<std::string_view> tensor_cores = {"sm_80",  "sm_86",  "sm_89", "sm_90a",
                                                      "sm_100", "sm_120", "sm_121"};
  add(fmt::format("moe_fma.{}", name), "moe_fma.cu",
      fmt::format("apr::moe_fma<{}, {}>", type, resident), {}, true);
  if (!is_plain) {
    add(fmt::format("moe_gemm.{}", name), "moe_gemm.cu", fmt::format("apr::moe_gemm<{}>", type),
        tensor_cores, true);
  }
  if (!is_plain) {
    for (const int n_tiles : {1, 2}) {
      add(fmt::format("matvec_rows.{}.{}", name, 8 * n_tiles), "matvec_rows.cu",
          fmt::format("apr::matvec_rows<{}, {}>", type, n_tiles), tensor_cores, true);
    }
    // See TierCase::few_registers.
    add(fmt::format("small_gemm.{}", name), "small_gemm.cu",
        fmt::format("apr::small_gemm<{}>", type), {"sm_80", "sm_86", "sm_89", "sm_90a"}, true);
  }
  for (const bool swiglu : {false, true}) {
    const char* suffix = swiglu ? ".swiglu" : "";
    const char* epilogue = swiglu ? "apr::MatvecEpilogue::kSwiglu" : "apr::MatvecEpilogue::kNone";
    add(fmt::format("matvec_fma.{}{}", name, suffix), "matvec_fma.cu",
        fmt::format("apr::matvec_fma<{}, {}, {}>", type, resident, epilogue), {}, true);
    if (is_plain) {
      continue;
    }
    add(fmt::format("matvec_mma.{}{}", name, suffix), "matvec_mma.cu",
        fmt::format("apr::matvec_mma<{}, {}>", type, epilogue), tensor_cores, true);
    add(fmt::format("moe_matvec.{}{}", name, suffix), "moe_matvec.cu",
        fmt::format("apr::moe_matvec<{}, {}>", type, epilogue), tensor_cores, true);
  }
}

// Of q and k, and of v: what llama.cpp's mixes give them (llama-quant.cpp), from Q2_K to Q5_K_M.
constexpr std::pair<std::string_view, std::string_view> kMatvecPairs[] = {
    {"Q2_K", "Q3_K"},   {"Q2_K", "Q4_K"},    {"Q3_K", "Q4_K"},    {"Q3_K", "Q5_K"},
    {"Q4_K", "Q5_K"},   {"Q4_K", "Q6_K"},    {"Q5_K", "Q6_K"},    {"IQ4_XS", "Q5_K"},
    {"IQ4_NL", "Q5_K"}, {"IQ2_XXS", "Q2_K"}, {"IQ2_XS", "Q2_K"},  {"IQ2_XXS", "Q4_K"},
    {"IQ2_XS", "Q4_K"}, {"IQ2_S", "Q4_K"},   {"IQ3_XXS", "Q4_K"}, {"IQ3_S", "Q4_K"},
};

// A row of both types, made from rows of one.
KernelRow matvec_pair_row(const KernelRow& first, const KernelRow& second) {
  KernelRow row = first;
  const auto type_of = [](const KernelRow& of) {  // "apr::quant::Q4_K" of its matvec_mma
    const size_t begin = of.name_expression.find('<') + 1;
    return of.name_expression.substr(begin, of.name_expression.find(',') - begin);
  };
  row.name = keep(fmt::format("matvec_pair.{}.{}", first.quant_type, second.quant_type));
  row.file = "matvec_pair.cu";
  row.name_expression =
      keep(fmt::format("apr::matvec_pair<{}, {}>", type_of(first), type_of(second)));
  row.second_type = second.quant_type;
  row.second_file = second.quant_file;
  return row;
}

}  // namespace

bool has_matvec_pair(std::string_view first, std::string_view second) {
  return std::find(std::begin(kMatvecPairs), std::end(kMatvecPairs), std::pair{first, second}) !=
         std::end(kMatvecPairs);
}

std::vector<KernelRow> quant_kernel_rows() {
  std::vector<KernelRow> rows;
#define APR_QUANT_TYPE(id, name, traits, file) \
  add_rows(                                    \
      rows, name, #traits, file,               \
      std::string_view(name).substr(0, 1) == "F" || std::string_view(name).substr(0, 1) == "B");
#include "quant/type_rows.inc"
#undef APR_QUANT_TYPE
  const auto mma_row = [&](std::string_view type) {
    const std::string name = fmt::format("matvec_mma.{}", type);
    return *std::find_if(rows.begin(), rows.end(),
                         [&](const KernelRow& row) { return row.name == name; });
  };
  for (const auto& [first, second] : kMatvecPairs) {
    rows.push_back(matvec_pair_row(mma_row(first), mma_row(second)));
  }
  return rows;
}

}  // namespace apr::cuda
