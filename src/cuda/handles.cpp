#include "cuda/handles.h"

#include <fmt/format.h>

#include <atomic>

#include "apr/error.h"
#include "base/format.h"
#include "cuda/error.h"

namespace apr::cuda {
namespace {

std::atomic<size_t> held_bytes{0};

// The failure of an allocation with its size and purpose in front.
template <class Allocate>
void allocating(size_t size_bytes, const char* where, const char* purpose,
                const Allocate& allocate) {
  try {
    allocate();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{} of {} for {}: {}", format_bytes(size_bytes), where,
                                          purpose, error.what()));
  }
}

CUmemAllocationProp page_properties(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

}  // namespace

void destroy_handle(cudaStream_t stream) noexcept {
  APR_CUDA_LOG(api().cudaStreamDestroy(stream));
}
void destroy_handle(cudaEvent_t event) noexcept {
  APR_CUDA_LOG(api().cudaEventDestroy(event));
}
void destroy_handle(cudaGraph_t graph) noexcept {
  APR_CUDA_LOG(api().cudaGraphDestroy(graph));
}
void destroy_handle(cudaGraphExec_t graph) noexcept {
  APR_CUDA_LOG(api().cudaGraphExecDestroy(graph));
}
void destroy_handle(CUmodule module) noexcept {
  APR_CUDA_LOG(api().cuModuleUnload(module));
}
void destroy_handle(cublasHandle_t handle) noexcept {
  APR_CUDA_LOG(api().cublasDestroy(handle));
}
void destroy_handle(cublasLtHandle_t handle) noexcept {
  APR_CUDA_LOG(api().cublasLtDestroy(handle));
}
void destroy_handle(cublasLtMatmulDesc_t desc) noexcept {
  APR_CUDA_LOG(api().cublasLtMatmulDescDestroy(desc));
}
void destroy_handle(cublasLtMatrixLayout_t layout) noexcept {
  APR_CUDA_LOG(api().cublasLtMatrixLayoutDestroy(layout));
}
void destroy_handle(cublasLtMatmulPreference_t preference) noexcept {
  APR_CUDA_LOG(api().cublasLtMatmulPreferenceDestroy(preference));
}

Stream create_stream() {
  cudaStream_t stream = nullptr;
  APR_CUDA(api().cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}

Event create_event() {
  cudaEvent_t event = nullptr;
  APR_CUDA(api().cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return Event(event);
}

Event create_timer() {
  cudaEvent_t event = nullptr;
  APR_CUDA(api().cudaEventCreateWithFlags(&event, cudaEventDefault));
  return Event(event);
}

float elapsed_ms(const Event& begin, const Event& end) {
  float ms = 0.0F;
  APR_CUDA(api().cudaEventElapsedTime(&ms, begin.get(), end.get()));
  return ms;
}

Module load_module(std::span<const std::byte> cubin) {
  CUmodule module = nullptr;
  APR_CUDA(api().cuModuleLoadData(&module, cubin.data()));
  return Module(module);
}

CUfunction get_function(const Module& module, const std::string& lowered_name) {
  CUfunction function = nullptr;
  APR_CUDA(api().cuModuleGetFunction(&function, module.get(), lowered_name.c_str()));
  return function;
}

void begin_capture(const Stream& stream) {
  // Relaxed: other threads may allocate and copy meanwhile.
  APR_CUDA(api().cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed));
}

Graph end_capture(const Stream& stream) {
  cudaGraph_t graph = nullptr;
  APR_CUDA(api().cudaStreamEndCapture(stream.get(), &graph));
  return Graph(graph);
}

void abandon_capture(const Stream& stream) noexcept {
  cudaGraph_t graph = nullptr;
  // Its failure is the consequence of the one that is on its way to the caller.
  static_cast<void>(api().cudaStreamEndCapture(stream.get(), &graph));
  const Graph abandoned(graph);
}

GraphExec instantiate(const Graph& graph) {
  cudaGraphExec_t exec = nullptr;
  APR_CUDA(api().cudaGraphInstantiate(&exec, graph.get(), 0));
  return GraphExec(exec);
}

int64_t count_kernel_nodes(const Graph& graph) {
  size_t n_nodes = 0;
  APR_CUDA(api().cudaGraphGetNodes(graph.get(), nullptr, &n_nodes));
  std::vector<cudaGraphNode_t> nodes(n_nodes);
  APR_CUDA(api().cudaGraphGetNodes(graph.get(), nodes.data(), &n_nodes));
  int64_t n_kernels = 0;
  for (const cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    APR_CUDA(api().cudaGraphNodeGetType(node, &type));
    n_kernels += type == cudaGraphNodeTypeKernel ? 1 : 0;
  }
  return n_kernels;
}

CublasHandle create_cublas(const Stream& stream) {
  require_library(Library::kCublas);
  cublasHandle_t raw = nullptr;
  APR_CUDA(api().cublasCreate(&raw));
  CublasHandle handle(raw);
  APR_CUDA(api().cublasSetStream(handle.get(), stream.get()));
  return handle;
}

std::string cublas_version() {
  require_library(Library::kCublas);
  int parts[3] = {};
  constexpr libraryPropertyType kParts[3] = {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
  for (int part = 0; part < 3; ++part) {
    APR_CUDA(api().cublasGetProperty(kParts[part], &parts[part]));
  }
  return fmt::format("{}.{}.{}", parts[0], parts[1], parts[2]);
}

CublasLtHandle create_cublas_lt() {
  require_library(Library::kCublasLt);
  cublasLtHandle_t handle = nullptr;
  APR_CUDA(api().cublasLtCreate(&handle));
  return CublasLtHandle(handle);
}

MatmulDesc create_matmul_desc(cublasComputeType_t compute, cudaDataType_t scale) {
  cublasLtMatmulDesc_t desc = nullptr;
  APR_CUDA(api().cublasLtMatmulDescCreate(&desc, compute, scale));
  return MatmulDesc(desc);
}

MatrixLayout create_matrix_layout(cudaDataType_t type, uint64_t n_rows, uint64_t n_cols,
                                  int64_t stride_elems) {
  cublasLtMatrixLayout_t layout = nullptr;
  APR_CUDA(api().cublasLtMatrixLayoutCreate(&layout, type, n_rows, n_cols, stride_elems));
  return MatrixLayout(layout);
}

MatmulPreference create_matmul_preference(size_t workspace_bytes) {
  cublasLtMatmulPreference_t raw = nullptr;
  APR_CUDA(api().cublasLtMatmulPreferenceCreate(&raw));
  MatmulPreference preference(raw);
  APR_CUDA(api().cublasLtMatmulPreferenceSetAttribute(preference.get(),
                                                      CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                      &workspace_bytes, sizeof workspace_bytes));
  return preference;
}

std::byte* allocate_device(size_t size_bytes, const char* purpose) {
  void* data = nullptr;
  allocating(size_bytes, "device memory", purpose,
             [&] { APR_CUDA(api().cudaMalloc(&data, size_bytes)); });
  held_bytes += size_bytes;
  return static_cast<std::byte*>(data);
}

void free_device(std::byte* data, size_t size_bytes) noexcept {
  held_bytes -= size_bytes;
  APR_CUDA_LOG(api().cudaFree(data));
}

std::byte* allocate_pinned(size_t size_bytes, const char* purpose) {
  void* data = nullptr;
  allocating(size_bytes, "page-locked memory", purpose,
             [&] { APR_CUDA(api().cudaHostAlloc(&data, size_bytes, cudaHostAllocDefault)); });
  return static_cast<std::byte*>(data);
}

void free_pinned(std::byte* data, size_t) noexcept {
  APR_CUDA_LOG(api().cudaFreeHost(data));
}

VirtualRange::VirtualRange(size_t reserve_bytes, int device, const char* purpose)
    : device_(device), purpose_(purpose) {
  allocating(reserve_bytes, "device addresses", purpose, [&] {
    const CUmemAllocationProp properties = page_properties(device);
    APR_CUDA(api().cuMemGetAllocationGranularity(&page_bytes_, &properties,
                                                 CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    const size_t n_pages = reserve_bytes / page_bytes_ + (reserve_bytes % page_bytes_ != 0 ? 1 : 0);
    APR_CUDA(api().cuMemAddressReserve(&base_, n_pages * page_bytes_, 0, 0, 0));
    reserved_bytes_ = n_pages * page_bytes_;
  });
}

VirtualRange::VirtualRange(VirtualRange&& other) noexcept
    : base_(std::exchange(other.base_, 0)),
      reserved_bytes_(std::exchange(other.reserved_bytes_, 0)),
      page_bytes_(other.page_bytes_),
      device_(other.device_),
      purpose_(other.purpose_),
      pages_(std::exchange(other.pages_, {})) {}

VirtualRange& VirtualRange::operator=(VirtualRange&& other) noexcept {
  VirtualRange taken(std::move(other));
  std::swap(base_, taken.base_);
  std::swap(reserved_bytes_, taken.reserved_bytes_);
  std::swap(page_bytes_, taken.page_bytes_);
  std::swap(device_, taken.device_);
  std::swap(purpose_, taken.purpose_);
  std::swap(pages_, taken.pages_);
  return *this;
}

VirtualRange::~VirtualRange() {
  if (base_ == 0) {
    return;
  }
  if (!pages_.empty()) {
    APR_CUDA_LOG(api().cuMemUnmap(base_, mapped_bytes()));
  }
  for (const CUmemGenericAllocationHandle page : pages_) {
    APR_CUDA_LOG(api().cuMemRelease(page));
  }
  held_bytes -= mapped_bytes();
  APR_CUDA_LOG(api().cuMemAddressFree(base_, reserved_bytes_));
}

void VirtualRange::grow(size_t size_bytes) {
  APR_CHECK(size_bytes <= reserved_bytes_, "a virtual range grows past its reserved addresses");
  if (size_bytes <= mapped_bytes()) {
    return;
  }
  allocating(size_bytes - mapped_bytes(), "device memory", purpose_, [&] {
    while (mapped_bytes() < size_bytes) {
      map_page();
    }
  });
}

void VirtualRange::map_page() {
  const CUdeviceptr address = base_ + mapped_bytes();
  const CUmemAllocationProp properties = page_properties(device_);
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

  pages_.reserve(pages_.size() + 1);  // what throws, throws before the page exists
  CUmemGenericAllocationHandle page = 0;
  APR_CUDA(api().cuMemCreate(&page, page_bytes_, &properties, 0));
  bool mapped = false;
  try {
    APR_CUDA(api().cuMemMap(address, page_bytes_, 0, page, 0));
    mapped = true;
    APR_CUDA(api().cuMemSetAccess(address, page_bytes_, &access, 1));
  } catch (...) {
    if (mapped) {
      APR_CUDA_LOG(api().cuMemUnmap(address, page_bytes_));
    }
    APR_CUDA_LOG(api().cuMemRelease(page));
    throw;
  }
  pages_.push_back(page);
  held_bytes += page_bytes_;
}

size_t device_bytes_held() {
  return held_bytes;
}

}  // namespace apr::cuda
