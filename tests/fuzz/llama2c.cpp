// A llama2.c model followed by its tokenizer.bin.
#include "models/import/import.h"
#include "tests/fuzz/target.h"

namespace chaski::fuzz {
namespace {

const Declared llama2c("llama2c", [](std::string_view input) {
  const auto parts = parts_of(input);
  const std::string model = write("model.bin", parts[0]),
                    tokenizer = write("tokens.bin", parts.size() > 1 ? parts[1] : "");
  may_fail([&] { use(import_llama2c(model, tokenizer)); });
});

}  // namespace
}  // namespace chaski::fuzz
