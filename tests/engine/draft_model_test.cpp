// A smaller model as a drafter: what it reads, and that it does not change the text.
#include "engine/drafting/drafter.h"
#include "engine/drafting/governor.h"
#include "engine/pages/kv_cache.h"
#include "engine/requests/generate.h"
#include "engine/session/engine.h"
#include "tests/kit/support.h"

namespace chaski::test {
namespace {

// A draft model that has read nothing of a text reads its end, and draws with the noise of the
// positions in the text.
TEST_CASE("speculation: a draft model reads the last tokens of a text, not its prompt") {
  const auto target = Engine::open({}), draft = Engine::open({}), same = Engine::open({});
  const KvPool& pool = draft->kv_cache().pools[0];
  std::vector<TokenId> text =
      target->tokenizer().encode_prompt("Once upon a time there was a cat.");
  while (text.size() < 200) text.push_back(text[text.size() % 7 + 1]);
  for (const double temperature : {0.0, 0.8}) {
    CAPTURE(temperature);
    SamplerOptions o;
    o.temperature = temperature, o.seed = 5;
    const auto drafter = model_drafter(draft, *target, o);
    Sampler sampler(o);
    std::vector<TokenId> whole = text;
    const size_t start = whole.size() - 8;
    CHECK(drafter->model(whole).reads_first);
    for (int tries = 0; tries < 3; ++tries) {
      const Draft got = drafter->propose(whole, {3});
      const auto session = same->session();
      std::vector<TokenId> want = whole;
      while (want.size() < whole.size() + 3) {
        const auto logits = session->extend(session->reuse(std::span(want).subspan(start)));
        want.push_back(sampler.draw(logits.first(size_t(same->tokenizer().size())), want));
      }
      CHECK(got == Draft::chain(std::span(want).subspan(whole.size())));
      CHECK(pool.in_use() <= 3);
      CHECK(!drafter->model(whole).reads_first);
      whole.push_back(want[whole.size()]);  // this draft token is right, the others are wrong
      for (int i = 0; i < 2; ++i) whole.push_back(TokenId(100 + tries));
    }
    const auto prompt = std::span(text).first(150);
    GenerateOptions plain;
    plain.max_tokens = 60, plain.ignore_end = true, plain.sampling = o;
    const auto want = generate(*target->session(), prompt, plain, [](std::string_view) {});
    for (const bool governed : {false, true}) {
      Governor governor;
      GenerateOptions with = plain;
      const auto own = model_drafter(draft, *target, o);
      with.drafter = own.get(), with.draft_length = 4;
      with.governor = governed ? &governor : nullptr;
      const auto got = generate(*target->session(), prompt, with, [](std::string_view) {});
      CHECK(got.tokens == want.tokens);
      if (!governed) CHECK(got.accepted > 0);
    }
  }
}

TEST_CASE("speculation: a text continues without a drafter whose memory does not suffice") {
  struct Short : Drafter {
    Draft propose(std::span<const TokenId>, const Draft::Shape&) override {
      throw Error(Exit::memory, "draft.quipu: too little memory");
    }
  } drafter;
  const auto target = Engine::open({});
  const auto prompt = target->tokenizer().encode_prompt("Once upon a time");
  GenerateOptions o;
  o.max_tokens = 40, o.ignore_end = true, o.sampling.temperature = 0;
  const auto want = generate(*target->session(), prompt, o, [](std::string_view) {});
  std::vector<std::string> lost;
  o.drafter = &drafter, o.draft_length = 4;
  o.on_drafter_lost = [&](const std::string& why) { lost.push_back(why); };
  const auto got = generate(*target->session(), prompt, o, [](std::string_view) {});
  CHECK(got.tokens == want.tokens);
  CHECK(lost == std::vector<std::string>{"draft.quipu: too little memory"});
}

}  // namespace
}  // namespace chaski::test
