#include "cuda/dequant_check.h"

#include <fmt/format.h>

#include "apr/error.h"
#include "cuda/dequantizer.h"
#include "cuda/device.h"
#include "cuda/error.h"
#include "cuda/nvrtc.h"

namespace apr::cuda {
namespace {

std::string checked_kernel(const QuantType& type, const std::string& layout) {
  return fmt::format("dequant.{}.{}.f32", type.name, layout);
}

std::vector<std::string> checked_layouts(const QuantType& type) {
  return has_planes(type) ? std::vector<std::string>{"planes", "raw"}
                          : std::vector<std::string>{"raw"};
}

std::vector<KernelRow> checked_rows(const std::set<const QuantType*>& types) {
  std::vector<KernelRow> rows;
  for (const QuantType* type : types) {
    for (const std::string& layout : checked_layouts(*type)) {
      rows.push_back(kernel_row(checked_kernel(*type, layout)));
    }
  }
  return rows;
}

class GpuTensorDecoder final : public TensorDecoder {
 public:
  GpuTensorDecoder(int ordinal, const std::set<const QuantType*>& types)
      : device_(use_device(ordinal)),
        stream_(create_stream()),
        kernels_(compiler_, checked_rows(types), device_.architecture) {}

  std::string device_name() const override {
    return fmt::format("{} ({})", device_.name, device_.architecture);
  }
  std::vector<std::string> layouts(const QuantType& type) const override {
    return checked_layouts(type);
  }
  void load(std::span<const Weight> weights) override {
    dequantizer_.reset();
    weights_.reset();  // before the next ones take memory
    weights_ = std::make_unique<DeviceWeights>(weights);
    dequantizer_ = std::make_unique<Dequantizer>(kernels_, stream_, *weights_);
  }

  void decode(const Weight& weight, const std::string& layout, int64_t first_row, int64_t n_rows,
              float* out) override {
    const auto out_bytes = static_cast<size_t>(n_rows * weight.n_cols) * sizeof(float);
    reserve(out_, out_bytes, "decoded rows");
    APR_CUDA(api().cudaMemsetAsync(out_.data(), 0xff, out_bytes, stream_.get()));
    // A vector of a few values is never decoded where it lies, and has nothing behind it.
    if (layout == "planes" || (!has_planes(*weight.type) && weight.n_cols % 8 == 0)) {
      dequantizer_->to_f32(weight, {first_row, n_rows}, out_.as<float>());
    } else {
      decode_raw(weight, first_row, n_rows);
    }
    APR_CUDA(
        api().cudaMemcpyAsync(out, out_.data(), out_bytes, cudaMemcpyDeviceToHost, stream_.get()));
    APR_CUDA(api().cudaStreamSynchronize(stream_.get()));
  }

 private:
  static void reserve(DeviceBuffer& buffer, size_t n_bytes, const char* purpose) {
    if (buffer.size_bytes() < n_bytes) {
      buffer = DeviceBuffer();
      buffer = DeviceBuffer(n_bytes, purpose);
    }
  }

  // From the file's bytes, uploaded here.
  void decode_raw(const Weight& weight, int64_t first_row, int64_t n_rows) {
    const auto raw_bytes = static_cast<size_t>(n_rows * weight.row_bytes);
    reserve(raw_, raw_bytes + kSlackBytes, "rows of the file");
    APR_CUDA(api().cudaMemcpyAsync(raw_.data(), weight.data + first_row * weight.row_bytes,
                                   raw_bytes, cudaMemcpyHostToDevice, stream_.get()));
    DequantParams params{};
    params.w = {raw_.as<uint8_t>(), static_cast<int32_t>(n_rows),
                static_cast<int32_t>(weight.n_cols)};
    params.n_cols = static_cast<int32_t>(weight.n_cols);
    params.scale = 1.0F;
    params.out = out_.data();
    launch_dequant(kernels_, stream_, checked_kernel(*weight.type, "raw"), params, n_rows,
                   weight.n_cols * static_cast<int64_t>(sizeof(float)));
  }

  static constexpr size_t kSlackBytes = 64;  // plain types are read in whole eights

  DeviceFacts device_;
  Stream stream_;
  KernelCompiler compiler_;
  KernelLibrary kernels_;
  std::unique_ptr<DeviceWeights> weights_;
  std::unique_ptr<Dequantizer> dequantizer_;
  DeviceBuffer raw_, out_;
};

}  // namespace

std::unique_ptr<TensorDecoder> make_tensor_decoder(int ordinal,
                                                   const std::set<const QuantType*>& types) {
  return std::make_unique<GpuTensorDecoder>(ordinal, types);
}

}  // namespace apr::cuda
