// Memory of kernels that run on the host (support/simt).
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "quant/device.cuh"

namespace apr::test {

// An array of T at an address that loads of 16 bytes take; NaN until written, and behind its end.
template <class T>
class Aligned {
 public:
  explicit Aligned(size_t n_elems)
      : storage_(std::make_unique<std::byte[]>(n_elems * sizeof(T) + 512)), n_elems_(n_elems) {
    std::memset(storage_.get(), 0xff, n_elems * sizeof(T) + 512);
    const auto begin = reinterpret_cast<uintptr_t>(storage_.get());
    data_ = reinterpret_cast<T*>(storage_.get() + (256 - begin % 256) % 256);
  }
  explicit Aligned(const std::vector<T>& values) : Aligned(values.size()) {
    std::memcpy(data_, values.data(), values.size() * sizeof(T));
  }
  T* data() const { return data_; }
  size_t size() const { return n_elems_; }
  T& operator[](size_t idx) const { return data_[idx]; }

 private:
  std::unique_ptr<std::byte[]> storage_;
  size_t n_elems_;
  T* data_;
};

// Raw blocks of a matrix in the planes layout.
template <class T>
Aligned<uint8_t> to_planes(const std::vector<std::byte>& raw, int64_t n_rows, int64_t n_cols) {
  const auto* blocks = reinterpret_cast<const uint8_t*>(raw.data());
  Aligned<uint8_t> packed(static_cast<size_t>(quant::planes_bytes<T>(n_rows, n_cols)));
  std::memset(packed.data(), 0, packed.size());
  const int64_t per_row = n_cols / T::kBlockElems;
  for (int64_t block = 0; block < n_rows * per_row; ++block) {
    quant::copy_to_planes<T>(blocks + block * T::kBlockBytes,
                             quant::planes_block<T>(packed.data(), n_cols, block / per_row,
                                                    static_cast<int>(block % per_row)));
  }
  return packed;
}

}  // namespace apr::test
