// Which kernel and which launch: pure functions, no GPU.
#include <gtest/gtest.h>

#include "cuda/launch_rms_norm.h"
#include "support/cuda_double.h"

namespace apr::cuda {
namespace {

const float* address(uintptr_t value) {
  return reinterpret_cast<const float*>(value);
}

RmsNormParams aligned_params(int32_t dim) {
  return {address(0x1000), address(0x2000), const_cast<float*>(address(0x3000)), dim, 1e-6F};
}

TEST(RmsNormLaunch, HasAThreadForEachVectorInWholeWarps) {
  const RmsNormLaunch small = config_for(aligned_params(4), 1);
  EXPECT_EQ(small.kernel, "rms_norm.vec4");
  EXPECT_EQ(small.config, (LaunchConfig{1, 1, 1, 32, 0, true}));
  EXPECT_EQ(config_for(aligned_params(128), 40).config.block_x, 32U);
  EXPECT_EQ(config_for(aligned_params(896), 40).config, (LaunchConfig{40, 1, 1, 224, 0, true}));
  EXPECT_EQ(config_for(aligned_params(4096), 1).config.block_x, 1024U);
  EXPECT_EQ(config_for(aligned_params(5120), 1).config.block_x, 1024U);
}

TEST(RmsNormLaunch, ReadsSingleValuesWhereVectorsDoNotFit) {
  EXPECT_EQ(config_for(aligned_params(5), 1).kernel, "rms_norm.scalar");
  EXPECT_EQ(config_for(aligned_params(33), 1).config.block_x, 64U);
  RmsNormParams params = aligned_params(128);
  params.x = address(0x1004);
  EXPECT_EQ(config_for(params, 1).kernel, "rms_norm.scalar");
  params = aligned_params(128);
  params.weight = address(0x2008);
  EXPECT_EQ(config_for(params, 1).kernel, "rms_norm.scalar");
  params = aligned_params(128);
  params.y = const_cast<float*>(address(0x300c));
  EXPECT_EQ(config_for(params, 1).kernel, "rms_norm.scalar");
}

TEST(Launch, OverlapsOnlyWhereTheDeviceCan) {
  for (const auto& [arch, n_attributes] : {std::pair{"sm_89", 0U}, std::pair{"sm_90a", 1U}}) {
    static CUlaunchConfig seen;
    static CUlaunchAttribute attribute;
    Api table = test::fake_api();
    table.cuLaunchKernelEx = [](const CUlaunchConfig* config, CUfunction, void**, void**) {
      seen = *config;
      attribute = config->attrs[0];
      return CUDA_SUCCESS;
    };
    test::CudaDouble cuda(&table);
    KernelCompiler compiler("");
    const std::vector<KernelRow> rows{kernel_row("rms_norm.vec4")};
    const KernelLibrary kernels(compiler, rows, arch);
    const Stream stream = create_stream();
    launch_rms_norm(kernels, stream, aligned_params(896), 7);
    EXPECT_EQ(seen.numAttrs, n_attributes);
    EXPECT_EQ(attribute.id, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
    EXPECT_EQ(seen.gridDimX, 7U);
    EXPECT_EQ(seen.blockDimX, 224U);
    EXPECT_EQ(seen.hStream, stream.get());
  }
}

}  // namespace
}  // namespace apr::cuda
