// chaski compare: shows where two models, or two quantizations of one, predict a text differently.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "engine/measure/divergence.h"
#include "main/flags/commands.h"
#include "main/flags/options.h"
#include "main/terminal/json_output.h"
#include "main/terminal/output.h"
#include "main/terminal/progress.h"
#include "main/terminal/utf8_note.h"

namespace chaski {

namespace {

struct CompareFlags {
  WindowFlags text;
  std::string a, b;
  int continued = 64, worst = 5;
  double temperature = 0;  // 0: draws are not compared
  Flag typed_temperature;
  bool json = false;
};

// The scored half of the windows is reported in kParts parts, by position in the window.
constexpr int kParts = 4;
constexpr size_t kTokensBefore = 12;  // context that is shown before a place

// What was compared, and the results.
struct Comparison {
  const Engine &a, &b;
  const std::vector<TokenId>& tokens;
  int window;
  double temperature;
  Divergence found;
  Continuation continuation;

  const Tokenizer& tokenizer() const { return a.tokenizer(); }
  // The number of a scored token in its window, and in the text, from 0.
  int in_window(size_t place) const {
    return window / 2 + 1 + int(place % size_t(scored_in(window)));
  }
  size_t in_text(size_t place) const {
    return place / size_t(scored_in(window)) * size_t(window) + size_t(in_window(place));
  }
  std::string text_before(size_t token) const {
    const size_t first = token - std::min(token, kTokensBefore);
    return tokenizer().decode(std::span(tokens).subspan(first, token - first));
  }
  std::string piece(TokenId token) const {
    const std::string_view text = tokenizer().piece(token);
    return std::string(text.empty() ? tokenizer().raw(token) : text);
  }
};

struct Part {
  int first, last;  // numbers of tokens in their window, from 1
  Average kl, same_top;
};
std::vector<Part> parts_of(const Comparison& c) {
  const int scored = scored_in(c.window), parts = std::min(kParts, scored);
  std::vector<Part> all;
  const auto begin = [&](int part) { return c.window / 2 + 2 + scored * part / parts; };
  for (int i = 0; i < parts; ++i) all.push_back({begin(i), begin(i + 1) - 1, {}, {}});
  for (size_t p = 0; p < c.found.places.size(); ++p) {
    const TokenDivergence& place = c.found.places[p];
    const auto part = std::find_if(all.begin(), all.end(),
                                   [&](auto& part) { return c.in_window(p) + 1 <= part.last; });
    part->kl.add(place.kl), part->same_top.add(place.base_top == place.model_top ? 1 : 0);
  }
  return all;
}

// The places with the largest divergence; none where the models are equal.
std::vector<size_t> worst_places(const Divergence& d, int count) {
  std::vector<size_t> all;
  for (size_t i = 0; i < d.places.size(); ++i)
    if (d.places[i].kl > 0) all.push_back(i);
  const size_t n = std::min(all.size(), size_t(count));
  std::partial_sort(all.begin(), all.begin() + ptrdiff_t(n), all.end(), [&](size_t x, size_t y) {
    return std::pair(-d.places[x].kl, x) < std::pair(-d.places[y].kl, y);
  });
  all.resize(n);
  return all;
}

std::string in_quotes(const std::string& text) { return "\"" + escaped(text) + "\""; }

std::string model_line(const char* name, const Engine& engine, const Perplexity& p) {
  return fmt::format("{}: {}, perplexity {:.3f} ± {:.3f}\n", name, escaped(engine.path()),
                     p.perplexity(), p.standard_error());
}

std::string continuation_text(const Comparison& c) {
  const Continuation& found = c.continuation;
  std::string text = fmt::format("greedy, after the first {} tokens: ", c.window / 2);
  if (!found.base_and_model)
    return text + fmt::format("the same {}\n", counted(found.same.size(), "token"));
  const auto& [a, b] = *found.base_and_model;
  text += fmt::format("token {} is the first that differs: A {}, B {}", found.same.size() + 1,
                      in_quotes(c.piece(a)), in_quotes(c.piece(b)));
  if (found.same.empty()) return text + "\n";
  return text + fmt::format(", both after {}\n", in_quotes(c.tokenizer().decode(found.same)));
}

void put_table(const Comparison& c, int worst) {
  const Divergence& d = c.found;
  const std::vector<size_t> places = worst_places(d, std::max(worst, 1));
  const double most = places.empty() ? 0 : d.places[places[0]].kl;
  std::string text = model_line("A", c.a, d.base) + model_line("B", c.b, d.model);
  text += fmt::format(
      "KL of B from A a token: mean {:.5f} ± {:.5f}, median {:.5f}, most {:.3f}; same top {:.2f}% "
      "± {:.2f}%\n",
      d.kl.mean, d.kl.standard_error(), median_kl(d), most, 100 * d.same_top.mean,
      100 * d.same_top.standard_error());
  if (d.coupled.count > 0)
    text += fmt::format(
        "draws at temperature {}: {:.2f}% are the same, {:.2f}% would be accepted by rejection "
        "sampling\n",
        c.temperature, 100 * d.coupled.mean, 100 * d.residual.mean);
  text += "by position in the window:\n";
  for (const Part& part : parts_of(c))
    text += fmt::format("  tokens {:>6} to {:<6} KL {:.5f}, same top {:.2f}%\n", part.first,
                        part.last, part.kl.mean, 100 * part.same_top.mean);
  if (worst > 0 && !places.empty()) text += "largest differences:\n";
  for (size_t i = 0; i < std::min(places.size(), size_t(worst)); ++i) {
    const size_t p = places[i];
    const TokenDivergence& place = d.places[p];
    text += fmt::format("  KL {:<7.3f} token {:<6} A {}, B {}, the text has {} after {}\n",
                        place.kl, c.in_text(p) + 1, in_quotes(c.piece(place.base_top)),
                        in_quotes(c.piece(place.model_top)), in_quotes(c.piece(place.token)),
                        in_quotes(c.text_before(c.in_text(p))));
  }
  put(text + continuation_text(c));
}

JsonValue model_json(const Engine& engine, const Perplexity& p) {
  return {{"model", engine.path()},
          {"perplexity", p.perplexity()},
          {"standard_error", p.standard_error()}};
}

JsonValue json_of(const Comparison& c, int worst) {
  const Divergence& d = c.found;
  JsonValue parts = JsonValue::array(), places = JsonValue::array();
  for (const Part& part : parts_of(c))
    parts.push_back({{"first", part.first},
                     {"last", part.last},
                     {"kl", part.kl.mean},
                     {"same_top", part.same_top.mean}});
  for (const size_t p : worst_places(d, worst)) {
    const TokenDivergence& place = d.places[p];
    places.push_back({{"token", c.in_text(p) + 1},
                      {"kl", place.kl},
                      {"before", c.text_before(c.in_text(p))},
                      {"text", c.piece(place.token)},
                      {"a", c.piece(place.base_top)},
                      {"b", c.piece(place.model_top)}});
  }
  JsonValue greedy = {{"same_tokens", c.continuation.same.size()},
                      {"same", c.tokenizer().decode(c.continuation.same)}};
  if (const auto& other = c.continuation.base_and_model)
    greedy["a"] = c.piece(other->first), greedy["b"] = c.piece(other->second);
  JsonValue json = {{"a", model_json(c.a, d.base)},
                    {"b", model_json(c.b, d.model)},
                    {"window", c.window},
                    {"windows", d.base.windows},
                    {"scored_tokens", d.base.scored()},
                    {"kl", d.kl.mean},
                    {"kl_standard_error", d.kl.standard_error()},
                    {"kl_median", median_kl(d)},
                    {"same_top", d.same_top.mean},
                    {"same_top_standard_error", d.same_top.standard_error()},
                    {"by_place", parts},
                    {"worst", places},
                    {"greedy", greedy}};
  if (d.coupled.count > 0)
    json["draws"] = {
        {"temperature", c.temperature}, {"same", d.coupled.mean}, {"same_law", d.residual.mean}};
  return json;
}

int compare(const CompareFlags& flags) {
  // A temperature in the config file is meant for generation, so only a typed one counts here.
  const double temperature = flags.typed_temperature.typed() ? flags.temperature : 0;
  if (!(temperature >= 0 && temperature <= 100))
    fail(Exit::usage, "--temp is {}, expected 0 to 100", temperature);
  const std::string text = flags.text.read();
  EngineOptions options = flags.text.model.options();
  const auto open = [&](const std::string& model) {
    options.model = model;
    return open_engine(options);
  };
  const std::shared_ptr<Engine> a = open(flags.a), b = open(flags.b);
  expect_same_tokens(*a, *b, text);
  put_utf8_note("the text", text, a->tokenizer());
  std::vector<TokenId> tokens = a->tokenizer().encode_prompt(text);
  const int window = a->context_length(), windows = flags.text.windows_of(tokens.size(), window);
  put_rest_note(tokens.size(), window, windows);
  const uint64_t all = uint64_t(windows) * uint64_t(window);
  const auto of_a = a->session(), of_b = b->session();
  std::optional<ProgressBar> bar(ProgressScale{double(all), "tokens"});
  Comparison c{*a, *b, tokens, window, temperature, {}, {}};
  c.found = divergence(
      *of_a, *of_b, nullptr, tokens, window, windows,
      [&](const Divergence& so_far, uint64_t read) {
        bar->show({fmt::format("KL {:.5f}", so_far.kl.mean), read, all});
      },
      temperature > 0 ? std::optional(temperature) : std::nullopt);
  bar.reset();
  c.continuation = greedy_continuation(*of_a, *of_b, std::span(tokens).first(size_t(window) / 2),
                                       flags.continued);
  if (flags.json)
    put_json(json_of(c, flags.worst));
  else
    put_table(c, flags.worst);
  return int(Exit::done);
}

}  // namespace

Action declare_compare(Flags parser) {
  auto flags = std::make_shared<CompareFlags>();
  for (const auto& [name, model] : {std::pair("A", &flags->a), {"B", &flags->b}})
    parser.add(name, *model, "model file or folder, as for -m")
        .not_empty("a model file or folder")
        .model()
        .required();
  flags->text.declare(parser);
  parser
      .add("-n,--tokens", flags->continued,
           "tokens of the greedy continuation, at most half a window (default 64)")
      .within(1, std::numeric_limits<int>::max())
      .type("N");
  parser.add("--worst", flags->worst, "how many of the largest differences to show (default 5)")
      .within(0, std::numeric_limits<int>::max())
      .type("N");
  flags->typed_temperature =
      parser
          .add("--temp", flags->temperature,
               "also report how often draws at this temperature are the same: "
               "the acceptance rate if B drafts for A (default 0: not "
               "compared)")
          .type("T");
  declare_json(parser, flags->json);
  parser.example("What a smaller file changes",
                 "chaski compare model.gguf small.quipu -f book.txt -c 128");
  parser.example("The twenty largest differences",
                 "chaski compare model.gguf small.quipu -f book.txt -c 128 --worst 20");
  parser.example("For a program",
                 "chaski compare model.gguf small.quipu -f book.txt -c 128 --json");
  return [flags] { return compare(*flags); };
}

}  // namespace chaski
