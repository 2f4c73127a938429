// Kernels as PTX, and the branches in it.
#pragma once

#include <fmt/format.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "cuda/error.h"
#include "cuda/kernel_source.h"

namespace apr::test {

// The PTX of `names` out of kernels/`file` for a virtual architecture ("compute_90a"), compiled
// with the options of KernelCompiler that shape code. Throws apr::Error.
inline std::string compile_to_ptx(std::span<const cuda::KernelSource> tree, const std::string& file,
                                  const std::string& quant_file,
                                  const std::vector<std::string>& names, const std::string& arch) {
  std::map<std::string, std::string> texts;
  std::vector<std::string> roots{file};
  if (!quant_file.empty()) {
    roots.push_back(quant_file);
  }
  for (const std::string& root : roots) {
    for (const cuda::KernelSource& source : cuda::with_includes(tree, root)) {
      texts.emplace(source.path, source.text);
    }
  }
  std::vector<const char*> include_names, include_texts;
  for (const auto& [path, text] : texts) {
    include_names.push_back(path.c_str());
    include_texts.push_back(text.c_str());
  }
  const cuda::Api& api = cuda::api();
  nvrtcProgram program = nullptr;
  APR_CUDA(api.nvrtcCreateProgram(&program, texts.at(file).c_str(), file.c_str(),
                                  static_cast<int>(texts.size()), include_texts.data(),
                                  include_names.data()));
  for (const std::string& name : names) {
    APR_CUDA(api.nvrtcAddNameExpression(program, name.c_str()));
  }
  const std::string arch_option = "--gpu-architecture=" + arch;
  const std::string quant_option = "--define-macro=APR_QUANT_FILE=\"" + quant_file + '"';
  const char* options[] = {"--std=c++20", "--device-as-default-execution-space",
                           arch_option.c_str(), quant_option.c_str()};
  const nvrtcResult status = api.nvrtcCompileProgram(program, 4, options);
  size_t size = 0;
  std::string text;
  if (status == NVRTC_SUCCESS) {
    APR_CUDA(api.nvrtcGetPTXSize(program, &size));
    text.resize(size);
    APR_CUDA(api.nvrtcGetPTX(program, text.data()));
  } else {
    APR_CUDA(api.nvrtcGetProgramLogSize(program, &size));
    text.resize(size);
    APR_CUDA(api.nvrtcGetProgramLog(program, text.data()));
  }
  APR_CUDA(api.nvrtcDestroyProgram(&program));
  if (status != NVRTC_SUCCESS) {
    throw Error(ErrorCode::kBackendUnavailable, text);
  }
  return text;
}

// What could make a kernel of `ptx` run a piece of code twice: branches to a label that stands
// before them, branches through tables, calls. Empty: straight on, or no kernel at all is reported.
inline std::string repeating_instructions(const std::string& ptx) {
  std::map<std::string, int> label_lines;
  std::string found;
  int line_number = 0, n_entries = 0;
  std::istringstream lines(ptx);
  for (std::string line; std::getline(lines, line);) {
    ++line_number;
    std::istringstream words(line.substr(0, line.find("//")));
    for (std::string word; words >> word;) {
      n_entries += word == ".entry" ? 1 : 0;
      if (word.ends_with(':')) {
        label_lines[word.substr(0, word.size() - 1)] = line_number;
      } else if (word == "bra" || word == "bra.uni") {
        std::string target;
        words >> target;
        if (label_lines.contains(target.substr(0, target.find(';')))) {
          found += fmt::format("line {}: {}\n", line_number, line);
        }
      } else if (word.starts_with("brx.") || word == "call" || word.starts_with("call.")) {
        found += fmt::format("line {}: {}\n", line_number, line);
      }
    }
  }
  return n_entries == 0 ? "no kernel" : found;
}

}  // namespace apr::test
