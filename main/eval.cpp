// chaski eval: how well a model foretells a text.
#include <chrono>
#include <limits>
#include <memory>

#include "engine/perplexity.h"
#include "main/commands.h"
#include "main/json_output.h"
#include "main/options.h"
#include "main/output.h"
#include "main/progress.h"

namespace chaski {

namespace {

struct EvalFlags {
  ModelFlags model;
  PromptFlags text;
  int windows = 0;  // 0: all
  bool json = false;
};

// llama.cpp takes the last newline of a text away, and figures are to compare.
std::vector<TokenId> tokens_of(const Engine& engine, std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return engine.tokenizer().encode_prompt(text);
}

int windows_to_read(const EvalFlags& flags, size_t tokens, int window) {
  const int all = windows_of(tokens, window);
  if (all == 0)
    fail(Exit::usage, "the text has {}, expected at least the {} of a window (see --ctx)",
         counted(tokens, "token"), window);
  return flags.windows > 0 ? std::min(flags.windows, all) : all;
}

void put_result(const Engine& engine, const Perplexity& result, int window, double seconds,
                bool json) {
  if (json)
    return put_json({{"model", engine.path()},
                     {"device", engine.device()},
                     {"kv", engine.kv_type()},
                     {"window", window},
                     {"windows", result.windows},
                     {"scored_tokens", result.scored},
                     {"scored_bytes", result.bytes},
                     {"perplexity", result.perplexity()},
                     {"standard_error", result.standard_error()},
                     {"bits_per_byte", result.bits_per_byte()},
                     {"seconds", seconds}});
  put(fmt::format("perplexity {:.3f} ± {:.3f}, {:.4f} bits per byte\n", result.perplexity(),
                  result.standard_error(), result.bits_per_byte()));
  put_summary(fmt::format("{} tokens scored in {} windows of {}; {:.1f} s, {:.1f} tokens/s",
                          result.scored, result.windows, window, seconds,
                          double(result.windows) * window / seconds));
}

int eval(const EvalFlags& flags) {
  const std::string text = flags.text.required();
  const std::shared_ptr<Engine> engine = open_engine(flags.model.options());
  const std::vector<TokenId> tokens = tokens_of(*engine, text);
  const int window = engine->context_length();
  const int windows = windows_to_read(flags, tokens.size(), window);
  const uint64_t all = uint64_t(windows) * uint64_t(window);
  const auto start = std::chrono::steady_clock::now();
  Perplexity result;
  {
    ProgressBar bar({double(all), "tokens"});
    result = perplexity(
        *engine->session(), tokens, window, windows, [&](const Perplexity& so_far, uint64_t read) {
          bar.show({fmt::format("perplexity {:.3f}", so_far.perplexity()), read, all});
        });
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  put_result(*engine, result, window, taken.count(), flags.json);
  return int(Exit::done);
}

}  // namespace

Action declare_eval(Flags parser) {
  auto flags = std::make_shared<EvalFlags>();
  flags->model.engine.context = 512;
  flags->model.declare(parser);
  parser.named("--ctx")
      .help("tokens of a window (default 512)")
      .within(kLeastWindow, std::numeric_limits<int>::max());
  flags->text.declare(parser);
  parser.add("--chunks", flags->windows, "windows at most (default: the whole text)")
      .within(1, std::numeric_limits<int>::max())
      .type("N");
  declare_json(parser, flags->json);
  return [flags] { return eval(*flags); };
}

}  // namespace chaski
