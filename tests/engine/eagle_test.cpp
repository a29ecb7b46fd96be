// EAGLE heads and layers for one more token: their logits, what they know of a text, and the texts
// that are generated with their drafts.
#include <cmath>
#include <map>
#include <set>

#include "engine/drafting/draft_heads.h"
#include "engine/requests/generate.h"
#include "engine/requests/scheduler.h"
#include "tests/kit/eagle_support.h"

namespace chaski::test {
namespace {

TEST_CASE("eagle: logits are those of another program, also after its own rows") {
  const std::map<std::string, std::string> targets{{"eagle", kEagleTarget},
                                                   {"eagle_bf16", kEagleTarget},
                                                   {"eagle3", kEagle3Target},
                                                   {"mimo", kNextTarget},
                                                   {"qwen35", golden("models/qwen35")},
                                                   {"qwen35_moe", golden("models/qwen35_moe")},
                                                   {"qwen3next", golden("models/qwen3next")}};
  for (const auto& [name, of] : targets) {
    CAPTURE(name);
    const std::string folder = golden("heads/") + name;
    const auto told = golden_numbers(folder);
    const auto target = open_on_cpu(of, Format::f32);
    const auto tokens =
        (told.contains("tokens") ? told : golden_numbers(of))["tokens"].get<std::vector<TokenId>>();
    const auto guesses = told["guesses"].get<std::vector<TokenId>>();
    const size_t positions = told["positions"], n = tokens.size() - 1,
                 dim = size_t(target->hidden_size()),
                 vocab =
                     told.contains("known") ? told["known"].size() : size_t(target->vocab_size());
    const auto eagle = open_eagle(folder, target);
    const auto all = rows_of(target, tokens);
    const std::span<const float> hidden(all);
    const auto s = eagle->session();
    std::vector<float> got, row;
    const auto step = [&](std::span<const TokenId> more, std::span<const float> rows) {
      const auto next = s->extend(more, rows, nullptr);
      REQUIRE(next.has_value());
      REQUIRE(next->logits.size() == vocab);
      got.insert(got.end(), next->logits.begin(), next->logits.end());
      row.assign(next->hidden.begin(), next->hidden.end());
    };
    const size_t begin = n - positions + 1;
    step(std::span(tokens).subspan(1, begin), hidden.first(begin * dim));
    for (size_t i = begin; i < n; ++i)
      step(std::span(tokens).subspan(i + 1, 1), hidden.subspan(i * dim, dim));
    for (const TokenId guess : guesses) step({&guess, 1}, std::vector(row));
    const std::string bytes = read_file(folder + "/logits.f32");
    std::vector<float> want(bytes.size() / 4);
    std::memcpy(want.data(), bytes.data(), bytes.size());
    REQUIRE(want.size() == got.size());
    double worst = 0, most = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      worst = std::max(worst, std::fabs(double(want[i]) - got[i]));
      most = std::max(most, std::fabs(double(want[i])));
    }
    MESSAGE(name << ": max error / max logit " << worst / most);
    CHECK(worst <= 1e-4 * most);
    // After a rewind, and after a fork and a rewind, the logits are the same again.
    const auto fork = s->fork();
    for (Session* again : {s.get(), fork.get()}) {
      CHECK(again->rewind(int(begin)) == int(begin));
      const auto next = again->extend(std::span(tokens).subspan(begin + 1),
                                      hidden.subspan(begin * dim, (n - begin) * dim), nullptr);
      REQUIRE(next.has_value());
      CHECK(same(next->logits, std::span(got).subspan((positions - 1) * vocab, vocab)));
    }
  }
}

TEST_CASE("eagle: a draft depends on the text, not on how its rows were read") {
  std::string story = "Once upon a time there was a little dog.";
  while (story.size() < 1000) story += " He ran and he saw a cat.";
  for (const HeadsKind kind : kEveryKind) {
    CAPTURE(int(kind));
    const TempFolder temp;
    write_head(temp.path, *Engine::open({}), {kind});
    size_t seen = 0;
    for (const double temperature : {0.0, 0.8}) {
      // Without this, pages of the story would be known, and their rows not returned.
      const auto target = Engine::open({});
      const auto eagle = open_eagle(temp.path, target);
      const auto& tokenizer = target->tokenizer();
      GenerateOptions plain = drawn(temperature, 3, 100);
      plain.max_tokens = 20;
      GenerateOptions with = plain;
      Noted noted(eagle_drafter(eagle, with.sampling));
      with.drafter = &noted, with.draft_length = 4;
      const auto session = target->session();
      // A long prompt, the same with another end, and a different one.
      for (const std::string& text : {story + " Then", story + " But", std::string("Tim")}) {
        const auto prompt = tokenizer.encode_prompt(text);
        CHECK((text == "Tim" || prompt.size() > 256));
        const auto got = generate(*session, prompt, with, kUnheard);
        CHECK(got.tokens == generate(*target->session(), prompt, plain, kUnheard).tokens);
        CHECK(got.drafted > 0);
        for (const auto& [history, draft] : noted.notes) {
          // The two prompts share tokens, so the row before the other end is not returned again.
          if (draft.nodes.empty() || !text.ends_with("Then")) continue;
          CHECK(draft ==
                drafted_from_scratch(eagle, target, with.sampling, history, draft.depths()));
          ++seen;
        }
        noted.notes.clear();
      }
    }
    CHECK(seen > 20);
  }
}

TEST_CASE("eagle: repeated calls, a shortened text, and another text") {
  for (const HeadsKind kind : kEveryKind) {
    CAPTURE(int(kind));
    const auto target = Engine::open({});
    const TempFolder temp;
    write_head(temp.path, *target, {kind});
    const auto eagle = open_eagle(temp.path, target);
    const auto text =
        target->tokenizer().encode_prompt("Once upon a time there was a dog and a cat.");
    const size_t n = text.size() - 1, dim = size_t(target->hidden_size());
    const auto rows = rows_of(target, std::span(text).first(n));
    SamplerOptions sampling;
    sampling.seed = 4;
    const auto drafter = eagle_drafter(eagle, sampling);
    CHECK(drafter->reads_hidden());
    CHECK(drafter->kind(text) == -1);
    CHECK(drafter->propose(text, {3}).nodes.empty());
    drafter->read_hidden(text, rows);
    CHECK(drafter->kind(text) == 0);
    CHECK(drafter->kind(std::span(text).first(3)) == -1);
    const Draft three = drafter->propose(text, {3});
    REQUIRE(three.nodes.size() == 3);
    CHECK(drafter->propose(text, {3}) == three);
    CHECK(drafter->propose(text, {1}).nodes ==
          std::vector<Draft::Node>(three.nodes.begin(), three.nodes.begin() + 1));
    CHECK(drafter->propose(text, {0}).nodes.empty());
    // Several branches: the first one is as it is alone, and all begin with different tokens.
    const Draft tree = drafter->propose(text, {3, 2, 1});
    REQUIRE(tree.nodes.size() == 6);
    CHECK(std::equal(three.nodes.begin(), three.nodes.end(), tree.nodes.begin()));
    CHECK(tree.depths() == Draft::Shape{3, 2, 1});
    const std::vector<TokenId> firsts = tree.first();
    CHECK(std::set<TokenId>(firsts.begin(), firsts.end()).size() == 3);
    // A branch continues as a chain after its first token would.
    CHECK(drafter->propose(text, {1, 2, 1}).nodes[2] == Draft::Node{tree.nodes[4].token, 1});
    CHECK(drafter->propose(text, {3}) == three);
    // It reads a prefix of the text, then the rest again.
    drafter->read_hidden(std::span(text).first(5), std::span(rows).first(4 * dim));
    CHECK(drafter->propose(text, {3}).nodes.empty());
    drafter->propose(std::span(text).first(5), {2});
    drafter->read_hidden(text, std::span(rows).subspan(4 * dim));
    CHECK(drafter->propose(text, {3}) == three);
    // A part of the known rows is read again.
    drafter->read_hidden(text, std::span(rows).subspan((n - 2) * dim));
    CHECK(drafter->propose(text, {3}) == three);
    // It keeps no rows of another text.
    auto other = text;
    other[0] = text[0] == 5 ? 6 : 5;
    drafter->read_hidden(other, std::span(rows).subspan((n - 1) * dim));
    const auto alone = eagle_drafter(eagle, sampling);
    alone->read_hidden(other, std::span(rows).subspan((n - 1) * dim));
    CHECK(drafter->propose(other, {3}) == alone->propose(other, {3}));
    CHECK(drafter->propose(other, {3}) != three);
  }
}

TEST_CASE("eagle: while no drafts are wanted, the last rows wait") {
  for (const HeadsKind kind : kEveryKind) {
    CAPTURE(int(kind));
    const auto target = Engine::open({});
    const TempFolder temp;
    write_head(temp.path, *target, {kind});
    const auto eagle = open_eagle(temp.path, target);
    const auto text = tokens_for(*target, 60);
    const size_t dim = size_t(target->hidden_size());
    const auto rows = rows_of(target, text);
    const auto one_by_one = eagle_drafter(eagle, {}), last = eagle_drafter(eagle, {}),
               all = eagle_drafter(eagle, {});
    for (size_t i = 0; i < 59; ++i)
      one_by_one->read_hidden(std::span(text).first(i + 2), std::span(rows).subspan(i * dim, dim));
    last->read_hidden(text, std::span(rows).subspan(35 * dim, 24 * dim));
    all->read_hidden(text, std::span(rows).first(59 * dim));
    const Draft draft = one_by_one->propose(text, {4});
    CHECK(draft == last->propose(text, {4}));
    CHECK(draft != all->propose(text, {4}));
  }
}

TEST_CASE("eagle: text is the same with it and without, greedy and sampled, alone and together") {
  for (const HeadsKind kind : kEveryKind) {
    CAPTURE(int(kind));
    const auto target = Engine::open({});
    const auto prompt = target->tokenizer().encode_prompt("Once upon a time there was a");
    const auto plain = generate(*target->session(), prompt, drawn(0, 1, 100), kUnheard);
    // It mostly drafts the most frequent token of the text: its bias is the row from which that
    // token was drawn, or it knows no other token.
    const TempFolder temp;
    std::vector<TokenId> all = prompt;
    all.insert(all.end(), plain.tokens.begin(), plain.tokens.end());
    size_t usual = prompt.size();
    for (size_t i = prompt.size(); i < all.size(); ++i)
      if (std::count(all.begin(), all.end(), all[i]) >
          std::count(all.begin(), all.end(), all[usual]))
        usual = i;
    const auto of_prefix = target->session();
    const auto row = of_prefix->hidden(std::span(all).first(usual), 1);
    std::vector<float> bias;
    for (const float x : row) bias.push_back(3 * x);
    if (kind == HeadsKind::eagle3) bias.clear();
    write_head(temp.path, *target, {kind, 0, bias, {all[usual], all[usual] + 1}});
    const auto eagle = open_eagle(temp.path, target);
    int accepted = 0;
    std::vector<GenerateResult> alone;
    for (const double temperature : {0.0, 0.8})
      for (const uint64_t seed : {1, 2}) {
        alone.push_back(
            generate(*target->session(), prompt, drawn(temperature, seed, 100), kUnheard));
        for (const bool governed : {false, true})
          for (const int k : {1, 5}) {
            GenerateOptions with = drawn(temperature, seed, 100);
            const auto drafter = eagle_drafter(eagle, with.sampling);
            Governor governor;
            with.drafter = drafter.get(), with.draft_length = k;
            with.governor = governed ? &governor : nullptr;
            const auto got = generate(*target->session(), prompt, with, kUnheard);
            CHECK(got.tokens == alone.back().tokens);
            CHECK(got.text == alone.back().text);
            if (governed) continue;
            CHECK(got.drafted > 0);
            accepted += got.accepted;
          }
      }
    CHECK(accepted > 0);
    Scheduler scheduler(target);
    std::vector<std::unique_ptr<Drafter>> drafters;
    std::vector<std::unique_ptr<Request>> requests;
    for (size_t i = 0; i < alone.size(); ++i) {
      GenerateOptions with = drawn(i < 2 ? 0 : 0.8, i % 2 + 1, 100);
      drafters.push_back(i == 3 ? ngram_drafter() : eagle_drafter(eagle, with.sampling));
      with.drafter = drafters.back().get(), with.draft_length = 2;
      requests.push_back(std::make_unique<Request>(*target, prompt, with, kUnheard));
      scheduler.add(*requests.back());
    }
    while (scheduler.step()) {
    }
    for (size_t i = 0; i < alone.size(); ++i) {
      const GenerateResult got = requests[i]->finished();
      CHECK(got.tokens == alone[i].tokens);
      if (i < 3) CHECK(got.drafted > 0);
    }
  }
}

TEST_CASE("eagle: an EAGLE-3 head with a part of the vocabulary changes no token") {
  const auto target = open_on_cpu(kEagle3Target, Format::f32);
  const std::string folder = golden("heads/eagle3");
  const auto eagle = open_eagle(folder, target);
  const auto told = golden_numbers(folder);
  const auto tokens = told["tokens"].get<std::vector<TokenId>>(),
             known = told["known"].get<std::vector<TokenId>>();
  for (const double temperature : {0.0, 0.8}) {
    SamplerOptions sampling;
    sampling.temperature = temperature, sampling.seed = 6;
    Sampler sampler(sampling);
    std::vector<TokenId> plain;
    for (const int k : {0, 1, 4}) {
      const auto drafter = eagle_drafter(eagle, sampling);
      const auto session = target->session();
      std::vector<TokenId> text = tokens;
      size_t guessed = 0;
      while (text.size() < 90) {
        const Draft draft = drafter->propose(text, {k});
        for (const Draft::Node& node : draft.nodes)
          CHECK(std::ranges::binary_search(known, node.token));
        if (!draft.nodes.empty() && guessed++ % 16 == 0)
          CHECK(draft == drafted_from_scratch(eagle, target, sampling, text, draft.depths()));
        const Extension more{.session = session.get(),
                             .tokens = std::span(text).subspan(size_t(session->position())),
                             .sampler = &sampler,
                             .draft = draft.nodes,
                             .hidden = k > 0};
        const Draws draws = draw_all({&more, 1})[0];
        text.insert(text.end(), draws.tokens.begin(), draws.tokens.end());
        if (k > 0) drafter->read_hidden(text, draws.hidden);
      }
      text.resize(90);
      if (k == 0) plain = text;
      CHECK(text == plain);
      CHECK((k == 0) == (guessed == 0));
    }
  }
  // Other heads cannot read its rows.
  for (const std::string name : {"eagle3", "medusa"}) {
    const Error error = error_of([&] {
      if (name == "medusa") DraftHeads(golden("heads/") + name, target);
      open_eagle(golden("heads/") + name, target);
    });
    CHECK(error.code == Exit::usage);
    CHECK(contains(error.what(), "has an EAGLE-3 head already, expected only one set"));
  }
}

TEST_CASE("eagle: a full context that shifts gives the same text with it and without") {
  for (const HeadsKind kind : kEveryKind) {
    CAPTURE(int(kind));
    EngineOptions small;
    small.context = 64;
    const auto target = Engine::open(small);
    const TempFolder temp;
    write_head(temp.path, *target, {kind});
    const auto eagle = open_eagle(temp.path, target);
    CHECK(eagle->context_length() == 64);
    const auto prompt = target->tokenizer().encode_prompt("Once upon a time there was a");
    GenerateOptions options = drawn(0.8, 5, 100);
    options.context_policy = ContextPolicy::shift;
    const auto without = generate(*target->session(), prompt, options, kUnheard);
    const auto drafter = eagle_drafter(eagle, options.sampling);
    options.drafter = drafter.get(), options.draft_length = 4;
    const auto with = generate(*target->session(), prompt, options, kUnheard);
    CHECK(with.dropped_tokens > 0);
    CHECK(with.dropped_tokens == without.dropped_tokens);
    CHECK(with.tokens == without.tokens);
    CHECK(with.drafted > 0);
    // The same with a context that has no room for drafts.
    options.context_policy = ContextPolicy::stop, options.max_tokens = -1;
    const auto full = generate(*target->session(), prompt, options, kUnheard);
    CHECK(full.finish == Finish::full);
    CHECK(full.tokens == std::vector(without.tokens.begin(),
                                     without.tokens.begin() + ptrdiff_t(full.tokens.size())));
  }
}

}  // namespace
}  // namespace chaski::test
