# The CUDA layer's tests.
if(APR_WITH_CUDA)
  add_library(apr_test_cuda STATIC support/cuda_double.cpp support/cuda_fakes.cpp)
  target_link_libraries(apr_test_cuda PUBLIC apr_test_support apr_test_gguf apr_cuda)

  apr_test(cuda_double LABEL unit SOURCES cuda_double_test.cpp DEPS apr_test_cuda)
  apr_test(cuda_device LABEL unit SOURCES cuda_device_test.cpp DEPS apr_test_cuda)
  apr_test(cuda_nvrtc LABEL unit SOURCES cuda_nvrtc_test.cpp DEPS apr_test_cuda)

  add_library(apr_test_probe MODULE support/probe_library.cpp)
  apr_test(cuda_library_search ALONE LABEL unit SOURCES cuda_library_search_test.cpp DEPS apr_test_cuda)
  add_library(apr_test_companion SHARED support/probe_library.cpp)
  set_target_properties(apr_test_companion PROPERTIES OUTPUT_NAME apr-companion SOVERSION 13.0)
  add_dependencies(cuda_library_search_test apr_test_probe apr_test_companion)
  target_compile_definitions(cuda_library_search_test PRIVATE
    APR_TEST_PROBE_LIBRARY="$<TARGET_FILE:apr_test_probe>"
    APR_TEST_COMPANION_LIBRARY="$<TARGET_FILE:apr_test_companion>")

  apr_test(cuda_launch LABEL unit SOURCES cuda_launch_test.cpp DEPS apr_test_cuda)
  apr_test(cuda_projection LABEL unit SOURCES cuda_prefill_gemm_test.cpp cuda_prefill_tier_test.cpp
            cuda_projection_test.cpp
    DEPS apr_test_cuda)

  apr_test(cuda_matvec_split LABEL unit SOURCES cuda_matvec_split_test.cpp DEPS apr_test_cuda)

  # Kernels that run on the host as they are: one tree of links, to the headers of support/simt where
  # there is one, else to kernels/.
  file(GLOB kernel_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/*.h
    ${PROJECT_SOURCE_DIR}/kernels/*.cuh ${PROJECT_SOURCE_DIR}/kernels/*.cu)
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/simt_kernels)
  foreach(file ${kernel_files})
    get_filename_component(name ${file} NAME)
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/support/simt/${name})
      set(file ${CMAKE_CURRENT_SOURCE_DIR}/support/simt/${name})
    endif()
    file(CREATE_LINK ${file} ${CMAKE_CURRENT_BINARY_DIR}/simt_kernels/${name} SYMBOLIC)
  endforeach()
  function(apr_on_host_test name)
    apr_test(${name}_on_host ALONE LABEL unit SOURCES ${name}_on_host_test.cpp DEPS ${ARGN})
    target_include_directories(${name}_on_host_test BEFORE PRIVATE
      ${CMAKE_CURRENT_BINARY_DIR}/simt_kernels)
    target_compile_options(${name}_on_host_test PRIVATE -w)  # device code, which NVRTC checks
  endfunction()
  apr_on_host_test(attention apr_test_gguf apr_cpu)
  apr_on_host_test(matvec apr_cpu)
  apr_on_host_test(moe apr_cpu)
  apr_on_host_test(tier apr_cpu)
  apr_on_host_test(e4m3 apr_quant)

  apr_test(cuda_kernel_table LABEL kernel SOURCES cuda_kernel_table_test.cpp DEPS apr_cuda)

  apr_test(cuda_prefill_attention LABEL unit SOURCES cuda_prefill_attention_test.cpp
    DEPS apr_test_cuda)
  apr_test(cuda_weights LABEL unit SOURCES cuda_weights_test.cpp DEPS apr_test_cuda)
  apr_test(cuda_backend_failures LABEL unit SOURCES cuda_backend_failures_test.cpp
    DEPS apr_test_cuda)
  apr_test(cuda_memory_plan LABEL unit SOURCES cuda_memory_plan_test.cpp DEPS apr_test_cuda)
  apr_test(cuda_decode LABEL unit SOURCES cuda_decode_test.cpp DEPS apr_test_cuda)
  apr_test(cuda_dequant_ptx LABEL kernel SOURCES cuda_dequant_ptx_test.cpp DEPS apr_cuda)

  # On a real GPU; a skip without one, a failure with APR_REQUIRE_GPU=1.
  apr_test(gpu_base LABEL gpu SOURCES gpu_base_test.cpp DEPS apr_test_cuda)
  apr_test(gpu_rms_norm LABEL gpu SOURCES gpu_rms_norm_test.cpp DEPS apr_test_cuda apr_cpu)
  apr_test(gpu_attention LABEL gpu SOURCES gpu_attention_test.cpp
    DEPS apr_test_cuda apr_test_gguf apr_cpu)
  apr_test(gpu_matvec LABEL gpu SOURCES gpu_matvec_test.cpp DEPS apr_test_cuda)
  apr_test(gpu_moe LABEL gpu SOURCES gpu_moe_test.cpp DEPS apr_test_cuda apr_cpu)
  apr_test(gpu_projection LABEL gpu SOURCES gpu_projection_test.cpp gpu_product_rows_test.cpp
            gpu_prefill_modes_test.cpp
    DEPS apr_test_cuda)
  apr_test(gpu_tier LABEL gpu SOURCES gpu_tier_test.cpp DEPS apr_test_cuda)
  apr_test(gpu_fp8 LABEL gpu SOURCES gpu_fp8_test.cpp gpu_fp8_model_test.cpp
    DEPS apr_test_cuda apr_test_gguf)
  apr_test(gpu_fit LABEL gpu SOURCES gpu_fit_test.cpp DEPS apr_test_cuda)
  apr_test(gpu_gate LABEL gpu SOURCES gpu_gate_test.cpp
    DEPS apr_cli apr_test_cuda nlohmann_json::nlohmann_json)
  apr_test(gpu_parity LABEL gpu SOURCES gpu_parity_test.cpp
    DEPS apr_test_cuda apr_cpu apr_generate nlohmann_json::nlohmann_json)
  apr_test(gpu_backend LABEL gpu SOURCES gpu_backend_test.cpp gpu_moe_backend_test.cpp
    DEPS apr_test_cuda apr_test_gguf apr_cpu apr_generate nlohmann_json::nlohmann_json)
  apr_test(gpu_decode LABEL gpu SOURCES gpu_sampler_test.cpp gpu_decode_test.cpp
    DEPS apr_generate apr_test_cuda apr_test_gguf nlohmann_json::nlohmann_json)
  apr_test(gpu_dequant LABEL gpu SOURCES gpu_dequant_test.cpp
    DEPS apr_test_cuda nlohmann_json::nlohmann_json)
  apr_test(gpu_faults ALONE LABEL gpu SOURCES gpu_faults_test.cpp DEPS apr_test_cuda)
else()
  apr_test(cuda_disabled LABEL unit SOURCES cuda_disabled_test.cpp DEPS apr_cuda)
endif()
