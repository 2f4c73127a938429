# The CUDA layer's tests.
if(APR_WITH_CUDA)
  # The cache makes a second run of the kernel tests cheap.
  apr_test(cuda_kernel_table LABEL kernel SOURCES cuda_kernel_table_test.cpp DEPS apr_cuda)
  target_compile_definitions(cuda_kernel_table_test PRIVATE
    APR_TEST_KERNEL_CACHE="${PROJECT_BINARY_DIR}/kernel-cache")
endif()
