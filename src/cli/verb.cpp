#include "cli/verb.h"

namespace apr::cli {

const std::vector<VerbRow>& verb_table() {
  static const std::vector<VerbRow> rows = {
      {"run", "answer or continue one prompt",
       "  apr run demo --chat \"What is 12 + 13?\"\n"
       "  apr run model.gguf --chat -n 200 --temperature 0.7 --top-p 0.9 \"Write a haiku.\"\n"
       "  apr run model.gguf -p \"def fibonacci(n):\" -n 64 --stop $'\\n\\n'\n"
       "  git diff | apr run model.gguf --chat --system \"Summarise this change.\"\n"
       "  apr run model.gguf -i prompt.txt --json > answer.json\n"
       "  apr run model.gguf -- \"--a prompt that starts with dashes\"\n",
       make_run_verb},
      {"inspect", "what a model file is: architecture, sizes, quantisation, tokenizer, metadata",
       "  apr inspect model.gguf\n"
       "  apr inspect demo --json\n",
       make_inspect_verb},
      {"tensors", "the tensors of a model file",
       "  apr tensors model.gguf\n"
       "  apr tensors model.gguf --json\n",
       make_tensors_verb},
      {"tokenize", "the token ids of a text",
       "  apr tokenize model.gguf \"Hello, world\"\n"
       "  apr tokenize model.gguf --json - < text.txt\n"
       "  apr tokenize model.gguf --no-special \"<|im_end|> as plain text\"\n",
       make_tokenize_verb},
      {"logits", "the logits of a token sequence at chosen positions, as raw f32",
       "  apr logits model.gguf --ids ids.json --positions 0,2 --out rows.f32 --exact\n"
       "  echo '[1, 298, 207]' | apr logits demo --ids - --positions 2 --out rows.f32\n",
       make_logits_verb},
      {"plan", "the forward pass of a model as a list of operations",
       "  apr plan model.gguf\n"
       "  apr plan model.gguf --lowered --backend cuda\n",
       make_plan_verb},
      {"fit", "whether a model fits a GPU, and which prefill it gets there; needs no GPU",
       "  apr fit model.gguf --vram 24G\n"
       "  apr fit model.gguf --vram 24G --context 20000 --json\n"
       "  apr fit model.gguf --vram 80G --free 60000000000\n",
       make_fit_verb},
      {"parity", "whether the GPU gives the CPU's answer",
       "  apr parity model.gguf\n"
       "  apr parity model.gguf --lengths 1..64,127,255 --exact\n"
       "  apr parity model.gguf -p \"What is 12 + 13?\" --per-op --json\n"
       "  apr parity model.gguf --tensors\n",
       make_parity_verb},
      {"bench", "how fast a model runs on this machine, as llama-bench measures it",
       "  apr bench model.gguf\n"
       "  apr bench model.gguf -p 128,512,2048 -n 128 -d 0,4096 -r 3 --json\n",
       make_bench_verb},
      {"doctor", "what this machine and this build offer",
       "  apr doctor\n"
       "  apr doctor --json\n",
       make_doctor_verb},
  };
  return rows;
}

}  // namespace apr::cli
