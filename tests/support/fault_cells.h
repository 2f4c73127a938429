// The cells of the fault matrix: types of the table x kinds of fault, and which cells are empty.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "apr/quant.h"
#include "quant/fault_points.cuh"

namespace apr::test {

struct FaultColumn {
  quant::Fault fault;
  std::string_view name;  // the enumerator, as APR_FAULTS names it
  std::string_view title;
};

inline constexpr std::array kFaultColumns{
    FaultColumn{quant::Fault::kSign, "kSign", "sign"},
    FaultColumn{quant::Fault::kHighBits, "kHighBits", "high bits"},
    FaultColumn{quant::Fault::kScaleSelector, "kScaleSelector", "selector"},
    FaultColumn{quant::Fault::kD, "kD", "d"},
    FaultColumn{quant::Fault::kRowStride, "kRowStride", "row stride"},
    FaultColumn{quant::Fault::kTailGuard, "kTailGuard", "tail guard"},
};

struct EmptyCells {
  quant::Fault fault;
  std::string_view types;  // a blank before and after each
  std::string_view reason;
};

inline constexpr std::array kEmptyCells{
    EmptyCells{quant::Fault::kSign, " F32 F16 BF16 ", "the sign is a bit of the stored float"},
    EmptyCells{quant::Fault::kSign, " Q4_0 Q5_0 Q3_K TQ1_0 TQ2_0 ",
               "unsigned levels less a constant: no sign is stored"},
    EmptyCells{quant::Fault::kSign, " Q4_1 Q5_1 ", "unsigned levels plus the minimum as stored"},
    EmptyCells{quant::Fault::kHighBits, " F32 F16 BF16 Q8_0 ", "a weight is stored in one piece"},
    EmptyCells{quant::Fault::kHighBits, " Q4_0 Q4_1 IQ4_NL MXFP4 NVFP4 ",
               "a weight is one nibble, a scale one number"},
    EmptyCells{quant::Fault::kHighBits, " Q2_K TQ2_0 ", "a weight is one field of two bits"},
    EmptyCells{quant::Fault::kHighBits, " TQ1_0 ", "a weight is a digit of one byte"},
    EmptyCells{quant::Fault::kHighBits, " IQ2_XXS IQ2_XS IQ3_XXS ",
               "a grid entry is one byte or one field of nine bits"},
    EmptyCells{quant::Fault::kScaleSelector, " F32 F16 BF16 ", "no scales"},
    EmptyCells{quant::Fault::kScaleSelector, " Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 IQ4_NL MXFP4 TQ1_0 TQ2_0 ",
               "one scale a block"},
    EmptyCells{quant::Fault::kD, " F32 F16 BF16 ", "no scales"},
};

// Why a fault does not apply to a type; empty where it does.
inline std::string_view empty_cell(const QuantType& type, quant::Fault fault) {
  const std::string word = " " + std::string(type.name) + " ";
  for (const EmptyCells& cells : kEmptyCells) {
    if (cells.fault == fault && cells.types.find(word) != cells.types.npos) {
      return cells.reason;
    }
  }
  return {};
}

}  // namespace apr::test
