// chaski run: completes one prompt. stdout carries the completion and nothing else.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>

#include "engine/requests/beam.h"
#include "main/commands/answers.h"
#include "main/commands/speaker.h"
#include "main/flags/commands.h"
#include "main/flags/options.h"
#include "main/terminal/json_output.h"
#include "main/terminal/output.h"
#include "main/terminal/progress.h"
#include "main/terminal/signals.h"
#include "main/terminal/timing.h"

namespace chaski {

namespace {

struct RunFlags {
  GenerationFlags generation;
  PromptFlags prompt;
  JsonForm json;
  std::string cache;
  int answers = 0, best_of = 0;  // 0: one
  int log_probabilities = 0;     // tokens beside each; 0: none
  Flag log_probabilities_flag;
  BeamOptions beams{0, 1};  // width 0: none
  Flag beam, length_penalty, temperature, draft, context_policy, samplers;
  std::vector<Flag> idle_beside_beams;
};

// The bundled model tells stories: asked for nothing, it tells one from the first word on.
constexpr const char* kOpening = "Once upon a time";
constexpr int kMostAnswers = 64, kMostLogged = 1000;
constexpr double kMostPenalty = 10;

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
  if (flags.json.lines && !best && !prompt.shown.empty())
    for (size_t i = 0; i < size_t(n); ++i) put_text_event(i, prompt.shown);
  Answers all = answers_to(speaker, tokens, n, [&](size_t answer, std::string_view part) {
    if (flags.json.lines && !best) put_text_event(answer, part);
    if (flags.json.any() || best) return;
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
    array.push_back(answer_json(*speaker.engine, result, 0, seed + i, i));
    if (best) array.back()["mean_log_probability"] = result.mean_log_probability;
  }
  if (best) {
    const size_t i = most_probable(all);
    if (flags.json.any())
      flags.json.put_result(array.members()[i].value);
    else
      put_part(all.results[i].text);
    if (!ended(Finish::interrupted))
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
  if (ended(Finish::full)) put_notice(speaker.full_line());
  put_summary(answers_line(all, seed, flags.generation.verbose()));
}

// What is typed and asks for something else than beams do; "": nothing.
std::string against_beams(const RunFlags& flags) {
  const GenerationFlags& g = flags.generation;
  if (flags.temperature.typed() && g.generate.sampling.temperature > 0)
    return fmt::format("--temp is {} beside --beam, expected 0 or none: nothing is drawn",
                       g.generate.sampling.temperature);
  if (flags.draft.typed() && g.draft != "auto" && g.draft != "none")
    return fmt::format("--draft is {} beside --beam, expected none: nobody guesses for beams",
                       g.draft);
  if (flags.context_policy.typed() && g.context_policy != "stop")
    return fmt::format("--context-policy is {} beside --beam, expected stop", g.context_policy);
  return "";
}

// What cannot stand beside --beam is refused where both are typed; what comes from the file of
// defaults gives way. And what beams make of the settings is set.
void check_beams(RunFlags& flags) {
  GenerationFlags& g = flags.generation;
  SamplerOptions& s = g.generate.sampling;
  const auto put_passed_over = [&](const std::vector<std::string>& names, const char* typed) {
    if (g.verbose() && !names.empty())
      put_notice(fmt::format("of the file of defaults, passed over beside {}: {}", typed,
                             fmt::join(names, ", ")));
  };
  const std::string against = flags.beams.width > 0 ? against_beams(flags) : "";
  if (!against.empty() && flags.beam.typed()) throw Error(Exit::usage, against);
  if (!against.empty()) {
    put_passed_over({flags.beam.name()}, "what is typed");
    flags.beams.width = 0;
  }
  if (flags.beams.width == 0 && flags.length_penalty.typed())
    fail(Exit::usage, "--length-penalty is about beams, expected --beam N beside it");
  if (flags.beams.width == 0) return;
  const double penalty = flags.beams.length_penalty;
  if (!(penalty >= 0 && penalty <= kMostPenalty))
    fail(Exit::usage, "--length-penalty is {}, expected 0 to {}", penalty, kMostPenalty);
  s.check();  // also of what is passed over
  std::vector<std::string> idle, passed_over;
  // Of the steps these two are done, if they are there.
  if (!s.changes_logits()) flags.idle_beside_beams.push_back(flags.samplers);
  for (const Flag& flag : flags.idle_beside_beams)
    if (flag.given()) (flag.typed() ? idle : passed_over).push_back(flag.name());
  for (const Flag& flag : {flags.temperature, flags.draft, flags.context_policy})
    if (flag.given() && !flag.typed()) passed_over.push_back(flag.name());
  put_no_effect(idle, "beside --beam: nothing is drawn");
  put_passed_over(passed_over, "--beam");
  s = s.greedy();
  g.draft = "none", g.context_policy = "stop";
}

std::string beams_line(const std::vector<Beam>& all, const BeamOptions& beams) {
  const GenerateResult& best = all[0].result;
  if (best.known_tokens < best.prompt_tokens) return unread_line(best);
  std::string line = fmt::format("{} of a prompt of {}, {:.4g} tok/s; the best has {}",
                                 counted(uint64_t(beams.width), "beam"),
                                 counted(uint64_t(best.prompt_tokens), "token"), best.prompt_rate(),
                                 counted(best.tokens.size(), "token"));
  if (best.decode_rate() > 0) line += fmt::format(", {:.4g} tok/s", best.decode_rate());
  return line + fmt::format(", score {:.4g}; {}", all[0].score, why_it_ended(best.finish));
}

void put_beams(const RunFlags& flags, Speaker& speaker, const Prompt& prompt,
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
        answer_json(*speaker.engine, all[i].result, 0, speaker.options.sampling.seed, i));
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
  if (best.finish == Finish::full) put_notice(speaker.full_line());
  put_summary(beams_line(all, flags.beams));
}

// Keys and values of the prompt but for its last token, whose logits are wanted: from the file as
// far as it has them, and else into it. Returns how many tokens were in the file.
int read_prompt(const std::string& cache, Speaker& speaker, std::span<const TokenId> prompt) {
  Session& session = *speaker.session;
  const auto front = prompt.first(prompt.size() - 1);
  std::error_code none;
  session.expect_kept(cache);
  expect_saved_states(cache);
  if (std::filesystem::exists(cache, none)) {
    try {
      session.restore(cache);
    } catch (const Error& error) {
      put_notice(std::string(error.what()) + ": the prompt is read, and the file written anew");
    }
  }
  if (front.empty()) return 0;
  // What stands behind the prompt in the file may be another's, and is kept.
  const size_t alike = session.common_prefix(front);
  if (alike == front.size() || int(prompt.size()) > speaker.engine->context_length())
    return int(alike);
  std::span<const TokenId> lacks = session.reuse(front);
  const int known = session.position();  // a window may have gone back further
  ReadingLine reading(speaker.shows_reading);
  while (!lacks.empty() && !speaker.options.interrupt->load()) {
    const size_t n = std::min(lacks.size(), size_t(speaker.engine->batch_length()));
    reading.show(session.position(), int(prompt.size()));
    const Extension portion{.session = &session,
                            .tokens = lacks.first(n),
                            .wanted = 0,
                            .interrupt = speaker.options.interrupt};
    if (draw_all({&portion, 1})[0].abandoned) break;
    lacks = lacks.subspan(n);
  }
  if (!speaker.options.interrupt->load()) session.save(cache);
  return known;
}

int run(RunFlags& flags) {
  flags.generation.resolve_config_conflicts();
  check_beams(flags);
  flags.generation.check();
  if (flags.log_probabilities_flag.typed() && !flags.json.any())
    fail(Exit::usage, "--logprobs says them in JSON, expected --json beside it");
  if (!flags.json.any()) flags.log_probabilities = 0;
  flags.generation.choose_seed();
  const Prompt prompt = prompt_of(flags);
  flags.generation.model.engine.sessions =
      std::max({1, flags.answers, flags.best_of, flags.beams.width});
  Speaker speaker(flags.generation);
  speaker.shows_reading = !flags.json.any();
  const std::vector<TokenId> tokens = prompt_tokens(*speaker.engine, prompt.text);

  const Interruption interruption(Interruption::Scope::program);
  speaker.options.interrupt = &interruption.requested();
  if (flags.log_probabilities > 0) speaker.options.scored = flags.log_probabilities;
  if (flags.answers > 0 || flags.best_of > 0 || flags.beams.width > 0) {
    if (flags.beams.width > 0)
      put_beams(flags, speaker, prompt, tokens);
    else
      put_answers(flags, speaker, prompt, tokens);
    if (interruption.signal() != 0) end_by_signal(interruption.signal());
    return int(Exit::done);
  }
  const Sink sink = [&](std::string_view part) {
    if (flags.json.lines) put_text_event(0, part);
    if (!flags.json.any()) put_model_text(part);
  };
  if (!prompt.shown.empty()) sink(prompt.shown);
  const auto start = std::chrono::steady_clock::now();
  const int known = flags.cache.empty() ? 0 : read_prompt(flags.cache, speaker, tokens);
  const std::chrono::duration<double> reading = std::chrono::steady_clock::now() - start;
  GenerateResult result = speaker.answer(tokens, speaker.options, sink);
  if (!flags.cache.empty()) {
    result.cached_tokens = std::min(known, result.cached_tokens);
    if (result.prompt_seconds > 0)
      result.prompt_seconds += reading.count(), result.first_token_seconds += reading.count();
    else
      result.known_tokens = int(speaker.session->common_prefix(tokens));
  }
  result.text.insert(0, prompt.shown);
  const uint64_t seed = speaker.options.sampling.seed;
  const double bandwidth = measured_bandwidth(*speaker.engine, result);
  if (flags.json.any())
    flags.json.put_result(answer_json(*speaker.engine, result, bandwidth, seed, 0));
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
  parser.named("--json").help(kJsonOfText);
  flags->log_probabilities_flag =
      parser
          .add("--logprobs", flags->log_probabilities,
               "with --json: the log probability of every token, and the N most probable beside it")
          .within(1, kMostLogged)
          .type("N");
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
  flags->beam =
      parser
          .add("--beam", flags->beams.width,
               "search for the most probable text, N beginnings at a time; nothing is drawn; the "
               "best is printed, --json has all")
          .within(1, kMostAnswers)
          .type("N")
          .excludes(answers);
  for (const char* other : {"--best-of", "--logprobs", "--grammar", "--json-schema", "--regex"})
    flags->beam.excludes(parser.named(other));
  flags->length_penalty =
      parser
          .add("--length-penalty", flags->beams.length_penalty,
               "of --beam: sums of log probabilities are divided by length ^ P; 0: not at all "
               "(default 1)")
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
  for (const char* flag : idle) flags->idle_beside_beams.push_back(parser.named(flag));
  parser
      .add("--cache", flags->cache,
           "a file for what the model makes of the prompt: the next run whose prompt begins alike "
           "does not read it again, and the text is the same")
      .not_empty("a file")
      .type("FILE")
      .excludes(answers)
      .excludes(parser.named("--best-of"))
      .excludes(parser.named("--beam"));
  for (const char* other : {"--answers", "--best-of", "--beam", "--logprobs", "--cache"})
    parser.named("--answer-cache").excludes(parser.named(other));
  parser.table({"Why a text ends (\"finish\" of --json)",
                {{"end", "the model ended it"},
                 {"stop", "a text of --stop came"},
                 {"length", "it has as many tokens as -n allows"},
                 {"full", "the context is full (see --context-policy)"},
                 {"interrupted", "Ctrl-C"}}});
  parser.example("A text, and 50 tokens more",
                 "chaski run -m model.gguf -p \"Once upon a time\" -n 50");
  parser.example("The same story every time, by the bundled model", "chaski run --seed 10");
  parser.example(
      "JSON of a schema and nothing else",
      "chaski run -q -m model.gguf -p \"Tim is a boy. As JSON: \" --json-schema schema.json");
  return [flags] { return run(*flags); };
}

}  // namespace chaski
