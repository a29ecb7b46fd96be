// Text forms of values: Python's str() and repr(), and its json.dumps().
#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/text/jinja/jinja_value.h"

namespace chaski::jinja {

namespace {

using Type = Value::Type;

Text from_ascii(std::string_view text) { return {text.begin(), text.end()}; }

void append_ascii(Text& out, std::string_view text, Budget& budget) {
  append(out, from_ascii(text), budget);
}

// Appends with the mark of the character c.
void append_marked(Text& out, std::string_view text, char32_t c, Budget& budget) {
  Text marked = from_ascii(text);
  for (char32_t& one : marked) one |= c & kFromOutside;
  append(out, marked, budget);
}

std::string code(char32_t c) {
  return c < 0x100     ? fmt::format("\\x{:02x}", uint32_t(c))
         : c < 0x10000 ? fmt::format("\\u{:04x}", uint32_t(c))
                       : fmt::format("\\U{:08x}", uint32_t(c));
}

void append_text_repr(Text& out, View text, Budget& budget) {
  const auto has = [&](char32_t quote) {
    for (const char32_t c : text)
      if (plain(c) == quote) return true;
    return false;
  };
  const char32_t quote = has('\'') && !has('"') ? '"' : '\'';
  append(out, View(&quote, 1), budget);
  for (const char32_t c : text) {
    const char32_t p = plain(c);
    if (p == quote || p == '\\')
      append_marked(out, {"\\", 1}, c, budget), append(out, View(&c, 1), budget);
    else if (p == '\n' || p == '\r' || p == '\t')
      append_marked(out, p == '\n' ? "\\n" : p == '\r' ? "\\r" : "\\t", c, budget);
    else if (!is_printable(c))
      append_marked(out, code(p), c, budget);
    else
      append(out, View(&c, 1), budget);
  }
  append(out, View(&quote, 1), budget);
}

void append_list_repr(Text& out, const List& list, Budget& budget) {
  if (list.kind == Sequence::generator) return append_ascii(out, "<generator object>", budget);
  const bool tuple = list.kind == Sequence::tuple;
  append_ascii(out, tuple ? "(" : "[", budget);
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) append_ascii(out, ", ", budget);
    append_repr(out, list.items[i], budget);
  }
  append_ascii(out, tuple ? list.items.size() == 1 ? ",)" : ")" : "]", budget);
}

void append_dict_repr(Text& out, const Dict& dict, Budget& budget) {
  append_ascii(out, "{", budget);
  for (size_t i = 0; i < dict.items.size(); ++i) {
    if (i > 0) append_ascii(out, ", ", budget);
    append_repr(out, dict.items[i].first, budget);
    append_ascii(out, ": ", budget);
    append_repr(out, dict.items[i].second, budget);
  }
  append_ascii(out, "}", budget);
}

void append_json_text(Text& out, View text, bool ascii, Budget& budget) {
  append_ascii(out, "\"", budget);
  for (size_t from = 0; from < text.size();) {
    size_t at = from;  // most characters are written unchanged
    const auto unchanged = [&](char32_t c) {
      return c >= 0x20 && c != '"' && c != '\\' && !(ascii && c > 0x7E);
    };
    while (at < text.size() && unchanged(plain(text[at]))) ++at;
    append(out, text.substr(from, at - from), budget);
    from = at + 1;
    if (at == text.size()) break;
    const char32_t c = plain(text[at]);
    constexpr std::string_view kShort = "\"\"\\\\\nn\rr\tt\bb\ff";
    std::string escape;
    for (size_t i = 0; i < kShort.size(); i += 2)
      if (c == char32_t(kShort[i])) escape = {'\\', kShort[i + 1]};
    if (escape.empty() && c >= 0x10000)
      escape = fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((uint32_t(c) - 0x10000) >> 10),
                           0xDC00 + ((uint32_t(c) - 0x10000) & 0x3FF));
    if (escape.empty()) escape = fmt::format("\\u{:04x}", uint32_t(c));
    append_marked(out, escape, text[at], budget);
  }
  append_ascii(out, "\"", budget);
}

std::string json_number(double value) {
  return std::isnan(value)   ? "NaN"
         : std::isinf(value) ? value < 0 ? "-Infinity" : "Infinity"
                             : shown(value);
}

void append_json_plain(Text& out, const Value& value, Budget& budget) {
  switch (value.type()) {
    case Type::none:
      return append_ascii(out, "null", budget);
    case Type::boolean:
      return append_ascii(out, value.truth() ? "true" : "false", budget);
    case Type::integer:
      return append_ascii(out, std::to_string(value.whole()), budget);
    case Type::real:
      return append_ascii(out, json_number(value.real()), budget);
    default:
      fault("{} cannot be written as JSON", value.type_name());
  }
}

void append_json_key(Text& out, const Value& key, const JsonStyle& style, Budget& budget) {
  if (key.is_text()) return append_json_text(out, key.text(), style.ascii, budget);
  Text plain;
  append_json_plain(plain, key, budget);
  append_json_text(out, plain, style.ascii, budget);
}

}  // namespace

// Python's format: the shortest digits that are read back as the same number, with an exponent
// below 1e-4 and from 1e16 on.
std::string shown(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[64];
  const bool plain = value == 0 || (std::abs(value) >= 1e-4 && std::abs(value) < 1e16);
  const auto end = std::to_chars(text, text + sizeof text, value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  const std::string out(text, end.ptr);
  return plain && out.find('.') == std::string::npos ? out + ".0" : out;
}

void append_repr(Text& out, const Value& value, Budget& budget) {
  budget.spend(1);
  switch (value.type()) {
    case Type::undefined:
      return append_ascii(out, "Undefined", budget);
    case Type::text:
      return append_text_repr(out, value.text(), budget);
    case Type::list:
      return append_list_repr(out, value.list(), budget);
    case Type::dict:
      return append_dict_repr(out, value.dict(), budget);
    case Type::none:
      return append_ascii(out, "None", budget);
    case Type::boolean:
      return append_ascii(out, value.truth() ? "True" : "False", budget);
    case Type::integer:
      return append_ascii(out, std::to_string(value.whole()), budget);
    case Type::real:
      return append_ascii(out, shown(value.real()), budget);
    case Type::object:
      return append_ascii(out, value.object().shown(), budget);
  }
}

void append_shown(Text& out, const Value& value, Budget& budget) {
  if (value.is_text()) return append(out, value.text(), budget);
  if (!value.is_undefined()) append_repr(out, value, budget);
}

Text shown(const Value& value, Budget& budget) {
  Text out;
  append_shown(out, value, budget);
  return out;
}

void append_json(Text& out, const Value& value, const JsonStyle& style, Budget& budget, int level) {
  budget.spend(1);
  if (value.is_text()) return append_json_text(out, value.text(), style.ascii, budget);
  const bool dict = value.is_dict();
  if (!dict && !value.is_list()) return append_json_plain(out, value, budget);
  if (value.is_list() && value.list().kind > Sequence::tuple)
    fault("a {} cannot be written as JSON, expected a list", value.type_name());
  const size_t count = length_of(value);
  const auto line = [&](int depth) {
    if (!style.indent || count == 0) return;
    append_ascii(out, "\n", budget);
    for (int i = 0; i < depth; ++i) append(out, *style.indent, budget);
  };
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = i;
  if (dict && style.sort)
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return less(value.dict().items[a].first, value.dict().items[b].first, budget);
    });
  append_ascii(out, dict ? "{" : "[", budget);
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) append(out, style.item, budget);
    line(level + 1);
    if (dict) {
      append_json_key(out, value.dict().items[order[i]].first, style, budget);
      append(out, style.key, budget);
    }
    append_json(out, dict ? value.dict().items[order[i]].second : value.list().items[i], style,
                budget, level + 1);
  }
  line(level);
  append_ascii(out, dict ? "}" : "]", budget);
}

}  // namespace chaski::jinja
