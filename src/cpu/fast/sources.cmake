# The fast kernels: APR_CPU_FAST_SOURCES for the library apr_cpu, among them the objects of one
# object library for each instruction set.
set(APR_CPU_FAST_SOURCES core_quota.cpp fast/dispatch.cpp fast/plain_ops.cpp fast/scratch.cpp)

function(apr_cpu_isa isa label)
  set(target apr_cpu_fast_${isa})
  add_library(${target} OBJECT fast/isa/attention.cpp fast/isa/decode.cpp fast/isa/matmul.cpp
    fast/isa/moe.cpp fast/isa/multiply.cpp fast/isa/recurrent.cpp fast/isa/rows.cpp
    fast/isa/table.cpp)
  target_compile_definitions(${target} PRIVATE APR_CPU_ISA=isa_${isa} APR_CPU_ISA_NAME="${label}"
    HWY_DISABLE_PCLMUL_AES)
  # -O3 in every build type: unoptimised vector code is too slow to test with, and inlining is what
  # keeps symbols from being shared between instruction sets.
  target_compile_options(${target} PRIVATE ${ARGN} -O3 -fno-math-errno)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/kernels ${PROJECT_BINARY_DIR}/generated)
  target_link_libraries(${target} PRIVATE apr_hwy)
  set(APR_CPU_FAST_SOURCES ${APR_CPU_FAST_SOURCES} $<TARGET_OBJECTS:${target}> PARENT_SCOPE)
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  apr_cpu_isa(baseline sse4 -march=x86-64-v2)
  apr_cpu_isa(avx2 avx2 -march=x86-64-v3)
  apr_cpu_isa(avx512 avx512 -march=x86-64-v4)
else()
  apr_cpu_isa(baseline neon)
endif()
