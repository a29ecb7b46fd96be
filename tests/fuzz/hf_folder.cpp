// A Hugging Face folder with two shards of weights. The input contains config.json, the index, two
// shards and tokenizer_config.json.
#include <algorithm>
#include <iterator>

#include "models/import/import.h"
#include "tests/fuzz/target.h"

namespace chaski::fuzz {
namespace {

constexpr const char* kFiles[] = {"config.json", "model.safetensors.index.json", "one.safetensors",
                                  "two.safetensors", "tokenizer_config.json"};

const Declared hf_folder("hf_folder", [](std::string_view input) {
  const auto parts = parts_of(input);
  empty_folder();
  for (size_t i = 0; i < std::min(parts.size(), std::size(kFiles)); ++i) write(kFiles[i], parts[i]);
  may_fail([&] { use(import_model(folder())); });
});

}  // namespace
}  // namespace chaski::fuzz
