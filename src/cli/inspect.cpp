// apr inspect: what a file is.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "apr/error.h"
#include "apr/model.h"
#include "apr/quant.h"
#include "apr/tokenizer.h"
#include "base/format.h"
#include "cli/load.h"
#include "cli/metadata.h"
#include "cli/output.h"
#include "cli/verb.h"

namespace apr::cli {
namespace {

using Json = nlohmann::ordered_json;

class InspectVerb : public Verb {
 public:
  void add_options(CLI::App& app) override {
    add_model(app, model_);
    add_output(app, output, false);
  }
  int run() override;

 private:
  std::string model_;
};

// {"Q4_K": {"tensors": n, "bytes": n}, ...}, most bytes first.
Json quant_mix(const GgufFile& file) {
  struct Sum {
    int64_t n_tensors = 0;
    uint64_t n_bytes = 0;
  };
  std::map<uint32_t, Sum> sums;
  for (const GgufTensor& tensor : file.tensors()) {
    Sum& sum = sums[tensor.type_id];
    ++sum.n_tensors;
    sum.n_bytes += tensor.data.size();
  }
  std::vector<std::pair<uint32_t, Sum>> sorted(sums.begin(), sums.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second.n_bytes > b.second.n_bytes;
  });
  Json json = Json::object();
  for (const auto& [type_id, sum] : sorted) {
    const QuantType* type = find_quant_type(type_id);
    json[type != nullptr ? std::string(type->name) : quant_type_label(type_id)] = {
        {"tensors", sum.n_tensors}, {"bytes", sum.n_bytes}};
  }
  return json;
}

uint64_t n_parameters(const GgufFile& file) {
  uint64_t total = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    uint64_t n_elems = 1;
    for (const int64_t axis : tensor.shape) {
      n_elems *= static_cast<uint64_t>(axis);
    }
    total += n_elems;
  }
  return total;
}

Json tokenizer_json(const GgufFile& file) {
  try {
    const Tokenizer tokenizer(file);
    const auto optional_id = [](std::optional<TokenId> id) { return id ? Json(*id) : Json(); };
    return {{"pre", tokenizer.pre_tokenizer_name()},
            {"tokens", tokenizer.vocab_size()},
            {"bos", optional_id(tokenizer.bos_id())},
            {"eos", optional_id(tokenizer.eos_id())},
            {"pad", optional_id(tokenizer.pad_id())},
            {"add_bos", tokenizer.add_bos()},
            {"stop_ids", tokenizer.stop_ids()},
            {"chat_template", file.find("tokenizer.chat_template") != nullptr}};
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

Json dimensions_json(const ModelDesc& desc) {
  const auto n_attention =
      std::count_if(desc.layers.begin(), desc.layers.end(),
                    [](const LayerDesc& layer) { return layer.mixer == Mixer::kAttention; });
  Json json = {{"context_length", desc.context_length},
               {"layers", desc.n_layers},
               {"attention_layers", n_attention},
               {"model_dim", desc.model_dim},
               {"ffn_dim", desc.ffn_dim},
               {"vocab_rows", desc.vocab_rows},
               {"heads", desc.attention.n_heads},
               {"kv_heads", desc.attention.n_kv_heads},
               {"head_dim", desc.attention.head_dim},
               {"rope_dim", desc.rope.n_rot},
               {"rope_freq_base", desc.rope.freq_base},
               {"rms_eps", shortest(desc.rms_eps)},
               {"tied_head", desc.tied_head}};
  if (n_attention < desc.n_layers) {
    json["delta_net"] = {{"k_heads", desc.delta_net.n_k_heads},
                         {"v_heads", desc.delta_net.n_v_heads},
                         {"head_dim", desc.delta_net.head_dim},
                         {"conv_kernel", desc.delta_net.conv_kernel}};
  }
  if (desc.moe.n_experts > 0) {
    json["experts"] = {{"count", desc.moe.n_experts},
                       {"used", desc.moe.n_used},
                       {"ffn_dim", desc.moe.expert_ffn_dim},
                       {"shared_ffn_dim", desc.moe.shared_ffn_dim}};
  }
  if (desc.n_mtp_layers > 0) {
    json["mtp_layers_left_out"] = desc.n_mtp_layers;
  }
  return json;
}

// One "key value" line a member; an object of the first level gives a line for each of its own.
std::string text_lines(const Json& json) {
  std::string text;
  const auto add_line = [&text](const std::string& name, const Json& value) {
    text += fmt::format("{:<36} {}\n", printable(name), compact(value));
  };
  for (const auto& [key, value] : json.items()) {
    if (!value.is_object()) {
      add_line(key, value);
      continue;
    }
    for (const auto& [inner_key, inner_value] : value.items()) {
      add_line(key + "." + inner_key, inner_value);
    }
  }
  return text;
}

int InspectVerb::run() {
  GgufFile file = open_model_file(model_);
  Json json = {{"model", model_},
               {"architecture", std::string(file.get_string("general.architecture").value_or(""))},
               {"name", std::string(file.get_string("general.name").value_or(""))},
               {"gguf_version", file.version()},
               {"parts", file.part_names()},
               {"file_bytes", file.total_bytes()},
               {"tensors", file.tensors().size()},
               {"parameters", n_parameters(file)},
               {"quantisation", quant_mix(file)},
               {"tokenizer", tokenizer_json(file)}};
  Json metadata = metadata_json(file);
  // Last, because the model takes the file. A file that cannot run is still worth looking at.
  try {
    const Model model(std::move(file));
    json["runs"] = true;
    json["dimensions"] = dimensions_json(model.desc());
  } catch (const Error& error) {
    json["runs"] = false;
    json["reason"] = error.what();
  }
  json["metadata"] = std::move(metadata);
  if (output.is_json()) {
    write_json(json, true);
  } else {
    write_stdout(text_lines(json));
  }
  return 0;
}

}  // namespace

std::unique_ptr<Verb> make_inspect_verb() {
  return std::make_unique<InspectVerb>();
}

}  // namespace apr::cli
