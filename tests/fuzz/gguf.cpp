// A GGUF file: container, keys, tensors, tokenizer, and the layer for one more token of a model of
// 32 columns and 96 tokens.
#include "models/architecture.h"
#include "models/heads/delta_next.h"
#include "models/import/import.h"
#include "tests/fuzz/target.h"

namespace chaski::fuzz {
namespace {

const Declared gguf("gguf", [](std::string_view input) {
  const std::string path = write("model.gguf", input);
  may_fail([&] { use(import_gguf(path)); });
  static const std::unique_ptr<Model> target = find_architecture("qwen35")->make();
  target->vocab = 96;
  may_fail([&] {
    DeltaNext layer(dynamic_cast<const Decoder&>(*target), 32, "the model");
    use(import_gguf_next(path, layer));
  });
  gguf_has_next(path);
});

}  // namespace
}  // namespace chaski::fuzz
