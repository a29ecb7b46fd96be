// chaski compare through the real binary, checked against eval --kl and a loop over logits.
#include <nlohmann/json.hpp>

#include "engine/session/session.h"
#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;
using nlohmann::json;

namespace {

// The greedy continuation of one model, one token at a time.
std::vector<TokenId> greedy(const std::string& model, const std::string& text, int window,
                            int tokens) {
  EngineOptions options;
  options.model = model, options.device = "cpu";
  const auto engine = Engine::open(options);
  const std::vector<TokenId> all = engine->tokenizer().encode_prompt(text);
  const auto session = engine->session();
  std::span<const float> logits;
  for (int i = 0; i < window / 2; ++i) logits = session->decode(all[size_t(i)]);
  std::vector<TokenId> said;
  while (int(said.size()) < tokens) {
    said.push_back(TokenId(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    logits = session->decode(said.back());
  }
  return said;
}

// A text of more than 1024 tokens without long repetitions.
std::string long_text() {
  constexpr const char *kWho[] = {"dog", "girl", "little bird", "king"},
                       *kDid[] = {"saw", "wanted", "lost", "painted", "asked for"},
                       *kWhat[] = {"ball", "red hat", "cake", "boat", "tree", "song", "big box"};
  std::string text;
  for (int i = 0; i < 150; ++i)
    text += fmt::format("The {} {} a {}{} ", kWho[i * i % 7 % 4], kDid[i * 3 % 11 % 5],
                        kWhat[i * 5 % 13 % 7], i % 3 == 0 ? ", and it rained." : ".");
  return text;
}

}  // namespace

TEST_CASE("cli/compare: figures of eval --kl, the worst places and the first other token") {
  const TempFolder folder;
  const std::string q4 = folder / "q4.quipu", text = long_text(),
                    file = write_file(folder / "text", text);
  REQUIRE(chaski_run({"quantize", kStory, q4, "--type", "q4"}).status == 0);
  const Arguments how = {"--device", "cpu", "-c", "151", "--chunks", "2", "-f", file, "--json"};
  Arguments compare = {"compare", kStory, q4, "-n", "40", "--worst", "200", "--temp", "0.8"},
            eval = {"eval", "-m", q4, "--kl", kStory};
  compare.insert(compare.end(), how.begin(), how.end());
  eval.insert(eval.end(), how.begin(), how.end());
  const Outcome outcome = chaski_run(compare);
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  CHECK(outcome.err.empty());
  const json j = json::parse(outcome.out), e = json::parse(chaski_run(eval).out);
  for (const char* figure : {"kl", "kl_standard_error", "same_top", "scored_tokens", "windows"})
    CHECK_MESSAGE(j[figure] == e[figure], figure);
  CHECK(j["a"]["perplexity"] == e["base"]["perplexity"]);
  CHECK(j["b"]["perplexity"] == e["perplexity"]);

  CHECK(j["draws"]["temperature"] == 0.8);
  const double same_draws = j["draws"]["same"], same_law = j["draws"]["same_law"];
  CHECK(same_law > 0.8);
  CHECK(same_law < 1);
  CHECK(same_draws < same_law);
  CHECK(same_draws > 2 * same_law - 1);  // at least same_law / (2 - same_law) at each place

  // All places are listed: their mean and median are those of the summary.
  const size_t scored = j["scored_tokens"];
  REQUIRE(j["worst"].size() == scored);
  double sum = 0, same = 0;
  for (size_t i = 0; i < scored; ++i) {
    const json& place = j["worst"][i];
    sum += place["kl"].get<double>(), same += place["a"] == place["b"];
    if (i > 0) CHECK(place["kl"].get<double>() <= j["worst"][i - 1]["kl"].get<double>());
  }
  CHECK(sum / double(scored) == doctest::Approx(j["kl"].get<double>()));
  CHECK(same / double(scored) == doctest::Approx(j["same_top"].get<double>()));
  CHECK(j["kl_median"] == j["worst"][(scored - 1) / 2]["kl"]);
  double by_place = 0;
  int first = 151 / 2 + 2;
  for (const json& part : j["by_place"]) {
    CHECK(part["first"] == first);
    first = part["last"].get<int>() + 1;
    by_place += part["kl"].get<double>() * (first - part["first"].get<int>()) * 2;
  }
  CHECK(first == 151 + 1);
  CHECK(by_place / double(scored) == doctest::Approx(j["kl"].get<double>()));

  // Each place has the position that it reports.
  const auto engine = Engine::open({});
  const Tokenizer& tokenizer = engine->tokenizer();
  const std::vector<TokenId> tokens = tokenizer.encode_prompt(text);
  const json& worst = j["worst"][0];
  const size_t at = worst["token"].get<size_t>() - 1;
  CHECK(worst["text"] == tokenizer.piece(tokens[at]));
  CHECK(worst["before"] == tokenizer.decode(std::span(tokens).subspan(at - 12, 12)));

  const auto a = greedy(kStory, text, 151, 40), b = greedy(q4, text, 151, 40);
  const auto part = std::mismatch(a.begin(), a.end(), b.begin());
  REQUIRE(part.first != a.end());  // otherwise the test needs a longer text
  CHECK(j["greedy"]["same_tokens"] == part.first - a.begin());
  CHECK(j["greedy"]["a"] == tokenizer.piece(*part.first));
  CHECK(j["greedy"]["b"] == tokenizer.piece(*part.second));
}

TEST_CASE("cli/compare: a table for people, and a model compared with itself") {
  const Outcome same = chaski_run({"compare", kStory, kStory, "-c", "64", "--chunks", "2", "-n",
                                   "8", "--device", "cpu", "--temp", "1"},
                                  long_text());
  REQUIRE_MESSAGE(same.status == 0, same.err);
  for (const char* line :
       {"A: models/bundled/story.quipu, perplexity ", "\nB: models/bundled/story.quipu",
        "\nKL of B from A a token: mean 0.00000 ± 0.00000, median 0.00000, most 0.000; same top "
        "100.00%",
        "\ndraws at temperature 1: 100.00% are the same, 100.00% would be accepted by rejection "
        "sampling\n",
        "\nby position in the window:\n  tokens     34 to 40     KL 0.00000",
        "\ngreedy, after the first 32 tokens: the same 8 tokens\n"})
    CHECK_MESSAGE(contains(same.out, line), same.out);
  CHECK_MESSAGE(!contains(same.out, "largest differences"), same.out);
}

TEST_CASE("cli/compare: refusals") {
  const TempFolder folder;
  ModelSource source = source_of(open_quipu(kStory));
  const Texts& old = source.meta.strs("tokenizer.tokens");
  std::vector<std::string> tokens(old.begin(), old.end());
  std::swap(tokens.at(300), tokens.at(301));
  source.meta.set_strs("tokenizer.tokens", tokens);
  write_quipu(folder / "other.quipu", source, 1);
  const std::string text = long_text();
  check_one_line(chaski_run({"compare", kStory, folder / "other.quipu"}, text), 2,
                 fmt::format("token 300 is \"{}\", expected \"{}\" as in {}", escaped(tokens[300]),
                             escaped(tokens[301]), kStory));
  check_one_line(chaski_run({"compare", kStory}, text), 2, "B");
  check_one_line(chaski_run({"compare", kStory, kStory, "--temp", "-1"}, text), 2,
                 "--temp is -1, expected 0 to 100");
  check_one_line(chaski_run({"compare", kStory, kStory}, "short"), 2,
                 "expected at least 512, the size of one window");
  check_one_line(chaski_run({"compare", kStory, "no-such.gguf"}, text), 5, "no-such.gguf");
}
