// The bounds of exact mode (design.md, Numerics) as gtest assertions.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace apr::test {

inline double cosine(std::span<const float> a, std::span<const float> b) {
  double ab = 0.0, aa = 0.0, bb = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * a[i];
    bb += static_cast<double>(b[i]) * b[i];
  }
  return aa == 0.0 || bb == 0.0 ? (aa == bb ? 1.0 : 0.0) : ab / std::sqrt(aa * bb);
}

// max |a - b| / max |b|
inline double relative_linf(std::span<const float> a, std::span<const float> b) {
  double diff = 0.0, size = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - b[i]);
    diff = std::isnan(d) ? INFINITY : std::max(diff, d);
    size = std::max(size, std::abs(static_cast<double>(b[i])));
  }
  return size == 0.0 ? diff : diff / size;
}

inline size_t argmax(std::span<const float> x) {
  return static_cast<size_t>(std::max_element(x.begin(), x.end()) - x.begin());
}

// Exact mode: cosine >= 0.99999, relative Linf <= 1e-4, and the same argmax wherever the oracle's
// margin exceeds 2e-4 x max|logit|.
inline ::testing::AssertionResult within_exact_bounds(std::span<const float> found,
                                                      std::span<const float> oracle) {
  const double cos = cosine(found, oracle);
  const double linf = relative_linf(found, oracle);
  if (!(cos >= 0.99999) || !(linf <= 1e-4)) {
    return ::testing::AssertionFailure() << "cosine " << cos << ", relative Linf " << linf;
  }
  const size_t top = argmax(oracle);
  float second = -INFINITY, largest = 0.0F;
  for (size_t i = 0; i < oracle.size(); ++i) {
    largest = std::max(largest, std::abs(oracle[i]));
    if (i != top) {
      second = std::max(second, oracle[i]);
    }
  }
  if (oracle[top] - second > 2e-4F * largest && argmax(found) != top) {
    return ::testing::AssertionFailure() << "argmax " << argmax(found) << ", expected " << top
                                         << ", margin " << oracle[top] - second;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace apr::test
