#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <random>
#include <utility>

#include "engine/drafting/drafters.h"
#include "engine/grammar/gbnf.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema/json_schema.h"
#include "engine/shelf/inspection.h"  // for likely_name()
#include "main/flags/options.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

// The words that --draft accepts next to paths.
std::vector<std::string> drafter_words() {
  std::vector<std::string> words = {"auto"};
  for (const DrafterKind* kind : drafter_kinds())
    if (kind->word) words.emplace_back(kind->word);
  words.emplace_back("none");
  return words;
}

std::string drafter_help() {
  std::vector<std::string> all;
  for (const DrafterKind* kind : drafter_kinds())
    all.push_back(kind->word ? fmt::format("{} ({})", kind->word, kind->help) : kind->help);
  return fmt::format("{}", fmt::join(all, "; "));
}

// A grammar given as a file name or, if there is no such file, as text. A wrong one has the same
// exit status in both.
GrammarSource source_of_form(const char* flag, const std::string& given, bool is_text) {
  std::error_code ignored;
  if (is_text && !std::filesystem::exists(given, ignored)) return {flag, given, Exit::usage};
  return {given, read_text(given), Exit::usage};
}

// A grammar has a rule, a text or a line end; file names rarely have "=" or quotes.
bool looks_like_gbnf(const std::string& given) {
  return given.find_first_of("=\"\n|") != std::string::npos;
}

bool looks_like_json(const std::string& given) {
  const size_t first = given.find_first_not_of(" \t\r\n");
  return first != std::string::npos &&
         (std::string_view("{[\"").find(given[first]) != std::string_view::npos ||
          given == "true" || given == "false");
}

}  // namespace

void GenerationFlags::declare(Flags& flags) {
  model.declare(flags);
  declare_rest(flags);
}

void GenerationFlags::declare(Flags& flags, std::vector<std::string>& models) {
  model.declare(flags, models);
  declare_rest(flags);
}

void GenerationFlags::declare_rest(Flags& flags) {
  model.declare_hosts(flags);
  flags
      .add("--hub", model.engine.model,
           "OWNER/MODEL or OWNER/MODEL:QUANT of the hub, as for chaski pull; it is downloaded once")
      .not_empty("the name of a model")
      .hub()
      .type("NAME")
      .excludes(flags.named("--model"));
  flags.named("--verbose")
      .help("print more: why no GPU is used, the threads used, the gain from draft tokens");
  declare_settings(flags);
  flags
      .add("--draft", draft,
           "speculative decoding: the source of draft tokens, which do not change the text: " +
               drafter_help() + "; or none (default {}: ngram)")
      .not_empty(
          fmt::format("{}, or a model file or folder", fmt::join(drafter_words(), ", ")).c_str())
      .knows(drafter_words())
      .type("WHAT");
  flags.add("--draft-len", draft_length, "maximum number of draft tokens in a pass (default {})")
      .within(1, Governor::kMost)
      .type("K");
  flags
      .add_switch("--ignore-end", generate.ignore_end,
                  "continue after the model's end-of-text token")
      .excludes(flags.named("--grammar"))
      .excludes(flags.named("--json-schema"))
      .excludes(flags.named("--regex"));
  temperature = flags.named("--temp"), temperature_range = flags.named("--dynatemp-range");
}

void GenerationFlags::declare_answer_cache(Flags& flags) {
  flags
      .add(
          "--answer-cache", answer_cache,
          "cache answers in this folder (at most 64 MB); the same prompt, model, settings and seed "
          "return the stored answer")
      .not_empty("a folder")
      .type("DIR");
}

namespace {

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
  flags.add("--stop", generate.stop, "stop before this text; may be repeated")
      .one_each()
      .type("TEXT");
  flags
      .add("--grammar", grammar,
           "constrain the text to a GBNF grammar: a file, or the grammar itself (root ::= ...)")
      .not_empty("a grammar or its file")
      .type("FILE");
  flags
      .add("--json-schema", json_schema,
           "constrain the text to JSON of a schema: a file, or the schema itself; {}: any JSON")
      .not_empty("a schema or its file")
      .type("FILE");
  flags.add("--regex", regex, "constrain the whole text to a regular expression")
      .not_empty("a regular expression")
      .type("TEXT")
      .excludes(flags.named("--grammar"))
      .excludes(flags.named("--json-schema"));
  flags.named("--json-schema").excludes(flags.named("--grammar"));
  flags
      .add("--context-policy", context_policy,
           "when the context is full: stop; shift: keep the system message, drop the older half of "
           "the rest and read the text again; sinks: the same, but keep the first 4 tokens "
           "(default {})")
      .one_of({"stop", "shift", "sinks"})
      .type("WHAT");
  SamplerOptions& s = generate.sampling;
  flags
      .add("-n,--tokens", generate.max_tokens,
           "maximum number of tokens to generate; -1: no limit (default: until the model stops)")
      .within(-1, kMaxCount)
      .type("N");
  const auto take_seed = [this](const std::string& text) {
    random_seed = text == "-1";
    if (!random_seed)
      generate.sampling.seed = whole_number("--seed", text, "-1 (a random one) or ");
  };
  flags
      .add_read("-s,--seed", take_seed,
                "random seed; the same seed gives the same text (default -1: a random one)")
      .type("N");
  flags.heading("Sampling");
  each_parameter(
      s, [&](auto& part, const auto& parameter) { declare_parameter(flags, part, parameter); });
  flags
      .add("--logit-bias", bias,
           "add X to the logit of token ID, such as 42+1.5 or 42-inf; may be repeated")
      .one_each()
      .type("ID+X");
  flags
      .add("--ban", s.banned,
           "never generate this text, unless a grammar allows nothing else; may be repeated")
      .one_each()
      .type("TEXT");
  flags
      .add("--samplers", samplers,
           "sampling steps in their order; a step that is not listed is skipped (default " +
               fmt::format("{}", fmt::join(sampler_step_names(), ",")) + ")")
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
         "--logit-bias is {}, expected a token id and a number of at most {}, such as 42+1.5", text,
         kMostBias);
  return {token, value};
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

// Checks --draft before a model is opened: a keyword or an existing path passes. A text with a
// slash or dot is reported as a missing file, any other text as an unknown keyword.
void check_draft(const std::string& draft) {
  const std::vector<std::string> words = drafter_words();
  std::error_code none;
  if (std::ranges::count(words, draft) > 0 || std::filesystem::exists(draft, none)) return;
  if (draft.find_first_not_of("0123456789") == std::string::npos)
    fail(Exit::usage, "--draft is {}, expected a drafter: --draft-len {} sets the number of tokens",
         draft, draft);
  std::string expected = fmt::format("{}", fmt::join(words, ", ")), last;
  for (const DrafterKind* kind : drafter_kinds())
    if (!kind->word) expected += last.empty() ? "" : ", " + last, last = kind->help;
  expected += ", or " + last;
  if (draft.find_first_of("/.") != std::string::npos)
    fail(Exit::io, "--draft is {}, which does not exist, expected {}", draft, expected);
  const std::string likely = likely_name(draft, words);
  fail(Exit::usage, "--draft is {}, expected {}{}", draft, expected,
       likely.empty() ? "" : fmt::format(" (nearest: {})", likely));
}

}  // namespace

void put_no_effect(const std::vector<std::string>& names, const std::string& why) {
  if (names.empty()) return;
  put_notice(fmt::format("{} {} no effect {}", fmt::join(names, ", "),
                         names.size() == 1 ? "has" : "have", why));
}

void GenerationFlags::resolve_config_conflicts() {
  SamplerOptions& s = generate.sampling;
  const SamplerOptions usual;
  if (s.temperature_range <= s.temperature || temperature.typed() == temperature_range.typed() ||
      !temperature.given() || !temperature_range.given())
    return;
  const auto put_ignored = [](const char* name, double value, const char* typed,
                              double typed_value) {
    put_notice(fmt::format("{} = {} in the config file is ignored, because {} is {}", name, value,
                           typed, typed_value));
  };
  if (temperature.typed())
    put_ignored("dynatemp-range", s.temperature_range, "--temp", s.temperature);
  else
    put_ignored("temp", s.temperature, "--dynatemp-range", s.temperature_range);
  if (temperature.typed())
    s.temperature_range = usual.temperature_range;
  else
    s.temperature = usual.temperature;
}

void GenerationFlags::clear_setting(const std::string& name) {
  SamplerOptions& s = generate.sampling;
  const std::pair<const char*, std::string*> texts[] = {
      {"grammar", &grammar}, {"json-schema", &json_schema}, {"regex", &regex}};
  const std::pair<const char*, std::vector<std::string>*> lists[] = {
      {"stop", &generate.stop}, {"ban", &s.banned}, {"logit-bias", &bias}};
  for (const auto& [text_name, text] : texts)
    if (name == text_name) return text->clear();
  for (const auto& [list_name, list] : lists)
    if (name == list_name) return list->clear();
  fail(Exit::usage, "--{} is empty, expected a value", name);
}

void GenerationFlags::check() {
  SamplerOptions& s = generate.sampling;
  s.bias.clear();
  for (const std::string& text : bias) s.bias.push_back(bias_of(text));
  if (!samplers.empty()) s.steps = sampler_steps(samplers, "--samplers");
  std::erase(s.dry_breakers, "none");
  s.check();
  put_idle_settings(s);
  for (const std::string& text : generate.stop)
    if (text.empty()) fail(Exit::usage, "--stop is empty, expected a text");
  if (!answer_cache.empty() && !repeats_answers())
    put_notice("--answer-cache has no effect with a random seed; add --seed N or --temp 0");
  check_draft(draft);
}

std::optional<GrammarSource> GenerationFlags::grammar_source(bool may_be_file) const {
  const char* const flag = grammar_flag();
  const std::string& given = !grammar.empty()       ? grammar
                             : !json_schema.empty() ? json_schema
                                                    : regex;
  if (given.empty()) return std::nullopt;
  if (!may_be_file || &given == &regex) return GrammarSource{flag, given, Exit::usage};
  return source_of_form(flag, given,
                        grammar.empty() ? looks_like_json(given) : looks_like_gbnf(given));
}

std::shared_ptr<const Rules> GenerationFlags::rules(
    const std::optional<GrammarSource>& source) const {
  if (!source) return nullptr;
  const auto rules = !grammar.empty()       ? parse_gbnf(*source)
                     : !json_schema.empty() ? parse_json_schema(*source)
                                            : parse_regex(*source);
  for (const std::string& line : rules->impossible())
    put_notice(fmt::format("{}: {}: no text fits this, so no answer has it", source->name, line));
  return rules;
}

const char* GenerationFlags::grammar_flag() const {
  return !grammar.empty()       ? "--grammar"
         : !json_schema.empty() ? "--json-schema"
         : !regex.empty()       ? "--regex"
                                : "";
}

void GenerationFlags::choose_seed() {
  // 32 bits are enough to make seeds differ and few enough digits to type again.
  if (random_seed) generate.sampling.seed = std::random_device()();
}

}  // namespace chaski
