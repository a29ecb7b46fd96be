// The filters of texts, numbers and values of any type, as in Jinja 3 and transformers (tojson).
#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/text/jinja/jinja_run.h"

namespace chaski::jinja {

namespace {

using R = Run&;
using V = const Value&;
using G = const Given&;

Text text_of_value(R run, V of) { return shown(of, run.budget); }

Value abs(R, V of, G) {
  if (!of.is_number()) fault("abs of {}, expected a number", of.type_name());
  const bool below = of.is_whole() ? of.whole() < 0 : std::signbit(of.real());
  return below ? negated(of) : of.is_whole() ? Value(of.whole()) : of;
}

Value attr(R run, V of, G given) {
  run.budget.spend(given.text(0).size() / 32);
  const std::string name = utf8(given.text(0));
  return of.is_dict() && !find_method(of, name)
             ? Value::undefined(
                   fmt::format("'dict object' has no attribute '{}'", name.substr(0, kShownName)))
             : run.attribute(of, name);
}

Value capitalize(R run, V of, G) {
  Text out = lower(text_of_value(run, of));
  if (!out.empty()) out[0] = upper(out[0]);
  return run.text(std::move(out));
}

Value center(R run, V of, G given) {
  const Text text = text_of_value(run, of);
  const int64_t width = given.count(0, 80), space = width - int64_t(text.size());
  if (space <= 0) return run.text(text);
  run.budget.room(size_t(width));
  const size_t left = size_t(space / 2 + (space & width & 1));
  return run.text(Text(left, U' ') + text + Text(size_t(space) - left, U' '));
}

Value or_default(R run, V of, G given) {
  if (of.is_undefined() || (given.truth(1, false) && !of.truth()))
    return given.has(0) ? given[0] : run.text({});
  return of;
}

Value escape(R run, V of, G) {
  Text out;
  for (const char32_t c : text_of_value(run, of)) {
    const char32_t p = plain(c);
    const View entity = p == '&'    ? U"&amp;"
                        : p == '<'  ? U"&lt;"
                        : p == '>'  ? U"&gt;"
                        : p == '"'  ? U"&#34;"
                        : p == '\'' ? U"&#39;"
                                    : View();
    if (entity.empty())
      append(out, View(&c, 1), run.budget);
    else
      for (const char32_t e : entity) out += e | (c & kFromOutside);
  }
  return run.text(std::move(out));
}

std::optional<double> read_real(View text) {
  std::string bytes = utf8(stripped(text, Side::both));
  std::erase(bytes, '_');
  const std::string_view digits = std::string_view(bytes).substr(bytes.starts_with('+') ? 1 : 0);
  double out = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  if (end.ec == std::errc::result_out_of_range)
    return std::strtod(std::string(digits).c_str(), nullptr);
  if (end.ec != std::errc() || end.ptr != digits.data() + digits.size()) return std::nullopt;
  return out;
}

std::optional<int64_t> read_whole(View text, int base) {
  std::string bytes = utf8(lower(stripped(text, Side::both)));
  std::erase(bytes, '_');
  const bool below = bytes.starts_with('-');
  std::string_view digits = std::string_view(bytes).substr(below || bytes.starts_with('+') ? 1 : 0);
  const std::string_view prefix = base == 16 ? "0x" : base == 8 ? "0o" : base == 2 ? "0b" : "";
  if (!prefix.empty() && digits.starts_with(prefix)) digits.remove_prefix(2);
  if (digits.starts_with('-')) return std::nullopt;
  int64_t out = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), out, base);
  if (end.ec == std::errc::result_out_of_range) fault("a whole number is larger than 63 bits");
  if (end.ec != std::errc() || end.ptr != digits.data() + digits.size()) return std::nullopt;
  return below ? -out : out;
}

Value to_float(R, V of, G given) {
  if (of.is_undefined()) fault("{}", of.why_undefined());
  if (of.is_number()) return of.real();
  if (of.is_text())
    if (const auto real = read_real(of.text())) return *real;
  return given.has(0) ? given[0] : Value(0.0);
}

Value to_int(R, V of, G given) {
  if (of.is_undefined()) fault("{}", of.why_undefined());
  const Value otherwise = given.has(0) ? given[0] : Value(int64_t(0));
  const int64_t base = given.whole(1, 10);
  if (base < 2 || base > 36) fault("int() to the base {}, expected 2 to 36", base);
  if (of.is_whole()) return of.whole();
  if (of.is_text())
    if (const auto whole = read_whole(of.text(), int(base))) return *whole;
  const auto real = of.is_text()               ? read_real(of.text())
                    : of.is(Value::Type::real) ? std::optional(of.real())
                                               : std::nullopt;
  return real && std::abs(*real) < 9e18 ? Value(int64_t(*real)) : otherwise;
}

Value format(R run, V of, G given) {
  return run.text(formatted(text_of_value(run, of), given.all(), run.budget));
}

Value indent(R run, V of, G given) {
  const bool is_space_count = !given.has(0) || given[0].is_whole();
  if (is_space_count && given.whole(0, 4) > 1'000) fault("indent() has a width of more than 1000");
  const Text space = is_space_count ? Text(size_t(std::max<int64_t>(given.whole(0, 4), 0)), U' ')
                                    : Text(given.text(0));
  const bool blank = given.truth(2, false);
  const Text text = text_of_value(run, of) + U'\n';
  Text out;
  if (given.truth(1, false)) append(out, space, run.budget);
  const std::vector<View> lines = lines_of(text, false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) append(out, U"\n", run.budget);
    if (i > 0 && (blank || !lines[i].empty())) append(out, space, run.budget);
    append(out, lines[i], run.budget);
  }
  return run.text(std::move(out));
}

Value replace(R run, V of, G given) {
  const Text text = text_of_value(run, of), from = text_of_value(run, given[0]),
             to = text_of_value(run, given[1]);
  int64_t left = given.has(2) && !given[2].is_none() ? given.count(2, -1) : -1;
  Text out;
  size_t at = 0;
  while (left != 0) {
    const size_t next = find(text, from, at, run.budget);
    if (next == View::npos) break;
    append(out, View(text).substr(at, next - at), run.budget);
    append(out, to, run.budget);
    at = next + from.size();
    --left;
    if (from.empty()) {  // an empty `from` matches between all characters
      if (at >= text.size()) return run.text(std::move(out));
      append(out, View(&text[at++], 1), run.budget);
    }
  }
  append(out, View(text).substr(at), run.budget);
  return run.text(std::move(out));
}

Value round(R, V of, G given) {
  if (!of.is_number()) fault("round of {}, expected a number", of.type_name());
  const int64_t digits = given.whole(0, 0);
  const std::string method = utf8(given.text(1, U"common"));
  if (digits < -300 || digits > 300) fault("round to {} digits", digits);
  const double scale = std::pow(10.0, double(digits));
  if (method == "common") {
    if (of.is_whole() && digits >= 0) return of.whole();
    if (digits < 0) {
      const double rounded = std::nearbyint(of.real() * scale) / scale;
      if (!of.is_whole()) return rounded;
      if (!(std::abs(rounded) < 9e18)) fault("a whole number is larger than 63 bits");
      return int64_t(rounded);
    }
    const std::string text = fmt::format("{:.{}f}", of.real(), digits);
    return *read_real(text_of(text));
  }
  if (method != "ceil" && method != "floor")
    fault("round has the method \"{}\", expected common, ceil or floor", method);
  const double scaled = of.real() * scale;
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
}

Value title(R run, V of, G) {
  Text out = text_of_value(run, of);
  bool begins = true;
  for (char32_t& c : out) {
    const bool between = is_space(c) || View(U"-({[<").find(plain(c)) != View::npos;
    if (!between) c = begins ? upper(c) : lower(c);
    begins = between;
  }
  return run.text(std::move(out));
}

Value tojson(R run, V of, G given) {
  JsonStyle style;
  style.sort = given.truth(3, false);
  if (given.has(1) && !given[1].is_none()) {
    if (given[1].is_whole() && given.whole(1) > 100)
      fault("tojson() has an indent of more than 100");
    style.indent = given[1].is_text() ? Text(given.text(1))
                                      : Text(size_t(std::max<int64_t>(given.whole(1), 0)), U' ');
    style.item = U",";
  }
  style.ascii = given.truth(0, false);
  if (given.has(2) && !given[2].is_none()) {
    const Values both = items_of(given[2], run.budget);
    if (both.size() != 2 || !both[0].is_text() || !both[1].is_text())
      fault("tojson() has separators that are not two texts");
    style.item = both[0].text(), style.key = both[1].text();
  }
  Text out;
  append_json(out, of, style, run.budget);
  return run.text(std::move(out));
}

Value trim(R run, V of, G given) {
  const Text text = text_of_value(run, of);
  if (!given.has(0) || given[0].is_none()) return run.text(Text(stripped(text, Side::both)));
  run.budget.spend(text.size() * given.text(0).size() / 32);
  return run.text(Text(stripped(text, Side::both, given.text(0))));
}

Value truncate(R run, V of, G given) {
  const Text text = text_of_value(run, of);
  const View end = given.text(2, U"...");
  const int64_t length = given.whole(0, 255), leeway = given.whole(3, 5);
  if (length < int64_t(end.size()) || leeway < 0)
    fault("truncate() to {} characters, expected at least {}", length, end.size());
  if (int64_t(text.size()) - length <= leeway) return run.text(text);
  Text out = text.substr(0, size_t(length) - end.size());
  if (!given.truth(1, false)) {
    size_t space = out.size();
    while (space > 0 && plain(out[space - 1]) != ' ') --space;
    if (space > 0) out.resize(space - 1);
  }
  append(out, end, run.budget);
  return run.text(std::move(out));
}

Value urlencode(R run, V of, G) {
  Text out;
  for (const char32_t c : text_of_value(run, of)) {
    const char32_t p = plain(c);
    const bool safe =
        p < 0x80 && (is_letter(p) || is_digit(p) || View(U"_.-~/").find(p) != View::npos);
    Text coded;
    for (const char byte : utf8(View(&p, 1)))
      coded += text_of(fmt::format("%{:02X}", uint8_t(byte)), c & kFromOutside);
    append(out, safe ? View(&c, 1) : View(coded), run.budget);
  }
  return run.text(std::move(out));
}

Value wordcount(R run, V of, G) {
  int64_t words = 0;
  bool inside = false;
  for (const char32_t c : text_of_value(run, of)) {
    const bool word = is_letter(c) || is_digit(c) || plain(c) == '_';
    words += word && !inside;
    inside = word;
  }
  return words;
}

Value itself(R run, V of, G) { return run.text(text_of_value(run, of)); }

constexpr Builtin kTextFilters[] = {
    {"abs", "", abs},
    {"attr", "name", attr},
    {"capitalize", "", capitalize},
    {"center", "width", center},
    {"d", "default_value boolean", or_default},
    {"default", "default_value boolean", or_default},
    {"e", "", escape},
    {"escape", "", escape},
    {"float", "default", to_float},
    {"format", "*", format},
    {"indent", "width first blank", indent},
    {"int", "default base", to_int},
    {"lower", "", [](R run, V of, G) { return run.text(lower(text_of_value(run, of))); }},
    {"replace", "old new count", replace},
    {"round", "precision method", round},
    {"safe", "", itself},
    {"string", "", itself},
    {"title", "", title},
    {"tojson", "ensure_ascii indent separators sort_keys", tojson},
    {"trim", "chars", trim},
    {"truncate", "length killwords end leeway", truncate},
    {"upper", "", [](R run, V of, G) { return run.text(upper(text_of_value(run, of))); }},
    {"urlencode", "", urlencode},
    {"wordcount", "", wordcount},
};

}  // namespace

const Builtin* find_filter(std::string_view name) {
  const Builtin* found = row_of(kTextFilters, name);
  return found ? found : row_of(list_filters(), name);
}

}  // namespace chaski::jinja
