// chaski eval: how well a model foretells a text, and how far it is from another one.
#include <chrono>
#include <limits>
#include <memory>

#include "engine/divergence.h"
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
  std::string base;  // empty: there is nothing to compare with
  int windows = 0;   // 0: all
  bool json = false;
};

// llama.cpp takes the last newline of a text away, and figures are to compare.
std::string text_of(const EvalFlags& flags) {
  std::string text = flags.text.required();
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

int windows_to_read(const EvalFlags& flags, size_t tokens, int window) {
  const int all = windows_of(tokens, window);
  if (all == 0)
    fail(Exit::usage, "the text has {}, expected at least the {} of a window (see --ctx)",
         counted(tokens, "token"), window);
  return flags.windows > 0 ? std::min(flags.windows, all) : all;
}

JsonValue json_of(const Engine& engine, const Perplexity& result) {
  return {{"model", engine.path()},
          {"device", engine.device()},
          {"kv", engine.kv_type()},
          {"windows", result.windows},
          {"scored_tokens", result.scored()},
          {"scored_bytes", result.bytes},
          {"perplexity", result.perplexity()},
          {"standard_error", result.standard_error()},
          {"bits_per_byte", result.bits_per_byte()}};
}

std::string line_of(const Perplexity& result) {
  return fmt::format("perplexity {:.3f} ± {:.3f}, {:.4f} bits per byte\n", result.perplexity(),
                     result.standard_error(), result.bits_per_byte());
}

void put_speed(const Perplexity& result, int window, double seconds) {
  put_summary(fmt::format("{} tokens scored in {} windows of {}; {:.1f} s, {:.1f} tokens/s",
                          result.scored(), result.windows, window, seconds,
                          double(result.windows) * window / seconds));
}

void put_result(const Engine& engine, const Perplexity& result, int window, double seconds,
                bool json) {
  if (json) {
    JsonValue out = json_of(engine, result);
    out["window"] = window, out["seconds"] = seconds;
    return put_json(out);
  }
  put(line_of(result));
  put_speed(result, window, seconds);
}

void put_comparison(const Engine& base, const Engine& engine, const Divergence& result, int window,
                    double seconds, bool json) {
  if (json) {
    JsonValue out = json_of(engine, result.model);
    out["window"] = window, out["seconds"] = seconds;
    out["base"] = json_of(base, result.base);
    out["kl"] = result.kl.mean, out["kl_standard_error"] = result.kl.standard_error();
    out["same_top"] = result.same_top.mean;
    out["same_top_standard_error"] = result.same_top.standard_error();
    out["rms_delta_p"] = result.rms();
    out["rms_delta_p_standard_error"] = result.rms_standard_error();
    return put_json(out);
  }
  put(
      fmt::format("KL {:.5f} ± {:.5f}, same top {:.2f}% ± {:.2f}%, RMS of delta p {:.2f}% ± "
                  "{:.2f}%\n",
                  result.kl.mean, result.kl.standard_error(), 100 * result.same_top.mean,
                  100 * result.same_top.standard_error(), 100 * result.rms(),
                  100 * result.rms_standard_error()));
  put("model: " + line_of(result.model));
  put("base:  " + line_of(result.base));
  put_speed(result.model, window, seconds);
}

int eval(const EvalFlags& flags) {
  const std::string text = text_of(flags);
  const std::shared_ptr<Engine> engine = open_engine(flags.model.options());
  std::shared_ptr<Engine> base;
  if (!flags.base.empty()) {
    EngineOptions options = flags.model.options();
    options.model = flags.base;
    base = open_engine(options);
    expect_same_tokens(*base, *engine, text);
  }
  const std::vector<TokenId> tokens = engine->tokenizer().encode_prompt(text);
  const int window = engine->context_length();
  const int windows = windows_to_read(flags, tokens.size(), window);
  const uint64_t all = uint64_t(windows) * uint64_t(window);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::optional<ProgressBar> bar(ProgressScale{double(all), "tokens"});
  if (base) {
    const Divergence result =
        divergence(*base->session(), *engine->session(), tokens, window, windows,
                   [&](const Divergence& so_far, uint64_t read) {
                     bar->show({fmt::format("KL {:.5f}", so_far.kl.mean), read, all});
                   });
    bar.reset();
    put_comparison(*base, *engine, result, window, seconds(), flags.json);
  } else {
    const Perplexity result = perplexity(
        *engine->session(), tokens, window, windows, [&](const Perplexity& so_far, uint64_t read) {
          bar->show({fmt::format("perplexity {:.3f}", so_far.perplexity()), read, all});
        });
    bar.reset();
    put_result(*engine, result, window, seconds(), flags.json);
  }
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
  parser
      .add("--kl", flags->base,
           "compare with this model, of which -m was made: KL divergence, same top, delta p")
      .not_empty("a model file or folder")
      .type("BASE");
  parser.add("--chunks", flags->windows, "windows at most (default: the whole text)")
      .within(1, std::numeric_limits<int>::max())
      .type("N");
  declare_json(parser, flags->json);
  return [flags] { return eval(*flags); };
}

}  // namespace chaski
