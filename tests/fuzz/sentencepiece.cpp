// tokenizer.model (SentencePiece's protobuf) and its tokenizer.
#include "tests/fuzz/target.h"

namespace chaski::fuzz {
namespace {

const Declared sentencepiece("sentencepiece", [](std::string_view input) {
  use_hf_tokenizer("tokenizer.model", input);
});

}  // namespace
}  // namespace chaski::fuzz
