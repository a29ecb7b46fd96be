// chaski run: completes one prompt. stdout carries the completion only.
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>

#include "engine/machine/temporaries.h"  // for AtomicFile
#include "engine/requests/beam.h"
#include "main/commands/answers.h"
#include "main/commands/speaker.h"
#include "main/flags/commands.h"
#include "main/flags/options.h"
#include "main/flags/values.h"
#include "main/terminal/json_output.h"
#include "main/terminal/output.h"
#include "main/terminal/progress.h"
#include "main/terminal/signals.h"
#include "main/terminal/timing.h"
#include "main/terminal/utf8_note.h"

namespace chaski {

namespace {

struct RunFlags {
  GenerationFlags generation;
  PromptFlags prompt;
  JsonForm json;
  std::string cache;
  int answers = 0, best_of = 0;  // 0: one answer
  int log_probabilities = 0;     // most probable tokens to print for each token; 0: none
  Flag log_probabilities_flag;
  BeamOptions beams{0, 1};  // width 0: no beam search
  Flag beam, length_penalty, temperature, draft, context_policy, samplers;
  std::vector<Flag> idle_with_beams;
};

// The start of a story for the bundled model, if no prompt is given.
constexpr const char* kOpening = "Once upon a time";
constexpr int kMostAnswers = 64, kMostLogged = 1000;
constexpr double kMostPenalty = 10;

struct Prompt {
  std::string text;
  std::string shown;  // the part of the prompt that is printed before the answer
};

Prompt prompt_of(const RunFlags& flags) {
  if (!flags.generation.model.engine.model.empty()) return {flags.prompt.required(), ""};
  const std::optional<std::string> said = flags.prompt.read();
  return said ? Prompt{*said, ""} : Prompt{kOpening, flags.json.any() ? "" : kOpening};
}

std::vector<TokenId> prompt_tokens(const Engine& engine, const RunFlags& flags,
                                   const std::string& text) {
  put_utf8_note("the text", text, engine.tokenizer());
  const Spelled as = flags.prompt.spelled(engine.tokenizer(), text);
  const std::vector<TokenId> tokens = engine.tokenizer().encode_prompt(text, as);
  if (tokens.empty())
    fail(Exit::usage,
         "the prompt is empty and {} has no token that begins a text, expected some text",
         engine.path());
  return tokens;
}

JsonValue token_json(const Engine& engine, TokenId token, double log_probability) {
  return {{"id", token},
          {"text", engine.tokenizer().piece(token)},
          {"log_probability", log_probability}};
}

JsonValue log_json(const Engine& engine, const GenerateResult& result) {
  JsonValue list = JsonValue::array();
  for (size_t i = 0; i < result.log_probabilities.size(); ++i) {
    const LogProbabilities& p = result.log_probabilities[i];
    JsonValue most = JsonValue::array();
    for (const auto& [token, value] : p.most) most.push_back(token_json(engine, token, value));
    list.push_back(token_json(engine, result.tokens[i], p.drawn));
    list.back()["most_probable"] = std::move(most);
  }
  return list;
}

// `answer` counts from 0, in the output from 1.
JsonValue answer_json(const Engine& engine, const GenerateResult& result, double bandwidth,
                      uint64_t seed, size_t answer) {
  JsonValue json = {{"answer", answer + 1}};
  json.update(result_json(engine, result, bandwidth, seed));
  if (!result.log_probabilities.empty()) json["log_probabilities"] = log_json(engine, result);
  return json;
}

void put_text_event(size_t answer, std::string_view part) {
  put_event("text", {{"answer", answer + 1}, {"text", part}});
}

// True if a newline is printed after the answer: on a terminal, and after the story of the bundled
// model. The answer to a given prompt goes into a pipe byte for byte.
bool ends_line(const std::string& shown, const std::string& text) {
  return (stdout_is_terminal() || !shown.empty()) && !text.ends_with('\n');
}

// Prints what cut the printed answers off, and the last line of the run. Returns the exit status.
Exit put_end(const Speaker& speaker, std::span<const GenerateResult> printed,
             const std::string& summary) {
  speaker.put_cuts(printed);
  put_summary(summary);
  return std::ranges::any_of(printed, [&](const auto& r) { return speaker.is_incomplete(r); })
             ? Exit::incomplete
             : Exit::done;
}

// Prints several answers in turn with a line before each, or only the most probable one.
Exit put_answers(const RunFlags& flags, Speaker& speaker, const Prompt& prompt,
                 std::span<const TokenId> tokens) {
  const bool best = flags.best_of > 0;
  const int n = best ? flags.best_of : flags.answers;
  const uint64_t seed = speaker.options.sampling.seed;
  if (best && !speaker.options.scored) speaker.options.scored = 0;
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
    if (flags.json.lines && !best) put_text_event(answer, part);
    if (flags.json.any() || best) return;
    begin_until(answer);
    put_part(part);
  });
  std::span<const GenerateResult> printed = all.results;
  JsonValue array = JsonValue::array();
  for (size_t i = 0; i < all.results.size(); ++i) {
    GenerateResult& result = all.results[i];
    result.text.insert(0, prompt.shown);
    array.push_back(answer_json(speaker.engine(), result, 0, seed + i, i));
    if (best) array.back()["mean_log_probability"] = result.mean_log_probability;
  }
  if (best) {
    const size_t i = most_probable(all);
    printed = printed.subspan(i, 1);
    if (flags.json.any())
      flags.json.put_result(array.members()[i].value);
    else
      put_part(all.results[i].text);
    if (std::ranges::count(all.results, Finish::interrupted, &GenerateResult::finish) == 0)
      put_notice(fmt::format("answer {} of {} is the most probable: {:.4g} a token (seed {})",
                             i + 1, n, all.results[i].mean_log_probability, seed + i));
    line_ends = !ends_line(prompt.shown, all.results[i].text);
  } else if (flags.json.whole) {
    put_json(array);
  } else if (flags.json.lines) {
    for (const JsonMember& one : array.members()) put_event("result", one.value);
  } else {
    begin_until(size_t(n - 1));
  }
  if (!flags.json.any() && !line_ends) put("\n");
  return put_end(speaker, printed, answers_line(all, seed, flags.generation.verbose()));
}

// An error line if a typed flag contradicts --beam, else "".
std::string conflict_with_beams(const RunFlags& flags) {
  const GenerationFlags& g = flags.generation;
  if (flags.temperature.typed() && g.generate.sampling.temperature > 0)
    return fmt::format("--temp is {} with --beam, expected 0: beam search draws nothing at random",
                       g.generate.sampling.temperature);
  if (flags.draft.typed() && g.draft != "auto" && g.draft != "none")
    return fmt::format("--draft is {} with --beam, expected none: beam search uses no draft tokens",
                       g.draft);
  if (flags.context_policy.typed() && g.context_policy != "stop")
    return fmt::format("--context-policy is {} with --beam, expected stop", g.context_policy);
  return "";
}

// Refuses typed flags that contradict --beam, ignores those from the config file, and sets the
// options that beam search needs.
void check_beams(RunFlags& flags) {
  GenerationFlags& g = flags.generation;
  SamplerOptions& s = g.generate.sampling;
  const auto put_ignored = [&](const std::vector<std::string>& names, const char* reason) {
    if (g.verbose() && !names.empty())
      put_notice(fmt::format("because of {}, these settings of the config file are ignored: {}",
                             reason, fmt::join(names, ", ")));
  };
  const std::string against = flags.beams.width > 0 ? conflict_with_beams(flags) : "";
  if (!against.empty() && flags.beam.typed()) throw Error(Exit::usage, against);
  if (!against.empty()) {
    put_ignored({flags.beam.name()}, "flags on the command line that exclude --beam");
    flags.beams.width = 0;
  }
  if (flags.beams.width == 0 && flags.length_penalty.typed())
    fail(Exit::usage, "--length-penalty needs --beam N");
  if (flags.beams.width == 0) return;
  const double penalty = flags.beams.length_penalty;
  if (!(penalty >= 0 && penalty <= kMostPenalty))
    fail(Exit::usage, "--length-penalty is {}, expected 0 to {}", penalty, kMostPenalty);
  s.check();  // ignored settings are checked too
  std::vector<std::string> idle, ignored;
  // Beam search applies two of the sampler steps: penalties and DRY.
  if (!s.changes_logits()) flags.idle_with_beams.push_back(flags.samplers);
  for (const Flag& flag : flags.idle_with_beams)
    if (flag.given()) (flag.typed() ? idle : ignored).push_back(flag.name());
  for (const Flag& flag : {flags.temperature, flags.draft, flags.context_policy})
    if (flag.given() && !flag.typed()) ignored.push_back(flag.name());
  put_no_effect(idle, "with --beam: nothing is drawn at random");
  put_ignored(ignored, "--beam");
  s = s.greedy();
  g.draft = "none", g.context_policy = "stop";
}

std::string beams_line(const std::vector<Beam>& all, const BeamOptions& beams) {
  const GenerateResult& best = all[0].result;
  if (best.known_tokens < best.prompt_tokens) return unread_line(best);
  std::string line = fmt::format("{}; prompt of {} read at {:.4g} tok/s; the best beam has {}",
                                 counted(uint64_t(beams.width), "beam"),
                                 counted(uint64_t(best.prompt_tokens), "token"), best.prompt_rate(),
                                 counted(best.tokens.size(), "token"));
  if (best.decode_rate() > 0) line += fmt::format(", {:.4g} tok/s", best.decode_rate());
  return line + fmt::format(", score {:.4g}; {}", all[0].score, why_it_ended(best.finish));
}

Exit put_beams(const RunFlags& flags, Speaker& speaker, const Prompt& prompt,
               std::span<const TokenId> tokens) {
  std::vector<Beam> all;
  {
    ReadingLine reading(speaker.shows_reading);
    GenerateOptions options = speaker.options;
    options.on_read = [&](int known, int of) { reading.show(known, of); };
    all = beam_search(*speaker.session, tokens, options, flags.beams);
  }
  JsonValue array = JsonValue::array();
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].result.text.insert(0, prompt.shown);
    array.push_back(
        answer_json(speaker.engine(), all[i].result, 0, speaker.options.sampling.seed, i));
    array.back()["score"] = all[i].score;
  }
  const GenerateResult& best = all[0].result;
  if (flags.json.whole) {
    put_json(array);
  } else if (flags.json.lines) {
    for (const JsonMember& one : array.members()) put_event("result", one.value);
  } else {
    put_model_text(best.text);
    if (ends_line(prompt.shown, best.text)) put("\n");
  }
  return put_end(speaker, {&best, 1}, beams_line(all, flags.beams));
}

// Whether the file of --cache can be written. Says why not, also with --quiet: each later run reads
// the prompt again.
bool can_store(const std::string& cache) {
  try {
    const AtomicFile not_kept(cache, Permissions::owner_only);
    return true;
  } catch (const Error& error) {
    put_loud_notice(std::string(error.what()) + ": the prompt is not stored");
    return false;
  }
}

// Loads the KV cache of the prompt from the file, reads the tokens that it does not have, and saves
// them. The last token is left for generation, which needs its logits. Returns how many tokens of
// the prompt were in the file.
int read_prompt(const std::string& cache, Speaker& speaker, std::span<const TokenId> prompt) {
  Session& session = *speaker.session;
  const auto front = prompt.first(prompt.size() - 1);
  std::error_code none;
  session.expect_kept(cache);
  expect_kv_file(cache);
  if (std::filesystem::exists(cache, none)) {
    try {
      session.restore(cache);
    } catch (const Error& error) {
      put_notice(std::string(error.what()) +
                 ": the prompt is read again, and the file is replaced");
    }
  }
  if (front.empty()) {  // nothing to store, but the next prompt may be longer
    if (!std::filesystem::exists(cache, none)) can_store(cache);
    return 0;
  }
  // The file may have more tokens after the prompt. It is then left as it is.
  const size_t same = session.common_prefix(front);
  if (same == front.size() || int(prompt.size()) > speaker.engine().context_length())
    return int(same);
  std::span<const TokenId> missing = session.reuse(front);
  // Less than `same` if a window or a recurrent state had to be rewound further.
  const int known = session.position();
  const bool stores = can_store(cache);  // before the prompt costs time
  ReadingLine reading(speaker.shows_reading);
  while (!missing.empty() && !speaker.options.interrupt->load()) {
    const size_t n = std::min(missing.size(), size_t(speaker.engine().batch_length()));
    reading.show(session.position(), int(prompt.size()));
    const Extension portion{.session = &session,
                            .tokens = missing.first(n),
                            .wanted = 0,
                            .interrupt = speaker.options.interrupt};
    if (!Pass({&portion, 1}).run()) break;
    missing = missing.subspan(n);
  }
  if (!stores || speaker.options.interrupt->load()) return known;
  try {
    session.save(cache);
  } catch (const Error& error) {  // the answer does not need the file
    if (error.code != Exit::io) throw;
    put_loud_notice(std::string(error.what()) + ": the prompt is not stored");
  }
  return known;
}

int run(RunFlags& flags) {
  flags.generation.resolve_config_conflicts();
  check_beams(flags);
  flags.generation.check();
  if (flags.log_probabilities_flag.typed() && !flags.json.any())
    fail(Exit::usage, "--logprobs needs --json");
  if (!flags.json.any()) flags.log_probabilities = 0;
  flags.generation.choose_seed();
  const Prompt prompt = prompt_of(flags);
  flags.generation.model.engine.sessions =
      std::max({1, flags.answers, flags.best_of, flags.beams.width});
  Speaker speaker(flags.generation);
  speaker.shows_reading = !flags.json.any();
  const std::vector<TokenId> tokens = prompt_tokens(speaker.engine(), flags, prompt.text);
  // Users of ollama know this form from a command that answers.
  if (flags.prompt.text_flag.unnamed() &&
      !speaker.engine().meta().str("tokenizer.chat_template", "").empty())
    put_notice("chaski run continues the prompt; chaski chat MODEL PROMPT answers it");

  const Interruption interruption(Interruption::Scope::program);
  speaker.options.interrupt = &interruption.requested();
  if (flags.log_probabilities > 0) speaker.options.scored = flags.log_probabilities;
  if (flags.answers > 0 || flags.best_of > 0 || flags.beams.width > 0) {
    const Exit status = flags.beams.width > 0 ? put_beams(flags, speaker, prompt, tokens)
                                              : put_answers(flags, speaker, prompt, tokens);
    if (interruption.signal() != 0) end_by_signal(interruption.signal());
    return int(status);
  }
  GenerateResult so_far;
  so_far.prompt_tokens = int(tokens.size());
  if (flags.json.any())
    speaker.options.on_token = [&](TokenId token, const LogProbabilities*) {
      so_far.tokens.push_back(token);
    };
  bool begun = false;  // an error before the answer leaves standard output empty
  const Sink sink = [&](std::string_view part) {
    if (!std::exchange(begun, true)) put(prompt.shown);
    if (flags.json.any()) so_far.text += part;
    if (flags.json.lines) put_text_event(0, part);
    if (!flags.json.any()) put_model_text(part);
  };
  const uint64_t seed = speaker.options.sampling.seed;
  const auto start = std::chrono::steady_clock::now();
  const int cached = flags.cache.empty() ? 0 : read_prompt(flags.cache, speaker, tokens);
  const std::chrono::duration<double> reading = std::chrono::steady_clock::now() - start;
  GenerateResult result;
  try {
    result = speaker.answer(tokens, speaker.options, sink);
  } catch (const Error& error) {
    if (flags.json.any() && error.code != Exit::io && !so_far.text.empty()) {
      JsonValue part = {{"answer", 1}};
      part.update(begun_json(speaker.engine(), so_far, seed));
      flags.json.put_result(part);
    }
    throw;
  }
  if (!flags.cache.empty()) {
    result.cached_tokens = std::min(cached, result.cached_tokens);
    if (result.prompt_seconds > 0)
      result.prompt_seconds += reading.count(), result.first_token_seconds += reading.count();
    else
      result.known_tokens = int(speaker.session->common_prefix(tokens));
  }
  if (!begun) put(prompt.shown);
  result.text.insert(0, prompt.shown);
  const double bandwidth = measured_bandwidth(speaker.engine(), result);
  if (flags.json.any())
    flags.json.put_result(answer_json(speaker.engine(), result, bandwidth, seed, 0));
  else if (ends_line(prompt.shown, result.text))
    put("\n");
  const Exit status = put_end(speaker, {&result, 1},
                              timing_line(result, bandwidth, seed, flags.generation.verbose()) +
                                  (flags.generation.verbose() ? threads_part(speaker.engine()) +
                                                                    experts_part(speaker.engine())
                                                              : ""));
  if (interruption.signal() != 0) end_by_signal(interruption.signal());
  return int(status);
}

}  // namespace

Action declare_run(Flags parser) {
  auto flags = std::make_shared<RunFlags>();
  flags->prompt.declare(parser);
  flags->prompt.declare_pipe(parser);
  flags->prompt.declare_special(parser);
  flags->generation.declare(parser);
  flags->generation.declare_answer_cache(parser);
  declare_json(parser, flags->json);
  parser.named("--json").help(kJsonOfText);
  flags->log_probabilities_flag = parser
                                      .add("--logprobs", flags->log_probabilities,
                                           "with --json: print the log probability of each token "
                                           "and of the N most probable ones")
                                      .within(1, kMostLogged)
                                      .type("N");
  Flag answers =
      parser
          .add("--answers", flags->answers,
               "generate N answers with the seeds --seed, --seed + 1, ...; the prompt is read once")
          .within(1, kMostAnswers)
          .type("N");
  parser
      .add("--best-of", flags->best_of,
           "generate N answers and print the most probable one, by mean log probability")
      .within(1, kMostAnswers)
      .type("N")
      .excludes(answers);
  flags->beam =
      parser
          .add("--beam", flags->beams.width,
               "beam search: find the most probable text with N beams and print the best one; "
               "--json prints all")
          .within(1, kMostAnswers)
          .type("N")
          .excludes(answers);
  for (const char* other : {"--best-of", "--logprobs", "--grammar", "--json-schema", "--regex"})
    flags->beam.excludes(parser.named(other));
  flags->length_penalty =
      parser
          .add("--length-penalty", flags->beams.length_penalty,
               "with --beam: divide sums of log probabilities by length ^ P (default 1)")
          .type("P");
  flags->temperature = parser.named("--temp");
  flags->draft = parser.named("--draft");
  flags->samplers = parser.named("--samplers");
  flags->context_policy = parser.named("--context-policy");
  std::vector<const char*> idle = {"--seed"};
  each_parameter(flags->generation.generate.sampling, [&]<class P>(const P&, const auto& p) {
    if (!changes_logits<P> && p.flag != std::string("--temp")) idle.push_back(p.flag);
  });
  idle.push_back("--draft-len");
  for (const char* flag : idle) flags->idle_with_beams.push_back(parser.named(flag));
  parser
      .add("--cache", flags->cache,
           "prompt cache file: a later run with the same beginning skips that part; the text does "
           "not change")
      .not_empty("a file")
      .type("FILE")
      .excludes(answers)
      .excludes(parser.named("--best-of"))
      .excludes(parser.named("--beam"));
  for (const char* other : {"--answers", "--best-of", "--beam", "--logprobs", "--cache"})
    parser.named("--answer-cache").excludes(parser.named(other));
  parser.table(
      {"Why a text ends (\"finish\" of --json)",
       {{"end", "the model ended it"},
        {"stop", "a --stop text was generated"},
        {"length", "it reached the number of tokens of -n"},
        {"full", "the context is full (see --context-policy)"},
        {"interrupted", "Ctrl-C"},
        {"error", "an error, after a part of the text; the message is on standard error"}}});
  parser.example("Continue a text with 50 tokens",
                 "chaski run -m model.gguf -p \"Once upon a time\" -n 50");
  parser.example("The same story every time, with the bundled model", "chaski run --seed 10");
  parser.example(
      "Only JSON that fits a schema",
      "chaski run -q -m model.gguf -p \"Tim is a boy. As JSON: \" --json-schema schema.json");
  return [flags] { return run(*flags); };
}

}  // namespace chaski
