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

namespace {

std::vector<std::string> step_names() {
  std::vector<std::string> names;
  SamplerSteps::each([&]<class S>(std::type_identity<S>) { names.emplace_back(S::kName); });
  return names;
}

void limit(Flag flag, const int&, const Range& range) {
  const bool ends = range.most < double(kMaxCount);
  flag.within(int(range.least), ends ? int(range.most) : kMaxCount);
}
void limit(Flag, const double&, const Range&) {}  // SamplerOptions::check() does it
void limit(Flag flag, const std::vector<std::string>&, const Range&) {
  flag.one_each().not_empty("a text");
}

// The flag of one parameter of a sampler step. The help ends with the default.
template <class Part, class P>
void declare_parameter(Flags& flags, Part& part, const P& parameter) {
  std::string help = parameter.help;
  if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(part.*parameter.value)>>)
    help += fmt::format(" (default {})", Part().*parameter.value);
  Flag flag = flags.add(parameter.flag, part.*parameter.value, help);
  limit(flag, part.*parameter.value, parameter.range);
  flag.type(parameter.letter);
}

}  // namespace

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
  each_parameter(
      s, [&](auto& part, const auto& parameter) { declare_parameter(flags, part, parameter); });
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
               fmt::format("{}", fmt::join(step_names(), ",")) + ")")
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

// Underscores are read as dashes, because llama.cpp writes step names with underscores.
SamplerStep step_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  std::optional<SamplerStep> step;
  SamplerSteps::each([&]<class S>(std::type_identity<S>) {
    if (name == S::kName) step = kStep<S>;
    if constexpr (requires { S::kAlias; })
      if (name == S::kAlias) step = kStep<S>;
  });
  if (!step)
    fail(Exit::usage, "--samplers has {}, expected {}", name, fmt::join(step_names(), ", "));
  return *step;
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

// The flags of a part that differ from their defaults.
template <class Part>
std::vector<std::string> chosen(const Part& part, bool refining) {
  std::vector<std::string> names;
  const auto add = [&](const auto& p) {
    if (p.refines == refining && part.*p.value != Part().*p.value) names.emplace_back(p.flag);
  };
  std::apply([&](const auto&... p) { (add(p), ...); }, Part::parameters());
  return names;
}

// What a part needs to have an effect: "--mirostat 2", "--repeat-penalty or --frequency-penalty".
template <class Part>
std::string switch_of() {
  if constexpr (requires { Part::kSwitch; }) return Part::kSwitch;
  std::vector<std::string> names;
  const auto add = [&](const auto& p) {
    if (!p.refines) names.emplace_back(p.flag);
  };
  std::apply([&](const auto&... p) { (add(p), ...); }, Part::parameters());
  const std::string last = names.back();
  names.pop_back();
  return names.empty() ? last : fmt::format("{} or {}", fmt::join(names, ", "), last);
}

// Names the settings that were chosen and have no effect.
void put_idle_settings(const SamplerOptions& s) {
  std::vector<std::string> narrowing;
  SamplerSteps::each_in_help([&]<class S>(std::type_identity<S>) {
    if (S::kKind == StepKind::narrowing)
      std::ranges::copy(chosen<S>(s, false), std::back_inserter(narrowing));
  });
  if (s.temperature > 0 && s.mirostat != 0) put_no_effect(narrowing, "with --mirostat 2");
  std::ranges::copy(chosen<Mirostat>(s, false), std::back_inserter(narrowing));
  if (s.temperature == 0)
    put_no_effect(narrowing, "at --temp 0, which takes the most probable token");
  SamplerParts::each_in_help([&]<class P>(std::type_identity<P>) {
    const P& part = s;
    if (!part.changes()) put_no_effect(chosen(part, true), "without " + switch_of<P>());
  });
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
  std::erase(s.dry_breakers, "none");
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
