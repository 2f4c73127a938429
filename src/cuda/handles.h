// Owners of what CUDA hands out: move-only, one each; their destructors log failures and never
// throw. An owner must not outlive the api() table it was made through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/api.h"

namespace apr::cuda {

template <class Handle, void (*kDestroy)(Handle) noexcept>
class UniqueHandle {
 public:
  UniqueHandle() = default;
  explicit UniqueHandle(Handle handle) : handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept : handle_(std::exchange(other.handle_, Handle{})) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    UniqueHandle taken(std::move(other));
    std::swap(handle_, taken.handle_);
    return *this;
  }
  ~UniqueHandle() {
    if (handle_ != Handle{}) {
      kDestroy(handle_);
    }
  }
  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != Handle{}; }

 private:
  Handle handle_{};
};

void destroy_handle(cudaStream_t) noexcept;
void destroy_handle(cudaEvent_t) noexcept;
void destroy_handle(cudaGraph_t) noexcept;
void destroy_handle(cudaGraphExec_t) noexcept;
void destroy_handle(CUmodule) noexcept;
void destroy_handle(cublasHandle_t) noexcept;
void destroy_handle(cublasLtHandle_t) noexcept;
void destroy_handle(cublasLtMatmulDesc_t) noexcept;
void destroy_handle(cublasLtMatrixLayout_t) noexcept;
void destroy_handle(cublasLtMatmulPreference_t) noexcept;

using Stream = UniqueHandle<cudaStream_t, destroy_handle>;
using Event = UniqueHandle<cudaEvent_t, destroy_handle>;
using Graph = UniqueHandle<cudaGraph_t, destroy_handle>;
using GraphExec = UniqueHandle<cudaGraphExec_t, destroy_handle>;
using Module = UniqueHandle<CUmodule, destroy_handle>;
using CublasHandle = UniqueHandle<cublasHandle_t, destroy_handle>;
using CublasLtHandle = UniqueHandle<cublasLtHandle_t, destroy_handle>;
using MatmulDesc = UniqueHandle<cublasLtMatmulDesc_t, destroy_handle>;
using MatrixLayout = UniqueHandle<cublasLtMatrixLayout_t, destroy_handle>;
using MatmulPreference = UniqueHandle<cublasLtMatmulPreference_t, destroy_handle>;

// Everything below throws apr::Error (kBackendUnavailable) naming the call that failed.

Stream create_stream();  // does not wait for the default stream
Event create_event();    // orders streams, holds no time
Event create_timer();
float elapsed_ms(const Event& begin, const Event& end);  // both done

// Loads machine code into the current device's context.
Module load_module(std::span<const std::byte> cubin);
CUfunction get_function(const Module& module, const std::string& lowered_name);

// Captures what `record` launches on `stream`. When it throws, the capture is ended first.
template <class Record>
Graph capture_graph(const Stream& stream, const Record& record);
void begin_capture(const Stream& stream);
Graph end_capture(const Stream& stream);
void abandon_capture(const Stream& stream) noexcept;
GraphExec instantiate(const Graph& graph);
int64_t count_kernel_nodes(const Graph& graph);

CublasHandle create_cublas(const Stream& stream);
CublasLtHandle create_cublas_lt();
// "13.0.2"; throws kBackendUnavailable.
std::string cublas_version();
MatmulDesc create_matmul_desc(cublasComputeType_t compute, cudaDataType_t scale);
// [n_cols, n_rows] in cuBLAS's column order, `stride_elems` between columns.
MatrixLayout create_matrix_layout(cudaDataType_t type, uint64_t n_rows, uint64_t n_cols,
                                  int64_t stride_elems);
MatmulPreference create_matmul_preference(size_t workspace_bytes);

// Memory of a fixed size; `purpose` names it in an error: "weights". Zero bytes: no allocation.
template <std::byte* (*kAllocate)(size_t, const char*), void (*kFree)(std::byte*, size_t) noexcept>
class Buffer {
 public:
  Buffer() = default;
  Buffer(size_t size_bytes, const char* purpose)
      : data_(size_bytes == 0 ? nullptr : kAllocate(size_bytes, purpose)),
        size_bytes_(size_bytes) {}
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer taken(std::move(other));
    std::swap(data_, taken.data_);
    std::swap(size_bytes_, taken.size_bytes_);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) {
      kFree(data_, size_bytes_);
    }
  }

  std::byte* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  size_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

std::byte* allocate_device(size_t size_bytes, const char* purpose);
void free_device(std::byte* data, size_t size_bytes) noexcept;
std::byte* allocate_pinned(size_t size_bytes, const char* purpose);
void free_pinned(std::byte* data, size_t size_bytes) noexcept;

using DeviceBuffer = Buffer<allocate_device, free_device>;  // memory of the current device
using PinnedBuffer = Buffer<allocate_pinned, free_pinned>;  // page-locked: copies overlap kernels

// A fixed range of device addresses whose front is backed by memory, page by page as it grows:
// nothing is ever copied or moved.
class VirtualRange {
 public:
  VirtualRange() = default;
  // Reserves at least `reserve_bytes` of address space on `device`; takes no memory.
  VirtualRange(size_t reserve_bytes, int device, const char* purpose);
  VirtualRange(VirtualRange&& other) noexcept;
  VirtualRange& operator=(VirtualRange&& other) noexcept;
  ~VirtualRange();

  // Backs at least the first `size_bytes`, which must be at most reserved_bytes(). When it throws,
  // what was mapped before stays.
  void grow(size_t size_bytes);

  std::byte* data() const { return reinterpret_cast<std::byte*>(base_); }
  size_t reserved_bytes() const { return reserved_bytes_; }
  size_t mapped_bytes() const { return pages_.size() * page_bytes_; }
  size_t page_bytes() const { return page_bytes_; }

 private:
  void map_page();

  CUdeviceptr base_ = 0;
  size_t reserved_bytes_ = 0, page_bytes_ = 0;
  int device_ = 0;
  const char* purpose_ = "";
  std::vector<CUmemGenericAllocationHandle> pages_;
};

// Device memory that the owners of this process hold now: bytes of every DeviceBuffer as asked for,
// and of the pages of every VirtualRange.
size_t device_bytes_held();

template <class Record>
Graph capture_graph(const Stream& stream, const Record& record) {
  begin_capture(stream);
  try {
    record();
  } catch (...) {
    abandon_capture(stream);
    throw;
  }
  return end_capture(stream);
}

}  // namespace apr::cuda
