// tokenizer.json in a folder that is otherwise sound, and the tokenizer that is made of it.
#include "tests/fuzz/target.h"

namespace chaski::fuzz {
namespace {

const Declared tokenizer_json("tokenizer_json", [](std::string_view input) {
  use_hf_tokenizer("tokenizer.json", input);
});

}  // namespace
}  // namespace chaski::fuzz
