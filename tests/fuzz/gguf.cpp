// A GGUF file: container, keys, tensors, tokenizer.
#include "models/import/import.h"
#include "tests/fuzz/target.h"

namespace chaski::fuzz {
namespace {

const Declared gguf("gguf", [](std::string_view input) {
  const std::string path = write("model.gguf", input);
  may_fail([&] { use(import_gguf(path)); });
});

}  // namespace
}  // namespace chaski::fuzz
