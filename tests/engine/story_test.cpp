// Compares greedy stories with the text of the reference program
// (../shared/data/models/reference_outputs).
#include <algorithm>

#include "engine/requests/generate.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

// Follows the reference text token by token. Returns the largest difference between the best logit
// and the logit of the reference's token.
float lead_over(const std::string& model, const std::string& prompt, const std::string& text,
                int max_tokens) {
  const auto e = open_on_cpu(model, Format::f32);
  const Tokenizer& t = e->tokenizer();
  auto s = e->session();
  std::span<const float> logits = s->extend(t.encode_prompt(prompt));
  size_t at = prompt.size();
  float worst = 0;
  for (int i = 0; i < max_tokens && at < text.size(); ++i) {
    // The reference's token: the most probable one of those that spell the text that follows.
    int follows = -1;
    for (TokenId id = 0; id < t.size(); ++id) {
      const std::string piece(at == 0 ? t.decode({&id, 1}) : std::string(t.piece(id)));
      if (piece.empty() || text.compare(at, piece.size(), piece) != 0) continue;
      if (follows < 0 || logits[size_t(id)] > logits[size_t(follows)]) follows = id;
    }
    REQUIRE(follows >= 0);
    worst =
        std::max(worst, *std::max_element(logits.begin(), logits.end()) - logits[size_t(follows)]);
    const TokenId id = follows;
    at += (at == 0 ? t.decode({&id, 1}) : std::string(t.piece(id))).size();
    logits = s->decode(follows);
  }
  return worst;
}

}  // namespace

TEST_CASE("story: stories260K in f32, character for character") {
  const std::string model = data("models/stories260K.bin"),
                    want = data("models/reference_outputs/stories260K.greedy256.txt");
  if (!have(model)) return;
  for (Format kv : {Format::f32, Format::f16}) {
    const auto e = open_on_cpu(model, kv);
    GenerateOptions o;
    o.max_tokens = 256, o.sampling.temperature = 0;
    const auto got =
        generate(*e->session(), e->tokenizer().encode_prompt(""), o, [](std::string_view) {});
    // the reference program ends its output with a newline
    CHECK(got.text + "\n" == read_file(want));
  }
}

// The reference quantizes activations in groups of 64, chaski in blocks of 32, so nearly equal
// logits may change their order. Along the reference text, the reference's token is never more than
// 0.35 below the best logit (about 17).
TEST_CASE("story: stories3M from its int8 weights, close to the reference") {
  const std::string model = data("models/stories3M-q80.bin"),
                    folder = data("models/reference_outputs/");
  if (!have(model)) return;
  const float lead = lead_over(model, "", read_file(folder + "stories3M-q80.greedy256.txt"), 190);
  const float tom = lead_over(model, "Tom had a red boat.",
                              read_file(folder + "stories3M-q80.greedy256.tom.txt"), 240);
  MESSAGE("largest lead over the reference's token: " << lead << " and " << tom);
  CHECK(lead < 0.35f);
  CHECK(tom < 0.35f);
}
