// The program in a control group of memory: what does not fit is refused in a line, and the kernel
// never kills the program.
#include "tests/kit/memory_group.h"

#include <nlohmann/json.hpp>

using namespace chaski;
using namespace chaski::test;
using nlohmann::json;

TEST_CASE("memory group: a KV cache that does not fit is refused before the prompt is read") {
  if (has_address_sanitizer()) return;
  const MemoryGroup group(130'000'000);
  if (!group.made()) return;
  const auto bench = [&](const std::string& prompt) {
    return group.run({"bench", "--shape", "smollm-135m:q2", "-p", prompt, "-n", "0", "-r", "1",
                      "--kv", "f32", "-t", "1"});
  };
  check_one_line(bench("2048"), 4, "MB more memory, but only");
  const Outcome fits = bench("16");
  CHECK_MESSAGE(fits.status == 0, fits.err);
}

TEST_CASE(
    "memory group: the context that plan says fits can be filled, and an answer that does not "
    "fit ends in a line") {
  const char* const folder = std::getenv("CHASKI_REAL_MODELS");
  const std::string gguf =
      std::string(folder ? folder : "CHASKI_REAL_MODELS") + "/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!have(gguf) || has_address_sanitizer()) return;
  const MemoryGroup group(110'000'000);
  if (!group.made()) return;
  const TempFolder tmp;
  const std::string model = tmp / "model.quipu";
  REQUIRE(chaski_run({"convert", gguf, model}).status == 0);

  const Outcome plan = group.run({"plan", model, "--kv", "f32", "--json"});
  REQUIRE_MESSAGE(plan.status == 0, plan.err);
  const int longest = json::parse(plan.out).at("longest_context");
  CHECK(longest >= 1024);
  const auto digits = [](int tokens) {  // a token each
    std::string text;
    for (int i = 0; i < tokens; ++i) text += char('0' + i * i % 10);
    return text;
  };
  const Arguments run = {"run", "-m", model, "--kv", "f32", "--ignore-end", "-q"};
  const auto with = [&](int tokens, Arguments more) {
    more.insert(more.begin(), run.begin(), run.end());
    return group.run(more, digits(tokens));
  };
  const Outcome full = with(longest - 50, {"-c", std::to_string(longest)});
  CHECK_MESSAGE(full.status == 0, full.err);

  const Outcome beyond = with(longest - 30, {"-n", "700"});
  CHECK_MESSAGE(beyond.status == 4, beyond.err);
  CHECK_MESSAGE(beyond.error_says("; --kv f16 or q8 or q4_0 would fit"), beyond.err);
  CHECK(!beyond.out.empty());  // the answer so far

  check_one_line(with(16, {"-c", std::to_string(longest + 512)}), 4, "would fit");
  check_one_line(with(7000, {"-n", "1"}), 4, "the KV cache of a prompt of ");
}
