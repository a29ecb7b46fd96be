// A user's text with tokenizers of every kind. It never becomes a control token, and decoding
// returns the text if the vocabulary has every byte.
#include <memory>

#include "engine/text/tokenizer/tokenizer.h"
#include "tests/fuzz/target.h"
#include "tests/fuzz/vocabularies.h"

namespace chaski::fuzz {
namespace {

struct Case {
  std::unique_ptr<Tokenizer> tokenizer;
  bool whole, spm;  // whole: the vocabulary has every byte
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> made;
    for (const char* pre : {"default", "gpt-2", "llama-bpe", "qwen2", "falcon", "deepseek-coder",
                            "deepseek-llm", "deepseek-v3", "bloom", "viking", "tekken", "gpt-4o"})
      made.push_back({Tokenizer::make(bpe_vocabulary(pre)), true, false});
    made.push_back({Tokenizer::make(bpe_vocabulary("gpt-2", 0xff)), false, false});
    made.push_back({Tokenizer::make(spm_vocabulary(true)), true, true});
    made.push_back({Tokenizer::make(spm_vocabulary(false)), false, true});
    return made;
  }();
  return all;
}

// spm has the same piece for a space and for U+2581.
std::string with_spaces(std::string_view text) {
  constexpr std::string_view kSpace = "\xE2\x96\x81";
  std::string out;
  while (!text.empty()) {
    const bool space = text.starts_with(kSpace);
    out += space ? ' ' : text[0];
    text.remove_prefix(space ? kSpace.size() : 1);
  }
  return out;
}

const Declared text("text", [](std::string_view input) {
  for (const Case& c : cases()) {
    const std::vector<TokenId> ids = c.tokenizer->encode(input);
    for (const TokenId id : ids)
      expect(!c.tokenizer->is_control(id), "a user's text has no control tokens");
    if (!c.whole) continue;
    const std::string back = c.tokenizer->decode(ids);
    expect(c.spm ? back == with_spaces(input) : back == input, "decoding returns the text");
  }
});

}  // namespace
}  // namespace chaski::fuzz
