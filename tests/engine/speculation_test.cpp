// Speculative decoding: the ngram drafter, and the governor, which must not lose speed.
#include <random>

#include "engine/drafting/drafters.h"
#include "engine/drafting/governor.h"
#include "engine/drafting/suffix_automaton.h"
#include "engine/grammar/regex.h"
#include "engine/pages/kv_cache.h"
#include "engine/requests/generate.h"
#include "engine/requests/scheduler.h"
#include "engine/session/engine.h"
#include "tests/kit/support.h"

namespace chaski::test {
namespace {

// The longest end of the text that also occurs earlier, and all positions after an occurrence, by
// plain comparison.
std::pair<int, std::vector<size_t>> by_comparison(const std::vector<int32_t>& text) {
  const int n = int(text.size());
  for (int length = n - 1; length > 0; --length) {
    std::vector<size_t> ends;
    for (int from = 0; from + length < n; ++from)
      if (std::equal(text.begin() + from, text.begin() + from + length, text.end() - length))
        ends.push_back(size_t(from + length));
    if (!ends.empty()) return {length, ends};
  }
  return {0, {}};
}

TEST_CASE("speculation: the longest match is the longest, whatever the text") {
  std::mt19937 random(7);
  for (const int vocab : {1, 2, 3, 8, 60}) {
    CAPTURE(vocab);
    SuffixAutomaton automaton;
    std::vector<int32_t> text;
    for (int i = 0; i < 150; ++i) {
      automaton.push(text.emplace_back(int32_t(random() % unsigned(vocab))));
      const auto [length, ends] = by_comparison(text);
      const SuffixAutomaton::Match match = automaton.longest_match();
      REQUIRE(match.length == length);
      if (length > 0) REQUIRE(std::find(ends.begin(), ends.end(), match.end) != ends.end());
    }
  }
}

TEST_CASE("speculation: proposes each token that followed before, longest match first") {
  std::mt19937 random(5);
  for (const int vocab : {2, 3, 8, 15}) {
    CAPTURE(vocab);
    SuffixAutomaton automaton;
    std::vector<int32_t> text;
    for (int i = 0; i < 150; ++i) {
      automaton.push(text.emplace_back(int32_t(random() % unsigned(vocab))));
      // The length of the match with the end of the text.
      const auto match = [&](size_t place) {
        size_t n = 0;
        while (n < place && text[place - 1 - n] == text[text.size() - 1 - n]) ++n;
        return n;
      };
      std::vector<size_t> best(size_t(vocab), 0);  // by the token that follows
      for (size_t place = 1; place < text.size(); ++place)
        best[size_t(text[place])] = std::max(best[size_t(text[place])], match(place));
      std::sort(best.begin(), best.end(), std::greater<>());
      for (const int most : {1, 3, 40}) {
        std::vector<size_t> got;
        std::vector<int32_t> tokens;
        for (const size_t place : automaton.continuations(most)) {
          REQUIRE(place < text.size());
          got.push_back(match(place)), tokens.push_back(text[place]);
        }
        std::vector<size_t> want(best.begin(), std::find(best.begin(), best.end(), size_t(0)));
        want.resize(std::min(want.size(), size_t(most)));
        REQUIRE(got == want);
        std::sort(tokens.begin(), tokens.end());
        REQUIRE(std::adjacent_find(tokens.begin(), tokens.end()) == tokens.end());
      }
    }
  }
}

TEST_CASE("speculation: a draft is cut to a shape, to fitting nodes, and to a number of branches") {
  using Nodes = std::vector<Draft::Node>;
  Draft d;
  CHECK(d.depths() == Draft::Shape{});
  d.add(std::vector<TokenId>{1, 2, 3});      // 0 1 2
  d.add(std::vector<TokenId>{4, 5});         // 3 4
  d.add(std::vector<TokenId>{6, 7}, 0);      // 5 6: after node 0
  d.add(8, -1), d.add(9, -1), d.add(10, 4);  // 7 8 9
  CHECK(Draft::depth(d.nodes, 6) == 2);
  CHECK(d.first() == std::vector<TokenId>{1, 4, 8});
  CHECK(d.depths() == Draft::Shape{3, 3, 1});
  CHECK(d.within({3, 1, 0}).nodes == Nodes{{1, -1}, {2, 0}, {3, 1}, {4, -1}});
  CHECK(d.within({5, 3, 1}).nodes ==
        Nodes{{1, -1}, {2, 0}, {3, 1}, {4, -1}, {5, 3}, {6, 0}, {7, 5}, {8, -1}, {10, 4}});
  CHECK(d.only([](size_t i) { return i != 0; }).nodes ==
        Nodes{{4, -1}, {5, 0}, {8, -1}, {9, -1}, {10, 1}});
  d.keep_branches(1);
  CHECK(d.nodes == Nodes{{1, -1}, {2, 0}, {3, 1}, {4, -1}, {5, 3}});
  d.keep_branches(0);
  CHECK(d == Draft::chain(std::vector<TokenId>{1, 2, 3}));
}

TEST_CASE(
    "speculation: the ngram drafter uses the latest match, and continues with its own tokens") {
  const auto drafter = ngram_drafter();
  const std::vector<TokenId> none{1, 2, 3, 4};
  CHECK(drafter->kind(none) == -1);
  CHECK(drafter->propose(none, {3}).nodes.empty());
  const std::vector<TokenId> twice{1, 2, 9, 1, 2, 8, 1, 2};
  CHECK(drafter->kind(twice) == 1);  // another text
  CHECK(drafter->propose(twice, {2}) == Draft::chain(std::vector<TokenId>{8, 1}));
  // Tokens after other matches are further candidates: of this end, and of a shorter one.
  const std::vector<Draft::Node> with_others{{8, -1}, {1, 0}, {9, -1}};
  CHECK(drafter->propose(twice, {2, 1, 4}).nodes == with_others);
  const std::vector<TokenId> three{1, 2, 9, 1, 2, 8, 1, 2, 7, 1, 2};
  const std::vector<Draft::Node> latest_first{{7, -1}, {8, -1}, {9, -1}};
  CHECK(drafter->propose(three, {1, 1, 1}).nodes == latest_first);
  const std::vector<TokenId> shorter{1, 2, 3, 9, 2, 4, 1, 2};
  const std::vector<Draft::Node> longer_first{{3, -1}, {4, -1}, {1, 1}};
  CHECK(drafter->propose(shorter, {1, 2}).nodes == longer_first);
  const std::vector<TokenId> round{5, 6, 7, 5, 6, 7, 5};
  CHECK(drafter->propose(round, {7}) == Draft::chain(std::vector<TokenId>{6, 7, 5, 6, 7, 5, 6}));
}

// Simulates a machine whose passes take 1 + slope (n - 1) for n tokens, and sometimes longer. A
// draft token is accepted with probability p at each position. Of `first` candidates for the next
// token, each further one is right with probability `other` if those before are wrong. Each pass
// has `others` more tokens. Returns the time without drafts divided by the time with them, without
// random outliers. A drafter that costs nothing also proposes in order to learn. A draft model
// reads some tokens first; the prompt took `prompt` passes of the target, which count as well.
double speed_up(double slope, double p, double guess_cost, int passes, unsigned seed, int first = 1,
                double other = 0, int others = 0, bool model = false, double prompt = 0) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  Governor governor;
  governor.learn_prompt(prompt);
  double seconds = prompt, tokens = prompt;
  bool begun = false;
  for (int i = 0; i < passes; ++i) {
    Governor::Outcome o;
    Draft::Shape shape{};
    if (guess_cost > 0 || governor.knows(0))
      shape = governor.shape(0, Governor::kMost, first, others, 0,
                             {model ? guess_cost : 0, model && !begun});
    o.kind = 0, o.guesses = Draft::size(shape), o.drafting = o.guesses * guess_cost;
    o.read_first = model && o.guesses > 0 && !begun;
    if (o.read_first) o.drafting += 1.4 * guess_cost, begun = true;
    int made = 1;
    bool found = false;
    for (int k = 0; k < first; ++k) {
      const int asked = shape[size_t(k)];
      o.places[size_t(k)] = guess_cost > 0 ? asked : std::max(asked, 1);
      if (found || uniform(random) >= (k == 0 ? p : other)) continue;
      found = true;
      if (asked > 0) ++made;
      while (made - 1 < asked && uniform(random) < p) ++made;
      if (o.places[size_t(k)] > 0) o.which = k, o.right = std::max(made - 1, 1);
    }
    const double passing = 1 + slope * (o.guesses + others);
    governor.learn(o);
    governor.learn_pass(o.guesses + 1 + others, 1 + others, made + others,
                        passing * (uniform(random) < 0.05 ? 3 : 1 + 0.1 * uniform(random)));
    seconds += o.drafting + passing, tokens += made + others;
  }
  return tokens / seconds * (1 + slope * others) / (1 + others);
}

TEST_CASE("speculation: a governor gains with good drafts and loses nothing otherwise") {
  for (const unsigned seed : {1u, 2u, 3u}) {
    CAPTURE(seed);
    // like the passes of this engine: T(4)/T(1) 1.08, T(8)/T(1) 1.34
    CHECK(speed_up(0.05, 0.9, 0, 2000, seed) > 2.5);
    CHECK(speed_up(0.05, 0.5, 0, 2000, seed) > 1.3);
    CHECK(speed_up(0.05, 0, 0, 2000, seed) > 0.99);
    // passes that take longer with each token, and a drafter that costs as much as the model
    for (const double p : {0.0, 0.3, 0.6, 0.9}) CHECK(speed_up(1, p, 0, 2000, seed) > 0.985);
    for (const double p : {0.0, 0.6, 0.95}) CHECK(speed_up(0.05, p, 1, 2000, seed) > 0.985);
    // short texts
    for (const double p : {0.0, 0.3}) CHECK(speed_up(0.2, p, 0, 135, seed) > 0.985);
    // in a batch, where no pass has one token
    CHECK(speed_up(0.05, 0.9, 0, 300, seed, 1, 0, 3) > 1.45);
    // a draft model at a tenth of the cost
    CHECK(speed_up(0.05, 0.7, 0.1, 2000, seed) > 1.5);
  }
}

// The passes of a model of 1.5B parameters on AVX2, and a draft model of a third of its size.
TEST_CASE(
    "speculation: a governor begins early with a draft model, and loses 2% and noise at most") {
  double gained = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    const auto of = [&](double p, int passes) {
      return speed_up(0.12, p, 0.43, passes, seed, 1, 0, 0, true, 30);
    };
    for (const double p : {0.0, 0.1, 0.3, 0.5, 0.7, 0.9})
      for (const int passes : {10, 40, 80, 160, 300}) CHECK(of(p, passes) > 0.96);
    CHECK(of(0.9, 300) > 1.1);
    gained += of(0.9, 80) / 20;
  }
  CHECK(gained > 1.05);
}

TEST_CASE("speculation: a governor uses a second branch where it helps, and loses nothing by it") {
  for (const unsigned seed : {1u, 2u, 3u}) {
    CAPTURE(seed);
    for (const double cost : {0.0, 0.01}) {
      CAPTURE(cost);
      // One first candidate in three is right, and two in five of the others.
      const double chain = speed_up(0.05, 0.3, cost, 2000, seed);
      if (cost == 0) CHECK(speed_up(0.05, 0.3, cost, 2000, seed, 3, 0.4) > 1.1 * chain);
      // Other candidates that are never right, or that gain nothing.
      for (const double p : {0.0, 0.5, 0.9})
        CHECK(speed_up(0.05, p, cost, 4000, seed, 3, 0) >
              0.95 * speed_up(0.05, p, cost, 4000, seed));
      for (const double p : {0.0, 0.3, 0.9})
        for (const double other : {0.0, 0.3})
          CHECK(speed_up(1, p, cost, 2000, seed, 3, other) > 0.985);
      CHECK(speed_up(0.2, 0, cost, 135, seed, 3, 0.3) > 0.985);
    }
  }
}

// A drafter that knows the text and hides the right tokens in trees of any shape.
class Oracle : public Drafter {
 public:
  Oracle(std::vector<TokenId> text, int vocab, unsigned seed)
      : text_(std::move(text)), vocab_(vocab), random_(seed) {}
  int first_guesses() const override { return Draft::kFirst; }
  Draft propose(std::span<const TokenId> history, const Draft::Shape& shape) override {
    Draft draft;
    int right = -1;
    for (size_t at = history.size(); int(draft.nodes.size()) < Draft::size(shape);) {
      const int other = int(random_() % (draft.nodes.size() + 1)) - 1;
      if (at < text_.size() && random_() % 2)
        right = draft.add(text_[at++], right);
      else
        draft.add(TokenId(random_() % unsigned(vocab_)), other);
    }
    return draft;
  }

 private:
  std::vector<TokenId> text_;
  int vocab_;
  std::mt19937 random_;
};

std::vector<TokenId> whole_text(std::vector<TokenId> prompt, const GenerateResult& answer) {
  prompt.insert(prompt.end(), answer.tokens.begin(), answer.tokens.end());
  return prompt;
}

constexpr auto kUnread = [](std::string_view) {};

TEST_CASE(
    "speculation: a text does not depend on draft trees, with any sampling, KV format or sharing") {
  unsigned seed = 0;
  const auto check = [&](Engine& engine, const GenerateOptions& plain) {
    const auto prompt = engine.tokenizer().encode_prompt(
        "Once upon a time there was a cat. Once upon a time there was a dog. The dog");
    const auto want = generate(*engine.session(), prompt, plain, kUnread);
    REQUIRE(want.tokens.size() > 4);
    // The second time, its pages are in the prefix index.
    for (const int guesses : {15, 6}) {
      Oracle oracle(whole_text(prompt, want), engine.vocab_size(), ++seed);
      GenerateOptions with = plain;
      with.drafter = &oracle, with.draft_length = guesses;
      const auto got = generate(*engine.session(), prompt, with, kUnread);
      CHECK(got.tokens == want.tokens);
      CHECK(got.text == want.text);
      CHECK(got.finish == want.finish);
      CHECK(got.passes < want.passes);
      CHECK(got.drafted > got.accepted);
      REQUIRE(got.drafted_at.size() > 1);
      int all = 0, right = 0;
      for (const int n : got.drafted_at) all += n;
      for (const int n : got.accepted_at) right += n;
      CHECK(all == got.drafted);
      CHECK(right == got.accepted);
      // Several nodes have the same parent.
      if (!plain.grammar) CHECK(got.drafted_at[0] > got.passes);
      CHECK(got.cached_tokens > 0);
    }
    for (const KvPool& pool : engine.kv_cache().pools) CHECK(pool.in_use() == 0);
  };
  for (const KvType& kv : kKvTypes) {
    CAPTURE(kv.name);
    EngineOptions o;
    o.kv = kv.format;
    const auto engine = Engine::open(o);
    for (const double temperature : {0.0, 0.8}) {
      CAPTURE(temperature);
      GenerateOptions plain;
      plain.max_tokens = 90, plain.sampling.temperature = temperature, plain.sampling.seed = 7;
      plain.ignore_end = true;
      check(*engine, plain);
      if (kv.format != Format::f16) continue;
      plain.sampling.repeat_penalty = 1.3, plain.stop = {"happy", "friend"};
      check(*engine, plain);
      Grammar grammar(parse_regex({"--regex", "( [a-z]+){30}\\."}), engine->tokenizer());
      plain.grammar = &grammar, plain.ignore_end = false, plain.stop = {}, plain.max_tokens = 200;
      check(*engine, plain);
    }
  }
}

TEST_CASE("speculation: requests with trees have the same texts together as alone") {
  const auto engine = Engine::open({});
  const auto prompt = engine->tokenizer().encode_prompt("Once upon a time there was a cat. Tim");
  constexpr int kRequests = 4;
  std::vector<GenerateResult> alone;
  std::vector<GenerateOptions> options(kRequests);
  for (int i = 0; i < kRequests; ++i) {
    GenerateOptions& o = options[size_t(i)];
    o.max_tokens = 50 + 20 * i, o.sampling.seed = uint64_t(i), o.ignore_end = true;
    o.sampling.temperature = i % 2 ? 0.9 : 0;
    alone.push_back(generate(*engine->session(), prompt, o, kUnread));
  }
  KvPool& pool = engine->kv_cache().pools[0];
  // With many and with few pages for branches.
  for (const int left : {1000, 20}) {
    CAPTURE(left);
    std::vector<int32_t> taken;
    while (pool.size() - pool.in_use() > left) taken.push_back(pool.take());
    Scheduler scheduler(engine);
    std::vector<std::unique_ptr<Oracle>> oracles;
    std::vector<std::unique_ptr<Request>> requests;
    for (int i = 0; i < kRequests; ++i) {
      oracles.push_back(std::make_unique<Oracle>(whole_text(prompt, alone[size_t(i)]),
                                                 engine->vocab_size(), unsigned(i)));
      GenerateOptions o = options[size_t(i)];
      o.drafter = oracles.back().get(), o.draft_length = 8;
      requests.push_back(std::make_unique<Request>(*engine, prompt, o, kUnread));
      scheduler.add(*requests.back());
    }
    while (scheduler.step()) {
    }
    for (size_t i = 0; i < kRequests; ++i) {
      REQUIRE(!requests[i]->error);
      const GenerateResult got = requests[i]->finished();
      CHECK(got.tokens == alone[i].tokens);
      CHECK(got.accepted > 0);
    }
    for (const int32_t page : taken) pool.release(page);
    CHECK(pool.in_use() == 0);
  }
}

TEST_CASE("speculation: without pages for branches a draft is a chain") {
  const auto engine = Engine::open({});
  const auto prompt = engine->tokenizer().encode_prompt("Once upon a time there was a cat. Tim");
  GenerateOptions o;
  o.max_tokens = 100, o.ignore_end = true, o.sampling.temperature = 0;
  const auto want = generate(*engine->session(), prompt, o, kUnread);
  KvPool& pool = engine->kv_cache().pools[0];
  std::vector<int32_t> taken;
  const int64_t need = int64_t(prompt.size() + 100) / kPage + 1;
  while (pool.size() - pool.in_use() > need) taken.push_back(pool.take());
  Oracle oracle(whole_text(prompt, want), engine->vocab_size(), 1);
  o.drafter = &oracle, o.draft_length = 15;
  const auto got = generate(*engine->session(), prompt, o, kUnread);
  CHECK(got.tokens == want.tokens);
  CHECK(got.accepted > 0);
  // A single request has pages for one branch, at the beginning of the text.
  const auto session = engine->session();
  CHECK(session->branches(16) == 1);
  CHECK(session->branches(16, 2) == 0);
  for (const int32_t page : taken) pool.release(page);
  CHECK(session->branches(16) > 1);
}

TEST_CASE("speculation: a text does not depend on a drafter with a word, greedy and sampled") {
  const auto engine = Engine::open({});
  const std::string story = "Once upon a time there was a cat. Once upon a time there was a dog. ";
  const auto prompt = engine->tokenizer().encode_prompt(story + story);
  const auto check = [&](const GenerateOptions& plain, const GenerateResult& want,
                         const char* word) {
    CAPTURE(word);
    const NewDrafter drafters = open_drafter({word, engine, 1, {}});
    for (const bool governed : {false, true})
      for (const int k : {1, 4, 15}) {
        const auto drafter = drafters(plain.sampling);
        Governor governor;
        GenerateOptions with = plain;
        with.drafter = drafter.get(), with.draft_length = k;
        with.governor = governed ? &governor : nullptr;
        const auto got = generate(*engine->session(), prompt, with, kUnread);
        CHECK(got.tokens == want.tokens);
        CHECK(got.text == want.text);
        CHECK(got.accepted <= got.drafted);
        if (!governed) CHECK(got.accepted > 0);
      }
  };
  for (const double temperature : {0.0, 0.8}) {
    GenerateOptions plain;
    plain.max_tokens = 120, plain.sampling.temperature = temperature, plain.sampling.seed = 3,
    plain.ignore_end = true;
    const auto want = generate(*engine->session(), prompt, plain, kUnread);
    for (const DrafterKind* kind : drafter_kinds())
      if (kind->word) check(plain, want, kind->word);
  }
}

// A drafter that takes time, and proposes nothing, or is never worth asking.
struct Silent : Drafter {
  int which;
  explicit Silent(int kind) : which(kind) {}
  int kind(std::span<const TokenId>) override { return which; }
  Draft propose(std::span<const TokenId>, const Draft::Shape&) override { return {}; }
};

TEST_CASE("speculation: the reason for missing drafts is known") {
  const auto engine = Engine::open({});
  const auto prompt = engine->tokenizer().encode_prompt("Once upon a time");
  const auto why = [&](Drafter& drafter, Governor* governor, int tokens) {
    GenerateOptions o;
    o.max_tokens = tokens, o.ignore_end = true;
    o.drafter = &drafter, o.draft_length = 4, o.governor = governor;
    return generate(*engine->session(), prompt, o, kUnread).no_draft;
  };
  Silent never_asked(-1), silent(0);
  Governor governor;
  CHECK(why(never_asked, &governor, Governor::kPlainFirst + 1) == NoDraft::early);
  CHECK(why(never_asked, &governor, Governor::kPlainFirst + 2) == NoDraft::no_gain);
  CHECK(why(silent, nullptr, 9) == NoDraft::other);
  const auto ngram = ngram_drafter();
  CHECK(why(*ngram, nullptr, 2) == NoDraft::other);
}

}  // namespace
}  // namespace chaski::test
