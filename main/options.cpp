#include "main/options.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <random>
#include <utility>

#include "main/output.h"
#include "main/progress.h"

namespace chaski {

namespace {

constexpr int kMaxThreads = 1024, kMaxCount = std::numeric_limits<int>::max();

std::vector<std::string> kv_names() {
  std::vector<std::string> names;
  for (const KvType& type : kKvTypes) names.push_back(type.name);
  return names;
}

}  // namespace

void declare_model(Flags& flags, std::string& model) {
  flags.add("-m,--model", model, "model file or folder (default: the bundled model)")
      .not_empty("a model file or folder")
      .type("MODEL");
}

void declare_tokenizer(Flags& flags, std::string& tokenizer) {
  flags.add("--tokenizer", tokenizer, "tokenizer.bin of a llama2.c model")
      .not_empty("a file")
      .type("FILE");
}

void declare_threads(Flags& flags, int& threads) {
  flags.add("-t,--threads", threads, "threads at most (default: a thread for each core)")
      .within(1, kMaxThreads)
      .type("N");
}

void declare_json(Flags& flags, bool& json) {
  flags.add_switch("--json", json, "JSON on standard output");
}

void ModelFlags::declare(Flags& flags, Kv kvs) {
  flags.add_switch("-v,--verbose", engine.verbose, "say more, such as why no GPU is used");
  declare_model(flags, engine.model);
  declare_tokenizer(flags, engine.tokenizer);
  declare_threads(flags, engine.threads);
  flags.add_switch("--threads-fixed", engine.threads_fixed,
                   "always so many threads, also where other programs make fewer faster");
  flags
      .add("-c,--ctx", engine.context,
           "tokens that text and answer may have together, such as 4k; 0: as many as the model is "
           "made for (default 0)")
      .within(0, kMaxCount)
      .type("N");
  flags
      .add("--rope-scaling", engine.rope_scaling,
           "how positions are stretched, instead of as the file says: none, or linear:F, dynamic:F "
           "or yarn:F for F times the model's own context")
      .type("KIND:F");
  const std::string formats = fmt::format("{} (default f16)", fmt::join(kv_names(), ", "));
  Flag flag = flags.add("--kv", kv, "format of keys and values: " + formats).one_of(kv_names());
  if (kvs == Kv::list)
    flag.list(int(std::size(kKvTypes))).type("FORMAT,...");
  else
    flag.single().type("FORMAT");
  flags
      .add("--load", load,
           "how a .quipu file is read: mmap, or copy: into memory of huge pages (default mmap)")
      .one_of({"mmap", "copy"})
      .type("HOW");
  flags
      .add("--verify", verify,
           "when a .quipu file is checked against its sums: always, once (until it changes) or "
           "never (default once)")
      .one_of({"always", "once", "never"})
      .type("WHEN");
  flags
      .add("--device", engine.device,
           "auto, cpu, cuda or cuda:N; auto: a GPU if there is one (default auto)")
      .type("DEVICE");
  flags
      .add("--gpu-layers", gpu_layers,
           "the last N layers run on the GPU, the others on the CPU (default auto: all that fit)")
      .one_of("auto", 0, kMaxCount)
      .type("N");
}

EngineOptions ModelFlags::options(const std::string& kv_type) const {
  EngineOptions options = engine;
  for (const KvType& type : kKvTypes)
    if (type.name == kv_type) options.kv = type.format;
  options.copy = load == "copy";
  options.verify = verify == "always" ? Verify::always
                   : verify == "once" ? Verify::once
                                      : Verify::never;
  options.gpu_layers = gpu_layers == "auto" ? kAllThatFit : std::stoi(gpu_layers);
  options.notice = [](const std::string& line) { put_notice(line); };
  return options;
}

std::shared_ptr<Engine> open_engine(EngineOptions options) {
  std::optional<ProgressBar> bar;
  options.upload = [&](uint64_t done, uint64_t all) {
    if (!bar) bar.emplace(ProgressScale{double(all) / 1e6, "MB"});
    bar->show({"to the GPU", done, all});
  };
  // They wait until it is sure that there is no error to tell instead.
  std::vector<std::string> notices;
  const auto tell =
      std::exchange(options.notice, [&](const std::string& line) { notices.push_back(line); });
  std::shared_ptr<Engine> engine = Engine::open(options);
  bar.reset();
  for (const std::string& line : notices) tell(line);
  return engine;
}

void PromptFlags::declare(Flags& flags) {
  text_flag = flags.add("-p,--prompt", text, "the text").type("TEXT");
  file_flag = flags.add("-f,--file", file, "a file with the text (default: standard input)")
                  .not_empty("a file")
                  .type("FILE");
  text_flag.excludes(file_flag);
}

std::optional<std::string> PromptFlags::read() const {
  if (text_flag.given()) return text;
  if (file_flag.given()) return read_text(file);
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

void GenerationFlags::declare(Flags& flags) {
  model.declare(flags);
  flags.named("--verbose")
      .help("say more: why no GPU is used, how many threads worked, what guesses gained");
  SamplerOptions& s = generate.sampling;
  flags.add("-n,--tokens", generate.max_tokens, "tokens at most (default: until the model ends)")
      .within(-1, kMaxCount)
      .type("N");
  flags
      .add("--temp", s.temperature,
           "0: the most probable token, 1: as the model says (default 0.8)")
      .type("T");
  flags.add("--top-k", s.top_k, "draw from the K most probable; 0: all (default 40)")
      .within(0, kMaxCount)
      .type("K");
  flags
      .add("--top-p", s.top_p,
           "draw from the smallest set with probability P; 1: all (default 0.95)")
      .type("P");
  flags
      .add("--min-p", s.min_p,
           "drop what is below P times the most probable; 0: nothing (default 0.05)")
      .type("P");
  flags.add("--repeat-penalty", s.repeat_penalty, "above 1: avoid the last 64 tokens (default 1)")
      .type("X");
  const auto take_seed = [this](const std::string& text) {
    random_seed = text == "-1";
    if (!random_seed) generate.sampling.seed = whole_number("--seed", text);
  };
  flags.add_read("-s,--seed", take_seed, "same seed, same text (default: -1, a random one)")
      .type("N");
  flags.add("--stop", generate.stop, "end before this text; may be repeated")
      .one_each()
      .type("TEXT");
  flags
      .add("--draft", draft,
           "who guesses ahead, where that is faster; the text stays the same: ngram (what came "
           "after "
           "the same words before), a smaller model of the same vocabulary, or none (default auto: "
           "ngram)")
      .not_empty("auto, ngram, none, or a model file or folder")
      .type("WHAT");
  flags.add("--draft-len", draft_length, "tokens to guess at most (default 15)")
      .within(1, Governor::kMost)
      .type("K");
  flags
      .add("--context-policy", context_policy,
           "when the context is full: stop; shift: drop the older half behind the system message "
           "and read the rest again; sinks: the same behind the first 4 tokens (default stop)")
      .one_of({"stop", "shift", "sinks"})
      .type("WHAT");
  flags.add_switch("--ignore-end", generate.ignore_end,
                   "go on after the model's end-of-text token");
}

void GenerationFlags::check() const {
  generate.sampling.check();
  for (const std::string& text : generate.stop)
    if (text.empty()) fail(Exit::usage, "--stop is empty, expected a text");
  if (draft == "auto" || draft == "ngram" || draft == "none") return;
  std::error_code none;
  if (std::filesystem::exists(draft, none)) return;
  if (draft.find_first_not_of("0123456789") == std::string::npos)
    fail(Exit::usage, "--draft is {}, expected who guesses: --draft-len {} says how far", draft,
         draft);
  fail(Exit::io,
       "{}: cannot be opened: no such file, expected a model for --draft, or auto, ngram "
       "or none",
       draft);
}

void GenerationFlags::choose_seed() {
  // 32 bits are enough to tell runs apart and few enough to type again.
  if (random_seed) generate.sampling.seed = std::random_device()();
}

}  // namespace chaski
