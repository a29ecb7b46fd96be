// chaski run: completes one prompt. stdout carries the completion and nothing else.
#include <algorithm>
#include <memory>
#include <optional>

#include "main/answers.h"
#include "main/commands.h"
#include "main/json_output.h"
#include "main/options.h"
#include "main/output.h"
#include "main/signals.h"
#include "main/speaker.h"
#include "main/timing.h"

namespace chaski {

namespace {

struct RunFlags {
  GenerationFlags generation;
  PromptFlags prompt;
  bool json = false;
  int answers = 0, best_of = 0;  // 0: one
};

// The bundled model tells stories: asked for nothing, it tells one from the first word on.
constexpr const char* kOpening = "Once upon a time";
constexpr int kMostAnswers = 64;

struct Prompt {
  std::string text;
  std::string shown;  // what of it belongs to the answer
};

Prompt prompt_of(const RunFlags& flags) {
  if (!flags.generation.model.engine.model.empty()) return {flags.prompt.required(), ""};
  const std::optional<std::string> said = flags.prompt.read();
  return said ? Prompt{*said, ""} : Prompt{kOpening, kOpening};
}

std::vector<TokenId> prompt_tokens(const Engine& engine, const std::string& text) {
  const std::vector<TokenId> tokens = engine.tokenizer().encode_prompt(text);
  if (tokens.empty())
    fail(Exit::usage, "the prompt is empty and {} has no token to begin with, expected some text",
         engine.path());
  return tokens;
}

JsonValue result_json(const Engine& engine, const GenerateResult& result, double bandwidth,
                      uint64_t seed) {
  JsonValue json = {{"model", engine.path()},
                    {"threads", engine.threads()},
                    {"threads_used", engine.threads_used()},
                    {"isa", engine.isa()},
                    {"device", engine.device()},
                    {"text", result.text},
                    {"answer_ids", result.tokens},
                    {"finish", name_of(result.finish)}};
  json.update(timing_json(result, bandwidth, seed));
  return json;
}

// The answer to a prompt goes into a pipe byte for byte; on a terminal, and after a story that
// nobody prompted, the next line begins on its own.
bool ends_line(const std::string& shown, const std::string& text) {
  return (stdout_is_terminal() || !shown.empty()) && !text.ends_with('\n');
}

// Several answers, one behind the other with a line between them, or the most probable alone.
void put_answers(const RunFlags& flags, Speaker& speaker, const Prompt& prompt,
                 std::span<const TokenId> tokens) {
  const bool best = flags.best_of > 0;
  const int n = best ? flags.best_of : flags.answers;
  const uint64_t seed = speaker.options.sampling.seed;
  speaker.options.scored = best;
  bool line_ends = true;
  std::optional<size_t> begun;
  const auto put_part = [&](std::string_view part) {
    put_model_text(part);
    line_ends = part.ends_with('\n');
  };
  const auto begin_until = [&](size_t answer) {
    for (size_t i = begun ? *begun + 1 : 0; i <= answer; ++i) {
      put(fmt::format("{}--- answer {} of {}, seed {} ---\n", line_ends ? "" : "\n", i + 1, n,
                      seed + i));
      begun = i, line_ends = true;
      put_part(prompt.shown);
    }
  };
  Answers all = answers_to(speaker, tokens, n, [&](size_t answer, std::string_view part) {
    if (flags.json || best) return;
    begin_until(answer);
    put_part(part);
  });
  const auto ended = [&](Finish why) {
    return std::any_of(all.results.begin(), all.results.end(),
                       [&](const GenerateResult& r) { return r.finish == why; });
  };
  JsonValue array = JsonValue::array();
  for (size_t i = 0; i < all.results.size(); ++i) {
    GenerateResult& result = all.results[i];
    result.text.insert(0, prompt.shown);
    array.push_back(result_json(*speaker.engine, result, 0, seed + i));
    if (best) array.back()["mean_log_probability"] = result.mean_log_probability;
  }
  if (best) {
    const size_t i = most_probable(all);
    if (flags.json)
      put_json(array.members()[i].value);
    else
      put_part(all.results[i].text);
    if (!ended(Finish::interrupted))
      put_notice(fmt::format("answer {} of {} is the most probable: {:.4g} a token (seed {})",
                             i + 1, n, all.results[i].mean_log_probability, seed + i));
    line_ends = !ends_line(prompt.shown, all.results[i].text);
  } else if (flags.json) {
    put_json(array);
  } else {
    begin_until(size_t(n - 1));
  }
  if (!flags.json && !line_ends) put("\n");
  if (ended(Finish::full)) put_notice(speaker.full_line());
  put_summary(answers_line(all, seed));
}

int run(RunFlags& flags) {
  flags.generation.check();
  flags.generation.choose_seed();
  const Prompt prompt = prompt_of(flags);
  flags.generation.model.engine.sessions = std::max({1, flags.answers, flags.best_of});
  Speaker speaker(flags.generation);
  const std::vector<TokenId> tokens = prompt_tokens(*speaker.engine, prompt.text);

  const Interruption interruption(Interruption::Scope::program);
  speaker.options.interrupt = &interruption.requested();
  if (flags.answers > 0 || flags.best_of > 0) {
    put_answers(flags, speaker, prompt, tokens);
    if (interruption.signal() != 0) end_by_signal(interruption.signal());
    return int(Exit::done);
  }
  const Sink sink = [&](std::string_view part) {
    if (!flags.json) put_model_text(part);
  };
  if (!prompt.shown.empty()) sink(prompt.shown);
  GenerateResult result = generate(*speaker.session, tokens, speaker.options, sink);
  result.text.insert(0, prompt.shown);
  const uint64_t seed = speaker.options.sampling.seed;
  const double bandwidth = bandwidth_beside(*speaker.engine, result);
  if (flags.json)
    put_json(result_json(*speaker.engine, result, bandwidth, seed));
  else if (ends_line(prompt.shown, result.text))
    put("\n");
  if (result.finish == Finish::full) put_notice(speaker.full_line());
  put_summary(timing_line(result, bandwidth, seed, flags.generation.verbose()) +
              (flags.generation.verbose() ? threads_part(*speaker.engine) : ""));
  if (interruption.signal() != 0) end_by_signal(interruption.signal());
  return int(Exit::done);
}

}  // namespace

Action declare_run(Flags parser) {
  auto flags = std::make_shared<RunFlags>();
  flags->prompt.declare(parser);
  flags->generation.declare(parser);
  declare_json(parser, flags->json);
  Flag answers =
      parser
          .add("--answers", flags->answers,
               "so many answers, drawn with the seeds from --seed on; the prompt is read once")
          .within(1, kMostAnswers)
          .type("N");
  parser
      .add("--best-of", flags->best_of,
           "of so many answers the one with the highest mean log probability")
      .within(1, kMostAnswers)
      .type("N")
      .excludes(answers);
  return [flags] { return run(*flags); };
}

}  // namespace chaski
