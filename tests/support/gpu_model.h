// Tests of a fixture model on a GPU: a loud skip without the GPU or the file.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "cuda/backend.h"
#include "support/fixtures.h"
#include "support/gpu.h"

namespace apr::test {

class GpuModelTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    APR_NEED_GPU();
    const auto path = model_path(GetParam());
    if (!path) {
      GTEST_SKIP() << "SKIPPED: " << GetParam() << ".gguf is not here";
    }
    model_ = std::make_unique<Model>(open_gguf(*path));
    set_up_model();
  }

  // What a test needs of model_, which is there.
  virtual void set_up_model() {}

  std::unique_ptr<cuda::CudaBackend> gpu(int64_t context,
                                         cuda::CudaBackendOptions options = {}) const {
    options.context = context;
    return std::make_unique<cuda::CudaBackend>(*model_, options);
  }

  std::unique_ptr<Model> model_;
};

}  // namespace apr::test
