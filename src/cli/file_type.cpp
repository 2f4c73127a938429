#include "cli/file_type.h"

#include <algorithm>
#include <map>

#include "apr/quant.h"

namespace apr::cli {
namespace {

struct FileTypeRow {
  uint64_t file_type;
  std::string_view name;
};

// llama.cpp's enum llama_ftype and llama_ftype_name; the values it has retired are left out.
constexpr FileTypeRow kFileTypes[] = {
    {0, "all F32"},
    {1, "F16"},
    {2, "Q4_0"},
    {3, "Q4_1"},
    {7, "Q8_0"},
    {8, "Q5_0"},
    {9, "Q5_1"},
    {10, "Q2_K - Medium"},
    {11, "Q3_K - Small"},
    {12, "Q3_K - Medium"},
    {13, "Q3_K - Large"},
    {14, "Q4_K - Small"},
    {15, "Q4_K - Medium"},
    {16, "Q5_K - Small"},
    {17, "Q5_K - Medium"},
    {18, "Q6_K"},
    {19, "IQ2_XXS - 2.0625 bpw"},
    {20, "IQ2_XS - 2.3125 bpw"},
    {21, "Q2_K - Small"},
    {22, "IQ3_XS - 3.3 bpw"},
    {23, "IQ3_XXS - 3.0625 bpw"},
    {24, "IQ1_S - 1.5625 bpw"},
    {25, "IQ4_NL - 4.5 bpw"},
    {26, "IQ3_S - 3.4375 bpw"},
    {27, "IQ3_S mix - 3.66 bpw"},
    {28, "IQ2_S - 2.5 bpw"},
    {29, "IQ2_M - 2.7 bpw"},
    {30, "IQ4_XS - 4.25 bpw"},
    {31, "IQ1_M - 1.75 bpw"},
    {32, "BF16"},
    {36, "TQ1_0 - 1.69 bpw ternary"},
    {37, "TQ2_0 - 2.06 bpw ternary"},
    {38, "MXFP4 MoE"},
    {39, "NVFP4"},
    {40, "Q1_0"},
    {41, "Q2_0"},
};

}  // namespace

std::string_view file_type_name(uint64_t file_type) {
  const auto* row =
      std::find_if(std::begin(kFileTypes), std::end(kFileTypes),
                   [&](const FileTypeRow& each) { return each.file_type == file_type; });
  return row == std::end(kFileTypes) ? std::string_view() : row->name;
}

std::string weight_types(const GgufFile& file) {
  const GgufValue* value = file.find("general.file_type");
  const auto file_type = value == nullptr ? std::nullopt : value->as_u64();
  const std::string_view name = file_type ? file_type_name(*file_type) : std::string_view();
  if (!name.empty()) {
    return std::string(name);
  }
  std::map<uint32_t, uint64_t> bytes_of_type;
  for (const GgufTensor& tensor : file.tensors()) {
    bytes_of_type[tensor.type_id] += tensor.data.size();
  }
  const auto most =
      std::max_element(bytes_of_type.begin(), bytes_of_type.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == bytes_of_type.end()) {
    return "";
  }
  const QuantType* type = find_quant_type(most->first);
  return type != nullptr ? std::string(type->name) : quant_type_label(most->first);
}

}  // namespace apr::cli
