#include "main/options.h"

#include <fmt/ranges.h>

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "main/output.h"
#include "main/progress.h"

namespace chaski {

namespace {

constexpr int kMaxThreads = 1024;

std::vector<std::string> kv_names() {
  std::vector<std::string> names;
  for (const KvType& type : kKvTypes) names.push_back(type.name);
  return names;
}

// All of the text, in decimal: CLI11 itself takes "" for 0, "010" for 8 and "0x10" for 16.
template <class T>
std::optional<T> number_of(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stopped == end ? std::optional(value) : std::nullopt;
}

// Ranges are told when they are left, not in the help, where most of them would say nothing.
std::string refusal(const std::string& text, const std::string& expected) {
  return fmt::format("is \"{}\", expected {}", text, expected);
}

}  // namespace

CLI::Validator within(int least, int most) {
  const auto rewrite = [=](std::string& text) {
    const auto value = number_of<int>(text);
    if (!value || *value < least || *value > most)
      return refusal(text, fmt::format("a number from {} to {}", least, most));
    text = fmt::to_string(*value);  // "010" is 10
    return std::string();
  };
  return {rewrite, ""};
}

CLI::Validator seed_number() {
  const auto rewrite = [](std::string& text) {
    const auto value = number_of<uint64_t>(text);
    if (!value) return refusal(text, "a number from 0 to 2^64 - 1");
    text = fmt::to_string(*value);
    return std::string();
  };
  return {rewrite, ""};
}

CLI::Validator real_number() {
  const auto test = [](std::string& text) {
    const auto value = number_of<float>(text);
    return value && std::isfinite(*value) ? std::string() : refusal(text, "a decimal number");
  };
  return {test, ""};
}

CLI::Validator not_empty(const std::string& expected) {
  const auto test = [=](std::string& text) {
    return text.empty() ? refusal(text, expected) : std::string();
  };
  return {test, ""};
}

void declare_model(CLI::App& app, std::string& model) {
  app.add_option("-m,--model", model, "model file or folder (default: the bundled model)")
      ->check(not_empty("a model file or folder"))
      ->type_name("MODEL");
}

void declare_tokenizer(CLI::App& app, std::string& tokenizer) {
  app.add_option("--tokenizer", tokenizer, "tokenizer.bin of a llama2.c model")
      ->check(not_empty("a file"))
      ->type_name("FILE");
}

void declare_threads(CLI::App& app, int& threads) {
  app.add_option("-t,--threads", threads, "threads (default: what the machine allows)")
      ->transform(within(1, kMaxThreads))
      ->type_name("N");
}

void declare_json(CLI::App& app, bool& json) {
  app.add_flag("--json", json, "one JSON object on standard output");
}

void ModelFlags::declare(CLI::App& app, Kv kvs) {
  declare_model(app, engine.model);
  declare_tokenizer(app, engine.tokenizer);
  declare_threads(app, engine.threads);
  app.add_option("-c,--ctx", engine.context, "positions kept (default: the model's own)")
      ->transform(within(1, kMaxCount))
      ->type_name("N");
  const std::string formats = fmt::format("{} (default f16)", fmt::join(kv_names(), ", "));
  CLI::Option* flag = app.add_option("--kv", kv, "format of keys and values: " + formats)
                          ->check(CLI::IsMember(kv_names()).description(""))
                          ->expected(1)
                          ->type_name("FORMAT");
  if (kvs == Kv::list)
    flag->delimiter(',')
        ->expected(1, int(std::size(kKvTypes)))
        ->allow_extra_args(false)
        ->type_name("FORMAT,...");
  app.add_option(
         "--load", load,
         "how a .quipu file is read: mmap, or copy: into memory of huge pages (default mmap)")
      ->check(CLI::IsMember({"mmap", "copy"}).description(""))
      ->type_name("HOW");
  app.add_option("--device", engine.device,
                 "auto, cpu, cuda or cuda:N; auto: a GPU if there is one (default auto)")
      ->type_name("DEVICE");
  app.add_option(
         "--gpu-layers", gpu_layers,
         "the last N layers run on the GPU, the others on the CPU (default auto: all that fit)")
      ->check((CLI::IsMember({"auto"}) | within(0, kMaxCount)).description(""))
      ->type_name("N");
}

EngineOptions ModelFlags::options(const std::string& kv_type) const {
  EngineOptions options = engine;
  for (const KvType& type : kKvTypes)
    if (type.name == kv_type) options.kv = type.format;
  options.copy = load == "copy";
  options.gpu_layers = gpu_layers == "auto" ? kAllThatFit : std::stoi(gpu_layers);
  options.notice = [](const std::string& line) { put_note("chaski: " + line); };
  return options;
}

std::shared_ptr<Engine> open_engine(EngineOptions options) {
  std::optional<ProgressBar> bar;
  options.upload = [&](uint64_t done, uint64_t all) {
    if (!bar) bar.emplace(ProgressScale{double(all) / 1e6, "MB"});
    bar->show({"to the GPU", done, all});
  };
  return Engine::open(options);
}

void PromptFlags::declare(CLI::App& app) {
  text_flag = app.add_option("-p,--prompt", text, "the text")->type_name("TEXT");
  file_flag = app.add_option("-f,--file", file, "a file with the text (default: standard input)")
                  ->check(not_empty("a file"))
                  ->type_name("FILE");
  text_flag->excludes(file_flag);
}

std::optional<std::string> PromptFlags::read() const {
  if (text_flag->count() > 0) return text;
  if (file_flag->count() > 0) return read_text(file);
  if (stdin_is_terminal()) return std::nullopt;
  std::string piped = read_text("");
  return piped.empty() ? std::nullopt : std::optional(std::move(piped));
}

std::string PromptFlags::required() const {
  std::optional<std::string> said = read();
  if (!said)
    fail(Exit::usage, "no text given, expected -p TEXT, -f FILE or text on standard input");
  return *said;
}

void GenerationFlags::declare(CLI::App& app) {
  model.declare(app);
  SamplerOptions& s = generate.sampling;
  app.add_option("-n,--tokens", generate.max_tokens,
                 "tokens at most (default: until the model ends)")
      ->transform(within(-1, kMaxCount))
      ->type_name("N");
  app.add_option("--temp", s.temperature,
                 "0: the most probable token, 1: as the model says (default 0.8)")
      ->check(real_number())
      ->type_name("T");
  app.add_option("--top-k", s.top_k, "draw from the K most probable; 0: all (default 40)")
      ->transform(within(0, kMaxCount))
      ->type_name("K");
  app.add_option("--top-p", s.top_p,
                 "draw from the smallest set with probability P; 1: all (default 0.95)")
      ->check(real_number())
      ->type_name("P");
  app.add_option("--min-p", s.min_p,
                 "drop what is below P times the most probable; 0: nothing (default 0.05)")
      ->check(real_number())
      ->type_name("P");
  app.add_option("--repeat-penalty", s.repeat_penalty,
                 "above 1: avoid the last 64 tokens (default 1)")
      ->check(real_number())
      ->type_name("X");
  seed = app.add_option("--seed", s.seed, "same seed, same text (default: random)")
             ->transform(seed_number())
             ->type_name("N");
  app.add_option("--stop", generate.stop, "end before this text; may be repeated")
      ->allow_extra_args(false)
      ->type_name("TEXT");
  app.add_option(
         "--draft", draft,
         "a smaller model of the same vocabulary that guesses ahead; the text stays the same")
      ->check(not_empty("a model file or folder"))
      ->type_name("MODEL");
  draft_length_flag = app.add_option("--draft-len", draft_length, "tokens it guesses (default 4)")
                          ->transform(within(1, 64))
                          ->type_name("K");
  app.add_flag("--ignore-end", generate.ignore_end, "go on after the model's end-of-text token");
  app.add_flag("-v,--verbose", verbose, "measure and say more");
}

void GenerationFlags::check() const {
  generate.sampling.check();
  if (draft_length_flag->count() > 0 && draft.empty())
    fail(Exit::usage, "--draft-len is given, expected --draft MODEL with it");
  for (const std::string& text : generate.stop)
    if (text.empty()) fail(Exit::usage, "--stop is empty, expected a text");
}

void GenerationFlags::choose_seed() {
  // 32 bits are enough to tell runs apart and few enough to type again.
  if (seed->count() == 0) generate.sampling.seed = std::random_device()();
}

Speaker::Speaker(const GenerationFlags& flags)
    : engine(open_engine(flags.model.options())), options(flags.generate) {
  engine->tokenizer();  // a model without one is refused now
  session = engine->session();
  if (flags.draft.empty()) return;
  EngineOptions small = flags.model.options();
  small.model = flags.draft;
  small.context = 0, small.gpu_layers = kAllThatFit;
  drafter = model_drafter(open_engine(small), *engine, options.sampling);
  options.drafter = drafter.get();
  options.draft_length = flags.draft_length;
}

}  // namespace chaski
