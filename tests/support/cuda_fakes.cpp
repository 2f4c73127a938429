// The fakes behind the double: what each call would do, without a device.
#include <cstdlib>
#include <cstring>

#include "support/cuda_double.h"

namespace apr::test {
namespace {

template <class Function>
struct Succeed;
template <class Result, class... Args>
struct Succeed<Result (*)(Args...)> {
  static Result call(Args...) { return Result{}; }  // success is zero everywhere
};

CudaDouble& state() {
  return CudaDouble::current();
}

template <class Handle>
void make(Handle* handle, const char* kind) {
  *handle = reinterpret_cast<Handle>(state().create(kind));
}

// A handle that is a number.
template <>
void make(unsigned long long* handle, const char* kind) {
  *handle = reinterpret_cast<uintptr_t>(state().create(kind));
}

const void* address(unsigned long long handle) {
  return reinterpret_cast<const void*>(static_cast<uintptr_t>(handle));
}

void fake_devices(cuda::Api& api) {
  api.cudaGetErrorName = &::cudaGetErrorName;
  api.cudaGetErrorString = &::cudaGetErrorString;
  api.cudaDriverGetVersion = [](int* version) {
    *version = state().driver_version;
    return cudaSuccess;
  };
  api.cudaRuntimeGetVersion = [](int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
  };
  api.cudaGetDeviceCount = [](int* n_devices) {
    *n_devices = state().n_devices;
    return state().count_status;
  };
  api.cudaGetDeviceProperties = [](cudaDeviceProp* properties, int) {
    *properties = {};
    std::strcpy(properties->name, "Fake GPU");
    properties->sharedMemPerBlockOptin = 227 * 1024;
    properties->major = state().cc_major;
    properties->minor = state().cc_minor;
    properties->multiProcessorCount = 132;
    properties->totalGlobalMem = size_t{1} << 37;
    return cudaSuccess;
  };
  api.cudaDeviceGetAttribute = [](int* value, cudaDeviceAttr attribute, int) {
    *value = attribute == cudaDevAttrComputeMode ? state().compute_mode : 0;
    return cudaSuccess;
  };
  api.cuGetErrorName = [](CUresult, const char** name) {
    *name = "CUDA_ERROR_FAKE";
    return CUDA_SUCCESS;
  };
  api.cuGetErrorString = [](CUresult, const char** text) {
    *text = "made to fail";
    return CUDA_SUCCESS;
  };
}

void fake_memory(cuda::Api& api) {
  api.cudaMalloc = [](void** data, size_t) {
    make(data, "device memory");
    return cudaSuccess;
  };
  api.cudaMemGetInfo = [](size_t* free_bytes, size_t* total_bytes) {
    *free_bytes = state().free_bytes;
    *total_bytes = size_t{1} << 37;
    return cudaSuccess;
  };
  api.cudaFree = [](void* data) {
    state().destroy("device memory", data);
    return cudaSuccess;
  };
  api.cudaHostAlloc = [](void** data, size_t size_bytes, unsigned) {
    *data = std::calloc(1, size_bytes);
    state().adopt("pinned memory", *data);
    return cudaSuccess;
  };
  api.cudaFreeHost = [](void* data) {
    state().destroy("pinned memory", data);
    std::free(data);
    return cudaSuccess;
  };
  api.cuMemGetAllocationGranularity = [](size_t* size_bytes, const CUmemAllocationProp*,
                                         CUmemAllocationGranularity_flags) {
    *size_bytes = 0x200000;
    return CUDA_SUCCESS;
  };
  api.cuMemAddressReserve = [](CUdeviceptr* base, size_t, size_t, CUdeviceptr, unsigned long long) {
    make(base, "addresses");
    return CUDA_SUCCESS;
  };
  api.cuMemAddressFree = [](CUdeviceptr base, size_t) {
    state().destroy("addresses", address(base));
    return CUDA_SUCCESS;
  };
  api.cuMemCreate = [](CUmemGenericAllocationHandle* page, size_t, const CUmemAllocationProp*,
                       unsigned long long) {
    make(page, "page");
    return CUDA_SUCCESS;
  };
  api.cuMemRelease = [](CUmemGenericAllocationHandle page) {
    state().destroy("page", address(page));
    return CUDA_SUCCESS;
  };
}

void fake_streams(cuda::Api& api) {
  api.cudaStreamCreateWithFlags = [](cudaStream_t* stream, unsigned) {
    make(stream, "stream");
    return cudaSuccess;
  };
  api.cudaStreamDestroy = [](cudaStream_t stream) {
    state().destroy("stream", stream);
    return cudaSuccess;
  };
  api.cudaEventCreateWithFlags = [](cudaEvent_t* event, unsigned) {
    make(event, "event");
    return cudaSuccess;
  };
  api.cudaEventDestroy = [](cudaEvent_t event) {
    state().destroy("event", event);
    return cudaSuccess;
  };
  api.cudaStreamEndCapture = [](cudaStream_t, cudaGraph_t* graph) {
    make(graph, "graph");
    return cudaSuccess;
  };
  api.cudaGraphDestroy = [](cudaGraph_t graph) {
    state().destroy("graph", graph);
    return cudaSuccess;
  };
  api.cudaGraphInstantiate = [](cudaGraphExec_t* exec, cudaGraph_t, unsigned long long) {
    make(exec, "executable graph");
    return cudaSuccess;
  };
  api.cudaGraphExecDestroy = [](cudaGraphExec_t exec) {
    state().destroy("executable graph", exec);
    return cudaSuccess;
  };
  // Three nodes, of which the first is no kernel.
  api.cudaGraphGetNodes = [](cudaGraph_t, cudaGraphNode_t* nodes, size_t* n_nodes) {
    *n_nodes = 3;
    for (uintptr_t node = 0; nodes != nullptr && node < 3; ++node) {
      nodes[node] = reinterpret_cast<cudaGraphNode_t>(node);
    }
    return cudaSuccess;
  };
  api.cudaGraphNodeGetType = [](cudaGraphNode_t node, cudaGraphNodeType* type) {
    *type = node == nullptr ? cudaGraphNodeTypeMemcpy : cudaGraphNodeTypeKernel;
    return cudaSuccess;
  };
}

void fake_modules(cuda::Api& api) {
  api.cuModuleLoadData = [](CUmodule* module, const void*) {
    make(module, "module");
    return CUDA_SUCCESS;
  };
  api.cuModuleUnload = [](CUmodule module) {
    state().destroy("module", module);
    return CUDA_SUCCESS;
  };
  api.nvrtcVersion = [](int* major, int* minor) {
    *major = 13;
    *minor = state().nvrtc_minor;
    return NVRTC_SUCCESS;
  };
  api.nvrtcGetErrorString = [](nvrtcResult) { return "made to fail"; };
  api.nvrtcCreateProgram = [](nvrtcProgram* program, const char*, const char*, int,
                              const char* const*, const char* const*) {
    make(program, "program");
    return NVRTC_SUCCESS;
  };
  api.nvrtcDestroyProgram = [](nvrtcProgram* program) {
    state().destroy("program", *program);
    return NVRTC_SUCCESS;
  };
  api.nvrtcCompileProgram = [](nvrtcProgram, int, const char* const*) {
    return state().compile_status;
  };
  api.nvrtcGetProgramLogSize = [](nvrtcProgram, size_t* size) {
    *size = state().compile_log.size() + 1;
    return NVRTC_SUCCESS;
  };
  api.nvrtcGetProgramLog = [](nvrtcProgram, char* log) {
    std::strcpy(log, state().compile_log.c_str());
    return NVRTC_SUCCESS;
  };
  api.nvrtcGetCUBINSize = [](nvrtcProgram, size_t* size_bytes) {
    *size_bytes = 5;
    return NVRTC_SUCCESS;
  };
  api.nvrtcGetCUBIN = [](nvrtcProgram, char* cubin) {
    std::memcpy(cubin, "c\0ode", 5);
    return NVRTC_SUCCESS;
  };
  api.nvrtcGetLoweredName = [](nvrtcProgram, const char*, const char** lowered) {
    *lowered = "_Zlowered";
    return NVRTC_SUCCESS;
  };
}

void fake_cublas(cuda::Api& api) {
  api.cublasGetProperty = [](libraryPropertyType which, int* value) {
    *value = which == MAJOR_VERSION ? 13 : 0;
    return CUBLAS_STATUS_SUCCESS;
  };
  api.cublasGetStatusName = [](cublasStatus_t) { return "CUBLAS_STATUS_FAKE"; };
  api.cublasGetStatusString = [](cublasStatus_t) { return "made to fail"; };
  api.cublasCreate = [](cublasHandle_t* handle) {
    make(handle, "cuBLAS handle");
    return CUBLAS_STATUS_SUCCESS;
  };
  api.cublasDestroy = [](cublasHandle_t handle) {
    state().destroy("cuBLAS handle", handle);
    return CUBLAS_STATUS_SUCCESS;
  };
  api.cublasLtCreate = [](cublasLtHandle_t* handle) {
    make(handle, "cuBLASLt handle");
    return CUBLAS_STATUS_SUCCESS;
  };
  api.cublasLtDestroy = [](cublasLtHandle_t handle) {
    state().destroy("cuBLASLt handle", handle);
    return CUBLAS_STATUS_SUCCESS;
  };
  api.cublasLtMatmulDescCreate = [](cublasLtMatmulDesc_t* desc, cublasComputeType_t,
                                    cudaDataType_t) {
    make(desc, "matmul description");
    return CUBLAS_STATUS_SUCCESS;
  };
  api.cublasLtMatmulDescDestroy = [](cublasLtMatmulDesc_t desc) {
    state().destroy("matmul description", desc);
    return CUBLAS_STATUS_SUCCESS;
  };
  api.cublasLtMatrixLayoutCreate = [](cublasLtMatrixLayout_t* layout, cudaDataType, uint64_t,
                                      uint64_t, int64_t) {
    make(layout, "matrix layout");
    return CUBLAS_STATUS_SUCCESS;
  };
  api.cublasLtMatrixLayoutDestroy = [](cublasLtMatrixLayout_t layout) {
    state().destroy("matrix layout", layout);
    return CUBLAS_STATUS_SUCCESS;
  };
  api.cublasLtMatmulPreferenceCreate = [](cublasLtMatmulPreference_t* preference) {
    make(preference, "matmul preference");
    return CUBLAS_STATUS_SUCCESS;
  };
  api.cublasLtMatmulAlgoGetHeuristic =
      [](cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
         cublasLtMatmulHeuristicResult_t* results, int* n_results) {
        results[0] = {};
        *n_results = 1;
        return CUBLAS_STATUS_SUCCESS;
      };
  api.cublasLtMatmulPreferenceDestroy = [](cublasLtMatmulPreference_t preference) {
    state().destroy("matmul preference", preference);
    return CUBLAS_STATUS_SUCCESS;
  };
}

}  // namespace

cuda::Api fake_api() {
  cuda::Api api{};
#define APR_API(library, name) api.name = &Succeed<decltype(&::name)>::call;
#include "cuda/api_functions.inc"
#undef APR_API
  fake_devices(api);
  fake_memory(api);
  fake_streams(api);
  fake_modules(api);
  fake_cublas(api);
  api.library = [](cuda::Library) -> const cuda::LibraryFacts& {
    static const cuda::LibraryFacts present{true, "/a/fake"};
    return present;
  };
  return api;
}

}  // namespace apr::test
