#include "main/flags/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>
#include <set>
#include <utility>

#include "engine/grammar/gbnf.h"
#include "engine/grammar/json_schema.h"
#include "engine/grammar/regex.h"
#include "engine/measure/perplexity.h"
#include "engine/shelf/inspection.h"  // for likely_name()
#include "main/flags/formats.h"
#include "main/terminal/output.h"
#include "main/terminal/progress.h"

namespace chaski {

namespace {

constexpr int kMaxThreads = 1024, kMaxCount = std::numeric_limits<int>::max();

std::vector<std::string> kv_names() {
  std::vector<std::string> names;
  for (const KvType& type : kKvTypes) names.push_back(type.name);
  return names;
}

// A grammar that is given itself or in a file.
GrammarSource grammar_source(const char* flag, const std::string& given, bool is_text) {
  if (is_text) return {flag, given, Exit::usage};
  return {given, read_text(given), Exit::bad_file};
}

}  // namespace

void declare_model(Flags& flags, std::string& model) {
  flags
      .add("-m,--model", model,
           "model file or folder, or a name of chaski list (default: the bundled model)")
      .not_empty("a model file or folder")
      .model()
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
  flags.add_switch("--json", json, "JSON on standard output (docs/json.md)");
}

void declare_json(Flags& flags, JsonForm& json) {
  declare_json(flags, json.whole);
  flags
      .add_switch("--jsonl", json.lines,
                  "a line of JSON whenever there is something new, the result last")
      .excludes(flags.named("--json"));
}

void declare_shape(Flags& flags, std::string& shape) {
  const std::string shapes = fmt::format(
      "random weights of a known shape instead of a model, as SHAPE or SHAPE:FORMAT: {}",
      fmt::join(shape_names(), ", "));
  flags.add("--shape", shape, shapes)
      .not_empty("a shape")
      .type("SHAPE")
      .excludes(flags.named("--model"))
      .excludes(flags.named("--tokenizer"))
      .excludes(flags.named("--load"))
      .excludes(flags.named("--verify"));
}

ShapeOptions shape_of(const std::string& text) {
  ShapeOptions shape;
  const size_t colon = text.find(':');
  shape.shape = text.substr(0, colon);
  if (colon == std::string::npos) return shape;
  const std::optional<Format> format = format_named(text.substr(colon + 1));
  if (!format)
    fail(Exit::usage, "--shape names format {}, expected one such as q4, q8 or f16",
         escaped(text.substr(colon + 1)));
  shape.format = *format;
  return shape;
}

void ModelFlags::declare(Flags& flags, Kv kvs) {
  declare_model(flags, engine.model);
  declare_tokenizer(flags, engine.tokenizer);
  declare_running(flags, kvs);
}

void ModelFlags::declare_running(Flags& flags, Kv kvs) {
  flags.add_switch("-v,--verbose", engine.verbose, "say more, such as why no GPU is used");
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
      .knows({"none", "linear:", "dynamic:", "yarn:"})
      .type("KIND:F");
  Flag flag = flags.add("--kv", kv, "format of keys and values, as listed below (default f16)")
                  .one_of(kv_names());
  flags.table({"Formats of keys and values", kv_formats(kv_names())});
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
      .knows({"auto", "cpu", "cuda"})
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
  options.notice = [](const std::string& line) { put_notice(with_name_of_model(line)); };
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
  static std::set<std::string> told;  // of another model, too
  for (const std::string& line : notices)
    if (told.insert(line).second) tell(line);
  return engine;
}

namespace {

// A backslash in front of anything else stays.
std::string without_escapes(const std::string& text) {
  constexpr std::string_view kLetters = "ntr\\\"'", kMeant = "\n\t\r\\\"'";
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t at = text[i] == '\\' && i + 1 < text.size() ? kLetters.find(text[i + 1])
                                                             : std::string_view::npos;
    out += at == std::string_view::npos ? text[i] : kMeant[at];
    if (at != std::string_view::npos) ++i;
  }
  return out;
}

}  // namespace

void PromptFlags::declare(Flags& flags) {
  text_flag = flags.add("-p,--prompt", text, "the text").type("TEXT");
  file_flag = flags.add("-f,--file", file, "a file with the text (default: standard input)")
                  .not_empty("a file")
                  .type("FILE");
  text_flag.excludes(file_flag);
  flags.add_switch("-e,--escape", escape,
                   "\\n, \\t, \\r, \\\\, \\\" and \\' in -p are what they stand for");
}

std::optional<std::string> PromptFlags::typed() const {
  if (text_flag.given()) return escape ? without_escapes(text) : text;
  return file_flag.given() ? std::optional(read_text(file)) : std::nullopt;
}

std::optional<std::string> PromptFlags::read() const {
  if (const std::optional<std::string> said = typed()) return said;
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

void WindowFlags::declare(Flags& flags) {
  model.engine.context = 512;
  model.declare_running(flags);
  flags.named("--ctx").help("tokens of a window (default 512)").within(kLeastWindow, kMaxCount);
  text.declare(flags);
  flags.add("--chunks", windows, "windows at most; 0: of the whole text (default 0)")
      .within(0, kMaxCount)
      .type("N");
}

// llama.cpp takes the last newline of a text away, and figures are to compare.
std::string WindowFlags::read() const {
  std::string all = text.required();
  if (all.ends_with('\n')) all.pop_back();
  return all;
}

int WindowFlags::windows_of(size_t tokens, int window) const {
  const int all = chaski::windows_of(tokens, window);
  if (all == 0)
    fail(Exit::usage, "the text has {}, expected at least the {} of a window (see --ctx)",
         counted(tokens, "token"), window);
  return windows > 0 ? std::min(windows, all) : all;
}

void GenerationFlags::declare(Flags& flags) {
  model.declare(flags);
  flags.named("--verbose")
      .help("say more: why no GPU is used, how many threads worked, what guesses gained");
  flags.add("--stop", generate.stop, "end before this text; may be repeated")
      .one_each()
      .type("TEXT");
  flags
      .add("--grammar", grammar,
           "the text is one of this grammar: a file in GBNF, or its text (root ::= ...)")
      .not_empty("a grammar or its file")
      .type("FILE");
  flags
      .add("--json-schema", json_schema,
           "the text is JSON of this schema: a file, or its text; {}: any JSON")
      .not_empty("a schema or its file")
      .type("FILE");
  flags.add("--regex", regex, "the whole text fits this regular expression")
      .not_empty("a regular expression")
      .type("TEXT")
      .excludes(flags.named("--grammar"))
      .excludes(flags.named("--json-schema"));
  flags.named("--json-schema").excludes(flags.named("--grammar"));
  flags
      .add(
          "--draft", draft,
          "who guesses ahead, where that is faster; the text stays the same: ngram (what came "
          "after the same words before), a smaller model of the same vocabulary, a folder of "
          "Medusa heads, an EAGLE head or a layer for one token more (MiMo's own folder) that were "
          "trained for this model, or none (default auto: ngram)")
      .not_empty("auto, ngram, none, or a model file or folder")
      .knows({"auto", "ngram", "none"})
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
  flags.add_switch("--ignore-end", generate.ignore_end, "go on after the model's end-of-text token")
      .excludes(flags.named("--grammar"))
      .excludes(flags.named("--json-schema"))
      .excludes(flags.named("--regex"));
  flags
      .add("--answer-cache", answer_cache,
           "a folder for answers: one that was given before, to the same tokens by the same model, "
           "settings and seed, is not made again; 64 MB of the latest are kept")
      .not_empty("a folder")
      .type("DIR");
  declare_settings(flags);
  temperature = flags.named("--temp"), temperature_range = flags.named("--dynatemp-range");
}

void GenerationFlags::declare_settings(Flags& flags) {
  SamplerOptions& s = generate.sampling;
  flags.add("-n,--tokens", generate.max_tokens, "tokens at most (default: until the model ends)")
      .within(-1, kMaxCount)
      .type("N");
  const auto take_seed = [this](const std::string& text) {
    random_seed = text == "-1";
    if (!random_seed)
      generate.sampling.seed = whole_number("--seed", text, "-1 (a random one) or ");
  };
  flags.add_read("-s,--seed", take_seed, "same seed, same text (default: -1, a random one)")
      .type("N");
  flags.heading("How a token is drawn");
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
  flags
      .add("--typical", s.typical,
           "draw from the set with probability P whose surprise is nearest to the mean; 1: all "
           "(default 1)")
      .type("P");
  flags
      .add("--top-n-sigma", s.top_n_sigma,
           "draw from logits within N standard deviations of the largest; 0: all (default 0)")
      .type("N");
  flags
      .add("--xtc-probability", s.xtc_probability,
           "how often the most probable tokens are left out, all but the last of them (default 0)")
      .type("P");
  flags.add("--xtc-threshold", s.xtc_threshold, "the probability that makes them so (default 0.1)")
      .type("P");
  flags
      .add("--dynatemp-range", s.temperature_range,
           "temperature from T - X where the model is sure to T + X where it is not (default 0)")
      .type("X");
  flags
      .add("--dynatemp-exp", s.temperature_exponent,
           "the power of the entropy that chooses it (default 1)")
      .type("X");
  flags
      .add("--mirostat", s.mirostat,
           "2: keep the surprise of tokens near a target, in place of what narrows otherwise "
           "(default 0)")
      .within(0, 2)
      .type("N");
  flags.add("--mirostat-ent", s.mirostat_target, "that target, in bits (default 5)").type("X");
  flags.add("--mirostat-lr", s.mirostat_rate, "how fast it is followed (default 0.1)").type("X");
  flags
      .add("--repeat-penalty", s.penalties.repeat,
           "above 1: logits of the last tokens are divided by it (default 1)")
      .type("X");
  flags
      .add("--presence-penalty", s.penalties.presence,
           "taken away from the logits of the last tokens (default 0)")
      .type("X");
  flags
      .add("--frequency-penalty", s.penalties.frequency,
           "the same, for each time that a token is there (default 0)")
      .type("X");
  flags
      .add("--repeat-last-n", s.penalties.window,
           "how many tokens the last ones are; -1: all (default 64)")
      .within(-1, kMaxCount)
      .type("N");
  flags
      .add("--dry-multiplier", s.dry.multiplier,
           "what goes on with a repetition loses X times base ^ (its length - allowed) (default 0)")
      .type("X");
  flags.add("--dry-base", s.dry.base, "the base of that power (default 1.75)").type("X");
  flags
      .add("--dry-allowed-length", s.dry.allowed,
           "tokens that may be a repetition without loss (default 2)")
      .within(0, kMaxCount)
      .type("N");
  flags
      .add("--dry-penalty-last-n", s.dry.window,
           "repetitions are looked for in the last N tokens; -1: in all (default -1)")
      .within(-1, kMaxCount)
      .type("N");
  flags
      .add("--dry-sequence-breaker", dry_breakers,
           "a repetition ends at this text; may be repeated; none: at no text (default line end, "
           "colon, quote and star)")
      .one_each()
      .not_empty("a text")
      .type("TEXT");
  flags
      .add("--logit-bias", bias,
           "added to the logit of a token, such as 42+1.5 or 42-inf; may be repeated")
      .one_each()
      .type("ID+X");
  flags
      .add("--ban", s.banned,
           "a text that never comes about, unless a grammar leaves nothing else; may be "
           "repeated")
      .one_each()
      .type("TEXT");
  flags
      .add("--samplers", samplers,
           "the steps and their order; what is left out is not done (default " +
               fmt::format("{}", fmt::join(kSamplerStepNames, ",")) + ")")
      .not_empty("steps with a comma between two")
      .type("STEP,...");
  flags.heading("");
}

namespace {

constexpr double kMostBias = 1e6;

// "42+1.5", "42-inf"
std::pair<TokenId, double> bias_of(const std::string& text) {
  const size_t sign = text.find_first_of("+-");
  TokenId token = -1;
  double value = NAN;
  if (sign != std::string::npos) {
    const char *begin = text.data(), *middle = begin + sign, *end = begin + text.size();
    const auto [stopped, error] = std::from_chars(begin, middle, token);
    if (error != std::errc() || stopped != middle) token = -1;
    const std::string_view number(middle + (*middle == '+'), end);
    const auto [last, wrong] = std::from_chars(number.data(), end, value);
    if (wrong != std::errc() || last != end) value = NAN;
  }
  const bool never = value == -INFINITY;
  if (token < 0 || std::isnan(value) || (std::abs(value) > kMostBias && !never))
    fail(Exit::usage,
         "--logit-bias is {}, expected a token id and what is added, up to {}, such as 42+1.5",
         text, kMostBias);
  return {token, value};
}

// llama.cpp's spelling is understood too.
SamplerStep step_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  if (name == "typ-p") name = "typical";
  if (name == "temp") name = "temperature";
  const auto at = std::find(std::begin(kSamplerStepNames), std::end(kSamplerStepNames), name);
  if (at == std::end(kSamplerStepNames))
    fail(Exit::usage, "--samplers has {}, expected {}", name, fmt::join(kSamplerStepNames, ", "));
  return SamplerStep(at - std::begin(kSamplerStepNames));
}

std::vector<SamplerStep> steps_of(const std::string& list) {
  std::vector<SamplerStep> steps;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find_first_of(",;", begin), list.size());
    steps.push_back(step_of(list.substr(begin, end - begin)));
    begin = end + 1;
  }
  return steps;
}

// Names what was chosen and does nothing.
void put_idle_settings(const SamplerOptions& s) {
  const SamplerOptions usual;
  const auto put_idle = [](std::vector<std::pair<const char*, bool>> chosen, const char* why) {
    std::vector<std::string> names;
    for (const auto& [name, is_chosen] : chosen)
      if (is_chosen) names.emplace_back(name);
    put_no_effect(names, why);
  };
  std::vector<std::pair<const char*, bool>> narrowing = {
      {"--top-k", s.top_k != usual.top_k},
      {"--top-p", s.top_p != usual.top_p},
      {"--min-p", s.min_p != usual.min_p},
      {"--typical", s.typical != usual.typical},
      {"--top-n-sigma", s.top_n_sigma != usual.top_n_sigma},
      {"--xtc-probability", s.xtc_probability != usual.xtc_probability}};
  if (s.temperature > 0 && s.mirostat != 0) put_idle(narrowing, "beside --mirostat 2");
  narrowing.emplace_back("--mirostat", s.mirostat != usual.mirostat);
  if (s.temperature == 0) put_idle(narrowing, "at --temp 0, which takes the most probable token");
  if (s.mirostat == 0)
    put_idle({{"--mirostat-ent", s.mirostat_target != usual.mirostat_target},
              {"--mirostat-lr", s.mirostat_rate != usual.mirostat_rate}},
             "without --mirostat 2");
  if (s.xtc_probability == 0)
    put_idle({{"--xtc-threshold", s.xtc_threshold != usual.xtc_threshold}},
             "without --xtc-probability");
  if (s.temperature_range == 0)
    put_idle({{"--dynatemp-exp", s.temperature_exponent != usual.temperature_exponent}},
             "without --dynatemp-range");
  if (!s.penalties.any())
    put_idle({{"--repeat-last-n", s.penalties.window != usual.penalties.window}},
             "without --repeat-penalty, --presence-penalty or --frequency-penalty");
  if (s.dry.multiplier == 0)
    put_idle({{"--dry-base", s.dry.base != usual.dry.base},
              {"--dry-allowed-length", s.dry.allowed != usual.dry.allowed},
              {"--dry-penalty-last-n", s.dry.window != usual.dry.window},
              {"--dry-sequence-breaker", s.dry.breakers != usual.dry.breakers}},
             "without --dry-multiplier");
}

// A word that is none of --draft's is a value that it cannot have; a path, a file that is not
// there.
void check_draft(const std::string& draft) {
  const std::vector<std::string> words = {"auto", "ngram", "none"};
  std::error_code none;
  if (std::ranges::count(words, draft) > 0 || std::filesystem::exists(draft, none)) return;
  if (draft.find_first_not_of("0123456789") == std::string::npos)
    fail(Exit::usage, "--draft is {}, expected who guesses: --draft-len {} says how far", draft,
         draft);
  constexpr const char* kExpected =
      "auto, ngram, none, a model of the same vocabulary, or a folder of Medusa heads or an EAGLE "
      "head";
  if (draft.find_first_of("/.") != std::string::npos)
    fail(Exit::io, "--draft is {}, which is not there, expected {}", draft, kExpected);
  const std::string likely = likely_name(draft, words);
  fail(Exit::usage, "--draft is {}, expected {}{}", draft, kExpected,
       likely.empty() ? "" : fmt::format(" (nearest: {})", likely));
}

}  // namespace

void put_no_effect(const std::vector<std::string>& names, const std::string& why) {
  if (names.empty()) return;
  put_notice(fmt::format("{} {} no effect {}", fmt::join(names, ", "),
                         names.size() == 1 ? "has" : "have", why));
}

void GenerationFlags::give_way() {
  SamplerOptions& s = generate.sampling;
  const SamplerOptions usual;
  if (s.temperature_range <= s.temperature || temperature.typed() == temperature_range.typed() ||
      !temperature.given() || !temperature_range.given())
    return;
  const auto put_passed = [](const char* name, double value, const char* typed, double than) {
    put_notice(fmt::format("{} = {} of the file of defaults is passed over beside {} {}", name,
                           value, typed, than));
  };
  if (temperature.typed())
    put_passed("dynatemp-range", s.temperature_range, "--temp", s.temperature);
  else
    put_passed("temp", s.temperature, "--dynatemp-range", s.temperature_range);
  if (temperature.typed())
    s.temperature_range = usual.temperature_range;
  else
    s.temperature = usual.temperature;
}

void GenerationFlags::check() {
  SamplerOptions& s = generate.sampling;
  s.bias.clear();
  for (const std::string& text : bias) s.bias.push_back(bias_of(text));
  if (!samplers.empty()) s.steps = steps_of(samplers);
  if (!dry_breakers.empty()) s.dry.breakers = dry_breakers;
  std::erase(s.dry.breakers, "none");
  s.check();
  put_idle_settings(s);
  for (const std::string& text : generate.stop)
    if (text.empty()) fail(Exit::usage, "--stop is empty, expected a text");
  if (!answer_cache.empty() && !repeats_answers())
    put_notice("--answer-cache has no effect with a random seed, expected --seed N or --temp 0");
  check_draft(draft);
}

std::shared_ptr<const Rules> GenerationFlags::rules() const {
  if (!grammar.empty())
    return parse_gbnf(
        grammar_source("--grammar", grammar, grammar.find("::=") != std::string::npos));
  if (!json_schema.empty()) {
    const size_t first = json_schema.find_first_not_of(" \t\r\n");
    const bool is_text = first != std::string::npos && json_schema[first] == '{';
    return parse_json_schema(grammar_source("--json-schema", json_schema, is_text));
  }
  return regex.empty() ? nullptr : parse_regex({"--regex", regex, Exit::usage});
}

void GenerationFlags::choose_seed() {
  // 32 bits are enough to tell runs apart and few enough to type again.
  if (random_seed) generate.sampling.seed = std::random_device()();
}

}  // namespace chaski
