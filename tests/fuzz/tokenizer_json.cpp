// tokenizer.json in an otherwise valid folder, and its tokenizer.
#include "tests/fuzz/target.h"

namespace chaski::fuzz {
namespace {

const Declared tokenizer_json("tokenizer_json", [](std::string_view input) {
  use_hf_tokenizer("tokenizer.json", input);
});

}  // namespace
}  // namespace chaski::fuzz
