// Medusa heads: their logits, texts generated with their drafts, and damaged folders.
#include "models/import/hf/heads.h"

#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "engine/drafting/draft_heads.h"
#include "engine/requests/generate.h"
#include "engine/requests/scheduler.h"
#include "models/import/hf/medusa.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/import_support.h"
#include "tests/kit/program.h"

namespace chaski::test {
namespace {

const std::string kTarget = golden("models/llama_gqa_untied");

std::vector<TokenId> golden_tokens() {
  return nlohmann::json::parse(read_file(kTarget + "/golden.json"))["tokens"]
      .get<std::vector<TokenId>>();
}

TEST_CASE("heads: logits equal those of another program") {
  const auto engine = open_on_cpu(kTarget, Format::f32);
  const auto tokens = golden_tokens();
  for (const std::string name : {"medusa", "medusa_bf16", "medusa_f16"}) {
    CAPTURE(name);
    const std::string folder = golden("heads/") + name;
    const auto told = nlohmann::json::parse(read_file(folder + "/golden.json"));
    DraftHeads heads(folder, engine);
    REQUIRE(heads.count() == told["heads"].get<int>());
    const int positions = told["positions"], vocab = engine->vocab_size();
    const std::string bytes = read_file(folder + "/logits.f32");
    std::vector<float> want(bytes.size() / 4);
    std::memcpy(want.data(), bytes.data(), bytes.size());
    REQUIRE(want.size() == size_t(heads.count() * positions * vocab));
    const auto session = engine->session();
    const auto rows = session->hidden(tokens, positions);
    double worst = 0, most = 0;
    for (int i = 0; i < heads.count(); ++i)
      for (int p = 0; p < positions; ++p) {
        const size_t dim = size_t(engine->hidden_size());
        const auto got = heads.logits(i, rows.subspan(size_t(p) * dim, dim));
        REQUIRE(int(got.size()) == vocab);
        for (int v = 0; v < vocab; ++v) {
          const double w = want[size_t((i * positions + p) * vocab + v)];
          worst = std::max(worst, std::fabs(w - got[size_t(v)]));
          most = std::max(most, std::fabs(w));
        }
      }
    MESSAGE(name << ": max error / max logit " << worst / most);
    CHECK(worst <= 1e-4 * most);
  }
}

TEST_CASE("heads: a draw also returns hidden states, and the tokens are the same") {
  const auto engine = Engine::open({});
  const auto tokens = engine->tokenizer().encode_prompt("Once upon a time there was a little dog.");
  Sampler sampler(SamplerOptions{});
  std::vector<TokenId> text = tokens;
  const auto plain = engine->session();
  while (text.size() < tokens.size() + 4)
    text.push_back(plain->draw(std::span(text).subspan(size_t(plain->position())), sampler)[0]);
  const TokenId *right = &text[tokens.size()], wrong = right[0] == 5 ? 6 : 5;
  const std::vector<std::vector<Draft::Node>> drafts{
      {},
      {{right[0], -1}, {right[1], 0}, {wrong + 2, 1}},
      {{wrong, -1}, {right[1], 0}, {right[0], -1}, {right[1], 2}, {right[2], 3}}};
  const size_t made[] = {1, right[2] == wrong + 2 ? 4u : 3u, 4};
  for (size_t i = 0; i < drafts.size(); ++i) {
    const auto session = engine->session(), other = engine->session(), rows = engine->session();
    const Extension a{
        .session = session.get(), .tokens = tokens, .sampler = &sampler, .draft = drafts[i]},
        b{.session = other.get(),
          .tokens = tokens,
          .sampler = &sampler,
          .draft = drafts[i],
          .hidden = true};
    const Draws without = draw_all({&a, 1})[0], with = draw_all({&b, 1})[0];
    CHECK(without.tokens == std::vector<TokenId>(right, right + made[i]));
    CHECK(with.tokens == without.tokens);
    CHECK(without.hidden.empty());
    const size_t n = tokens.size() + made[i] - 1;
    CHECK(same(with.hidden, rows->hidden(std::span(text).first(n), int(n))));
  }
  // A pass over several sessions, of which one wants hidden states.
  const auto one = engine->session(), two = engine->session();
  const auto first = std::span(tokens).first(5);
  const std::vector<Extension> both{
      {.session = one.get(), .tokens = tokens, .sampler = &sampler, .draft = drafts[2]},
      {.session = two.get(), .tokens = first, .sampler = &sampler, .hidden = true}};
  const auto draws = draw_all(both);
  CHECK(draws[0].hidden.empty());
  CHECK(same(draws[1].hidden, engine->session()->hidden(first, 5)));
  // Also without draws, and in several batches.
  const auto three = engine->session();
  std::vector<TokenId> portion(300, tokens[1]);
  const Extension read{
      .session = three.get(), .tokens = portion, .wanted = 0, .sampler = &sampler, .hidden = true};
  const Draws none = draw_all({&read, 1})[0];
  CHECK(none.tokens.empty());
  const auto fresh = Engine::open({})->session();
  CHECK(same(none.hidden, fresh->hidden(portion, 300)));
}

// Heads that always propose these tokens: W is 0, the bias b dominates, and one row of the output
// matrix reads it.
void write_heads(const std::string& folder, int64_t dim, int64_t vocab,
                 const std::vector<TokenId>& guesses) {
  std::string header, data;
  const auto add = [&](const std::string& name, const std::string& shape, int64_t n,
                       const auto& value) {
    header += fmt::format(R"({}"{}":{{"dtype":"F32","shape":{},"data_offsets":[{},{}]}})",
                          header.empty() ? "{" : ",", name, shape, data.size(),
                          data.size() + size_t(n) * 4);
    for (int64_t i = 0; i < n; ++i) append(data, float(value(i)));
  };
  for (size_t h = 0; h < guesses.size(); ++h) {
    add(fmt::format("{}.0.linear.weight", h), fmt::format("[{},{}]", dim, dim), dim * dim,
        [](int64_t) { return 0; });
    add(fmt::format("{}.0.linear.bias", h), fmt::format("[{}]", dim), dim,
        [](int64_t) { return 1000; });
    add(fmt::format("{}.1.weight", h), fmt::format("[{},{}]", vocab, dim), vocab * dim,
        [&](int64_t i) { return i / dim == guesses[h]; });
  }
  write_file(folder + "/medusa_lm_head.safetensors", safetensors(header + "}", data));
  write_file(folder + "/config.json",
             fmt::format(R"({{"medusa_num_heads": {}, "medusa_num_layers": 1}})", guesses.size()));
}

// The most frequent pair of successive tokens in a text, from the second token on.
std::vector<TokenId> usual_pair(const std::vector<TokenId>& text) {
  std::map<std::vector<TokenId>, int> counts;
  for (size_t i = 1; i + 1 < text.size(); ++i) ++counts[{text[i], text[i + 1]}];
  return std::max_element(counts.begin(), counts.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

GenerateOptions heads_options(double temperature, uint64_t seed) {
  GenerateOptions o;
  o.max_tokens = 120, o.sampling.temperature = temperature, o.sampling.seed = seed;
  o.ignore_end = true;
  return o;
}

const Sink kDeaf = [](std::string_view) {};

TEST_CASE("heads: a text does not depend on them, greedy and sampled, alone and in a batch") {
  const auto engine = Engine::open({});
  const auto prompt = engine->tokenizer().encode_prompt("Once upon a time there was a");
  const GenerateResult greedy = generate(*engine->session(), prompt, heads_options(0, 1), kDeaf);
  const TempFolder temp;
  write_heads(temp.path, engine->hidden_size(), engine->vocab_size(), usual_pair(greedy.tokens));
  const auto heads = std::make_shared<DraftHeads>(temp.path, engine);
  int accepted = 0;
  std::vector<GenerateResult> alone;
  for (const double temperature : {0.0, 0.8})
    for (const uint64_t seed : {1, 2}) {
      alone.push_back(
          generate(*engine->session(), prompt, heads_options(temperature, seed), kDeaf));
      for (const bool governed : {false, true})
        for (const int k : {1, 5}) {
          GenerateOptions with = heads_options(temperature, seed);
          const auto drafter = heads_drafter(heads, with.sampling);
          Governor governor;
          with.drafter = drafter.get(), with.draft_length = k;
          with.governor = governed ? &governor : nullptr;
          const auto got = generate(*engine->session(), prompt, with, kDeaf);
          CHECK(got.tokens == alone.back().tokens);
          CHECK(got.text == alone.back().text);
          if (governed) continue;
          CHECK(got.drafted > 0);
          CHECK(got.drafted_at.size() == size_t(std::min(k, 2)));
          if (temperature == 0) accepted += got.accepted;
        }
    }
  CHECK(accepted > 0);
  Scheduler scheduler(engine);
  std::vector<std::unique_ptr<Drafter>> drafters;
  std::vector<std::unique_ptr<Request>> requests;
  for (size_t i = 0; i < alone.size(); ++i) {
    GenerateOptions with = heads_options(i < 2 ? 0 : 0.8, i % 2 + 1);
    drafters.push_back(i == 3 ? ngram_drafter() : heads_drafter(heads, with.sampling));
    with.drafter = drafters.back().get(), with.draft_length = 2;
    requests.push_back(std::make_unique<Request>(*engine, prompt, with, kDeaf));
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

TEST_CASE("heads: a draft token is drawn from the head's logits, with the noise of its position") {
  const auto engine = open_on_cpu(kTarget, Format::f32);
  const auto heads = std::make_shared<DraftHeads>(golden("heads/medusa"), engine);
  std::vector<TokenId> text = golden_tokens();
  const auto session = engine->session();
  const auto row = session->hidden(std::span(text).first(text.size() - 1), 1);
  const std::vector<float> hidden(row.begin(), row.end());
  SamplerOptions sampling;
  sampling.seed = 9;
  const auto drafter = heads_drafter(heads, sampling);
  CHECK(drafter->kind(text) == -1);
  CHECK(drafter->propose(text, {3}).nodes.empty());
  drafter->read_hidden(text, hidden);
  CHECK(drafter->kind(text) == 0);
  CHECK(drafter->kind(std::span(text).first(3)) == -1);
  CHECK(drafter->propose(std::span(text).first(3), {3}).nodes.empty());
  const auto guesses = drafter->propose(text, {9}).nodes;
  REQUIRE(guesses.size() == 3);
  CHECK(drafter->propose(text, {2}).nodes ==
        std::vector<Draft::Node>(guesses.begin(), guesses.begin() + 2));
  Sampler sampler(sampling);
  for (int i = 0; i < 3; ++i) {
    CHECK(sampler.draw(heads->logits(i, hidden), text) == guesses[size_t(i)].token);
    text.push_back(guesses[size_t(i)].token);
  }
}

// Opens the folder for the model that it was made for.
const DamagedHeads& medusa_folder() {
  static const DamagedHeads folder{golden("heads/medusa"), "/medusa_lm_head.safetensors",
                                   [target = open_on_cpu(kTarget, Format::f32)](
                                       const std::string& path) { DraftHeads(path, target); }};
  return folder;
}

TEST_CASE("heads: damaged folders are refused in one line") {
  const std::string config = "/config.json", weights = "/medusa_lm_head.safetensors";
  medusa_folder().refused("medusa_num_heads is 0, expected 1 to 64", config,
                          R"("medusa_num_heads": 3)", R"("medusa_num_heads": 0)");
  medusa_folder().refused("medusa_num_heads is \"3\", expected", config, R"("medusa_num_heads": 3)",
                          R"("medusa_num_heads": "3")");
  medusa_folder().refused("medusa_num_heads is missing", config, "medusa_num_heads", "num_heads");
  medusa_folder().refused("medusa_num_layers is -1, expected 0 to 16", config,
                          R"("medusa_num_layers": 1)", R"("medusa_num_layers": -1)");
  medusa_folder().refused("not valid JSON", config, "{", "[");
  medusa_folder().refused("tensor 0.0.linear.weight has dtype I32, expected F32", weights,
                          R"("0.0.linear.weight":{"dtype":"F32")",
                          R"("0.0.linear.weight":{"dtype":"I32")");
  medusa_folder().refused(
      "tensor 0.0.linear.weight has shape (8, 512), expected (64, 64), for the hidden size",
      weights, R"("shape":[64,64])", R"("shape":[8,512])");
  medusa_folder().refused("tensor 0.0.linear.bias is missing, expected those of 10 heads", weights,
                          "0.0.linear.bias", "9.0.linear.bias");
  medusa_folder().refused("tensor 0.0.linexr.bias is unexpected in heads with medusa_num_layers 1",
                          weights, "0.0.linear.bias", "0.0.linexr.bias");
  const auto heads_of = [&](const std::string& said) {
    return medusa_folder().refusal([&](const std::string& folder) {
      write_file(folder + config, R"({"medusa_num_heads": )" + said + "}");
    });
  };
  CHECK(contains(heads_of("4"), "tensor 3.0.linear.bias is missing, expected those of 4 heads"));
  const auto cut = [&](const std::string& folder) {
    write_file(folder + weights, read_file(folder + weights).substr(0, 5000));
  };
  CHECK(contains(medusa_folder().refusal(cut), weights));
  const auto remove = [&](const std::string& folder) { std::filesystem::remove(folder + weights); };
  CHECK(contains(medusa_folder().refusal(remove, Exit::io), weights));
  const auto pickled = [&](const std::string& folder) {
    std::filesystem::rename(folder + weights, folder + "/medusa_lm_head.pt");
  };
  CHECK(contains(
      medusa_folder().refusal(pickled),
      "medusa_lm_head.pt: is a Python pickle, which can run code, "
      "expected medusa_lm_head.safetensors. To make it, run this in that folder: python3 -c"));
}

TEST_CASE("heads: heads of another model, and non-finite numbers") {
  const auto error = error_of([] { DraftHeads(golden("heads/medusa"), Engine::open({})); });
  CHECK(error.code == Exit::bad_file);
  CHECK_MESSAGE(contains(error.what(),
                         ", expected (192), for the hidden size of 192 and the "
                         "vocabulary of 3072 of (bundled)"),
                error.what());
  const auto engine = open_on_cpu(kTarget, Format::f32);
  const TempFolder temp;
  write_heads(temp.path, engine->hidden_size(), engine->vocab_size() + 1, {1});
  CHECK(contains(error_of([&] { DraftHeads(temp.path, engine); }).what(), "0.1.weight has shape"));
  write_heads(temp.path, engine->hidden_size(), engine->vocab_size(), {1});
  const std::string path = temp.path + "/medusa_lm_head.safetensors";
  std::string text = read_file(path);
  DraftHeads heads(temp.path, engine);
  const Error failed = error_of([&] { heads.logits(0, std::vector<float>(64, 3e38f)); });
  CHECK(failed.code == Exit::non_finite);
  CHECK(contains(failed.what(), "the logits of head 0 are not finite"));
  // Non-finite weights are detected when the folder is opened.
  text.replace(text.size() - 4, 4, std::string("\0\0\xc0\x7f", 4));
  write_file(path, text);
  const Error damaged = error_of([&] { DraftHeads(temp.path, engine); });
  CHECK(damaged.code == Exit::bad_file);
  CHECK_MESSAGE(contains(damaged.what(), " is not finite: the file is damaged"), damaged.what());
}

TEST_CASE("cli/heads draft for run, and other folders are refused") {
  const TempFolder temp;
  const auto engine = Engine::open({});
  write_heads(temp.path, engine->hidden_size(), engine->vocab_size(),
              engine->tokenizer().encode_prompt("."));
  const auto run = [&](const std::string& drafter, const std::string& more) {
    return chaski_run({"run", "--device", "cpu", "-p", "Once upon a time", "-n", "300", "--temp",
                       "0", "--ignore-end", "-v", "--draft", drafter, more});
  };
  const Outcome plain = run("none", "-q"), with = run(temp.path, "-q");
  CHECK_MESSAGE(with.status == 0, with.err);
  CHECK(with.out == plain.out);
  const auto few = [&](const std::string& form, const std::string& drafter) {
    return chaski_run(
        {"run", "--device", "cpu", "-v", "-p", "Once", "-n", "4", "--draft", drafter, form});
  };
  const std::string early = "the text ended before their gain was known";
  for (const char* form : {"-n4", "--answers=2"})
    CHECK(few(form, temp.path).error_says("; no draft tokens: " + early));
  CHECK(few("--json", temp.path).out.find("\"no_guesses\":\"" + early + "\"") != std::string::npos);
  CHECK(few("--json", "ngram").out.find("no_guesses") == std::string::npos);
  const Outcome other = run(golden("heads/medusa"), "-q");
  CHECK(other.status == 3);
  CHECK_MESSAGE(other.error_says("medusa_lm_head.safetensors: tensor "), other.err);
  CHECK(chaski_run({"run", "--help"}).out.find("Medusa heads") != std::string::npos);
}

TEST_CASE("cli/a folder of heads is not a model, and the error names its kind") {
  const TempFolder temp;
  for (const std::string name : {"medusa", "eagle"}) {
    const std::string folder = golden("heads/") + name;
    for (const Arguments& command :
         {Arguments{"run", "-p", "a", "-m"}, {"inspect"}, {"plan"}, {"chat", "-p", "a", "-m"}}) {
      Arguments all = command;
      all.push_back(folder);
      const Outcome found = chaski_run(all);
      CHECK(found.status == 3);
      CHECK_MESSAGE(found.one_error_line(), found.err);
      CHECK(found.error_says(
          folder +
          (name == "medusa" ? ": folder holds Medusa heads" : ": folder holds an EAGLE head") +
          ", not a model, expected --draft " + folder + " together with -m "));
    }
  }
  // A folder that is neither is described by its contents.
  const auto draft = [&](const std::string& says) {
    const Outcome found = chaski_run({"run", "-p", "a", "-n", "1", "--draft", temp.path});
    CHECK(found.status == 3);
    CHECK_MESSAGE(found.one_error_line(), found.err);
    CHECK_MESSAGE(found.error_says(
                      "--draft is neither a model that can be read nor draft heads (medusa_lm_head."
                      "safetensors, or model.safetensors with fc.weight, "
                      "mtp_layers or mtp.fc.weight): " +
                      temp.path + says),
                  found.err);
  };
  draft(": folder has no config.json");
  write_file(temp / "config.json", "{}");
  draft("/config.json: architectures is missing");
}

}  // namespace
}  // namespace chaski::test
