// Popular model files, compared with exact arithmetic on their weights. `make real` downloads them
// and sets CHASKI_REAL_MODELS. scripts/study/exact_argmax.py wrote tests/golden/real.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/session/engine.h"
#include "engine/session/session.h"
#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;
using nlohmann::json;

namespace {

std::string real(const std::string& name) {
  const char* folder = std::getenv("CHASKI_REAL_MODELS");
  return (folder ? std::string(folder) : "CHASKI_REAL_MODELS") + "/" + name;
}

json golden_of(const std::string& name) {
  return json::parse(read_file(golden("real/" + name + ".json")));
}

// Follows the tokens that exact arithmetic chooses. Counts how many chaski chooses, too, and finds
// the largest difference of exact logits between the first and second token where it does not.
struct Agreement {
  int same = 0, places = 0;
  double margin = 0;
};
Agreement agreement(const std::string& model, const json& prompts) {
  EngineOptions options;
  options.model = model, options.device = "cpu";
  const auto engine = Engine::open(options);
  Agreement found;
  for (const json& prompt : prompts) {
    const auto ids = prompt.at("ids").get<std::vector<TokenId>>();
    CHECK(engine->tokenizer().encode_prompt(prompt.at("text").get<std::string>()) == ids);
    const auto session = engine->session();
    auto logits = session->extend(ids);
    for (const auto& [token, margin] :
         prompt.at("path").get<std::vector<std::pair<int, double>>>()) {
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      ++found.places;
      if (best == token)
        ++found.same;
      else
        found.margin = std::max(found.margin, margin);
      logits = session->decode(token);
    }
  }
  return found;
}

double perplexity_of(const std::string& model, const std::string& text) {
  const Outcome outcome = chaski_run(
      {"eval", "--device", "cpu", "-m", model, "-f", text, "-c", "512", "--chunks", "2", "--json"});
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  return json::parse(outcome.out).at("perplexity");
}

// Memory limit: 1.1 times the file, plus the program, its vocabulary and the KV cache of a few
// hundred tokens, so no converted tensor may exist twice. This check runs first, because the system
// counts the peak of a parent process as the child's.
constexpr double kProgram = 49e6;
void check_memory(const std::string& model) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "All work and no play makes a dull day. ";
  const Outcome outcome =
      chaski_run({"run", "--device", "cpu", "-m", model, "-p", text, "-n", "2", "--temp", "0"});
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  const double file = double(std::filesystem::file_size(model)), most = double(outcome.peak_bytes);
  MESSAGE("memory at most: " << most / 1e6 << " MB, the file has " << file / 1e6);
  CHECK(most <= 1.1 * file + kProgram);
}

// The first start converts the file in memory, answers, and writes the copy for later starts.
void check_first_start(const std::string& model) {
  const TempFolder tmp;
  const OwnVariable cache("XDG_CACHE_HOME", tmp.path);
  Program program({"run", "--device", "cpu", "-m", model, "-p", "Once", "-n", "2"}, "");
  uint64_t most = 0;
  while (const uint64_t now = program.private_bytes()) {
    most = std::max(most, now);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const Outcome outcome = program.wait();
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  CHECK(std::filesystem::exists(tmp / "chaski/converted"));
  const double file = double(std::filesystem::file_size(model));
  MESSAGE("private memory at most: " << double(most) / 1e6 << " MB, the file has " << file / 1e6);
  CHECK(double(most) <= 1.1 * file);
}

// Activations of 8 bits move logits by tenths. So chaski must choose every token that exact
// arithmetic prefers by more than 0.5, and at least nine of ten tokens.
void check_model(const std::string& name, const std::string& file) {
  const std::string model = real(file);
  if (!have(model)) return;
  check_memory(model);
  check_first_start(model);
  const json expected = golden_of(name);
  const Agreement found = agreement(model, expected.at("prompts"));
  MESSAGE(name << ": " << found.same << " of " << found.places
               << " tokens are the exact ones, the others within " << found.margin);
  CHECK(found.places > 0);
  CHECK(10 * found.same >= 9 * found.places);
  CHECK(found.margin <= 0.5);
  const std::string text = data("eval/wiki.test.raw");
  if (!have(text)) return;
  const double perplexity = perplexity_of(model, text), exact = expected.at("perplexity");
  MESSAGE("perplexity " << perplexity << ", exactly " << exact);
  CHECK(std::abs(perplexity / exact - 1) <= 0.02);
}

}  // namespace

TEST_CASE("real/smollm2: llama, Q4_1") {
  check_model("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf");
}
TEST_CASE("real/qwen: qwen2, Q4_K_M with Q5_0") {
  check_model("qwen", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
}
TEST_CASE("real/gemma: gemma3, Q4_K_M with Q5_0, 262 144 tokens") {
  check_model("gemma", "gemma-3-270m-q4_k_m.gguf");
}
