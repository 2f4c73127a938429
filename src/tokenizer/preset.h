// Which pre-tokenizer a file asks for.
#pragma once

#include "apr/gguf.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/vocab.h"

namespace apr {

// The preset that tokenizer.ggml.pre names, aliases included; null where the key is missing or
// "default". Throws kModelLoad for another name and where tokenizer.ggml.model is not byte-level
// BPE
// ("gpt2"), naming the value and what is supported.
const PreTokenizerPreset* named_preset(const GgufFile& file);

// The preset of a file that names none: that of qwen2 where the vocabulary is recognisably its own:
// <|endoftext|>, <|im_start|> and <|im_end|> are special tokens, no ordinary token holds two ASCII
// digits in a row (its pattern cuts digits apart) and there are at most 152,064 tokens (its largest
// published list; that of qwen35 has 248,320). Throws kModelLoad naming what speaks against it.
const PreTokenizerPreset& default_preset(const GgufFile& file, const Vocab& vocab);

}  // namespace apr
