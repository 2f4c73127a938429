// apr tensors: the tensor table of a file.
#include <fmt/format.h>

#include <algorithm>

#include "apr/quant.h"
#include "base/format.h"
#include "cli/load.h"
#include "cli/output.h"
#include "cli/verb.h"

namespace apr::cli {
namespace {

class TensorsVerb : public Verb {
 public:
  void add_options(CLI::App& app) override {
    add_model(app, model_);
    add_output(app, output, false);
  }
  int run() override;

 private:
  std::string model_;
};

std::string type_name(uint32_t id) {
  const QuantType* type = find_quant_type(id);
  return type != nullptr ? std::string(type->name) : quant_type_label(id);
}

int TensorsVerb::run() {
  const GgufFile file = open_model_file(model_);
  uint64_t total_bytes = 0;
  std::string text;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const GgufTensor& tensor : file.tensors()) {
    total_bytes += tensor.data.size();
    if (output.is_json()) {
      rows.push_back({{"name", tensor.name},
                      {"type", type_name(tensor.type_id)},
                      {"shape", tensor.shape},
                      {"bytes", tensor.data.size()},
                      {"part", tensor.part_idx},
                      {"file_offset", tensor.file_offset_bytes}});
    } else {
      text +=
          fmt::format("{:<40} {:<8} {:<24} {:>12}\n", printable(tensor.name),
                      type_name(tensor.type_id), format_shape(tensor.shape), tensor.data.size());
    }
  }
  if (output.is_json()) {
    write_json({{"model", model_},
                {"n_tensors", file.tensors().size()},
                {"total_bytes", total_bytes},
                {"tensors", std::move(rows)}},
               true);
  } else {
    write_stdout(fmt::format("{:<40} {:<8} {:<24} {:>12}\n{}{} tensors, {}\n", "name", "type",
                             "shape (slowest axis first)", "bytes", text, file.tensors().size(),
                             format_bytes(total_bytes)));
  }
  return 0;
}

}  // namespace

std::unique_ptr<Verb> make_tensors_verb() {
  return std::make_unique<TensorsVerb>();
}

}  // namespace apr::cli
