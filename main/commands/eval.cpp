// chaski eval: perplexity of a model on a text, and its KL divergence from another model.
#include <chrono>
#include <memory>

#include "engine/measure/divergence.h"
#include "engine/measure/kv_loss.h"
#include "main/flags/commands.h"
#include "main/flags/options.h"
#include "main/terminal/json_output.h"
#include "main/terminal/output.h"
#include "main/terminal/progress.h"
#include "main/terminal/utf8_note.h"

namespace chaski {

namespace {

struct EvalFlags {
  WindowFlags text;
  std::string base;     // empty: no comparison
  std::string base_kv;  // empty: as --kv
  bool floor = false;
  JsonForm json;
};

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

struct Work {
  size_t tokens;  // of the text
  int window;
  double seconds;

  void add_to(JsonValue& json) const {
    json["text_tokens"] = tokens, json["window"] = window, json["seconds"] = seconds;
  }
};

void put_speed(const Perplexity& result, const Work& work) {
  put_summary(fmt::format("{} of {} tokens scored in {} of {}; {:.1f} s, {:.1f} tokens/s",
                          result.scored(), work.tokens, counted(uint64_t(result.windows), "window"),
                          work.window, work.seconds,
                          double(result.windows) * work.window / work.seconds));
}

void put_result(const Engine& engine, const Perplexity& result, const Work& work,
                const JsonForm& json) {
  if (json.any()) {
    JsonValue out = json_of(engine, result);
    work.add_to(out);
    return json.put_result(out);
  }
  put(line_of(result));
  put_speed(result, work);
}

// A format of keys and values that differs from the base's.
const char* twin_kv(const std::string& kv) { return kv == "f32" ? "f16" : "f32"; }

void put_comparison(const Engine& base, const Engine& engine, const Divergence& result,
                    const Work& work, const JsonForm& json) {
  if (json.any()) {
    JsonValue out = json_of(engine, result.model);
    work.add_to(out);
    out["base"] = json_of(base, result.base);
    out["kl"] = result.kl.mean, out["kl_standard_error"] = result.kl.standard_error();
    out["same_top"] = result.same_top.mean;
    out["same_top_standard_error"] = result.same_top.standard_error();
    out["rms_delta_p"] = result.rms();
    out["rms_delta_p_standard_error"] = result.rms_standard_error();
    if (result.floor.count > 0)
      out["floor"] = result.floor.mean, out["floor_standard_error"] = result.floor.standard_error();
    return json.put_result(out);
  }
  put(
      fmt::format("KL {:.5f} ± {:.5f}, same top {:.2f}% ± {:.2f}%, RMS of delta p {:.2f}% ± "
                  "{:.2f}%\n",
                  result.kl.mean, result.kl.standard_error(), 100 * result.same_top.mean,
                  100 * result.same_top.standard_error(), 100 * result.rms(),
                  100 * result.rms_standard_error()));
  if (result.floor.count > 0)
    put(fmt::format(
        "noise: KL {:.1e} ± {:.1e} of the base from itself with keys and values in {}\n",
        result.floor.mean, result.floor.standard_error(), twin_kv(base.kv_type())));
  put("model: " + line_of(result.model));
  put("base:  " + line_of(result.base));
  put_speed(result.model, work);
}

int eval(const EvalFlags& flags) {
  if (flags.floor && flags.base.empty()) fail(Exit::usage, "--noise needs --kl BASE");
  if (!flags.base_kv.empty() && flags.base.empty()) fail(Exit::usage, "--base-kv needs --kl BASE");
  const std::string text = flags.text.read();
  const std::shared_ptr<Engine> engine = open_engine(flags.text.model.options());
  std::shared_ptr<Engine> base, twin;
  if (!flags.base.empty()) {
    EngineOptions options = flags.text.model.options();
    options.model = flags.base;
    if (!flags.base_kv.empty()) options.kv = *format_named(flags.base_kv);
    if (flags.base_kv.empty() && !kv_loss(options.kv).empty())
      put_notice(
          fmt::format("BASE also has --kv {0}, so what {0} loses is not measured: --base-kv f16 "
                      "measures it",
                      info(options.kv).name));
    base = open_engine(options);
    expect_same_tokens(*base, *engine, text);
    if (flags.floor) {
      options.kv = *format_named(twin_kv(base->kv_type()));
      // Ranks open it together.
      twin = options.link ? open_engine(options) : base->with(options);
    }
  }
  put_utf8_note("the text", text, engine->tokenizer());
  const std::vector<TokenId> tokens = engine->tokenizer().encode_prompt(text);
  const int window = engine->context_length();
  const int windows = flags.text.windows_of(tokens.size(), window);
  put_rest_note(tokens.size(), window, windows);
  const uint64_t all = uint64_t(windows) * uint64_t(window);
  const auto start = std::chrono::steady_clock::now();
  const auto work = [&] {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    return Work{tokens.size(), window, seconds.count()};
  };
  std::optional<ProgressBar> bar(ProgressScale{double(all), "tokens"});
  const auto report = [&](const char* what, double value, uint64_t read) {
    if (flags.json.lines) put_event("progress", {{"done", read}, {"total", all}, {what, value}});
  };
  if (base) {
    const auto of_twin = twin ? twin->session() : nullptr;
    const Divergence result =
        divergence(*base->session(), *engine->session(), of_twin.get(), tokens, window, windows,
                   [&](const Divergence& so_far, uint64_t read) {
                     bar->show({fmt::format("KL {:.5f}", so_far.kl.mean), read, all});
                     report("kl", so_far.kl.mean, read);
                   });
    bar.reset();
    if (twin && base->path() == engine->path() && base->kv_format() == Format::f16 &&
        most_kv_loss(engine->kv_format()) > 0)
      keep_kv_loss(engine->path(), engine->kv_format(), kv_loss_of(result));
    put_comparison(*base, *engine, result, work(), flags.json);
  } else {
    const Perplexity result = perplexity(
        *engine->session(), tokens, window, windows, [&](const Perplexity& so_far, uint64_t read) {
          if (so_far.scored() == 0) return;  // no token yet that has a perplexity
          bar->show({fmt::format("perplexity {:.3f}", so_far.perplexity()), read, all});
          report("perplexity", so_far.perplexity(), read);
        });
    bar.reset();
    put_result(*engine, result, work(), flags.json);
  }
  put_saturation();
  return int(Exit::done);
}

}  // namespace

Action declare_eval(Flags parser) {
  auto flags = std::make_shared<EvalFlags>();
  declare_model(parser, flags->text.model.engine.model);
  declare_tokenizer(parser, flags->text.model.engine.tokenizer);
  flags->text.declare(parser);
  flags->text.model.declare_hosts(parser);
  parser
      .add("--kl", flags->base,
           "also compare with BASE, the model that -m was made from: KL divergence, same top-1 "
           "token, "
           "delta p")
      .not_empty("a model file or folder")
      .model()
      .type("BASE");
  parser
      .add("--base-kv", flags->base_kv,
           "with --kl: format of the KV cache of BASE; without it, the format of --kv")
      .one_of(kv_names())
      .type("FORMAT");
  parser.add_switch("--noise", flags->floor,
                    "with --kl: also measure the noise floor, the base against itself with another "
                    "format of keys and values. Smaller differences are not meaningful");
  declare_json(parser, flags->json);
  parser.example("Perplexity of a text", "chaski eval -m model.gguf -f book.txt");
  parser.example("How far a smaller model is from the one it was made from",
                 "chaski eval -m small.quipu -f book.txt --kl model.gguf");
  parser.example("What keys and values in 8 bits change, compared with f16",
                 "chaski eval -m model.gguf -f book.txt --kv q8 --kl model.gguf --base-kv f16");
  return [flags] { return eval(*flags); };
}

}  // namespace chaski
