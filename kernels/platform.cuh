// What host code (g++) and device code (NVRTC) share. Host-only parts of a kernel file stand under
// APR_HOST_CODE, device-only parts under APR_DEVICE_CODE.
#pragma once

#ifdef __CUDACC_RTC__
#define APR_DEVICE_CODE 1
typedef unsigned char uint8_t;
typedef signed char int8_t;
typedef unsigned short uint16_t;
typedef short int16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;
#define APR_DEVICE __device__ __forceinline__
// Of a constant table that is indexed at run time.
#define APR_TABLE __device__
#else
#define APR_HOST_CODE 1
#include <cstdint>
#include <cstring>
// Inlined everywhere, so that a caller compiled for a wider instruction set vectorises it.
#define APR_INLINE __attribute__((always_inline)) inline
// Device functions that are plain C++ also run on the host, for tests.
#define APR_DEVICE inline
#define APR_TABLE inline
#endif
