// chaski eval through the real binary, against a slow loop over logits.
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/session/session.h"
#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;
using nlohmann::json;

namespace {

struct Counted {
  int scored = 0;
  double mean = 0, error = 0, bytes = 0;
  double perplexity() const { return std::exp(mean); }
};

// Reads one token at a time, in doubles, with a new session for each window.
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

TEST_CASE("cli/eval computes what a slow loop over logits does") {
  const std::string text = read_file(kCalibrationText);
  // A window of odd length, and one with several portions after its middle.
  for (const auto& [window, windows] : {std::pair(33, 4), {300, 3}}) {
    CAPTURE(window);
    const Outcome outcome =
        chaski_run({"eval", "--device", "cpu", "-c", std::to_string(window), "--chunks",
                    std::to_string(windows), "-f", kCalibrationText, "--json"});
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    CHECK(outcome.err.empty());  // no progress bar without a terminal
    const json j = json::parse(outcome.out);
    const Counted want = counted_slowly(text, window, windows);
    CHECK(j["windows"] == windows);
    CHECK(j["window"] == window);
    CHECK(j["text_tokens"] > windows * window);
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
  std::string text = read_file("LICENSE");
  text.pop_back();  // eval does not read the last newline
  const size_t tokens = Engine::open(options)->tokenizer().encode_prompt(text).size();
  CHECK_MESSAGE(outcome.error_says(fmt::format("{} windows of 64", tokens / 64)), outcome.err);
  // Tokens after the last whole window are left out.
  REQUIRE(tokens % 64 > 1);
  const std::string left_out = "do not fill a window of 64, and are not scored\n";
  CHECK_MESSAGE(
      outcome.error_says(fmt::format("chaski: note: the text has {} tokens; the last {} {}", tokens,
                                     tokens % 64, left_out)),
      outcome.err);
  const Outcome one = chaski_run({"eval", "-c", "64", "--chunks", "1"}, read_file("LICENSE"));
  CHECK_MESSAGE(one.error_says(fmt::format("of {} tokens scored in 1 window of 64; ", tokens)),
                one.err);
  CHECK_FALSE(one.error_says(left_out));
  // There is no further window.
  const Outcome more = chaski_run({"eval", "-c", "64", "--chunks", "1000"}, read_file("LICENSE"));
  CHECK(more.out == outcome.out);
  const Outcome all = chaski_run({"eval", "-c", "64", "--chunks", "0"}, read_file("LICENSE"));
  CHECK_MESSAGE(all.out == outcome.out, all.err);
}

namespace {

// Reads one token at a time, everything in doubles, one model after the other.
struct Compared {
  double kl = 0, kl_error = 0, same_top = 0, rms = 0;
};
Compared compared_slowly(const std::string& base, const std::string& model, const std::string& text,
                         int window, int windows) {
  std::vector<std::vector<double>> p[2];  // by model: the probabilities of each scored token
  std::vector<TokenId> scored;
  for (const auto& [path, of_model] : {std::pair(base, &p[0]), {model, &p[1]}}) {
    EngineOptions options;
    options.model = path, options.device = "cpu";
    const auto engine = Engine::open(options);
    const std::vector<TokenId> tokens = engine->tokenizer().encode_prompt(text);
    scored.clear();
    for (int w = 0; w < windows; ++w) {
      const auto session = engine->session();
      for (int i = 0; i < window - 1; ++i) {
        const auto at = [&](int k) { return tokens.at(size_t(w * window + k)); };
        const auto logits = session->decode(i == 0 ? engine->tokenizer().bos() : at(i));
        if (i < window / 2) continue;
        scored.push_back(at(i + 1));
        std::vector<double>& row = of_model->emplace_back();
        double sum = 0;
        for (const float logit : logits) sum += row.emplace_back(std::exp(double(logit)));
        for (double& x : row) x /= sum;
      }
    }
  }
  Compared c;
  std::vector<double> each;
  const double n = double(scored.size());
  for (size_t i = 0; i < scored.size(); ++i) {
    const auto &a = p[0][i], &b = p[1][i];
    double kl = 0;
    for (size_t t = 0; t < a.size(); ++t) kl += a[t] * std::log(a[t] / b[t]);
    each.push_back(kl), c.kl += kl / n;
    const auto top = [](auto& x) { return std::max_element(x.begin(), x.end()) - x.begin(); };
    c.same_top += (top(a) == top(b)) / n;
    c.rms += std::pow(b[size_t(scored[i])] - a[size_t(scored[i])], 2) / n;
  }
  for (const double kl : each) c.kl_error += (kl - c.kl) * (kl - c.kl);
  c.kl_error = std::sqrt(c.kl_error / n / (n - 1)), c.rms = std::sqrt(c.rms);
  return c;
}

}  // namespace

TEST_CASE("cli/eval --kl compares two models as a slow loop in doubles does") {
  const TempFolder folder;
  const std::string base = "models/bundled/story.quipu", model = folder / "q4.quipu",
                    text = read_file(kCalibrationText);
  REQUIRE(chaski_run({"quantize", base, model, "--type", "q4"}).status == 0);
  const Outcome outcome = chaski_run({"eval", "--device", "cpu", "-m", model, "--kl", base, "-c",
                                      "150", "--chunks", "2", "-f", kCalibrationText, "--json"});
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  const json j = json::parse(outcome.out);
  const Compared want = compared_slowly(base, model, text, 150, 2);
  REQUIRE(want.kl > 1e-4);
  const auto near = [](double x) { return doctest::Approx(x).epsilon(1e-5); };
  CHECK(j["kl"].get<double>() == near(want.kl));
  CHECK(j["kl_standard_error"].get<double>() == near(want.kl_error));
  CHECK(j["same_top"].get<double>() == near(want.same_top));
  CHECK(j["rms_delta_p"].get<double>() == near(want.rms));
  // The output also has the results of each model alone.
  for (const auto& [path, found] : {std::pair(base, j["base"]), {model, j}}) {
    const Outcome alone = chaski_run({"eval", "--device", "cpu", "-m", path, "-c", "150",
                                      "--chunks", "2", "-f", kCalibrationText, "--json"});
    CHECK(found["perplexity"] == json::parse(alone.out)["perplexity"]);
  }
  // A model has no divergence from itself.
  const Outcome self =
      chaski_run({"eval", "-m", base, "--kl", base, "-c", "150", "--chunks", "1", "--noise"}, text);
  CHECK_MESSAGE(self.out.starts_with("KL 0.00000 ± 0.00000, same top 100.00% ± 0.00%, RMS"),
                self.out);
  // Except with another format of keys and values.
  CHECK_MESSAGE(contains(self.out, "of the base from itself with keys and values in f32\n"),
                self.out);
  const Outcome noise = chaski_run({"eval", "-m", model, "--kl", base, "-c", "150", "--chunks", "1",
                                    "--noise", "--kv", "q4_0", "--json"},
                                   text);
  REQUIRE_MESSAGE(noise.status == 0, noise.err);
  const json n = json::parse(noise.out);
  CHECK(n["floor"].get<double>() > 1e-6);
  check_one_line(chaski_run({"eval", "--noise"}, text), 2, "--noise needs --kl");
}

TEST_CASE("cli/eval --kl refuses another vocabulary and names the first difference") {
  const TempFolder folder;
  const std::string base = "models/bundled/story.quipu";
  const auto refusal = [&](const std::string& model) {
    const Outcome outcome = chaski_run({"eval", "-m", model, "--kl", base}, read_file("LICENSE"));
    CHECK(outcome.status == 2);
    return outcome.err;
  };
  if (have(data("models/stories260K.bin"))) {
    const std::string line = refusal(data("models/stories260K.bin"));
    CHECK_MESSAGE(contains(line, "the vocabulary has 512 tokens, expected "), line);
  }
  ModelSource source = source_of(open_quipu(base));
  const Texts& old = source.meta.strs("tokenizer.tokens");
  std::vector<std::string> tokens(old.begin(), old.end());
  std::swap(tokens.at(300), tokens.at(301));
  const std::string wanted = fmt::format("token 300 is \"{}\", expected \"{}\" as in {}",
                                         escaped(tokens[300]), escaped(tokens[301]), base);
  source.meta.set_strs("tokenizer.tokens", tokens);
  write_quipu(folder / "other.quipu", source, 1);
  const std::string line = refusal(folder / "other.quipu");
  CHECK_MESSAGE(contains(line, wanted), line);
}

TEST_CASE("cli/eval --base-kv compares formats of keys and values") {
  const std::string model = "models/bundled/story.quipu";
  const auto compared = [&](const std::string& kv, const std::string& base_kv) {
    const Outcome outcome =
        chaski_run({"eval", "--device", "cpu", "-c", "128", "--chunks", "2", "-f", "README.md",
                    "--kv", kv, "-m", model, "--kl", model, "--base-kv", base_kv, "--json"});
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    const json j = json::parse(outcome.out);
    CHECK(j["kv"] == kv);
    CHECK(j["base"]["kv"] == base_kv);
    return j["kl"].get<double>();
  };
  CHECK(compared("q8", "q8") == 0);
  const double q8 = compared("q8", "f16"), q4 = compared("q4_0", "f16");
  CHECK(q8 > 0);
  CHECK(q4 > q8);
  const Outcome alone = chaski_run({"eval", "-f", "README.md", "--base-kv", "f16"});
  CHECK(alone.status == int(Exit::usage));
  CHECK(contains(alone.err, "--base-kv needs --kl BASE"));
}
