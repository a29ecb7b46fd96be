// The command line, by the real binary on real files: exit statuses, what stands on which stream,
// and what stays untouched.
#include <sys/mount.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/kit/program.h"

using namespace chaski::test;
using nlohmann::json;

namespace {

Arguments run_story(const Arguments& more) {
  Arguments all = {"run", "-m", kStory, "-p", "Once upon a time"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  return end == std::string::npos
             ? ""
             : text.substr(text.rfind('\n', end) + 1, end - text.rfind('\n', end));
}

std::string joined(const Arguments& arguments) {
  std::string line;
  for (const std::string& argument : arguments) line += argument + " ";
  return line;
}

}  // namespace

TEST_CASE("cli/help lists every subcommand and each has its own") {
  const Outcome help = chaski_run({"--help"});
  CHECK(help.status == 0);
  CHECK(help.err.empty());
  for (const char* name : {"run", "chat", "quantize", "convert", "inspect", "tokenize", "template",
                           "eval", "bench", "doctor"}) {
    CHECK_MESSAGE(help.out.find(std::string("\n  ") + name + " ") != std::string::npos, name);
    const Outcome own = chaski_run({name, "--help"});
    CHECK(own.status == 0);
    CHECK_MESSAGE(own.out.find("Usage: chaski " + std::string(name)) != std::string::npos, own.out);
  }
  CHECK(chaski_run({"--version"}).out.starts_with("chaski "));
}

TEST_CASE("cli/usage errors are one line and status 2") {
  const std::vector<std::pair<Arguments, std::string>> wrong = {
      {{}, "expected one of run, chat"},
      {{"frobnicate"}, "frobnicate"},
      {{"--bogus"}, "--bogus"},
      {{"run", "--bogus"}, "--bogus"},
      {{"run", "-n", "many", "-p", "a"}, "many"},
      {{"run", "-n", "-2", "-p", "a"}, "-2"},
      {{"run", "-t", "0", "-p", "a"}, "--threads"},
      {{"run", "-p", "a", "-f", "b"}, "--file"},
      {{"run", "--temp", "-1", "-p", "a"}, "-1"},
      {{"run", "--kv", "q3", "-p", "a"}, "q3"},
      {{"run", "--stop", "", "-p", "a"}, "--stop"},
      {{"run", "--device", "abacus", "-p", "a"}, "abacus"},
      {{"run", "-m", "x"}, "-p TEXT"},
      {{"quantize"},
       "IN is missing (model file or folder), expected chaski quantize [FLAG...] IN OUT [TYPE]"},
      {{"quantize", "x"}, "OUT is missing (the .quipu file to write), expected chaski quantize"},
      {{"quantize", "x", "y", "q4", "q8"},
       "q8 is a word too many, expected chaski quantize [FLAG...] IN OUT [TYPE]"},
      {{"quantize", "x", "y", "q4", "--type", "q8"},
       "--type is given twice, as q8 and by its place as q4, expected once"},
      {{"completion"}, "SHELL is missing ("},
      {{"plan", "x", "y"}, "y is a word too many, expected chaski plan [FLAG...] [MODEL]"},
      {{"bench", "--kv", "f16,q8,f16,q8,f16,q8"}, "--kv has 6 values, expected 5 at most"},
      {{"run", "--seed", "x"},
       "--seed: is \"x\", expected -1 (a random one) or a number from 0 to"},
      {{"run", "--seed", "-5"}, "--seed: is \"-5\", expected -1 (a random one) or a number"},
      {{"tokenize", "--decode", "-1"}, "--decode: is \"-1\", expected a number from 0 to"},
      {{"quantize", "x", "y", "--type", "q77"}, "q77"},
      {{"bench", "--shape", "enormous"}, "enormous"},
      {{"bench", "--shape", "llama-3.2-1b:q77"}, "q77"},
      {{"bench", "--shape", "llama-3.2-1b", "-m", "x"}, "--model"},
      {{"bench", "--shape", "llama-3.2-1b", "--load", "copy"}, "--load"},
      {{"bench", "--shape", "llama-3.2-1b", "--verify", "never"}, "--verify"},
      {{"bench", "-p", "1,x"}, "--prompt: is \"1,x\", expected numbers from 0"},
      {{"bench", "-p", "1,,8"}, "--prompt: is \"1,,8\""},
      {{"bench", "-p", ""}, "--prompt"},
      {{"bench", "--depth", "0,-1"}, "--depth: is \"0,-1\""},
      {{"bench", "--widths", "1,257"}, "--widths: is \"1,257\""},
      {{"bench", "--kv", "f16,q3"}, "q3"},
      {{"bench", "--csv", "--json"}, "--csv"},
      {{"bench", "--csv", "--profile"}, "--csv"},
      {{"run", "--kv", "f16,q8", "-p", "a"}, "f16,q8"},
      {{"run", "--load", "disk", "-p", "a"}, "disk"},
      {{"run", "--gpu-layers", "some", "-p", "a"}, "some"},
      {{"run", "--gpu-layers", "-1", "-p", "a"}, "-1"},
      {{"run", "--device", "cpu", "--gpu-layers", "2", "-p", "a"}, "--gpu-layers is 2"},
      {{"run", "--device", "cuda:", "-p", "a"}, "cuda:"},
      {{"run", "--device", "cuda:1x", "-p", "a"}, "cuda:1x"},
      {{"eval", "-c", "3", "-p", "a"}, "--ctx: is \"3\""},
      {{"eval", "--chunks", "-1", "-p", "a"}, "--chunks"},
      {{"eval", "--device", "cpu", "-p", "a"}, "expected at least the 512 of a window"},
      {{"bench", "--sequences", "0"}, "--sequences"},
      {{"bench", "--sgemm", "--device", "cuda"}, "--sgemm"},
  };
  for (const auto& [arguments, says] : wrong) {
    CAPTURE(joined(arguments));
    check_one_line(chaski_run(arguments), 2, says);
  }
}

TEST_CASE("cli/files that are missing or no models") {
  const TempFolder folder;
  std::ofstream(folder / "letter.txt") << "Dear reader, this is no model.\n";
  std::ofstream(folder / "empty.gguf");
  const std::vector<Arguments> commands = {{"run", "-p", "a", "-m"},
                                           {"inspect"},
                                           {"tokenize", "-p", "a", "-m"},
                                           {"chat", "--lines", "-m"}};
  for (const Arguments& command : commands) {
    const auto with = [&](const std::string& file) {
      Arguments all = command;
      all.push_back(file);
      return chaski_run(all);
    };
    CAPTURE(joined(command));
    check_one_line(with(folder / "nothing"), 5, "nothing: ");
    check_one_line(with(folder / "letter.txt"), 3, "letter.txt: ");
    check_one_line(with(folder / "empty.gguf"), 3, "empty.gguf: ");
    if (command[0] != "tokenize")
      check_one_line(with(folder.path), 3, "folder has no config.json, expected a .quipu");
  }
  check_one_line(chaski_run({"quantize", folder / "letter.txt", folder / "out.quipu"}), 3,
                 "letter.txt: ");
  check_one_line(chaski_run({"run", "-f", folder / "nothing"}), 5, "nothing: ");
}

TEST_CASE("cli/a note is said once, also where two models are opened") {
  const Outcome two = chaski_run({"run", "-v", "-p", "a", "-n", "1", "--draft", kStory});
  CHECK_MESSAGE(two.status == 0, two.err);
  const size_t first = two.err.find("note: on the CPU: ");
  if (first != std::string::npos)
    CHECK_MESSAGE(two.err.find("note: on the CPU: ", first + 1) == std::string::npos, two.err);
}

TEST_CASE("cli/a tokenizer file that a model would not read is refused") {
  const TempFolder folder;
  const std::string own = kStory, gguf = golden("gguf/tiny_llama_q8_0.gguf"),
                    hf = golden("models/gpt2");
  for (const Arguments& command : std::vector<Arguments>{{"run", "-p", "a", "-n", "1"},
                                                         {"run", "-p", "a", "-n", "1", "-m", own},
                                                         {"run", "-p", "a", "-n", "1", "-m", gguf},
                                                         {"chat", "--lines", "-m", own},
                                                         {"bench", "-p", "1", "-m", own},
                                                         {"tokenize", "-p", "a"},
                                                         {"tokenize", "-p", "a", "-m", hf},
                                                         {"inspect", own},
                                                         {"inspect", gguf},
                                                         {"convert", gguf, folder / "out.quipu"},
                                                         {"quantize", hf, folder / "out"},
                                                         {"bench", "--shape", "smollm-135m"}}) {
    Arguments all = command;
    all.insert(all.end(), {"--tokenizer", "tok.bin"});
    CAPTURE(joined(all));
    check_one_line(chaski_run(all), 2, "--tokenizer");
  }
  // One that brings its own may still draft for a model that does not.
  const std::string llama2c = data("models/stories260K.bin"), tokenizer = data("models/tok512.bin");
  if (!have(llama2c)) return;
  REQUIRE(chaski_run({"convert", llama2c, folder / "draft.quipu"}).status == 0);
  const Outcome drafted = chaski_run({"run", "-m", llama2c, "--tokenizer", tokenizer, "--draft",
                                      folder / "draft.quipu", "-p", "Once", "-n", "4"});
  CHECK_MESSAGE(drafted.status == 0, drafted.err);
}

TEST_CASE("cli/a device that is not there") {
  check_one_line(chaski_run({"run", "--device", "cuda:99", "-p", "a"}), 6, "cuda:99");
  setenv("CUDA_VISIBLE_DEVICES", "", 1);  // also where there is a GPU
  for (const Arguments& command :
       std::vector<Arguments>{{"run", "-p", "a"}, {"chat", "--lines"}, {"bench", "-p", "1"}}) {
    Arguments all = command;
    all.insert(all.end(), {"--device", "cuda"});
    CAPTURE(joined(all));
    check_one_line(chaski_run(all), 6, "--device is cuda, but ");
  }
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_CASE("cli/the bundled model tells a story, on stdout only") {
  const Outcome story = chaski_run({"run", "--device", "cpu", "-n", "40", "--seed", "7"});
  CHECK_MESSAGE(story.status == 0, story.err);
  CHECK(story.out.starts_with("Once upon a time"));
  CHECK(story.out.size() > 40);
  CHECK(story.out.find("tok/s") == std::string::npos);
  CHECK_MESSAGE(story.err.starts_with("prompt "), story.err);
  CHECK(story.err.ends_with("; seed 7\n"));
  CHECK(std::count(story.err.begin(), story.err.end(), '\n') == 1);
  const Outcome json_story = chaski_run({"run", "-n", "40", "--seed", "7", "--json"});
  // in a pipe too the story ends its line
  CHECK(std::string(json::parse(json_story.out)["text"]) + "\n" == story.out);
}

TEST_CASE("cli/the closing line says nothing of memory when the weights stay in a cache") {
  const Outcome story = chaski_run({"run", "--device", "cpu", "-n", "40", "--seed", "7", "-v"});
  CHECK_MESSAGE(story.status == 0, story.err);
  CHECK_MESSAGE(!story.error_says("that memory gives"), story.err);
}

TEST_CASE("cli/same seed, same bytes, whatever the threads; another seed, other bytes") {
  const std::string text = chaski_run(run_story({"--seed", "5", "-n", "60"})).out;
  CHECK(!text.empty());
  for (const char* threads : {"1", "3"})
    CHECK(chaski_run(run_story({"--seed", "5", "-n", "60", "-t", threads})).out == text);
  CHECK(chaski_run(run_story({"--seed", "6", "-n", "60"})).out != text);
  // Guesses come once a hundredth of the time pays for them.
  const auto longer = [](const std::string& who) {
    return chaski_run(
        run_story({"--seed", "5", "-n", "400", "--ignore-end", "-v", "--draft", who}));
  };
  const Outcome draft = longer(kStory);
  CHECK(draft.out == longer("none").out);
  CHECK_MESSAGE(draft.error_says(" guesses right"), draft.err);
  // A random seed is told, and gives the same text again.
  const Outcome free = chaski_run(run_story({"-n", "60"}));
  const std::string seed =
      free.err.substr(free.err.rfind(' ') + 1, free.err.size() - free.err.rfind(' ') - 2);
  CHECK(chaski_run(run_story({"--seed", seed, "-n", "60"})).out == free.out);
}

TEST_CASE("cli/prompts from -p, -f and standard input are the same") {
  const TempFolder folder;
  std::ofstream(folder / "prompt") << "Once upon a time";
  const std::string text = chaski_run(run_story({"--temp", "0", "-n", "30"})).out;
  CHECK(chaski_run({"run", "-m", kStory, "-f", folder / "prompt", "--temp", "0", "-n", "30"}).out ==
        text);
  CHECK(chaski_run({"run", "-m", kStory, "--temp", "0", "-n", "30"}, "Once upon a time").out ==
        text);
  CHECK(chaski_run(run_story({"-n", "0"})).out.empty());
  const std::string cut =
      chaski_run(run_story({"--temp", "0", "-n", "30", "--stop", "Lily", "--stop", "zebra"})).out;
  CHECK(cut == text.substr(0, text.find("Lily")));
  CHECK(cut != text);
}

TEST_CASE("cli/run --json is one object with the text and the rates") {
  const Outcome outcome = chaski_run(run_story({"--seed", "5", "-n", "30", "--json"}));
  const json object = json::parse(outcome.out);
  CHECK(object["text"] == chaski_run(run_story({"--seed", "5", "-n", "30"})).out);
  CHECK(object["finish"] == "length");
  CHECK(object["answer_tokens"] == 30);
  CHECK(object["seed"] == 5);
  CHECK(object["prompt_tokens_per_second"].get<double>() > 0);
  CHECK(object["decode_tokens_per_second"].get<double>() > 0);
}

TEST_CASE("cli/run --logprobs: of every token, and of those it was chosen from") {
  const Outcome outcome =
      chaski_run(run_story({"-n", "10", "--temp", "0", "--logprobs", "3", "--json"}));
  const json object = json::parse(outcome.out);
  const json& list = object["log_probabilities"];
  REQUIRE(list.size() == object["answer_ids"].size());
  for (size_t i = 0; i < list.size(); ++i) {
    CHECK(list[i]["id"] == object["answer_ids"][i]);
    REQUIRE(list[i]["most_probable"].size() == 3);
    CHECK(list[i]["most_probable"][0]["id"] == list[i]["id"]);  // greedy
    CHECK(list[i]["most_probable"][0]["log_probability"] == list[i]["log_probability"]);
    CHECK(list[i]["log_probability"].get<double>() < 0);
  }
  check_one_line(chaski_run(run_story({"--logprobs", "3"})), 2, "--json");
}

TEST_CASE("cli/samplers: what is asked for works, what cannot be is refused") {
  const std::string plain = chaski_run(run_story({"-n", "30", "--seed", "5"})).out;
  const auto with = [](const Arguments& more) {
    Arguments all = {"-n", "30", "--seed", "5"};
    all.insert(all.end(), more.begin(), more.end());
    return chaski_run(run_story(all));
  };
  // The order that is the default, in llama.cpp's spelling.
  CHECK(with({"--samplers", "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"})
            .out == plain);
  CHECK(with({"--top-k", "0", "--top-p", "1", "--min-p", "0", "--temp", "1"}).out ==
        with({"--samplers", "temperature", "--temp", "1"}).out);
  CHECK(with({"--ban", "little", "--ban", "a"}).out.find('a') == std::string::npos);
  for (const auto& [flags, error] : std::vector<std::pair<Arguments, std::string>>{
           {{"--samplers", "top-k,nonsense"}, "--samplers has nonsense, expected penalties, "},
           {{"--samplers", "top-k,top-k"}, "--samplers has top-k twice"},
           {{"--samplers", "top-k,dry"}, "--samplers has dry behind top-k"},
           {{"--logit-bias", "5"}, "--logit-bias is 5, expected a token id"},
           {{"--logit-bias", "5+x"}, "--logit-bias is 5+x"},
           {{"--logit-bias", "999999+1"}, "--logit-bias has token 999999, expected 0 to "},
           {{"--logit-bias", "5+1e39"}, "--logit-bias is 5+1e39, expected"},
           {{"--dry-sequence-breaker", ""}, "--dry-sequence-breaker: is \"\", expected a text"},
           {{"--ban", ""}, "--ban is empty"},
           {{"--", "x"}, "x has no flag in front of it"},
           {{"--mirostat", "1"}, "--mirostat is 1, expected 0 or 2"},
           {{"--dynatemp-range", "1"}, "--dynatemp-range is 1, expected 0 to --temp"}})
    check_one_line(with(flags), 2, error);
}

TEST_CASE("cli/run --answers: each is what its seed alone gives, and the prompt is read once") {
  for (const std::string draft : {"auto", "none"}) {
    CAPTURE(draft);
    const Arguments common = {"-n", "25", "--draft", draft};
    const auto with = [&](Arguments more) {
      more.insert(more.end(), common.begin(), common.end());
      return chaski_run(run_story(more));
    };
    std::vector<std::string> alone;
    std::string want;
    for (int i = 0; i < 3; ++i) {
      const std::string seed = std::to_string(40 + i);
      alone.push_back(with({"--seed", seed}).out);
      want += "--- answer " + std::to_string(i + 1) + " of 3, seed " + seed + " ---\n" +
              alone.back() + "\n";
    }
    const Outcome all = with({"--seed", "40", "--answers", "3"});
    CHECK(all.out == want);
    CHECK_MESSAGE(all.error_says("3 answers to a prompt of 5 tokens"), all.err);
    const json array = json::parse(with({"--seed", "40", "--answers", "3", "--json"}).out);
    REQUIRE(array.size() == 3);
    for (size_t i = 0; i < 3; ++i) {
      CHECK(array[i]["text"] == alone[i]);
      CHECK(array[i]["seed"] == 40 + i);
    }
    const json best = json::parse(with({"--seed", "40", "--best-of", "3", "--json"}).out);
    CHECK(best["mean_log_probability"].get<double>() < 0);
    CHECK(best["text"] == alone[best["seed"].get<size_t>() - 40]);
    CHECK(with({"--seed", "40", "--best-of", "3"}).out == best["text"].get<std::string>());
  }
  check_one_line(chaski_run(run_story({"--answers", "2", "--best-of", "2"})), 2, "--best-of");
  check_one_line(chaski_run(run_story({"--answers", "0"})), 2, "--answers");
}

TEST_CASE(
    "cli/run --beam: one is greedy, all have scores, and what does not go with it is refused") {
  const std::string greedy = chaski_run(run_story({"--temp", "0", "-n", "40"})).out;
  CHECK(chaski_run(run_story({"--beam", "1", "-n", "40"})).out == greedy);
  const Outcome four = chaski_run(run_story({"--beam", "4", "-n", "40"}));
  CHECK_MESSAGE(four.status == 0, four.err);
  CHECK_MESSAGE(four.error_says("4 beams of a prompt of 5 tokens"), four.err);
  for (const char* threads : {"1", "3"})
    CHECK(chaski_run(run_story({"--beam", "4", "-n", "40", "--temp", "0", "-t", threads})).out ==
          four.out);
  const json all = json::parse(chaski_run(run_story({"--beam", "4", "-n", "40", "--json"})).out);
  REQUIRE(all.size() == 4);
  CHECK(all[0]["text"] == four.out);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(all[i]["answer"] == i + 1);
    CHECK(all[i]["score"].get<double>() < 0);
    if (i > 0) CHECK(all[i]["score"] <= all[i - 1]["score"]);
  }
  const json short_one = json::parse(
      chaski_run(run_story({"--beam", "2", "--length-penalty", "0", "-n", "4", "--json"})).out);
  // The sum is what --logprobs says of these tokens.
  const json tokens = json::parse(
      chaski_run(run_story({"--temp", "0", "-n", "4", "--logprobs", "1", "--json"})).out);
  double sum = 0;
  for (const json& token : tokens["log_probabilities"])
    sum += token["log_probability"].get<double>();
  CHECK(short_one[0]["score"].get<double>() >= sum);
  for (const auto& [flags, error] : std::vector<std::pair<Arguments, std::string>>{
           {{"--beam", "2", "--temp", "0.5"}, "--temp is 0.5 beside --beam, expected 0"},
           {{"--beam", "2", "--draft", kStory}, " beside --beam, expected none"},
           {{"--beam", "2", "--answers", "2"}, "--beam"},
           {{"--beam", "2", "--cache", "/tmp/x"}, "--beam"},
           {{"--beam", "2", "--regex", "a*"}, "--regex beside --beam, expected one of them"},
           {{"--beam", "2", "--context-policy", "shift"},
            "--context-policy is shift beside --beam"},
           {{"--beam", "2", "--length-penalty", "-1"}, "--length-penalty is -1, expected 0 to 10"},
           {{"--length-penalty", "1"}, "expected --beam N beside it"},
           {{"--beam", "0"}, "--beam"}})
    check_one_line(chaski_run(run_story(flags)), 2, error);
  // What is no part of a search is named, as it was typed, and once.
  const Outcome idle =
      chaski_run(run_story({"--beam", "4", "-n", "40", "--top-k", "5", "--seed", "3", "--mirostat",
                            "2", "--draft-len", "2", "--samplers", "top-k"}));
  CHECK(idle.out == four.out);
  CHECK_MESSAGE(idle.error_says("note: --seed, --top-k, --mirostat, --draft-len, --samplers have "
                                "no effect beside --beam: nothing is drawn\n"),
                idle.err);
  CHECK_MESSAGE(!idle.error_says("--temp"), idle.err);
  // But penalties are a step, and left out if it is.
  const Arguments penalty = {"--beam", "4", "-n", "40", "--repeat-penalty", "1.5"};
  Arguments without = penalty;
  without.insert(without.end(), {"--samplers", "top-k"});
  const Outcome left_out = chaski_run(run_story(without));
  CHECK(left_out.out == four.out);
  CHECK_MESSAGE(!left_out.error_says("--samplers"), left_out.err);
  CHECK(chaski_run(run_story(penalty)).out != four.out);
  check_one_line(chaski_run(run_story({"--beam", "2", "--top-p", "7"})), 2, "--top-p is 7");
}

TEST_CASE("cli/the end of a context is said, and why a text ended") {
  const auto told = [](const Arguments& more) {
    Arguments all = {"--seed", "3", "--ignore-end", "-c", "64"};
    all.insert(all.end(), more.begin(), more.end());
    return chaski_run(run_story(all));
  };
  const Outcome stopped = told({});
  CHECK_MESSAGE(stopped.error_says("the context of 64 tokens is full, the text ends here"),
                stopped.err);
  CHECK(stopped.error_says("; ended because the context is full; "));
  CHECK(json::parse(told({"--json"}).out)["finish"] == "full");  // as --help and docs/json.md say
  for (const std::string policy : {"shift", "sinks"}) {
    const Outcome shifted = told({"--context-policy", policy, "-n", "100"});
    CHECK(shifted.out.starts_with(stopped.out));
    CHECK(shifted.out.size() > stopped.out.size());
    CHECK_MESSAGE(shifted.error_says("the context of 64 tokens is full: "), shifted.err);
    CHECK(shifted.error_says("; ended by -n; "));
  }
  const json object = json::parse(told({"--stop", "a", "--json"}).out);
  CHECK(object["finish"] == "stop");
  CHECK(object["why"] == "ended before a --stop text");
}

TEST_CASE("cli/chat --context-policy: what no longer fits is dropped and said") {
  std::string questions;
  for (int i = 0; i < 6; ++i) questions += "Tell me of a cat and a dog who play with a ball.\n";
  const Arguments arguments = {"chat", "--lines", "-m",  kStory,        "-n",
                               "20",   "-c",      "128", "--ignore-end"};
  const Outcome refused = chaski_run(arguments, questions);
  CHECK(refused.status == 7);
  CHECK_MESSAGE(last_line(refused.err).find("--context-policy shift") != std::string::npos,
                refused.err);
  Arguments shift = arguments;
  shift.insert(shift.end(), {"--context-policy", "shift", "--system", "Be kind."});
  const Outcome outcome = chaski_run(shift, questions);
  CHECK_MESSAGE(outcome.status == 0, outcome.err);
  CHECK_MESSAGE(outcome.error_says("oldest messages are dropped"), outcome.err);
  CHECK(std::count(outcome.out.begin(), outcome.out.end(), '\n') >= 6);
}

TEST_CASE("cli/chat: of a conversation that is longer than the context, no more is used") {
  const Outcome shown = chaski_run({"chat", "--lines", "-m", kStory, "-c", "64", "-n", "80",
                                    "--ignore-end", "--seed", "1", "--context-policy", "shift"},
                                   "A dog.\n/show\n/tokens\n");
  CHECK_MESSAGE(shown.error_says("context:  64 of 64 tokens (the conversation has "), shown.err);
  CHECK_MESSAGE(shown.error_says("\n64 of 64 tokens (the conversation has "), shown.err);
}

TEST_CASE("cli/a prompt longer than the context") {
  std::string text;
  for (int i = 0; i < 600; ++i) text += "word ";
  const Outcome outcome = chaski_run({"run", "-m", kStory, "-n", "1"}, text);
  CHECK(outcome.status == 7);
  CHECK(outcome.out.empty());
  CHECK_MESSAGE(outcome.error_says("512"), outcome.err);
}

TEST_CASE("cli/a context that memory cannot hold is refused before a page is taken") {
  const Outcome outcome =
      chaski_run({"run", "-m", kStory, "-p", "a", "-n", "1", "-c", "2000000000"});
  CHECK(outcome.status == 4);
  CHECK_MESSAGE(last_line(outcome.err).find("a context of 2000000000 keeps") != std::string::npos,
                outcome.err);
}

TEST_CASE("cli/stdout that cannot be written: full device 5, closed pipe 141") {
  Program full(run_story({"-n", "20"}), "", "/dev/full");
  const Outcome outcome = full.wait();
  CHECK(outcome.status == 5);
  CHECK(last_line(outcome.err).starts_with("chaski: error: standard output: "));
  const std::string pipe =
      chaski_binary() + " run -m " + kStory +
      " -p Once --ignore-end 2>/dev/null | head -c 1 >/dev/null; exit ${PIPESTATUS[0]}";
  CHECK(WEXITSTATUS(std::system(("bash -c '" + pipe + "'").c_str())) == 141);
}

namespace {

// A run that takes seconds: the slowest kernels, one thread.
Outcome interrupted_by(int signal) {
  setenv("CHASKI_ISA", "scalar", 1);
  Program program({"run", "-m", kStory, "-p", "Once", "--ignore-end", "-t", "1"}, "");
  unsetenv("CHASKI_ISA");
  for (int i = 0; i < 1000 && program.out_so_far().empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  program.signal(signal);
  return program.wait();
}

}  // namespace

TEST_CASE("cli/SIGINT and SIGTERM end a run with its timing line") {
  for (const auto& [signal, status] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    const Outcome outcome = interrupted_by(signal);
    CHECK(outcome.status == status);
    CHECK(!outcome.out.empty());
    CHECK_MESSAGE(last_line(outcome.err).starts_with("prompt "), outcome.err);
  }
}

TEST_CASE("cli/quantize prints sizes, formats and errors, and the result runs") {
  const TempFolder folder;
  const Outcome outcome = chaski_run(
      {"quantize", golden("models/llama_gqa_untied"), folder / "q8.quipu", "--type", "q8"});
  CHECK_MESSAGE(outcome.status == 0, outcome.err);
  CHECK(outcome.err.empty());
  CHECK(contains(squeezed(outcome.out), "layer.0.attn_q f32 -> q8"));
  CHECK(outcome.out.find("norms and biases keep f32") != std::string::npos);
  CHECK(outcome.out.find("weights 0.31 MB -> 0.08 MB") != std::string::npos);
  CHECK(chaski_run({"inspect", folder / "q8.quipu", "--verify"}).status == 0);

  const Outcome again = chaski_run({"quantize", kStory, folder / "q4.quipu", "--json"});
  CHECK_MESSAGE(again.error_says("(q8) were encoded again, which loses a second time"), again.err);
  const Outcome larger = chaski_run({"quantize", kStory, folder / "f16.quipu", "--type", "f16"});
  CHECK_MESSAGE(larger.error_says("the weights did not get smaller"), larger.err);
  const json report = json::parse(again.out);
  CHECK(report["type"] == "q4");
  CHECK(report["tensors"][0]["from"] == "q8");
  CHECK(report["bytes_after"] < report["bytes_before"]);
  CHECK(!chaski_run({"run", "-m", folder / "q4.quipu", "-p", "Once", "-n", "10"}).out.empty());
}

TEST_CASE("cli/an output that is the input is refused before a byte is written") {
  const TempFolder folder;
  const std::string model = folder / "model.quipu";
  std::filesystem::copy_file(kStory, model);
  std::filesystem::permissions(model, std::filesystem::perms::owner_write,
                               std::filesystem::perm_options::add);
  std::filesystem::create_symlink("model.quipu", folder / "symlink.quipu");
  std::filesystem::create_hard_link(model, folder / "hardlink.quipu");
  for (const char* command : {"quantize", "convert"})
    for (const char* out : {"model.quipu", "symlink.quipu", "hardlink.quipu"}) {
      const Outcome outcome = chaski_run({command, model, folder / out});
      CHECK(outcome.status == 2);
      CHECK_MESSAGE(last_line(outcome.err).find("input") != std::string::npos, outcome.err);
      CHECK(read_file(model) == read_file(kStory));
    }
}

TEST_CASE("cli/an output that cannot be written is refused before the model is read") {
  const TempFolder folder;
  const Outcome outcome = chaski_run({"quantize", kStory, folder / "none/out.quipu"});
  CHECK(outcome.status == 5);
  CHECK_MESSAGE(last_line(outcome.err).find("no such file or directory") != std::string::npos,
                outcome.err);
  CHECK(outcome.out.empty());
}

TEST_CASE("cli/a disk that is full: status 5, the old file is whole, nothing is left behind") {
  const TempFolder folder;
  const std::string disk = folder / "disk";
  std::filesystem::create_directory(disk);
  if (::mount("none", disk.c_str(), "tmpfs", 0, "size=128k") != 0) {
    std::fprintf(stderr, "SKIPPED: no right to mount a small tmpfs\n");
    return;
  }
  std::ofstream(disk + "/out.quipu") << "the old file";
  for (const Arguments& command :
       std::vector<Arguments>{{"quantize", "--type", "q8"}, {"convert"}}) {
    Arguments all = command;
    all.insert(all.end(), {kStory, disk + "/out.quipu"});
    const Outcome outcome = chaski_run(all);
    CHECK(outcome.status == 5);
    CHECK_MESSAGE(last_line(outcome.err).find("out.quipu") != std::string::npos, outcome.err);
    CHECK(read_file(disk + "/out.quipu") == "the old file");
    CHECK(std::distance(std::filesystem::directory_iterator(disk), {}) == 1);
  }
  ::umount(disk.c_str());
}

TEST_CASE("cli/convert to GGUF and back keeps every weight and the text") {
  const TempFolder folder;
  CHECK(chaski_run({"convert", kStory, folder / "a.quipu"}).status == 0);
  CHECK(chaski_run({"convert", folder / "a.quipu", folder / "b.gguf"}).status == 0);
  CHECK(chaski_run({"convert", folder / "b.gguf", folder / "c.quipu", "-t", "3"}).status == 0);
  const std::string text = chaski_run(run_story({"--seed", "5", "-n", "60"})).out;
  for (const char* file : {"a.quipu", "b.gguf", "c.quipu"})
    CHECK(chaski_run(
              {"run", "-m", folder / file, "-p", "Once upon a time", "--seed", "5", "-n", "60"})
              .out == text);
  CHECK(json::parse(chaski_run({"inspect", folder / "a.quipu", "--json"}).out)["tensors"] ==
        json::parse(chaski_run({"inspect", folder / "c.quipu", "--json"}).out)["tensors"]);
}

// Folders that others packed, kept in chaski's own file, and no GGUF of another model.
TEST_CASE("cli/packed folders are converted and keep their formats") {
  TempFolder folder;
  for (const auto& [name, format] :
       {std::pair("bnb4", "nf4"), {"fp8", "f8s"}, {"nvfp4", "nvfp4s"}, {"gptq4_mixed", "q5_0"}}) {
    CAPTURE(name);
    const std::string packed = golden(std::string("packed/") + name);
    const Outcome made = chaski_run({"convert", packed, folder / "model.quipu"});
    CHECK_MESSAGE(made.status == 0, made.err);
    const std::string table = chaski_run({"inspect", folder / "model.quipu", "--verify"}).out;
    CHECK_MESSAGE(table.find(format) != std::string::npos, table);
    const Outcome refused = chaski_run({"convert", packed, folder / "model.gguf"});
    CHECK_MESSAGE(refused.status == 3, refused.err);
    CHECK(refused.err.find("which GGUF lacks") != std::string::npos);
  }
}

TEST_CASE("cli/convert --layout: a folder that chaski reads, which is not written over") {
  const TempFolder folder;
  REQUIRE(chaski_run({"quantize", kStory, folder / "a.quipu", "--type", "q4_0", "--fast",
                      "--keep-above", "1"})
              .status == 0);
  for (const std::string layout : {"gptq", "awq"}) {
    const std::string out = folder / layout;
    const Outcome made = chaski_run({"convert", folder / "a.quipu", out, "--layout", layout});
    CHECK_MESSAGE(made.status == 0, made.err);
    CHECK_MESSAGE(made.error_says(out + ": weights take "), made.err);
    CHECK_MESSAGE(made.error_says(": model.embed_tokens.weight, q8 before, is f32 here ("),
                  made.err);
    CHECK_MESSAGE(made.error_says("), because the layout has embedding and head as floats only\n"),
                  made.err);
    CHECK(json::parse(read_file(out + "/config.json"))["torch_dtype"] == "float32");
    CHECK(json::parse(
              chaski_run({"inspect", out, "--json"}).out)["metadata"]["model.block_count"] == 6);
    // What is there stays.
    const Outcome again = chaski_run({"convert", folder / "a.quipu", out, "--layout", layout});
    CHECK(again.status == 2);
    CHECK_MESSAGE(again.error_says("holds a model already"), again.err);
    // The tokenizer is the model's, as a Hugging Face folder has it.
    const std::string text =
        "Once, 12 dogs'll  run.\n\nThey\tsay \u00e9\u4f60\U0001f600 <|endoftext|> ";
    const auto tokens = [&](const std::string& model) {
      return chaski_run({"tokenize", "-m", model, "-p", text, "--json"}).out;
    };
    CHECK(json::parse(tokens(out))["tokens"].size() > 10);
    CHECK(tokens(out) == tokens(folder / "a.quipu"));
    const json tokenizer = json::parse(read_file(out + "/tokenizer.json"));
    CHECK(tokenizer["model"]["vocab"].size() == 3072);
    CHECK(tokenizer["model"]["merges"].size() == 2815);
    CHECK(tokenizer["added_tokens"][0]["content"] == "<|endoftext|>");
    CHECK(tokenizer["post_processor"]["single"][0]["SpecialToken"]["id"] == "<|endoftext|>");
    CHECK(json::parse(read_file(out + "/tokenizer_config.json"))["model_max_length"] == 512);
    CHECK(chaski_run({"run", "-m", out, "-p", "Once", "-n", "3"}).status == 0);
    CHECK(chaski_run({"plan", out}).status == 0);
  }
  // Nothing that is there for something else is mixed with it, and a tokenizer is the model's.
  const std::string full = folder / "full";
  std::filesystem::create_directory(full);
  write_file(full + "/tokenizer.json", "{}");
  write_file(full + "/model-00001-of-00002.safetensors", "x");
  const Outcome mixed = chaski_run({"convert", folder / "a.quipu", full, "--layout", "gptq"});
  CHECK(mixed.status == 2);
  CHECK_MESSAGE(
      mixed.error_says("full: holds other files (model-00001-of-00002.safetensors), expected a new "
                       "or an empty folder"),
      mixed.err);
  std::filesystem::remove(full + "/model-00001-of-00002.safetensors");
  write_file(full + "/merges.txt", "");
  const Outcome over = chaski_run({"convert", folder / "a.quipu", full, "--layout", "gptq"});
  CHECK(over.status == 0);
  CHECK_MESSAGE(over.error_says("there before, and may be another model's\n"), over.err);
  CHECK_MESSAGE(over.error_says("merges.txt"), over.err);
  CHECK_MESSAGE(over.error_says("tokenizer.json"), over.err);
  CHECK(read_file(full + "/tokenizer.json") == "{}");
  // What fails leaves nothing.
  const Outcome cut =
      Program({"-c", "ulimit -f 8; trap '' XFSZ; exec " + chaski_binary() + " convert " +
                         folder / "a.quipu" + " " + folder / "cut" + " --layout gptq"},
              "", "", "/bin/sh")
          .wait();
  CHECK_MESSAGE(cut.status == 5, cut.err);
  CHECK_FALSE(std::filesystem::exists(folder / "cut"));
  // A head that is not the embedding grows too.
  REQUIRE(chaski_run({"quantize", golden("models/llama_gqa_untied"), folder / "b.quipu", "q8"})
              .status == 0);
  const Outcome both =
      chaski_run({"convert", folder / "b.quipu", folder / "both", "--layout", "gptq"});
  CHECK_MESSAGE(both.error_says("; model.embed_tokens.weight, q8 before, is f32 here ("), both.err);
  CHECK_MESSAGE(both.error_says(": lm_head.weight, q8 before, is f32 here ("), both.err);
  const Outcome floats =
      chaski_run({"convert", golden("models/llama_f16"), folder / "d", "--layout", "awq"});
  CHECK(floats.status == 3);
  CHECK_MESSAGE(floats.error_says("'chaski quantize --type q4_0 --keep-above 1' of it makes"),
                floats.err);
  // A model without one: it is said what to do, and that it does not run.
  REQUIRE(chaski_run({"quantize", golden("models/llama_gqa_untied"), folder / "bare.quipu", "q4_0",
                      "--keep-above", "1"})
              .status == 0);
  const Outcome bare =
      chaski_run({"convert", folder / "bare.quipu", folder / "bare", "--layout", "gptq"});
  CHECK_MESSAGE(bare.status == 0, bare.err);
  CHECK_MESSAGE(bare.error_says("bare: has no tokenizer yet (the model has none): copy "
                                "tokenizer.json and tokenizer_config.json into it"),
                bare.err);
  const Outcome plan = chaski_run({"plan", folder / "bare"});
  CHECK(plan.status == 3);
  CHECK_MESSAGE(
      plan.out.find("\nit does not run, because it has no tokenizer (tokenizer.json in "
                    "its folder would be one); as for memory, it fits, ") != std::string::npos,
      plan.out);
  CHECK(json::parse(chaski_run({"plan", folder / "bare", "--json"}).out)["starts"] == false);
  check_one_line(chaski_run({"convert", kStory, folder / "b.gguf", "--layout", "gptq"}), 2,
                 "expected a folder beside --layout gptq");
  check_one_line(chaski_run({"convert", folder / "a.quipu", folder / "c", "--layout", "exl2"}), 2,
                 "gptq");
}

TEST_CASE("cli/convert writes what its name says, and no other name") {
  const TempFolder folder;
  for (const char* name : {"a.txt", "a", "a.quipu.bak"}) {
    check_one_line(chaski_run({"convert", kStory, folder / name}), 2,
                   "expected one that ends in .quipu or .gguf");
    CHECK(!std::filesystem::exists(folder / name));
  }
}

TEST_CASE("cli/the columns of inspect never touch") {
  const TempFolder folder;
  const std::string model = folder / "model";
  std::filesystem::copy(golden("models/qwen2"), model);
  const std::string table = chaski_run({"inspect", model}).out;
  std::istringstream lines(table);
  std::vector<size_t> bytes_at;
  for (std::string line; std::getline(lines, line);)
    if (const size_t at = line.find(" bytes"); line.starts_with("  ") && at == line.size() - 6)
      bytes_at.push_back(at);
  CHECK(bytes_at.size() > 10);
  CHECK(
      std::all_of(bytes_at.begin(), bytes_at.end(), [&](size_t at) { return at == bytes_at[0]; }));
}

TEST_CASE("cli/inspect and its damaged file") {
  const TempFolder folder;
  CHECK(chaski_run({"convert", kStory, folder / "a.quipu"}).status == 0);
  const json object =
      json::parse(chaski_run({"inspect", folder / "a.quipu", "--json", "--verify"}).out);
  CHECK(object["verified"] == true);
  CHECK(object["metadata"]["model.block_count"] == 6);
  CHECK(object["metadata"]["tokenizer.add_bos"] == true);
  CHECK(object["bits_per_weight"].get<double>() > 8.5);
  uint64_t bytes = 0;
  for (const json& tensor : object["tensors"]) bytes += tensor["bytes"].get<uint64_t>();
  CHECK(object["weight_bytes"] == bytes);
  const std::string table = chaski_run({"inspect", folder / "a.quipu"}).out;
  CHECK(contains(squeezed(table), "model.block_count 6\n"));
  CHECK(table.find("(3072 items)") != std::string::npos);
  // heads x widths of keys and values x 2 bytes x layers x 1024
  const int64_t kept = int64_t(object["states"]["bytes_per_1024_tokens"]);
  CHECK(kept == 1024 * 2 * 2 * 6 * object["metadata"]["model.head_count_kv"].get<int64_t>() *
                    object["metadata"]["model.head_dim"].get<int64_t>());
  CHECK(table.find("\na sequence keeps, in f16, " + std::to_string(kept) +
                   " bytes per 1024 tokens of context\n") != std::string::npos);
  const std::string windows = chaski_run({"inspect", golden("models/mistral_window")}).out;
  CHECK(windows.find(", in windows at most ") != std::string::npos);

  std::string damaged = read_file(folder / "a.quipu");
  damaged[damaged.size() - 100] ^= 1;
  std::ofstream(folder / "b.quipu", std::ios::binary) << damaged;
  CHECK(chaski_run({"inspect", folder / "b.quipu"}).status == 0);
  check_one_line(chaski_run({"inspect", folder / "b.quipu", "--verify"}), 3,
                 "b.quipu: the file is damaged: tensor ");
  check_one_line(chaski_run({"inspect", golden("gguf/tiny_llama_q8_0.gguf"), "--verify"}), 2,
                 "expected a .quipu file");
}

TEST_CASE("cli/tokenize and back") {
  const std::string text = "Once upon a t\xc3\xafme, <s> there\nwas \xf0\x9f\xa6\x99.";
  const Outcome ids = chaski_run({"tokenize", "-m", kStory, "--ids"}, text);
  CHECK_MESSAGE(ids.status == 0, ids.err);
  Arguments back = {"tokenize", "-m", kStory, "--decode"};
  std::istringstream words(ids.out);
  for (std::string id; words >> id;) back.push_back(id);
  CHECK(chaski_run(back).out == text);
  const json object = json::parse(chaski_run({"tokenize", "-m", kStory, "--json", "-p", text}).out);
  CHECK(object["count"] == back.size() - 4);
  CHECK(object["tokens"][0]["control"] == true);
  check_one_line(chaski_run({"tokenize", "-m", kStory, "--decode", "3072"}), 2, "3072");
}

TEST_CASE("cli/chat over a pipe: an answer per question, commands, the end") {
  const Arguments chat = {"chat", "--lines", "-m", kStory, "-n", "12", "--seed", "3"};
  const Outcome two =
      chaski_run(chat, "Tell me a story.\n\n/help\n/nonsense\nAnd then?\n/quit\nnever read\n");
  CHECK_MESSAGE(two.status == 2, two.err);  // as the first command that failed says
  CHECK(chaski_run(chat, "Hello.\n/clear\n").status == 0);
  CHECK(two.out.find("> ") == std::string::npos);
  CHECK(two.error_says("/clear           start a new conversation"));
  CHECK(two.error_says("/nonsense is not a command"));
  // The first answer is the same alone; after /clear the second question is a first one.
  const Outcome one = chaski_run(chat, "Tell me a story.\n");
  CHECK(!one.out.empty());
  CHECK(two.out.starts_with(one.out));
  CHECK(two.out.size() > one.out.size());
  const Outcome cleared = chaski_run(chat, "Tell me a story.\n/clear\nTell me a story.\n");
  CHECK(cleared.out == one.out + one.out);
}

TEST_CASE("cli/chat: commands about the conversation") {
  const TempFolder folder;
  const std::string talk = folder / "talk.json", other = folder / "other.json";
  const Arguments chat = {"chat", "--lines", "-m", kStory, "-n", "6", "--seed", "3"};
  const auto messages = [&](const std::string& path) { return json::parse(read_file(path)); };

  const Outcome first = chaski_run(chat, "A dog.\n/tokens\n/save " + talk + "\n");
  CHECK(first.error_says(" of 512 tokens\n"));
  CHECK(first.error_says("2 messages in " + talk));
  CHECK(messages(talk)["messages"][0] == json{{"role", "user"}, {"content", "A dog."}});
  const std::string answer = messages(talk)["messages"][1]["content"];
  CHECK(first.out.starts_with(answer));

  // What was kept goes on as if it had never ended.
  const Outcome whole = chaski_run(chat, "A dog.\nA cat.\n"),
                resumed = chaski_run(chat, "/load " + talk + "\nA cat.\n");
  CHECK(first.out + resumed.out == whole.out);
  CHECK(resumed.error_says("2 messages from " + talk));

  const Outcome undone = chaski_run(chat, "A dog.\nA cat.\n/undo\nA cat.\n/undo\n/undo\n/undo\n");
  CHECK(undone.out == whole.out + resumed.out);
  CHECK(undone.error_says("removed: A cat."));
  CHECK(undone.error_says("chaski: error: there is no question yet"));

  const Outcome again = chaski_run(chat, "A dog.\n/retry\n/save " + other + "\n");
  CHECK(messages(other)["messages"].size() == 2);
  CHECK(messages(other)["set"].contains("seed"));  // the one that goes on
  CHECK(again.out.starts_with(first.out));
  CHECK(messages(other)["messages"][1]["content"] != answer);  // another seed
  CHECK(chaski_run(chat, "/retry\n").error_says("there is no question yet"));

  const Outcome system = chaski_run(chat, "/system\n/system Be a cat.\n/system\n/clear\n/system\n");
  CHECK(system.error_says("there is no system message"));
  CHECK(system.err.find("Be a cat.") != system.err.rfind("Be a cat."));  // /clear keeps it

  std::ofstream(folder / "wrong.json") << R"([{"role": "user"}])";
  const Outcome wrong =
      chaski_run(chat, "/load " + folder / "wrong.json" + "\n/load\n/save\n/load " + folder / "no" +
                           "\n/save " + folder / "no/file" + "\n/clear now\n/quit\nnever read\n");
  CHECK(wrong.status == 3);  // of the file, which came first
  CHECK(wrong.out.empty());
  for (const char* line : {"wrong.json: is not a saved conversation: [0].content is ",
                           "/load expects a file", "/save expects a file", "no: cannot be opened",
                           "no/file: folder ", "/clear takes no argument, found \"now\""})
    CHECK_MESSAGE(wrong.error_says(line), wrong.err);
}

TEST_CASE("cli/chat: a conversation is kept with its keys and values, and goes on at once") {
  const TempFolder folder;
  const std::string talk = folder / "talk.json";
  for (const char* kv : {"f16", "q4_0"}) {
    const auto chat = [&](Arguments more, const std::string& lines) {
      more.insert(more.begin(), {"chat", "--lines", "-m", kStory, "-n", "30", "--seed", "3", "-v"});
      return chaski_run(more, lines);
    };
    std::filesystem::remove(talk);
    const Outcome whole = chat({"--kv", kv}, "A dog.\nA cat.\n"),
                  first = chat({"--kv", kv}, "A dog.\n/save " + talk + "\n"),
                  resumed = chat({"--kv", kv, "--resume", talk}, "A cat.\n");
    CHECK_MESSAGE(first.error_says(" tokens in " + talk + ".kv, "), first.err);
    CHECK_MESSAGE(first.error_says(" MB"), first.err);
    CHECK_MESSAGE(resumed.error_says(" tokens from " + talk + ".kv"), resumed.err);
    CHECK(first.out + resumed.out == whole.out);
    const auto known = [](const Outcome& outcome) {  // in the line of the last answer
      const size_t at = outcome.err.rfind(" known before");
      return at == std::string::npos ? "" : outcome.err.substr(outcome.err.rfind('(', at), 8);
    };
    CHECK_MESSAGE(known(resumed) == known(whole), resumed.err);

    const Outcome system =
        chat({"--kv", kv, "--resume", talk, "--system", "Be a cat."}, "/system\n/tokens\n");
    CHECK_MESSAGE(system.error_says("\nBe a cat.\n"), system.err);

    // Of another format, or damaged: the text is read again, and the answer is the same.
    const Outcome other = chat({"--kv", "f32", "--resume", talk}, "A cat.\n");
    CHECK_MESSAGE(other.error_says(std::string("talk.json.kv: its keys and values are in ") + kv +
                                   ", expected f32 (--kv " + kv +
                                   " goes on with them): the text is read again"),
                  other.err);
    const Outcome shorter = chat({"--kv", "f32", "-c", "256", "--resume", talk}, "A cat.\n");
    CHECK_MESSAGE(shorter.error_says(
                      std::string("are made in a context of 512 tokens, expected 256 and in ") +
                      kv + ", expected f32 (-c 512 --kv " + kv + " goes on with them)"),
                  shorter.err);
    check_one_line(
        chaski_run({"chat", "-q", "--lines", "-m", kStory, "--resume", talk + ".kv"}, "a\n"), 2,
        "talk.json.kv: holds a KV cache, expected the conversation that it belongs "
        "to, " +
            talk);
    std::string bytes = read_file(talk + ".kv");
    bytes[bytes.size() / 2] ^= 4;
    write_file(talk + ".kv", bytes);
    const Outcome damaged = chat({"--kv", kv}, "/load " + talk + "\nA cat.\n");
    CHECK_MESSAGE(damaged.error_says("the file is damaged"), damaged.err);
    CHECK(damaged.out == resumed.out);
  }
  // What was cleared is in no file, and another talk is not written over.
  const auto lines = [](const std::string& typed) {
    return chaski_run({"chat", "--lines", "-m", kStory, "-n", "3"}, typed);
  };
  const std::string a = folder / "a", b = folder / "b";
  const Outcome cleared =
      lines("A secret.\n/save " + a + "\n/clear\n/save " + b + "\nA cat.\n/save " + a + "\n");
  CHECK_MESSAGE(cleared.status == 0, cleared.err);
  CHECK_FALSE(have(b + ".kv"));
  const Outcome lost = lines("A dog.\n/save " + a + "\n");
  CHECK(lost.status == 2);
  CHECK_MESSAGE(lost.error_says("holds another conversation, expected another name"), lost.err);
  // A question is taken back by what takes its place, not by /edit alone.
  const Outcome edited = lines("A dog.\n/edit\n/save " + folder / "c" + "\n");
  CHECK_MESSAGE(edited.error_says("2 messages in "), edited.err);
  // What is no conversation, and a name that would be one of keys and values.
  write_file(folder / "letter", "Dear diary");
  check_one_line(
      chaski_run({"chat", "-q", "--lines", "-m", kStory, "--resume", folder / "letter"}, "a\n"), 3,
      "letter: is not a saved conversation: byte 1 is not valid JSON");
  const Outcome states = lines("A dog.\n/save " + folder / "d.kv" + "\n");
  CHECK(states.status == 2);
  CHECK_MESSAGE(states.error_says("d.kv: names that end in .kv are for the KV cache of a "
                                  "conversation, expected " +
                                  folder / "d" + "\n"),
                states.err);
  CHECK_FALSE(have(folder / "d.kv"));
  std::filesystem::remove(talk);
  write_file(talk + ".kv", "dear diary");
  const Outcome kept =
      chaski_run({"chat", "--lines", "-m", kStory, "-n", "1"}, "a\n/save " + talk + "\n");
  CHECK_MESSAGE(kept.error_says("talk.json.kv: is there and holds no keys and values"), kept.err);
  CHECK(read_file(talk + ".kv") == "dear diary");
}

TEST_CASE("cli/chat: what /set has set is kept with a conversation") {
  const TempFolder folder;
  const std::string talk = folder / "talk.json";
  const auto chat = [&](Arguments more, const std::string& lines) {
    more.insert(more.begin(), {"chat", "--lines", "-m", kStory});
    return chaski_run(more, lines);
  };
  chat({"-n", "9"},
       "/set temp 1.5\n/set dynatemp-range 1.2\n/set n 4\n/set seed 7\nA dog.\n/save " + talk +
           "\n");
  const json set = {{"temp", "1.5"}, {"dynatemp-range", "1.2"}, {"tokens", "4"}, {"seed", "7"}};
  CHECK(json::parse(read_file(talk))["set"] == set);
  const Outcome resumed = chat({"--resume", talk}, "/show\nA cat.\n/save " + talk + "\n");
  CHECK_MESSAGE(resumed.error_says("\nsettings of the file: dynatemp-range 1.2, seed 7, temp 1.5, tokens 4\n"),
                resumed.err);
  CHECK_MESSAGE(resumed.error_says("settings: temp 1.5, "), resumed.err);
  CHECK_MESSAGE(resumed.error_says(", seed 7, tokens 4\n"), resumed.err);
  CHECK(json::parse(read_file(talk))["set"] == set);
  // What is typed now wins, in its short form too.
  const Outcome typed = chat({"--resume", talk, "-n", "5", "--temp", "1.3"}, "/show\n");
  CHECK_MESSAGE(typed.error_says("settings: temp 1.3, "), typed.err);
  CHECK_MESSAGE(typed.error_says("tokens 5\n"), typed.err);
  CHECK_MESSAGE(typed.error_says("\nsettings of the file: dynatemp-range 1.2, seed 7\n"), typed.err);
  // What cannot be is left out, and the conversation goes on.
  const Outcome against = chat({"--resume", talk, "--temp", "0.5"}, "/show\n/tokens\n");
  CHECK(against.status == 0);
  CHECK_MESSAGE(against.error_says("talk.json: its settings are ignored: dynatemp-range is 1.2"),
                against.err);
  CHECK(against.error_says("settings: temp 0.5, "));
  write_file(talk, R"({"messages": [], "set": {"temp": 1}})");
  CHECK(chat({"--resume", talk}, "").error_says("set.temp is 1, expected a string"));
}

TEST_CASE("cli/run --cache: a prompt is read once, and the text stays the same") {
  const TempFolder folder;
  const std::string cache = folder / "prompt.kv",
                    begin = "Once upon a time there was a dog who had a red ball.";
  const auto told = [&](const std::string& prompt, Arguments more = {}) {
    more.insert(more.begin(),
                {"run", "-m", kStory, "-p", prompt, "-n", "30", "--seed", "3", "--json"});
    const Outcome outcome = chaski_run(more);
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    return json::parse(outcome.out);
  };
  const json cold = told(begin), first = told(begin, {"--cache", cache});
  CHECK(first["text"] == cold["text"]);
  CHECK(first["cached_tokens"] == 0);
  const std::string kept = read_file(cache);
  const json second = told(begin, {"--cache", cache});
  CHECK(second["text"] == cold["text"]);
  CHECK(second["cached_tokens"] == second["prompt_tokens"].get<int>() - 1);
  CHECK(read_file(cache) == kept);
  // A longer prompt goes on from there, and is what is kept now.
  const std::string more = begin + " The ball was big.";
  const json longer = told(more, {"--cache", cache});
  CHECK(longer["text"] == told(more)["text"]);
  CHECK(longer["cached_tokens"] == second["cached_tokens"]);
  CHECK(read_file(cache).size() >= kept.size());
  CHECK(told(begin, {"--cache", cache})["text"] == cold["text"]);
  CHECK(told(begin, {"--cache", cache, "--kv", "q8"})["text"] ==
        told(begin, {"--kv", "q8"})["text"]);
  CHECK(told("Once", {"--cache", folder / "one"})["text"] == told("Once")["text"]);

  check_one_line(chaski_run({"run", "-m", kStory, "-p", "a", "-n", "1", "--cache", kStory}), 2,
                 "is there and holds no keys and values, expected another name");
  check_one_line(
      chaski_run({"run", "-m", kStory, "-p", "a", "-n", "1", "--answers", "2", "--cache", cache}),
      2, "--cache");
  check_one_line(
      chaski_run({"run", "-m", kStory, "-p", "a", "-n", "1", "--cache", folder / "no/file"}), 5,
      "no/file");
}

TEST_CASE("cli/--answer-cache: an answer given before comes again, and no token is read") {
  const TempFolder folder;
  const std::string kept = folder / "kept";
  const auto told = [&](Arguments more) {
    more.insert(more.end(), {"--answer-cache", kept, "--json"});
    const Outcome outcome = chaski_run(run_story(more));
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    return json::parse(outcome.out);
  };
  const Arguments one = {"-n", "30", "--seed", "3"};
  const json first = told(one), second = told(one);
  CHECK(first["cached"] == false);
  CHECK(first["threads_used"].get<double>() > 0);
  CHECK(second["cached"] == true);
  CHECK(second["threads_used"] == 0);  // there was no pass
  CHECK(second["cached_tokens"] == second["prompt_tokens"]);
  for (const char* same : {"text", "answer_ids", "finish", "prompt_tokens", "seed"})
    CHECK(second[same] == first[same]);
  CHECK(told({"-n", "30", "--seed", "3", "-t", "1", "--draft", "none"})["cached"] == true);
  CHECK(told({"-n", "30", "--seed", "4"})["cached"] == false);
  CHECK(told({"-n", "31", "--seed", "3"})["cached"] == false);
  const Outcome plain = chaski_run(run_story(one)),
                again = chaski_run(run_story({"-n", "30", "--seed", "3", "--answer-cache", kept}));
  CHECK(again.out == plain.out);
  CHECK_MESSAGE(again.error_says("given before (--answer-cache)"), again.err);
  // A damaged file is told of, and the answer made anew.
  CHECK(files_in(kept) == 3);
  for (const auto& file : std::filesystem::directory_iterator(kept)) {
    std::string bytes = read_file(file.path());
    bytes.back() = char(bytes.back() ^ 1);
    write_file(file.path(), bytes);
  }
  const Outcome damaged =
      chaski_run(run_story({"-n", "30", "--seed", "3", "--answer-cache", kept}));
  CHECK(damaged.out == plain.out);
  CHECK_MESSAGE(damaged.error_says("note: " + kept + ": the answer "), damaged.err);
  CHECK_MESSAGE(damaged.error_says("...: is damaged"), damaged.err);
  CHECK_MESSAGE(damaged.error_says("the answer is made, and kept anew"), damaged.err);
  CHECK(told(one)["cached"] == true);

  const Arguments ask = {"chat",   "-m", kStory,           "-p", "A dog.", "-n", "12",
                         "--temp", "0",  "--answer-cache", kept};
  const Outcome answer = chaski_run(ask);
  CHECK_MESSAGE(answer.status == 0, answer.err);
  CHECK(files_in(kept) == 4);
  CHECK(chaski_run(ask).out == answer.out);
  CHECK(files_in(kept) == 4);

  const std::string none = folder / "none";
  const Outcome random = chaski_run(run_story({"-n", "3", "--answer-cache", none}));
  CHECK_MESSAGE(random.error_says("no effect with a random seed"), random.err);
  CHECK(!std::filesystem::exists(none));
  write_file(folder / "file", "x");
  check_one_line(chaski_run(run_story({"--temp", "0", "--answer-cache", folder / "file"})), 5,
                 "is no folder");
  check_one_line(chaski_run(run_story({"--answer-cache", kept, "--answers", "2"})), 2,
                 "--answer-cache");
}

TEST_CASE("cli/chat -p and a pipe: one question, its answer, and the end") {
  const TempFolder folder;
  const Arguments chat = {"chat", "-q", "-m", kStory, "-n", "12", "--seed", "3"};
  const auto asked = [&](Arguments more, const std::string& piped = "") {
    more.insert(more.begin(), chat.begin(), chat.end());
    return chaski_run(more, piped);
  };
  std::ofstream(folder / "question") << "A dog.\n\nA cat.";
  const Outcome one = asked({"-p", "A dog.\n\nA cat."});
  CHECK_MESSAGE(one.status == 0, one.err);
  CHECK(one.out.ends_with("\n"));
  CHECK(one.err.empty());
  CHECK(asked({}, "A dog.\n\nA cat.\n").out == one.out);
  CHECK(asked({"-p", "A dog."}, "A cat.\n").out == one.out);
  CHECK(asked({"-f", folder / "question"}).out == one.out);
  CHECK(asked({"--lines"}, "A dog.\n").out != one.out);
  // A command is one where lines are read one by one.
  CHECK(!asked({}, "/quit\n").out.empty());
  CHECK(asked({"--lines"}, "/quit\n").out.empty());
  check_one_line(asked({}, " \n"), 2, "no question given");
  check_one_line(asked({"--lines", "-p", "a"}), 2, "--lines");
}

TEST_CASE("cli/chat: settings that change, numbers about the answers") {
  const Arguments chat = {"chat", "--lines", "-m", kStory, "-n", "6", "--seed", "3"};
  const Outcome set = chaski_run(chat, "/set temp 0\n/set parameter tokens 4\nA dog.\n/show\n");
  CHECK_MESSAGE(set.error_says("temp 0, top-k 40"), set.err);
  CHECK_MESSAGE(set.error_says("seed 3, tokens 4"), set.err);
  CHECK(set.error_says("system:   none"));
  CHECK(set.out ==
        chaski_run({"chat", "-m", kStory, "-n", "4", "--temp", "0", "-p", "A dog."}).out);
  for (const auto& [line, error] : std::vector<std::pair<std::string, std::string>>{
           {"/set", "/set expects a name and a value"},
           {"/set temp", "/set expects a name and a value"},
           {"/set temp hot", "temp: is \"hot\", expected a decimal number"},
           {"/set top-p 2", "top-p is 2, expected more than 0, at most 1"},
           {"/set --top-p 2", "top-p is 2, expected more than 0, at most 1"},
           {"/set seed many", "seed: is \"many\", expected -1 (a random one) or a number from 0"},
           {"/set tmp 1", "tmp is no setting of /set, did you mean temp?"},
           {"/set keep 3", "keep has no effect"},
           {"/set n many", "tokens: is \"many\", expected"},
           {"/set -- x", "x has no flag in front of it"},
           {"/set logit-bias 99999+1", "logit-bias has token 99999, expected 0 to "},
           {"/sett", "/sett is not a command, did you mean /set?"},
           {"/copy", "there is no answer yet"},
           {"/edit", "there is no question yet"}}) {
    const Outcome wrong = chaski_run(chat, line + "\n/show\n");
    CHECK_MESSAGE(wrong.error_says("chaski: error: " + error), wrong.err);
    CHECK(wrong.error_says("temp 0.8"));
  }
  const Outcome stats = chaski_run(chat, "A dog.\nA cat.\n/stats\n");
  CHECK_MESSAGE(stats.error_says("2 answers; "), stats.err);
  CHECK_MESSAGE(stats.error_says("12 tokens written, "), stats.err);
}

TEST_CASE("cli/chat: an answer of nothing is a line too") {
  const Outcome none = chaski_run({"chat", "-m", kStory, "--lines", "--grammar", "root ::= \"\""},
                                  "A dog.\nA cat.\n");
  CHECK_MESSAGE(none.out == "\n\n", none.err);
}

TEST_CASE("cli/chat: messages of several lines") {
  const TempFolder folder;
  const std::string talk = folder / "talk.json";
  const Outcome outcome =
      chaski_run({"chat", "--lines", "-m", kStory, "-n", "2", "--seed", "3"},
                 "\"\"\"\n/quit\n \\\nb\n\"\"\"\n\"\"\"c\"\"\"\nd\\\ne\\\n\nf\n/save " + talk +
                     "\n\"\"\"\nno end");
  CHECK(outcome.status == 0);
  std::vector<std::string> said;
  const json saved = json::parse(read_file(talk));
  for (const json& message : saved["messages"])
    if (message["role"] == "user") said.push_back(message["content"]);
  CHECK(said == std::vector<std::string>{"/quit\n \\\nb", "c", "d\ne\n", "f"});
}

TEST_CASE("cli/chat says when a conversation does not fit") {
  std::string question;
  for (int i = 0; i < 600; ++i) question += "word ";
  const Outcome outcome = chaski_run({"chat", "-m", kStory, "-n", "4"}, question + "\n");
  CHECK(outcome.status == 7);
  CHECK_MESSAGE(last_line(outcome.err).find("512") != std::string::npos, outcome.err);
}
