// chaski run: completes one prompt. stdout carries the completion and nothing else.
#include <memory>

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
};

// The bundled model tells stories: asked for nothing, it tells one from the first word on.
constexpr const char* kOpening = "Once upon a time";

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

void put_result(const Engine& engine, const GenerateResult& result, double bandwidth,
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
  put_json(json);
}

// The answer to a prompt goes into a pipe byte for byte; on a terminal, and after a story that
// nobody prompted, the next line begins on its own.
bool ends_line(const std::string& shown, const std::string& text) {
  return (stdout_is_terminal() || !shown.empty()) && !text.ends_with('\n');
}

int run(RunFlags& flags) {
  flags.generation.check();
  flags.generation.choose_seed();
  const Prompt prompt = prompt_of(flags);
  Speaker speaker(flags.generation);
  const std::vector<TokenId> tokens = prompt_tokens(*speaker.engine, prompt.text);

  const Interruption interruption(Interruption::Scope::program);
  speaker.options.interrupt = &interruption.requested();
  const Sink sink = [&](std::string_view part) {
    if (!flags.json) put_model_text(part);
  };
  if (!prompt.shown.empty()) sink(prompt.shown);
  GenerateResult result = generate(*speaker.session, tokens, speaker.options, sink);
  result.text.insert(0, prompt.shown);
  const uint64_t seed = speaker.options.sampling.seed;
  const double bandwidth = bandwidth_beside(*speaker.engine, result);
  if (flags.json)
    put_result(*speaker.engine, result, bandwidth, seed);
  else if (ends_line(prompt.shown, result.text))
    put("\n");
  if (result.finish == Finish::full)
    put_notice(fmt::format("the context of {} tokens is full, the text ends here",
                           speaker.engine->context_length()));
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
  return [flags] { return run(*flags); };
}

}  // namespace chaski
