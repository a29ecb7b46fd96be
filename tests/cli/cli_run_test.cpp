// chaski run with the real program: prompts, sampling, several answers, beams, contexts and caches.
#include <nlohmann/json.hpp>

#include "tests/kit/program.h"

using namespace chaski::test;
using nlohmann::json;

TEST_CASE("cli/the bundled model writes a story to stdout only") {
  const Outcome story = chaski_run({"run", "--device", "cpu", "-n", "40", "--seed", "7"});
  CHECK_MESSAGE(story.status == 0, story.err);
  CHECK(story.out.starts_with("Once upon a time"));
  CHECK(story.out.size() > 40);
  CHECK(story.out.find("tok/s") == std::string::npos);
  CHECK_MESSAGE(
      story.err.starts_with("chaski: note: the answer is cut off by -n after 40 tokens\nprompt "),
      story.err);
  CHECK(story.err.ends_with("; seed 7\n"));
  CHECK(std::count(story.err.begin(), story.err.end(), '\n') == 2);
  const Outcome json_story = chaski_run({"run", "-n", "40", "--seed", "7", "--json"});
  // stdout ends with a line end, also in a pipe
  const std::string answer = json::parse(json_story.out)["text"];
  CHECK("Once upon a time" + answer + "\n" == story.out);
}

TEST_CASE("cli/the last line does not mention memory speed if the weights fit into a cache") {
  const Outcome story = chaski_run({"run", "--device", "cpu", "-n", "40", "--seed", "7", "-v"});
  CHECK_MESSAGE(story.status == 0, story.err);
  CHECK_MESSAGE(!story.error_says("of the memory bandwidth"), story.err);
}

TEST_CASE("cli/the same seed gives the same bytes with any number of threads") {
  const std::string text = chaski_run(run_story({"--seed", "5", "-n", "60"})).out;
  CHECK(!text.empty());
  for (const char* threads : {"1", "3"})
    CHECK(chaski_run(run_story({"--seed", "5", "-n", "60", "-t", threads})).out == text);
  CHECK(chaski_run(run_story({"--seed", "6", "-n", "60"})).out != text);
  // The text is long enough for drafting to begin.
  const auto longer = [](const std::string& drafter) {
    return chaski_run(
        run_story({"--seed", "5", "-n", "400", "--ignore-end", "-v", "--draft", drafter}));
  };
  const Outcome draft = longer(kStory);
  CHECK(draft.out == longer("none").out);
  CHECK_MESSAGE(draft.error_says(" draft tokens accepted"), draft.err);
  // A random seed is printed, and gives the same text again.
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
  // Several files are joined, and standard input has the place of "-".
  const std::string one = write_file(folder / "one", "Once upon"),
                    two = write_file(folder / "two", "a time");
  const auto tokens = [&](const Arguments& more, const std::string& typed = "") {
    Arguments all = {"tokenize", "-m", kStory, "--ids"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = chaski_run(all, typed);
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    CHECK(outcome.out.size() > 1);
    return outcome.out;
  };
  CHECK(tokens({"-f", one, "-f", two}) == tokens({"-p", "Once upon\n\na time", "--pipe", "no"}));
  CHECK(tokens({"-f", "-", "-f", two}, "Once upon") == tokens({"-f", one, "-f", two}));
  CHECK(tokens({"-p", "Once upon"}, "a time") == tokens({"-f", one, "-f", two}));
  check_one_line(chaski_run({"tokenize", "-m", kStory, "-f", one, two}), 2, "unexpected");
  check_one_line(chaski_run({"tokenize", "-m", kStory, "-f", "-", "-f", "-"}, "a"), 2,
                 "-f - is given twice, but standard input can be read only once");
  // A note names text that is changed or not read.
  CHECK(chaski_run({"tokenize", "-m", kStory}, "a\xff")
            .error_says("not UTF-8: the byte at offset 1 is \\xff"));
  CHECK(chaski_run({"tokenize", "-m", kStory}, "a\xef")
            .error_says("not UTF-8: the byte at offset 1 is \\xef"));
  const Outcome eval = chaski_run({"eval", "-m", kStory, "-f", "README.md", "--chunks", "1"}, "a");
  CHECK_MESSAGE(eval.error_says("standard input is not read, because the text is given"), eval.err);
  CHECK(chaski_run({"run", "-m", kStory, "-f", one, "-f", two, "--temp", "0", "-n", "30"}).out ==
        chaski_run({"run", "-m", kStory, "-p", "Once upon\n\na time", "--temp", "0", "-n", "30"})
            .out);
  CHECK(chaski_run(run_story({"-n", "0"})).out.empty());
  const std::string cut =
      chaski_run(run_story({"--temp", "0", "-n", "30", "--stop", "Lily", "--stop", "zebra"})).out;
  CHECK(cut == text.substr(0, text.find("Lily")));
  CHECK(cut != text);
}

TEST_CASE("cli/run: control tokens in a prompt are text, or with --parse-special tokens") {
  const std::string marker = "<|endoftext|>",
                    note = "chaski: note: the prompt contains " + marker +
                           ", which is read as text; --parse-special reads such";
  const auto read = [&](const std::string& prompt, const Arguments& more) {
    Arguments all = {"run", "-m", kStory, "-p", prompt, "-n", "1", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return chaski_run(all);
  };
  const auto tokens = [](const Outcome& outcome) {
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    return json::parse(outcome.out)["prompt_tokens"].get<int>();
  };
  const std::string prompt = "One." + marker + "Two." + marker;
  const Outcome text = read(prompt, {}), special = read(prompt, {"--parse-special"});
  CHECK_MESSAGE(text.error_says(note), text.err);
  CHECK(text.err.find(note) == text.err.rfind(note));
  CHECK_FALSE(special.error_says(marker));
  CHECK(tokens(special) == tokens(read("One.", {})) + tokens(read("Two.", {})) + 1);
  CHECK(tokens(text) > tokens(special) + 10);
  // A text that begins with the token that begins texts gets no second one.
  CHECK(tokens(read(marker + "One.", {"--parse-special"})) == tokens(read("One.", {})));
  CHECK_FALSE(read("<|endoftext", {}).error_says("control"));
  CHECK(read(prompt, {"-q"}).err.empty());
  const auto ids = [&](const Arguments& more) {
    Arguments all = {"tokenize", "--ids", "-p", "A" + marker};
    all.insert(all.end(), more.begin(), more.end());
    return chaski_run(all);
  };
  CHECK(ids({"--parse-special"}).out.ends_with(" 0\n"));
  CHECK_FALSE(ids({}).out.ends_with(" 0\n"));
  CHECK_MESSAGE(ids({}).error_says(note), ids({}).err);
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

TEST_CASE("cli/run --logprobs: every token and the most probable ones") {
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

TEST_CASE("cli/samplers: valid settings work, invalid ones are refused") {
  const std::string plain = chaski_run(run_story({"-n", "30", "--seed", "5"})).out;
  const auto with = [](const Arguments& more) {
    Arguments all = {"-n", "30", "--seed", "5"};
    all.insert(all.end(), more.begin(), more.end());
    return chaski_run(run_story(all));
  };
  // The default order in llama.cpp's spelling.
  CHECK(with({"--samplers", "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"})
            .out == plain);
  CHECK(with({"--top-k", "0", "--top-p", "1", "--min-p", "0", "--temp", "1"}).out ==
        with({"--samplers", "temperature", "--temp", "1"}).out);
  CHECK(with({"--ban", "little", "--ban", "a"}).out.find('a') == std::string::npos);
  for (const auto& [flags, error] : std::vector<std::pair<Arguments, std::string>>{
           {{"--samplers", "top-k,nonsense"}, "--samplers has nonsense, expected penalties, "},
           {{"--samplers", "top-k,top-k"}, "--samplers has top-k twice"},
           {{"--samplers", "top-k,dry"}, "--samplers has dry after top-k"},
           {{"--logit-bias", "5"}, "--logit-bias is 5, expected a token id"},
           {{"--logit-bias", "5+x"}, "--logit-bias is 5+x"},
           {{"--logit-bias", "999999+1"}, "--logit-bias has token 999999, expected 0 to "},
           {{"--logit-bias", "5+1e39"}, "--logit-bias is 5+1e39, expected"},
           {{"--dry-sequence-breaker", ""}, "--dry-sequence-breaker is \"\", expected a text"},
           {{"--ban", ""}, "--ban is empty"},
           {{"--", "x"}, "unexpected \"x\", expected a flag"},
           {{"--mirostat", "1"}, "--mirostat is 1, expected 0 or 2"},
           {{"--dynatemp-range", "1"}, "--dynatemp-range is 1, expected 0 to --temp"}})
    check_one_line(with(flags), 2, error);
}

TEST_CASE("cli/run --answers: each answer equals a run with its seed alone") {
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

TEST_CASE("cli/run --beam: one beam is greedy, all have scores, conflicting flags are refused") {
  const std::string greedy = chaski_run(run_story({"--temp", "0", "-n", "40"})).out;
  CHECK(chaski_run(run_story({"--beam", "1", "-n", "40"})).out == greedy);
  const Outcome four = chaski_run(run_story({"--beam", "4", "-n", "40"}));
  CHECK_MESSAGE(four.status == 0, four.err);
  CHECK_MESSAGE(four.error_says("4 beams; prompt of 5 tokens read at "), four.err);
  for (const char* threads : {"1", "3"})
    CHECK(chaski_run(run_story({"--beam", "4", "-n", "40", "--temp", "0", "-t", threads})).out ==
          four.out);
  const json all = json::parse(chaski_run(run_story({"--beam", "4", "-n", "40", "--json"})).out);
  REQUIRE(all.size() == 4);
  CHECK(all[0]["text"] == four.out);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(all[i]["answer"] == i + 1);
    CHECK(all[i]["score"].get<double>() < 0);
    if (i > 0) CHECK(all[i]["score"].get<double>() <= all[i - 1]["score"].get<double>());
  }
  const json short_one = json::parse(
      chaski_run(run_story({"--beam", "2", "--length-penalty", "0", "-n", "4", "--json"})).out);
  // The best beam scores at least as high as the greedy text.
  const json tokens = json::parse(
      chaski_run(run_story({"--temp", "0", "-n", "4", "--logprobs", "1", "--json"})).out);
  double sum = 0;
  for (const json& token : tokens["log_probabilities"])
    sum += token["log_probability"].get<double>();
  CHECK(short_one[0]["score"].get<double>() >= sum);
  for (const auto& [flags, error] : std::vector<std::pair<Arguments, std::string>>{
           {{"--beam", "2", "--temp", "0.5"}, "--temp is 0.5 with --beam, expected 0"},
           {{"--beam", "2", "--draft", kStory}, " with --beam, expected none"},
           {{"--beam", "2", "--answers", "2"}, "--beam"},
           {{"--beam", "2", "--cache", "/tmp/x"}, "--beam"},
           {{"--beam", "2", "--regex", "a*"},
            "--regex and --beam are both given, expected one of them"},
           {{"--beam", "2", "--context-policy", "shift"}, "--context-policy is shift with --beam"},
           {{"--beam", "2", "--length-penalty", "-1"}, "--length-penalty is -1, expected 0 to 10"},
           {{"--length-penalty", "1"}, "--length-penalty needs --beam N"},
           {{"--beam", "0"}, "--beam"}})
    check_one_line(chaski_run(run_story(flags)), 2, error);
  // Flags without effect on a beam search are named once, as they were typed.
  const Outcome idle =
      chaski_run(run_story({"--beam", "4", "-n", "40", "--top-k", "5", "--seed", "3", "--mirostat",
                            "2", "--draft-len", "2", "--samplers", "top-k"}));
  CHECK(idle.out == four.out);
  CHECK_MESSAGE(idle.error_says("note: --seed, --top-k, --mirostat, --draft-len, --samplers have "
                                "no effect with --beam: nothing is drawn at random\n"),
                idle.err);
  CHECK_MESSAGE(!idle.error_says("--temp"), idle.err);
  // Penalties are a sampler step, so --samplers can remove them.
  const Arguments penalty = {"--beam", "4", "-n", "40", "--repeat-penalty", "1.5"};
  Arguments without = penalty;
  without.insert(without.end(), {"--samplers", "top-k"});
  const Outcome left_out = chaski_run(run_story(without));
  CHECK(left_out.out == four.out);
  CHECK_MESSAGE(!left_out.error_says("--samplers"), left_out.err);
  CHECK(chaski_run(run_story(penalty)).out != four.out);
  check_one_line(chaski_run(run_story({"--beam", "2", "--top-p", "7"})), 2, "--top-p is 7");
}

TEST_CASE("cli/a full context and the reason for the end of a text are printed") {
  const auto ran = [](const Arguments& more) {
    Arguments all = {"--seed", "3", "--ignore-end", "-c", "64"};
    all.insert(all.end(), more.begin(), more.end());
    return chaski_run(run_story(all));
  };
  const Outcome stopped = ran({});
  CHECK_MESSAGE(stopped.error_says("cut off because the context of 64 tokens is full: "),
                stopped.err);
  CHECK(stopped.error_says("; ended because the context is full; "));
  CHECK(json::parse(ran({"--json"}).out)["finish"] == "full");  // documented in docs/json.md
  for (const std::string policy : {"shift", "sinks"}) {
    const Outcome shifted = ran({"--context-policy", policy, "-n", "100"});
    CHECK(shifted.out.starts_with(stopped.out));
    CHECK(shifted.out.size() > stopped.out.size());
    CHECK_MESSAGE(shifted.error_says("the context of 64 tokens is full: "), shifted.err);
    CHECK(shifted.error_says("; ended by -n; "));
  }
  const json object = json::parse(ran({"--stop", "a", "--json"}).out);
  CHECK(object["finish"] == "stop");
  CHECK(object["why"] == "ended before a --stop text");
}

TEST_CASE("cli/a prompt longer than the context") {
  std::string text;
  for (int i = 0; i < 600; ++i) text += "word ";
  const Outcome outcome = chaski_run({"run", "-m", kStory, "-n", "1"}, text);
  CHECK(outcome.status == 7);
  CHECK(outcome.out.empty());
  CHECK_MESSAGE(outcome.error_says("512"), outcome.err);
}

TEST_CASE("cli/a context that does not fit into memory is refused before a page is allocated") {
  const Outcome outcome =
      chaski_run({"run", "-m", kStory, "-p", "a", "-n", "1", "-c", "400000000"});
  CHECK(outcome.status == 4);
  CHECK_MESSAGE(last_line(outcome.err).find("a context of 400000000 needs") != std::string::npos,
                outcome.err);
}

TEST_CASE("cli/run --cache: a stored prompt is not read again, and the text is the same") {
  const TempFolder folder;
  const std::string cache = folder / "prompt.kv",
                    begin = "Once upon a time there was a dog who had a red ball.";
  const auto ran = [&](const std::string& prompt, Arguments more = {}) {
    more.insert(more.begin(),
                {"run", "-m", kStory, "-p", prompt, "-n", "30", "--seed", "3", "--json"});
    const Outcome outcome = chaski_run(more);
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    return json::parse(outcome.out);
  };
  const json cold = ran(begin), first = ran(begin, {"--cache", cache});
  CHECK(first["text"] == cold["text"]);
  CHECK(first["cached_tokens"] == 0);
  const std::string kept = read_file(cache);
  const json second = ran(begin, {"--cache", cache});
  CHECK(second["text"] == cold["text"]);
  CHECK(second["cached_tokens"] == second["prompt_tokens"].get<int>() - 1);
  CHECK(read_file(cache) == kept);
  // A longer prompt continues from the stored one, and replaces it in the file.
  const std::string more = begin + " The ball was big.";
  const json longer = ran(more, {"--cache", cache});
  CHECK(longer["text"] == ran(more)["text"]);
  CHECK(longer["cached_tokens"] == second["cached_tokens"]);
  CHECK(read_file(cache).size() >= kept.size());
  CHECK(ran(begin, {"--cache", cache})["text"] == cold["text"]);
  CHECK(ran(begin, {"--cache", cache, "--kv", "q8"})["text"] == ran(begin, {"--kv", "q8"})["text"]);
  CHECK(ran("Once", {"--cache", folder / "one"})["text"] == ran("Once")["text"]);

  // A cache that cannot be written is reported for a prompt of any length, and costs no answer.
  for (const char* prompt : {"", "Once upon a time"}) {
    const Outcome outcome = chaski_run(
        {"run", "-q", "-m", kStory, "-p", prompt, "-n", "3", "--cache", folder / "none/p.kv"});
    CHECK(outcome.status == 0);
    CHECK(!outcome.out.empty());
    CHECK_MESSAGE(outcome.error_says("none: no such file or directory: the prompt is not stored"),
                  outcome.err);
  }
  CHECK(ran("", {"--cache", folder / "two"})["text"] == ran("")["text"]);
  check_one_line(chaski_run({"run", "-m", kStory, "-p", "a", "-n", "1", "--cache", kStory}), 2,
                 "the file exists and holds no KV cache, expected another name");
  check_one_line(
      chaski_run({"run", "-m", kStory, "-p", "a", "-n", "1", "--answers", "2", "--cache", cache}),
      2, "--cache");
}

TEST_CASE("cli/--answer-cache: a stored answer is returned without reading a token") {
  const TempFolder folder;
  const std::string kept = folder / "kept";
  const auto ran = [&](Arguments more) {
    more.insert(more.end(), {"--answer-cache", kept, "--json"});
    const Outcome outcome = chaski_run(run_story(more));
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    return json::parse(outcome.out);
  };
  const Arguments one = {"-n", "30", "--seed", "3"};
  const json first = ran(one), second = ran(one);
  CHECK(first["cached"] == false);
  CHECK(first["threads_used"].get<double>() > 0);
  CHECK(second["cached"] == true);
  CHECK(second["threads_used"] == 0);  // no pass was needed
  CHECK(second["cached_tokens"] == second["prompt_tokens"]);
  for (const char* same : {"text", "answer_ids", "finish", "prompt_tokens", "seed"})
    CHECK(second[same] == first[same]);
  CHECK(ran({"-n", "30", "--seed", "3", "-t", "1", "--draft", "none"})["cached"] == true);
  CHECK(ran({"-n", "30", "--seed", "4"})["cached"] == false);
  CHECK(ran({"-n", "31", "--seed", "3"})["cached"] == false);
  const Outcome plain = chaski_run(run_story(one)),
                again = chaski_run(run_story({"-n", "30", "--seed", "3", "--answer-cache", kept}));
  CHECK(again.out == plain.out);
  CHECK_MESSAGE(again.error_says("from --answer-cache"), again.err);
  // A damaged file is reported, and the answer is generated again.
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
  CHECK_MESSAGE(damaged.error_says("the answer is generated and stored again"), damaged.err);
  CHECK(ran(one)["cached"] == true);

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
  check_one_line(chaski_run(run_story({"--answer-cache", kept, "--answers", "2"})), 2,
                 "--answer-cache");
}
