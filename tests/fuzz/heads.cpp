// A folder of draft heads for a model of 8 columns and 3 tokens. The input contains config.json,
// Medusa's tensors and EAGLE's.
#include "models/architecture.h"
#include "models/import/hf/eagle.h"
#include "models/import/hf/medusa.h"
#include "models/import/import.h"
#include "tests/fuzz/target.h"

namespace chaski::fuzz {
namespace {

const Decoder& guessed_for() {
  static const std::unique_ptr<Model> model = [] {
    std::unique_ptr<Model> made = find_architecture("llama")->make();
    made->vocab = 3, made->n_layers = 8;
    return made;
  }();
  return dynamic_cast<const Decoder&>(*model);
}

template <class Head>
void import_as() {
  may_fail([] {
    Head head(guessed_for(), 8, "the model");
    use(import_eagle(folder(), head));
    if constexpr (std::is_same_v<Head, Eagle3>)
      expect(head.tokens.empty() || int64_t(head.tokens.size()) == head.draft_vocab,
             "each token of a head is in the model's vocabulary");
  });
}

const Declared heads("heads", [](std::string_view input) {
  constexpr const char* kFiles[] = {"config.json", "medusa_lm_head.safetensors",
                                    "model.safetensors"};
  const auto parts = parts_of(input);
  empty_folder();
  for (size_t i = 0; i < std::min(parts.size(), std::size(kFiles)); ++i)
    if (!parts[i].empty()) write(kFiles[i], parts[i]);
  may_fail([] { use(import_model(folder())); });
  may_fail([] {
    MedusaHeads medusa;
    medusa.dim = 8, medusa.vocab = 3;
    use(import_medusa(folder(), medusa, "the model"));
    expect(medusa.heads <= MedusaHeads::kMostHeads, "the number of heads is limited");
  });
  import_as<Eagle1>(), import_as<Eagle3>(), import_as<NextLayer>(), import_as<DeltaNext>();
});

}  // namespace
}  // namespace chaski::fuzz
