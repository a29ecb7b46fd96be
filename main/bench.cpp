// chaski bench: how fast a model runs on this machine, beside what the machine could do.
#include "engine/bench.h"

#include <algorithm>
#include <memory>

#include "main/commands.h"
#include "main/json_output.h"
#include "main/options.h"
#include "main/output.h"

namespace chaski {

namespace {

struct BenchFlags {
  ModelFlags model;
  BenchOptions bench;
  std::string shape;
  CLI::Option *prompt = nullptr, *decode = nullptr;
  bool json = false;
};

std::string shape_list() { return fmt::format("{}", fmt::join(shape_names(), ", ")); }

// "llama-3.2-1b:q8" -> shape and format.
ShapeOptions shape_of(const std::string& text) {
  ShapeOptions shape;
  const size_t colon = text.find(':');
  shape.shape = text.substr(0, colon);
  if (colon == std::string::npos) return shape;
  const std::optional<Format> format = format_named(text.substr(colon + 1));
  if (!format) fail(Exit::usage, "--shape names format {}, expected one such as q4, q8 or f16", escaped(text.substr(colon + 1)));
  shape.format = *format;
  return shape;
}

// Defaults shrink to a small model's context, and say so; numbers that were asked for do not.
void fit(const BenchFlags& flags, BenchOptions& options, int context) {
  const auto shrink = [&](const CLI::Option* flag, int& count, int most, const char* what) {
    if (flag->count() > 0 || count <= most) return;
    put_note(fmt::format("chaski: {} of {} tokens: the context holds no more", what, most));
    count = most;
  };
  shrink(flags.prompt, options.prompt, context, "prompt");
  shrink(flags.decode, options.decode, std::max(0, context - options.depth), "decode");
}

std::string spread(const Spread& s) { return fmt::format("{:>9.4g} tok/s   ({:.4g} to {:.4g})", s.median, s.least, s.most); }

void put_table(const std::string& model, const Engine& engine, const BenchOptions& options, const BenchResult& r) {
  std::string text = fmt::format("{}: {:.3g} GB of weights, {} threads, {}, median of {}\n", escaped(model),
                                 double(engine.weight_bytes()) / 1e9, engine.threads(), engine.isa(), options.repetitions);
  if (options.prompt > 0)
    text += fmt::format("prompt {:<6}{}   {:.4g} GFLOP/s\n", options.prompt, spread(r.prompt_rate), r.prompt_flops / 1e9);
  if (options.decode > 0)
    text += fmt::format("decode {:<6}{}   {:.4g} GB/s, {:.0f}% of the read bandwidth\n", options.decode, spread(r.decode_rate),
                        r.read_rate / 1e9, 100 * r.share());
  for (const WidthTime& w : r.widths)
    text += fmt::format("{:>3} at once     {:9.4g} ms      T({})/T({}) {:.3g}, {:.4g} tok/s together\n", w.tokens, 1e3 * w.seconds.median,
                        w.tokens, r.widths[0].tokens, w.seconds.median / r.widths[0].seconds.median, w.tokens / w.seconds.median);
  double step = 0;
  for (const OpTime& o : r.profile) step += o.seconds;
  for (const OpTime& o : r.profile)
    text += fmt::format("{:14} {:>4} calls {:9.4g} ms {:5.1f}%  {:6.4g} GB/s {:7.4g} GFLOP/s\n", o.op, o.calls, 1e3 * o.seconds,
                        100 * o.seconds / step, o.bytes / o.seconds / 1e9, o.flops / o.seconds / 1e9);
  put(text + fmt::format("memory reads at {:.4g} GB/s before and {:.4g} GB/s after\n", r.bandwidth_before / 1e9,
                         r.bandwidth_after / 1e9));
}

nlohmann::ordered_json widths_json(const BenchResult& r) {
  auto list = nlohmann::ordered_json::array();
  for (const WidthTime& w : r.widths) list.push_back({{"tokens", w.tokens}, {"seconds", w.seconds.median}});
  return list;
}
nlohmann::ordered_json profile_json(const BenchResult& r) {
  auto list = nlohmann::ordered_json::array();
  for (const OpTime& o : r.profile)
    list.push_back({{"op", o.op}, {"calls", o.calls}, {"seconds", o.seconds}, {"bytes", o.bytes}, {"flops", o.flops}});
  return list;
}

nlohmann::ordered_json spread_json(const Spread& s) { return {{"median", s.median}, {"least", s.least}, {"most", s.most}}; }

void put_result_json(const std::string& model, const Engine& engine, const BenchOptions& options, const BenchResult& r) {
  put_json({{"model", model},
            {"isa", engine.isa()},
            {"threads", engine.threads()},
            {"repetitions", options.repetitions},
            {"prompt_tokens", options.prompt},
            {"decode_tokens", options.decode},
            {"depth_tokens", options.depth},
            {"weight_bytes", engine.weight_bytes()},
            {"decode_bytes_per_token", r.decode_bytes},
            {"prompt_tokens_per_second", r.prompt_rate.median},
            {"prompt_tokens_per_second_spread", spread_json(r.prompt_rate)},
            {"decode_tokens_per_second", r.decode_rate.median},
            {"decode_tokens_per_second_spread", spread_json(r.decode_rate)},
            {"prompt_gigaflops_per_second", r.prompt_flops / 1e9},
            {"read_gigabytes_per_second", r.read_rate / 1e9},
            {"measured_read_gigabytes_per_second", r.bandwidth() / 1e9},
            {"measured_read_gigabytes_per_second_before", r.bandwidth_before / 1e9},
            {"measured_read_gigabytes_per_second_after", r.bandwidth_after / 1e9},
            {"share_of_read_bandwidth", r.share()},
            {"passes", widths_json(r)},
            {"decode_profile", profile_json(r)}});
}

int run_bench(const BenchFlags& flags) {
  const bool random = !flags.shape.empty();
  const EngineOptions options = flags.model.options();
  const auto engine = random ? Engine::random(shape_of(flags.shape), options) : Engine::open(options);
  BenchOptions bench_options = flags.bench;
  fit(flags, bench_options, engine->context_length());
  const BenchResult result = bench(*engine, bench_options, [](const std::string& what) {
    if (stderr_is_terminal()) put_note(what + " ...");
  });
  const std::string model = random ? flags.shape : engine->path();
  (flags.json ? put_result_json : put_table)(model, *engine, bench_options, result);
  return int(Exit::done);
}

}  // namespace

Action declare_bench(CLI::App& app) {
  auto flags = std::make_shared<BenchFlags>();
  BenchOptions& b = flags->bench;
  flags->model.declare(app);
  const std::string shapes = "random weights of a known shape instead of a model, as SHAPE or SHAPE:FORMAT: " + shape_list();
  app.add_option("--shape", flags->shape, shapes)->type_name("SHAPE")->excludes(app.get_option("--model"));
  const auto count = [&](const char* names, int& value, int least, const char* help) {
    return app.add_option(names, value, help)->check(CLI::Range(least, 1 << 24).description(""))->type_name("N");
  };
  flags->prompt = count("-p,--prompt", b.prompt, 0, "prompt tokens; 0: none (default 512)");
  flags->decode = count("-n,--tokens", b.decode, 0, "tokens to decode; 0: none (default 128)");
  count("--depth", b.depth, 0, "tokens before those that are decoded (default 0)");
  count("-r,--repetitions", b.repetitions, 1, "repetitions (default 5)");
  app.add_option("--widths", b.widths, "also time passes of so many tokens at once, such as 1,2,4,8,16")->delimiter(',')->type_name("N,N,...")
      ->check(CLI::Range(1, 256).description(""));
  app.add_flag("--profile", b.profile, "also time the ops of a decode step");
  declare_json(app, flags->json);
  return [flags] { return run_bench(*flags); };
}

}  // namespace chaski
