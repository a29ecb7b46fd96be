// chaski eval through the real binary, against a slow loop over logits.
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/session.h"
#include "tests/program.h"

using namespace chaski;
using namespace chaski::test;
using nlohmann::json;

namespace {

struct Counted {
  int scored = 0;
  double mean = 0, error = 0, bytes = 0;
  double perplexity() const { return std::exp(mean); }
};

// A token at a time, in doubles, each window by a session of its own.
Counted counted_slowly(const std::string& text, int window, int windows) {
  EngineOptions options;
  options.device = "cpu";
  const auto engine = Engine::open(options);
  const Tokenizer& tokenizer = engine->tokenizer();
  const std::vector<TokenId> tokens = tokenizer.encode_prompt(text);
  std::vector<double> surprises;
  Counted counted;
  for (int w = 0; w < windows; ++w) {
    const auto session = engine->session();
    for (int i = 0; i < window - 1; ++i) {
      const TokenId token = tokens.at(size_t(w * window + i)),
                    next = tokens.at(size_t(w * window + i + 1));
      const auto logits = session->decode(i == 0 ? tokenizer.bos() : token);
      if (i < window / 2) continue;
      double sum = 0;
      for (const float logit : logits) sum += std::exp(double(logit));
      surprises.push_back(std::log(sum) - double(logits[size_t(next)]));
      counted.bytes += double(tokenizer.piece(next).size());
    }
  }
  counted.scored = int(surprises.size());
  for (const double s : surprises) counted.mean += s / counted.scored;
  double squares = 0;
  for (const double s : surprises) squares += (s - counted.mean) * (s - counted.mean);
  counted.error = counted.perplexity() * std::sqrt(squares / counted.scored / (counted.scored - 1));
  return counted;
}

}  // namespace

TEST_CASE("cli/eval counts as a slow loop over logits does") {
  const std::string text = read_file("README.md");
  // A window of an odd length, and one that takes several portions behind its middle.
  for (const auto& [window, windows] : {std::pair(33, 4), {300, 3}}) {
    CAPTURE(window);
    const Outcome outcome =
        chaski_run({"eval", "--device", "cpu", "-c", std::to_string(window), "--chunks",
                    std::to_string(windows), "-f", "README.md", "--json"});
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    CHECK(outcome.err.empty());  // no terminal, no bar
    const json j = json::parse(outcome.out);
    const Counted want = counted_slowly(text, window, windows);
    CHECK(j["windows"] == windows);
    CHECK(j["window"] == window);
    CHECK(j["scored_tokens"] == want.scored);
    CHECK(j["scored_bytes"] == want.bytes);
    const auto near = [](double x) { return doctest::Approx(x).epsilon(1e-5); };
    CHECK(j["perplexity"].get<double>() == near(want.perplexity()));
    CHECK(j["standard_error"].get<double>() == near(want.error));
    CHECK(j["bits_per_byte"].get<double>() ==
          near(want.mean * want.scored / std::log(2.0) / want.bytes));
  }
}

TEST_CASE("cli/eval: the text for people, and all windows without --chunks") {
  const Outcome outcome = chaski_run({"eval", "-c", "64"}, read_file("LICENSE"));
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  CHECK(outcome.out.starts_with("perplexity "));
  CHECK(outcome.out.find(" bits per byte\n") != std::string::npos);
  EngineOptions options;
  const size_t tokens =
      Engine::open(options)->tokenizer().encode_prompt(read_file("LICENSE")).size();
  CHECK_MESSAGE(outcome.error_says(fmt::format("{} windows of 64", tokens / 64)), outcome.err);
  // One window more is not there.
  const Outcome more = chaski_run({"eval", "-c", "64", "--chunks", "1000"}, read_file("LICENSE"));
  CHECK(more.out == outcome.out);
}
