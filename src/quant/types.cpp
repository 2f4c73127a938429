#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "apr/quant.h"
#include "apr_quant_files.h"
#include "quant/dequantize.h"

namespace apr {
namespace {

template <class T>
void dequantize(const std::byte* blocks, int64_t n_blocks, float* out) {
  quant::dequantize_blocks<T>(reinterpret_cast<const uint8_t*>(blocks), n_blocks, out);
}

#define APR_QUANT_TYPE(id, name, Struct, file)                                \
  QuantType{id, name, quant::Struct::kBlockElems, quant::Struct::kBlockBytes, \
            dequantize<quant::Struct>},
constexpr QuantType kTypes[] = {
#include "quant/type_rows.inc"
};
#undef APR_QUANT_TYPE

// Types that files in the wild carry and this table does not: named in messages, never decoded.
struct ForeignType {
  uint32_t id;
  const char* label;
};

// Ids of ggml (ggml.h) and of its fork ik_llama.cpp (gguf-py/gguf/constants.py).
constexpr ForeignType kForeignTypes[] = {
    {4, "Q4_2, removed from ggml"},
    {5, "Q4_3, removed from ggml"},
    {9, "Q8_1"},
    {15, "Q8_K"},
    {24, "I8"},
    {25, "I16"},
    {26, "I32"},
    {27, "I64"},
    {28, "F64"},
    {31, "Q4_0_4_4, removed from ggml"},
    {32, "Q4_0_4_8, removed from ggml"},
    {33, "Q4_0_8_8, removed from ggml"},
    {36, "IQ4_NL_4_4, removed from ggml; ik_llama.cpp I2_S"},
    {37, "IQ4_NL_4_8, removed from ggml"},
    {38, "IQ4_NL_8_8, removed from ggml"},
    {41, "Q1_0"},
    {42, "Q2_0"},
    {97, "ik_llama.cpp Q8_0_X4"},
    {98, "ik_llama.cpp Q8_1_X4"},
    {99, "ik_llama.cpp Q8_2_X4"},
    {133, "ik_llama.cpp Q6_0"},
    {134, "ik_llama.cpp IQ1_BN"},
    {135, "ik_llama.cpp IQ2_BN"},
    {136, "ik_llama.cpp Q8_K64"},
    {137, "ik_llama.cpp IQ2_K"},
    {138, "ik_llama.cpp IQ3_K"},
    {139, "ik_llama.cpp IQ4_K"},
    {140, "ik_llama.cpp IQ5_K"},
    {141, "ik_llama.cpp IQ6_K"},
    {142, "ik_llama.cpp IQ2_TN"},
    {143, "ik_llama.cpp IQ1_TN"},
    {144, "ik_llama.cpp IQ4_KS"},
    {145, "ik_llama.cpp IQ2_KS"},
    {146, "ik_llama.cpp IQ4_KSS"},
    {147, "ik_llama.cpp Q8_K16"},
    {148, "ik_llama.cpp Q8_K32"},
    {149, "ik_llama.cpp Q8_KR8"},
    {150, "ik_llama.cpp Q8_K128"},
    {151, "ik_llama.cpp Q8_KV"},
    {152, "ik_llama.cpp IQ5_KS"},
    {153, "ik_llama.cpp IQ2_KT"},
    {154, "ik_llama.cpp IQ3_KT"},
    {155, "ik_llama.cpp IQ4_KT"},
    {156, "ik_llama.cpp IQ3_KS"},
    {157, "ik_llama.cpp IQ2_KL"},
    {158, "ik_llama.cpp IQ1_KT"},
    {202, "ik_llama.cpp Q4_0_R8"},
    {206, "ik_llama.cpp Q5_0_R4"},
    {208, "ik_llama.cpp Q8_0_R8"},
    {210, "ik_llama.cpp Q2_K_R4"},
    {211, "ik_llama.cpp Q3_K_R4"},
    {212, "ik_llama.cpp Q4_K_R4"},
    {213, "ik_llama.cpp Q5_K_R4"},
    {214, "ik_llama.cpp Q6_K_R4"},
    {216, "ik_llama.cpp IQ2_XXS_R4"},
    {217, "ik_llama.cpp IQ2_XS_R4"},
    {218, "ik_llama.cpp IQ3_XXS_R4"},
    {219, "ik_llama.cpp IQ1_S_R4"},
    {220, "ik_llama.cpp IQ4_NL_R4"},
    {221, "ik_llama.cpp IQ3_S_R4"},
    {222, "ik_llama.cpp IQ2_S_R4"},
    {223, "ik_llama.cpp IQ4_XS_R8"},
    {229, "ik_llama.cpp IQ1_M_R4"},
    {230, "ik_llama.cpp BF16_R16"},
    {233, "ik_llama.cpp Q6_0_R4"},
    {335, "ik_llama.cpp IQ2_BN_R4"},
    {337, "ik_llama.cpp IQ2_K_R4"},
    {338, "ik_llama.cpp IQ3_K_R4"},
    {339, "ik_llama.cpp IQ4_K_R4"},
    {340, "ik_llama.cpp IQ5_K_R4"},
    {344, "ik_llama.cpp IQ4_KS_R4"},
    {352, "ik_llama.cpp IQ5_KS_R4"},
    {398, "ik_llama.cpp Q8_KV_R8"},
    {399, "ik_llama.cpp Q8_K_R8"},
};

}  // namespace

std::span<const QuantType> quant_types() {
  return kTypes;
}

const QuantType* find_quant_type(uint32_t id) {
  const auto* row = std::ranges::find(kTypes, id, &QuantType::id);
  return row != std::ranges::end(kTypes) ? row : nullptr;
}

const QuantType* find_quant_type(std::string_view name) {
  const auto* row = std::ranges::find(kTypes, name, &QuantType::name);
  return row != std::ranges::end(kTypes) ? row : nullptr;
}

std::optional<TypeLayout> quant_type_layout(uint32_t id) {
  const QuantType* type = find_quant_type(id);
  if (type == nullptr) {
    return std::nullopt;
  }
  return TypeLayout{type->block_elems, type->block_bytes};
}

std::string quant_type_label(uint32_t id) {
  if (const QuantType* type = find_quant_type(id)) {
    return fmt::format("{} ({})", id, type->name);
  }
  const auto* foreign = std::ranges::find(kForeignTypes, id, &ForeignType::id);
  if (foreign != std::ranges::end(kForeignTypes)) {
    return fmt::format("{} ({})", id, foreign->label);
  }
  return fmt::format("{}", id);
}

}  // namespace apr
