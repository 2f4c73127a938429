// Places in the arithmetic of the fit where a test plants a fault; nothing in the program itself.
#pragma once

namespace apr {

enum class FitFault {
  kNone,
  kNoWeights,  // each term of need_bytes left out
  kNoCache,
  kNoKv,
  kNoReserve,
  kNoHead,        // of the walk: the output matrix left out
  kOneExpert,     // of the walk: one expert of a stack
  kOneByteCache,  // 16-bit weights counted as one byte
  kAtLeast,       // `need >= free` does not fit
};

#if defined(APR_FAULTS)
inline FitFault planted_fit_fault = FitFault::kNone;
inline bool planted(FitFault fault) {
  return fault == planted_fit_fault;
}
#else
constexpr bool planted(FitFault) {
  return false;
}
#endif

}  // namespace apr
