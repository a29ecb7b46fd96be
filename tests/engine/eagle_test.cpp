// EAGLE heads and next-token layers: their logits, what they keep of a text, texts that are drafted
// with them, and damaged folders.
#include "models/import/hf/eagle.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "engine/drafting/draft_eagle.h"
#include "engine/drafting/draft_heads.h"
#include "engine/requests/generate.h"
#include "engine/requests/scheduler.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/import_support.h"
#include "tests/kit/program.h"

namespace chaski::test {
namespace {

const std::string kEagleTarget = golden("models/llama_gqa_untied"),
                  kEagle3Target = golden("heads/eagle3_target"), kNextTarget = golden("heads/mimo");

nlohmann::json told_in(const std::string& folder) {
  return nlohmann::json::parse(read_file(folder + "/golden.json"));
}

// The hidden states that a head reads for these tokens.
std::vector<float> rows_of(const std::shared_ptr<Engine>& target, std::span<const TokenId> tokens) {
  const auto session = target->session();
  const Extension all{.session = session.get(), .tokens = tokens, .wanted = 0, .hidden = true};
  return draw_all({&all, 1})[0].hidden;
}

TEST_CASE("eagle: logits equal those of another program, also after its own hidden states") {
  for (const std::string name : {"eagle", "eagle_bf16", "eagle3", "mimo"}) {
    CAPTURE(name);
    const std::string folder = golden("heads/") + name, of = name == "eagle3" ? kEagle3Target
                                                             : name == "mimo" ? kNextTarget
                                                                              : kEagleTarget;
    const auto told = told_in(folder);
    const auto target = open_on_cpu(of, Format::f32);
    const auto tokens =
        (told.contains("tokens") ? told : told_in(of))["tokens"].get<std::vector<TokenId>>();
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
    // After rewinding, or forking and rewinding, the logits are the same.
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

struct EagleTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::function<float(int64_t)> value;
  bool integers = false;
};

void write_tensors(const std::string& path, const std::vector<EagleTensor>& tensors) {
  std::string header, data;
  for (const EagleTensor& t : tensors) {
    int64_t n = 1;
    std::string shape;
    for (const int64_t d : t.shape)
      n *= d, shape += fmt::format("{}{}", shape.empty() ? "" : ",", d);
    header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          header.empty() ? "{" : ",", t.name, t.integers ? "I64" : "F32", shape,
                          data.size(), data.size() + size_t(n) * (t.integers ? 8 : 4));
    for (int64_t i = 0; i < n; ++i)
      t.integers ? append(data, int64_t(t.value(i))) : append(data, t.value(i));
  }
  write_file(path, safetensors(header + "}", data));
}

const std::string kConfig = "/config.json", kWeights = "/model.safetensors";
constexpr EagleKind kEveryKind[] = {EagleKind::eagle1, EagleKind::eagle3, EagleKind::next_layer};

// A head of one layer with random weights, whose output is about its input times `scale`.
struct WrittenHead {
  EagleKind kind = EagleKind::eagle1;
  float scale = 1;
  std::vector<float> bias = {};     // added to each output; not for EAGLE-3
  std::vector<TokenId> known = {};  // tokens that EAGLE-3 can draw; empty: every third one
  int64_t heads = 2, kv_heads = 1, ffn = 32;
};

void write_head(const std::string& folder, const Engine& target, WrittenHead head = {}) {
  const int64_t d = target.hidden_size(), ffn = head.ffn, q = 32 * head.heads,
                kv = 32 * head.kv_heads, vocab = target.vocab_size();
  const bool three = head.kind == EagleKind::eagle3, next = head.kind == EagleKind::next_layer;
  if (head.known.empty())
    for (TokenId t = 0; t < vocab / 3 * 3; t += 3) head.known.push_back(t);
  const int64_t known = int64_t(head.known.size());
  write_file(
      folder + kConfig,
      fmt::format(R"({{"architectures": ["LlamaForCausalLM"], "hidden_size": {}, )"
                  R"("intermediate_size": {}, "num_hidden_layers": 1, "head_dim": 32, )"
                  R"("num_attention_heads": {}, "num_key_value_heads": {}, "vocab_size": {}, )"
                  R"("max_position_embeddings": 64, "rms_norm_eps": 1e-5{}}})",
                  d, ffn, head.heads, head.kv_heads, vocab,
                  three  ? fmt::format(R"(, "draft_vocab_size": {}, )"
                                        R"("eagle_aux_hidden_state_layer_ids": [1, 3, 5])",
                                       known)
                  : next ? R"(, "num_nextn_predict_layers": 1)"
                         : ""));
  std::mt19937 random(7);
  const auto some = [&](float size) {
    return [&random, size](int64_t) { return size * (float(random() % 2001) / 1000 - 1); };
  };
  const auto one = [](int64_t) { return 1.0f; };
  // The hidden state is the second part of the concatenated input of EAGLE-1 and 3, and the first
  // part for the other kind.
  const int64_t width = three ? 3 * d : 2 * d, at = next ? 0 : width - d;
  const std::string layer = next ? "model.mtp_layers.0." : three ? "midlayer." : "layers.0.";
  const int64_t seen = three ? 2 * d : d;  // columns that attention reads
  std::vector<EagleTensor> tensors{{next ? layer + "input_proj.weight" : "fc.weight",
                                    {d, width},
                                    [&, noise = some(0.05f)](int64_t i) {
                                      return noise(i) +
                                             (i % width == at + i / width ? head.scale : 0.0f);
                                    }}};
  if (!head.bias.empty())
    tensors.push_back({next ? layer + "mlp.down_proj.bias" : "fc.bias", {d}, [&](int64_t i) {
                         return head.bias[size_t(i)];
                       }});
  tensors.push_back({layer + "self_attn.q_proj.weight", {q, seen}, some(0.3f)});
  tensors.push_back({layer + "self_attn.k_proj.weight", {kv, seen}, some(0.3f)});
  tensors.push_back({layer + "self_attn.v_proj.weight", {kv, seen}, some(0.3f)});
  tensors.push_back({layer + "self_attn.o_proj.weight", {d, q}, some(0.1f)});
  tensors.push_back({layer + "mlp.gate_proj.weight", {ffn, d}, some(0.1f)});
  tensors.push_back({layer + "mlp.up_proj.weight", {ffn, d}, some(0.1f)});
  tensors.push_back({layer + "mlp.down_proj.weight", {d, ffn}, some(0.1f)});
  tensors.push_back({layer + "post_attention_layernorm.weight", {d}, one});
  if (three || next) tensors.push_back({layer + "input_layernorm.weight", {d}, one});
  if (next)
    for (const char* norm : {"token_layernorm", "hidden_layernorm", "final_layernorm"})
      tensors.push_back({layer + norm + ".weight", {d}, one});
  if (three) {
    tensors.push_back({layer + "hidden_norm.weight", {d}, one});
    tensors.push_back({"norm.weight", {d}, one});
    tensors.push_back({"lm_head.weight", {known, d}, some(0.2f)});
    tensors.push_back(
        {"d2t", {known}, [&](int64_t i) { return float(head.known[size_t(i)] - i); }, true});
  }
  write_tensors(folder + kWeights, tensors);
}

// Records what a drafter proposed after which text.
struct Noted : Drafter {
  explicit Noted(std::unique_ptr<Drafter> who) : who(std::move(who)) {}
  bool reads_hidden() const override { return true; }
  int first_guesses() const override { return who->first_guesses(); }
  void read_hidden(std::span<const TokenId> text, std::span<const float> rows) override {
    who->read_hidden(text, rows);
  }
  int kind(std::span<const TokenId> text) override { return who->kind(text); }
  Draft propose(std::span<const TokenId> history, const Draft::Shape& shape) override {
    Draft draft = who->propose(history, shape);
    notes.push_back({{history.begin(), history.end()}, draft});
    return draft;
  }
  std::unique_ptr<Drafter> who;
  std::vector<std::pair<std::vector<TokenId>, Draft>> notes;
};

// The draft after a text whose hidden states are all passed at once.
Draft guessed_anew(const std::shared_ptr<Engine>& eagle, const std::shared_ptr<Engine>& target,
                   const SamplerOptions& sampling, const std::vector<TokenId>& text,
                   const Draft::Shape& shape) {
  const auto drafter = eagle_drafter(eagle, sampling);
  drafter->read_hidden(text, rows_of(target, std::span(text).first(text.size() - 1)));
  return drafter->propose(text, shape);
}

TEST_CASE("eagle: drafts depend on the text, not on how its hidden states arrived") {
  std::string story = "Once upon a time there was a little dog.";
  while (story.size() < 1000) story += " He ran and he saw a cat.";
  for (const EagleKind kind : kEveryKind) {
    CAPTURE(int(kind));
    const TempFolder temp;
    write_head(temp.path, *Engine::open({}), {kind});
    size_t seen = 0;
    for (const double temperature : {0.0, 0.8}) {
      // In another engine: pages from the prefix cache would come without hidden states.
      const auto target = Engine::open({});
      const auto eagle = open_eagle(temp.path, target);
      const auto& tokenizer = target->tokenizer();
      GenerateOptions plain = drawn(temperature, 3, 100);
      plain.max_tokens = 30;
      GenerateOptions with = plain;
      Noted noted(eagle_drafter(eagle, with.sampling));
      with.drafter = &noted, with.draft_length = 4;
      const auto session = target->session();
      // A long prompt, the same with another end, and another prompt.
      for (const std::string& text : {story + " Then", story + " But", std::string("Tim")}) {
        const auto prompt = tokenizer.encode_prompt(text);
        CHECK((text == "Tim" || prompt.size() > 256));
        const auto got = generate(*session, prompt, with, kUnheard);
        CHECK(got.tokens == generate(*target->session(), prompt, plain, kUnheard).tokens);
        CHECK(got.drafted > 0);
        for (const auto& [history, draft] : noted.notes) {
          // The hidden state before the other end is not passed again.
          if (draft.nodes.empty() || !text.ends_with("Then")) continue;
          CHECK(draft == guessed_anew(eagle, target, with.sampling, history, draft.depths()));
          ++seen;
        }
        noted.notes.clear();
      }
    }
    CHECK(seen > 20);
  }
}

TEST_CASE("eagle: proposes again, after a cut, and for another text") {
  for (const EagleKind kind : kEveryKind) {
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
    // Several branches: the first is the same as alone, and each begins with another token.
    const Draft tree = drafter->propose(text, {3, 2, 1});
    REQUIRE(tree.nodes.size() == 6);
    CHECK(std::equal(three.nodes.begin(), three.nodes.end(), tree.nodes.begin()));
    CHECK(tree.depths() == Draft::Shape{3, 2, 1});
    const std::vector<TokenId> firsts = tree.first();
    CHECK(std::set<TokenId>(firsts.begin(), firsts.end()).size() == 3);
    // A branch continues as the chain would after that token.
    CHECK(drafter->propose(text, {1, 2, 1}).nodes[2] == Draft::Node{tree.nodes[4].token, 1});
    CHECK(drafter->propose(text, {3}) == three);
    // Reads a beginning, and then the rest again.
    drafter->read_hidden(std::span(text).first(5), std::span(rows).first(4 * dim));
    CHECK(drafter->propose(text, {3}).nodes.empty());
    drafter->propose(std::span(text).first(5), {2});
    drafter->read_hidden(text, std::span(rows).subspan(4 * dim));
    CHECK(drafter->propose(text, {3}) == three);
    // Reads a part again that it knows already.
    drafter->read_hidden(text, std::span(rows).subspan((n - 2) * dim));
    CHECK(drafter->propose(text, {3}) == three);
    // Keeps nothing for another text.
    auto other = text;
    other[0] = text[0] == 5 ? 6 : 5;
    drafter->read_hidden(other, std::span(rows).subspan((n - 1) * dim));
    const auto alone = eagle_drafter(eagle, sampling);
    alone->read_hidden(other, std::span(rows).subspan((n - 1) * dim));
    CHECK(drafter->propose(other, {3}) == alone->propose(other, {3}));
    CHECK(drafter->propose(other, {3}) != three);
  }
}

TEST_CASE("eagle: of tokens drawn without drafts, only the last hidden states are kept") {
  for (const EagleKind kind : kEveryKind) {
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

TEST_CASE("eagle: a text does not depend on it, greedy and sampled, alone and in a batch") {
  for (const EagleKind kind : kEveryKind) {
    CAPTURE(int(kind));
    const auto target = Engine::open({});
    const auto prompt = target->tokenizer().encode_prompt("Once upon a time there was a");
    const auto plain = generate(*target->session(), prompt, drawn(0, 1, 100), kUnheard);
    // It mostly proposes the most frequent token of the text: the hidden state before that token is
    // its bias, or it has no other token.
    const TempFolder temp;
    std::vector<TokenId> all = prompt;
    all.insert(all.end(), plain.tokens.begin(), plain.tokens.end());
    size_t usual = prompt.size();
    for (size_t i = prompt.size(); i < all.size(); ++i)
      if (std::count(all.begin(), all.end(), all[i]) >
          std::count(all.begin(), all.end(), all[usual]))
        usual = i;
    const auto behind = target->session();
    const auto row = behind->hidden(std::span(all).first(usual), 1);
    std::vector<float> bias;
    for (const float x : row) bias.push_back(3 * x);
    if (kind == EagleKind::eagle3) bias.clear();
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

TEST_CASE("eagle: an EAGLE-3 head with a reduced vocabulary changes no token") {
  const auto target = open_on_cpu(kEagle3Target, Format::f32);
  const std::string folder = golden("heads/eagle3");
  const auto eagle = open_eagle(folder, target);
  const auto told = told_in(folder);
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
          CHECK(draft == guessed_anew(eagle, target, sampling, text, draft.depths()));
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
  // Its input rows are not those that other heads read.
  for (const std::string name : {"eagle3", "medusa"}) {
    const Error error = error_of([&] {
      if (name == "medusa") DraftHeads(golden("heads/") + name, target);
      open_eagle(golden("heads/") + name, target);
    });
    CHECK(error.code == Exit::usage);
    CHECK(contains(error.what(), "has an EAGLE-3 head, which reads other rows"));
  }
}

TEST_CASE("eagle: a context that fills up and shifts, with it and without") {
  for (const EagleKind kind : kEveryKind) {
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
    // The same for a context without room for draft tokens.
    options.context_policy = ContextPolicy::stop, options.max_tokens = -1;
    const auto full = generate(*target->session(), prompt, options, kUnheard);
    CHECK(full.finish == Finish::full);
    CHECK(full.tokens == std::vector(without.tokens.begin(),
                                     without.tokens.begin() + ptrdiff_t(full.tokens.size())));
  }
}

// Opens the folder for the model that it was made for.
const DamagedHeads& eagle_folder() {
  static const DamagedHeads folder{golden("heads/eagle"), "/model.safetensors",
                                   [target = open_on_cpu(kEagleTarget, Format::f32)](
                                       const std::string& path) { open_eagle(path, target); }};
  return folder;
}

TEST_CASE("eagle: damaged folders are refused in one line") {
  const std::string config = "/config.json", weights = "/model.safetensors";
  eagle_folder().refused("hidden_size is 32, expected 64, as in ", config, R"("hidden_size": 64)",
                         R"("hidden_size": 32)");
  eagle_folder().refused("vocab_size is 127, expected 128, as in ", config, R"("vocab_size": 128)",
                         R"("vocab_size": 127)");
  eagle_folder().refused("intermediate_size is missing", config, "intermediate_size", "size");
  eagle_folder().refused(R"(hidden_act is "gelu", expected silu)", config, R"("silu")",
                         R"("gelu")");
  eagle_folder().refused("not valid JSON", config, "{", "[");
  eagle_folder().refused(
      "tensor fc.weight has shape (128, 64), expected (64, 128), by config.json and ", weights,
      R"("shape":[64,128])", R"("shape":[128,64])");
  eagle_folder().refused("tensor layers.0.mlp.up_proj.weight has dtype I16, expected F32", weights,
                         R"("layers.0.mlp.up_proj.weight":{"dtype":"F16")",
                         R"("layers.0.mlp.up_proj.weight":{"dtype":"I16")");
  eagle_folder().refused("tensor layers.0.mlp.xp_proj.weight is unexpected in an EAGLE head",
                         weights, "layers.0.mlp.up_proj.weight", "layers.0.mlp.xp_proj.weight");
  eagle_folder().refused("tensor embed_tokens.weight has shape (64, 128), expected (128, 64)",
                         weights, R"("shape":[128,64])", R"("shape":[64,128])");
  const auto two_layers = [&](const std::string& folder) {
    const std::string one = R"("num_hidden_layers": 1)";
    std::string text = read_file(folder + config);
    write_file(folder + config,
               text.replace(text.find(one), one.size(), R"("num_hidden_layers": 2)"));
  };
  CHECK(contains(eagle_folder().refusal(two_layers),
                 weights + ": tensor layers.1.input_layernorm.weight is missing"));
  const auto cut = [&](const std::string& folder) {
    write_file(folder + weights, read_file(folder + weights).substr(0, 5000));
  };
  CHECK(contains(eagle_folder().refusal(cut), weights));
  const auto remove = [&](const std::string& folder) { std::filesystem::remove(folder + weights); };
  CHECK(contains(eagle_folder().refusal(remove, Exit::io), weights));
  const auto pickled = [&](const std::string& folder) {
    std::filesystem::rename(folder + weights, folder + "/pytorch_model.bin");
    CHECK(is_eagle(folder));
  };
  CHECK(contains(eagle_folder().refusal(pickled),
                 "pytorch_model.bin: is a Python pickle, which can run code, expected "
                 "model.safetensors: python3 -c"));
  CHECK(is_eagle(golden("heads/eagle")));
  CHECK(is_eagle(golden("heads/eagle_bf16")));
  CHECK(!is_eagle(golden("heads/medusa")));
  CHECK(!is_eagle(kEagleTarget));
  CHECK(!is_eagle(kEagleTarget + "/config.json"));
}

// Renames a tensor so that it is ignored.
void lose_tensor(const std::string& folder, const std::string& name) {
  const std::string text = read_file(folder + kWeights);
  uint64_t bytes = 0;
  std::memcpy(&bytes, text.data(), sizeof bytes);
  std::string header = text.substr(8, bytes);
  const size_t at = header.find('"' + name + '"');
  REQUIRE(at != header.npos);
  header.replace(at + 1, name.size(), "x.rotary_emb.inv_freq");
  write_file(folder + kWeights, safetensors(header, text.substr(8 + bytes)));
}

// Replaces bytes of a tensor, from its `i`-th byte on.
void write_bytes(const std::string& path, const std::string& tensor, size_t i,
                 const std::string& bytes) {
  std::string text = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, text.data(), sizeof header);
  const auto places = nlohmann::json::parse(text.substr(8, header))[tensor]["data_offsets"];
  text.replace(8 + header + places[0].get<size_t>() + i, bytes.size(), bytes);
  write_file(path, text);
}

TEST_CASE("eagle: damaged folders of EAGLE-3 heads are refused in one line") {
  const auto target = open_on_cpu(kEagle3Target, Format::f32);
  const DamagedHeads folder{golden("heads/eagle3"), kWeights,
                            [&](const std::string& path) { open_eagle(path, target); }};
  folder.refused("draft_vocab_size is 97, expected up to vocab_size 96", kConfig,
                 R"("draft_vocab_size": 40)", R"("draft_vocab_size": 97)");
  folder.refused("num_hidden_layers is 2, expected 1", kConfig, R"("num_hidden_layers": 1)",
                 R"("num_hidden_layers": 2)");
  folder.refused("eagle_aux_hidden_state_layer_ids has 2 entries, expected 3", kConfig,
                 R"("hidden_act")",
                 R"("eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1]}, "hidden_act")");
  folder.refused("eagle_aux_hidden_state_layer_ids[2] is 7, expected 0 to 6", kConfig,
                 R"("hidden_act")",
                 R"("eagle_aux_hidden_state_layer_ids": [2, 3, 7], "hidden_act")");
  folder.refused("norm_before_residual is true, expected false", kConfig, R"("hidden_act")",
                 R"("norm_before_residual": true, "hidden_act")");
  folder.refused("tensor d2t has dtype F64, expected I64", kWeights, R"("d2t":{"dtype":"I64")",
                 R"("d2t":{"dtype":"F64")");
  folder.refused("tensor d3t is unexpected in an EAGLE-3 head", kWeights, R"("d2t")", R"("d3t")");
  folder.refused("tensor midlayer.hiddxn_norm.weight is unexpected", kWeights,
                 "midlayer.hidden_norm.weight", "midlayer.hiddxn_norm.weight");
  folder.refused("tensor fc.weight has shape (96, 32), expected (32, 96)", kWeights,
                 R"("shape":[32,96])", R"("shape":[96,32])");
  const auto refusal = [&](const auto& damage) {
    const std::string line = folder.refusal(damage);
    CHECK_MESSAGE(contains(line, kWeights + ": "), line);
    return line;
  };
  CHECK(contains(refusal([](auto& path) { lose_tensor(path, "d2t"); }),
                 "tensor d2t is missing, expected it beside a draft_vocab_size of 40"));
  CHECK(contains(refusal([](auto& path) { lose_tensor(path, "midlayer.hidden_norm.weight"); }),
                 "tensor layers.0.hidden_norm.weight is missing, expected those of an EAGLE-3"));
  for (const int64_t further : {int64_t{-3}, int64_t{94}, INT64_MIN, INT64_MAX}) {
    const std::string line = refusal([&](const std::string& path) {
      std::string bytes;
      append(bytes, further);
      write_bytes(path + kWeights, "d2t", 2 * 8, bytes);
    });
    CHECK_MESSAGE(
        contains(line, fmt::format("tensor d2t has {} at 2, expected one of 96 tokens", further)),
        line);
  }
  // A model with too few layers is refused, unless the head names the layers.
  const TempFolder temp;
  const auto other = open_on_cpu(kEagleTarget, Format::f32);
  const auto write_for = [&](const std::string& more) {
    write_head(temp.path, *other, {EagleKind::eagle3});
    std::string text = read_file(temp.path + kConfig);
    const std::string ids = R"("eagle_aux_hidden_state_layer_ids": [1, 3, 5])";
    write_file(temp.path + kConfig, text.replace(text.find(ids), ids.size(), more));
  };
  write_for(R"("tie_word_embeddings": false)");
  const std::string few = error_of([&] { open_eagle(temp.path, other); }).what();
  CHECK_MESSAGE(contains(few, "eagle_aux_hidden_state_layer_ids is missing, expected it beside " +
                                  kEagleTarget + " of 2 layers"),
                few);
  write_for(R"("eagle_aux_hidden_state_layer_ids": [0, 1, 1])");
  CHECK_NOTHROW(open_eagle(temp.path, other));
}

TEST_CASE("eagle: an EAGLE-3 head may name the layers that it reads") {
  const auto told = told_in(golden("heads/eagle3"));
  const auto tokens = told["tokens"].get<std::vector<TokenId>>();
  const auto rows = [&](const std::string& says) {
    const TempFolder temp;
    write_file(temp.path + kWeights, read_file(golden("heads/eagle3") + kWeights));
    std::string text = read_file(golden("heads/eagle3") + kConfig);
    write_file(temp.path + kConfig, text.replace(text.find(R"("hidden_act")"), 0, says));
    const auto target = open_on_cpu(kEagle3Target, Format::f32);
    const auto eagle = open_eagle(temp.path, target);
    return rows_of(target, tokens);
  };
  const auto usual = rows("");
  CHECK(rows(R"("eagle_aux_hidden_state_layer_ids": [2, 3, 4], )") == usual);
  CHECK(rows(R"("eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]}, )") == usual);
  CHECK(rows(R"("eagle_aux_hidden_state_layer_ids": [1, 2, 5], )") != usual);
}

TEST_CASE("eagle: a next-token layer is stored with the model's own layers, and is recognized") {
  CHECK(is_eagle(kNextTarget));
  CHECK(has_next_layer(kNextTarget));
  CHECK(!has_next_layer(kEagleTarget));
  CHECK(!has_next_layer(golden("heads/eagle")));
  const auto target = open_on_cpu(kNextTarget, Format::f32);
  const auto damaged = [&](const std::string& file, const std::string& from, const std::string& to,
                           const std::string& says) {
    const TempFolder temp;
    for (const auto& entry : std::filesystem::directory_iterator(kNextTarget))
      write_file(temp.path + "/" + entry.path().filename().string(), read_file(entry.path()));
    std::string text = read_file(temp.path + file);
    const size_t at = text.find(from);
    REQUIRE(at != text.npos);
    write_file(temp.path + file, text.replace(at, from.size(), to));
    const Error error = error_of([&] { open_eagle(temp.path, target); });
    CHECK(error.code == Exit::bad_file);
    CHECK_MESSAGE(contains(error.what(), says), std::string(error.what()));
  };
  const std::string part = "/model-00002-of-00002.safetensors";
  damaged(kConfig, R"("num_nextn_predict_layers": 1)", R"("num_nextn_predict_layers": 2)",
          "num_nextn_predict_layers is 2, expected 1");
  damaged(kConfig, R"("hidden_size": 32)", R"("hidden_size": 64)",
          "hidden_size is 64, expected 32");
  damaged(part, R"("shape":[32,64])", R"("shape":[64,32])",
          part +
              ": tensor model.mtp_layers.0.input_proj.weight has shape (64, 32), expected "
              "(32, 64), by config.json and ");
  damaged(part, "mtp_layers.0.token_layernorm.weight", "mtp_layers.0.tokxn_layernorm.weight",
          "tensor model.mtp_layers.0.tokxn_layernorm.weight is unexpected in a layer that predicts "
          "one token more");
  damaged(part, "mtp_layers.0.mlp.up_proj.weight", "mtp_layers.1.mlp.up_proj.weight",
          "tensor model.mtp_layers.1.mlp.up_proj.weight is unexpected");
}

TEST_CASE("eagle: non-finite numbers are detected when a head is opened") {
  const std::string nan32("\0\0\xc0\x7f", 4), infinite16("\0\x7c", 2), nan16("\xc1\x7f", 2);
  const DamagedHeads one{golden("heads/eagle"), kWeights,
                         [target = open_on_cpu(kEagleTarget, Format::f32)](
                             const std::string& path) { open_eagle(path, target); }};
  CHECK(contains(one.refusal([&](const std::string& path) {
    write_bytes(path + kWeights, "fc.weight", 2 * 9, infinite16);
  }),
                 kWeights + ": number 9 of tensor fc.weight is not finite: the file is damaged"));
  const DamagedHeads bf16{golden("heads/eagle_bf16"), kWeights, one.open};
  CHECK(contains(bf16.refusal([&](const std::string& path) {
    write_bytes(path + kWeights, "layers.0.mlp.up_proj.weight", 0, nan16);
  }),
                 "number 0 of tensor layers.0.mlp.up_proj.weight is not finite"));
  const auto target = Engine::open({});
  for (const EagleKind kind : kEveryKind) {
    const TempFolder temp;
    write_head(temp.path, *target, {kind});
    const std::string tensor = kind == EagleKind::eagle3 ? "norm.weight"
                               : kind == EagleKind::next_layer
                                   ? "model.mtp_layers.0.input_proj.weight"
                                   : "layers.0.self_attn.v_proj.weight";
    write_bytes(temp.path + kWeights, tensor, 4 * 7, nan32);
    const Error error = error_of([&] { open_eagle(temp.path, target); });
    CHECK(error.code == Exit::bad_file);
    CHECK_MESSAGE(contains(error.what(), "number 7 of tensor " + tensor),
                  std::string(error.what()));
  }
}

TEST_CASE("eagle: a text continues without a head whose numbers overflow") {
  const auto target = Engine::open({});
  const TempFolder temp;
  write_head(temp.path, *target,
             {EagleKind::eagle1, 1, std::vector<float>(size_t(target->hidden_size()), 3e38f)});
  const auto prompt = target->tokenizer().encode_prompt("Once upon a time");
  for (const double temperature : {0.0, 0.8}) {
    GenerateOptions with = drawn(temperature, 1, 100);
    const auto plain = generate(*target->session(), prompt, with, kUnheard);
    const auto drafter = eagle_drafter(open_eagle(temp.path, target), with.sampling);
    std::vector<std::string> lost;
    with.on_drafter_lost = [&](const std::string& why) { lost.push_back(why); };
    with.drafter = drafter.get(), with.draft_length = 2;
    const auto got = generate(*target->session(), prompt, with, kUnheard);
    CHECK(got.tokens == plain.tokens);
    CHECK(got.finish == plain.finish);
    CHECK(got.drafted == 0);
    REQUIRE(lost.size() == 1);
    CHECK(contains(lost[0], temp.path + ": the logits after token "));
  }
}

TEST_CASE("cli/a model's own folder has its next-token layer") {
  const TempFolder temp;
  const std::string folder = temp / "model", whole = temp / "model.quipu";
  REQUIRE(
      chaski_run({"convert", "models/bundled/story.quipu", folder, "--layout", "gptq"}).status ==
      0);
  auto config = nlohmann::json::parse(read_file(folder + kConfig));
  WrittenHead layer{EagleKind::next_layer};
  layer.heads = config["num_attention_heads"], layer.kv_heads = config["num_key_value_heads"];
  layer.ffn = config["intermediate_size"];
  const TempFolder own;
  write_head(own.path, *Engine::open({}), layer);
  config["num_nextn_predict_layers"] = 1;
  write_file(folder + kConfig, config.dump());
  nlohmann::json index;
  for (const std::string& from : {folder, own.path}) {
    const std::string text = read_file(from + kWeights),
                      name = from == folder ? "model-1.safetensors" : "model-2.safetensors";
    uint64_t header = 0;
    std::memcpy(&header, text.data(), sizeof header);
    const auto places = nlohmann::json::parse(text.substr(8, header));
    for (const auto& [tensor, place] : places.items())
      if (tensor != "__metadata__") index["weight_map"][tensor] = name;
    write_file(folder + "/" + name, text);
  }
  std::filesystem::remove(folder + kWeights);
  write_file(folder + kWeights + ".index.json", index.dump());
  CHECK(has_next_layer(folder));
  REQUIRE(chaski_run({"convert", folder, whole}).status == 0);
  const auto run = [&](const std::string& model, std::vector<std::string> more) {
    std::vector<std::string> words{"run", "--device", "cpu",    "-p", "Once upon a time",
                                   "-n",  "200",      "--temp", "0",  "--ignore-end",
                                   "-m",  model};
    words.insert(words.end(), more.begin(), more.end());
    return chaski_run(words);
  };
  const Outcome plain = run(folder, {"--draft", "none"});
  CHECK_MESSAGE(plain.status == 0, plain.err);
  for (const std::string& model : {folder, whole}) {
    const Outcome with = run(model, {"--draft", folder});
    CHECK_MESSAGE(with.status == 0, with.err);
    CHECK(with.out == plain.out);
  }
  const std::string hint = folder + " has a layer that predicts draft tokens: --draft " + folder;
  CHECK(contains(run(folder, {"-v"}).err, hint));
  CHECK(!contains(run(folder, {}).err, hint));
}

TEST_CASE("cli/an EAGLE head drafts for run, and other folders are refused") {
  const TempFolder temp;
  write_head(temp.path, *Engine::open({}));
  const auto run = [&](const std::string& who) {
    return chaski_run({"run", "--device", "cpu", "-p", "Once upon a time", "-n", "200", "--temp",
                       "0", "--ignore-end", "--answers", "2", "--seed", "3", "--draft", who});
  };
  const Outcome plain = run("none"), with = run(temp.path);
  CHECK_MESSAGE(with.status == 0, with.err);
  CHECK(with.out == plain.out);
  for (const EagleKind kind : {EagleKind::eagle3, EagleKind::next_layer}) {
    const TempFolder of_kind;
    write_head(of_kind.path, *Engine::open({}), {kind});
    const Outcome guessed = run(of_kind.path);
    CHECK_MESSAGE(guessed.status == 0, guessed.err);
    CHECK(guessed.out == plain.out);
  }
  // If it has to be left out, a notice says so once.
  const auto target = Engine::open({});
  const TempFolder large;
  write_head(large.path, *target,
             {EagleKind::eagle1, 1, std::vector<float>(size_t(target->hidden_size()), 3e38f)});
  const Outcome lost = run(large.path);
  CHECK(lost.status == 0);
  CHECK(lost.out == plain.out);
  const size_t said = lost.err.find(": the text continues without a drafter");
  CHECK_MESSAGE(said != lost.err.npos, lost.err);
  CHECK(lost.err.find("the text goes on", said + 9) == lost.err.npos);
  const Outcome other = run(golden("heads/eagle"));
  CHECK(other.status == 3);
  CHECK_MESSAGE(other.error_says("config.json: hidden_size is 64, expected 192, as in (bundled)"),
                other.err);
  CHECK(chaski_run({"run", "--help"}).out.find("EAGLE head") != std::string::npos);
}

}  // namespace
}  // namespace chaski::test
