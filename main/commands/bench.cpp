// chaski bench: measures a model's speed on this machine, compared with the machine's limits.
#include "engine/measure/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "engine/session/follow.h"
#include "main/commands/bench_output.h"
#include "main/flags/commands.h"
#include "main/flags/options.h"
#include "main/terminal/output.h"
#include "main/terminal/timing.h"

namespace chaski {

namespace {

struct BenchFlags {
  ModelFlags model;
  BenchOptions bench;
  std::string shape;
  Flag prompts, decode;
  bool json = false, csv = false;
};

// Reads "1,8,4k,1M". Stricter than the parser's own lists, which accept empty entries.
std::vector<int> numbers_of(const std::string& flag, const std::string& text, int least, int most) {
  std::vector<int> numbers;
  const char *at = text.data(), *end = at + text.size();
  for (;;) {
    int64_t n = 0;
    auto [stopped, error] = std::from_chars(at, end, n);
    const char unit = stopped == end ? ' ' : char(*stopped | 0x20);  // lower case
    if (n >= 0 && n <= most && (unit == 'k' || unit == 'm'))
      n *= unit == 'k' ? 1 << 10 : 1 << 20, ++stopped;
    if (error != std::errc() || n < least || n > most || (stopped != end && *stopped != ','))
      wrong_flag(
          flag, fmt::format(
                    "is \"{}\", expected numbers from {} to {} separated by commas, such as 512,4k",
                    escaped(text), least, most));
    numbers.push_back(int(n));
    if (stopped == end) return numbers;
    at = stopped + 1;
  }
}

// Reduces defaults to a small model's context, with a notice. Numbers that were typed stay.
void fit(const BenchFlags& flags, BenchOptions& options, int context) {
  const auto shrink = [&](const Flag& flag, int& count, int most, const char* what) {
    if (flag.given() || count <= most) return;
    put_notice(fmt::format("{} reduced to {} tokens, the size of the context", what, most));
    count = most;
  };
  const int deepest =
      options.depths.empty() ? 0 : *std::max_element(options.depths.begin(), options.depths.end());
  for (int& prompt : options.prompts) shrink(flags.prompts, prompt, context, "prompt");
  shrink(flags.decode, options.decode, std::max(0, context - deepest), "decode");
}

// One engine for each format of keys and values; they share the weights.
std::vector<std::shared_ptr<Engine>> open_engines(const BenchFlags& flags) {
  std::vector<std::shared_ptr<Engine>> engines;
  for (const std::string& kv : flags.model.kv) {
    EngineOptions options = flags.model.options(kv);
    for (const int n : flags.bench.sequences) options.sessions = std::max(options.sessions, n);
    for (const int n : flags.bench.widths) options.outputs = std::max(options.outputs, n);
    if (!engines.empty() && !options.link)
      engines.push_back(engines[0]->with(options));
    else if (flags.shape.empty())
      engines.push_back(open_engine(options));
    else
      engines.push_back(options.link ? open_on_all({options, shape_of(flags.shape)})
                                     : Engine::random(shape_of(flags.shape), options));
  }
  engines[0]->wait_until_kept();
  return engines;
}

// OpenBLAS is compared with the CPU's matmul.
void choose_device_for_sgemm(std::string& device) {
  if (device != "auto" && device != "cpu")
    fail(Exit::usage, "--sgemm is given with --device {}, expected cpu", escaped(device));
  device = "cpu";
}

// Throws Error(usage) if no case is asked for.
void expect_a_case(const BenchOptions& b) {
  const bool prompts = std::ranges::any_of(b.prompts, [](int n) { return n > 0; });
  if (!prompts && b.decode == 0 && b.widths.empty() && !b.sgemm)
    fail(Exit::usage, "-p 0 and -n 0 leave nothing to measure, expected one of them above 0");
}

int run_bench(BenchFlags& flags) {
  expect_a_case(flags.bench);
  if (flags.bench.sgemm) choose_device_for_sgemm(flags.model.engine.device);
  const auto engines = open_engines(flags);
  const Engine& engine = *engines[0];
  BenchOptions options = flags.bench;
  fit(flags, options, engine.context_length());
  const BenchResult result = bench(engines, options, [](const std::string& what) {
    if (stderr_is_terminal()) put_note(what + " ...");
  });
  BenchRun run{flags.shape.empty() ? engine.path() : flags.shape,
               engine.isa(),
               engine.device(),
               flags.model.load,
               engine.threads(),
               options.repetitions,
               engine.threads_used(),
               double(engine.weight_bytes()),
               {}};
  for (const auto& e : engines) run.states.push_back({e->kv_type(), e->states()});
  (flags.json ? put_bench_json : flags.csv ? put_bench_csv : put_bench_table)(run, result);
  if (const std::string experts = experts_part(engine); !experts.empty())
    put_note(experts.substr(2));
  return int(Exit::done);
}

}  // namespace

Action declare_bench(Flags parser) {
  auto flags = std::make_shared<BenchFlags>();
  BenchOptions& b = flags->bench;
  flags->model.declare(parser, ModelFlags::Kv::list);
  flags->model.declare_hosts(parser);
  declare_shape(parser, flags->shape);
  const auto count = [&](const char* names, int& value, int least, const char* help) {
    return parser.add(names, value, help).within(least, 1 << 24).type("N");
  };
  const auto counts = [&](const char* names, std::vector<int>& values, int least, int most,
                          const char* help) {
    const std::string flag = std::string(names).substr(std::string(names).rfind('-') - 1);
    return parser
        .add_read(
            names,
            [=, &values](const std::string& text) { values = numbers_of(flag, text, least, most); },
            help)
        .type("N,...");
  };
  flags->prompts = counts("-p,--prompt", b.prompts, 0, 1 << 24,
                          "prompt lengths in tokens, such as 1,8,64,512; 0: none (default 512)");
  flags->decode = count("-n,--tokens", b.decode, 0, "tokens to decode; 0: none (default 128)");
  counts("--depth", b.depths, 0, 1 << 24,
         "decode after this many tokens of context, such as 0,1024,4096 (default 0)");
  counts("--widths", b.widths, 1, 256, "also time passes of N tokens at once, such as 1,2,4,8,16");
  counts("--sequences", b.sequences, 1, 256,
         "also decode N sequences in one batch, such as 1,4,16");
  count("-r,--repetitions", b.repetitions, 1, "repetitions (default 5)");
  const Flag profile = parser.add_switch("--profile", b.profile, "also time the ops of each case");
  parser.add_switch("--sgemm", b.sgemm,
                    "also time one matmul of the model's feed-forward shape, by chaski and by "
                    "OpenBLAS's sgemm");
  declare_json(parser, flags->json);
  parser.add_switch("--csv", flags->csv, "a header and one row for each case on standard output")
      .excludes(parser.named("--json"))
      .excludes(profile);
  parser.example("How fast a model is here", "chaski bench -m model.gguf");
  parser.example("How fast a model of 135 million weights would be",
                 "chaski bench --shape smollm-135m:q4 -p 64 -n 16 -r 1");
  parser.example("Prompts of several lengths, and decoding after a long text",
                 "chaski bench -m model.gguf -p 1,8,64 -n 16 --depth 0,256");
  return [flags] { return run_bench(*flags); };
}

}  // namespace chaski
