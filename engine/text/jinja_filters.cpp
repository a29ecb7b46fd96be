// The filters, as Jinja 3 and transformers (tojson) have them.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/text/jinja_run.h"

namespace chaski::jinja {

namespace {

using R = Run&;
using V = const Value&;
using G = const Given&;

Text text_of_value(R run, V of) { return shown(of, run.budget); }

Value attribute_or(R run, const Value& item, const Given& given, size_t place) {
  return given.has(place) && !given[place].is_none() ? run.path(item, given[place]) : item;
}

Value without_case(R run, Value value) {
  return value.is_text() ? run.text(lower(value.text())) : value;
}

Value abs(R, V of, G) {
  if (!of.is_number()) fault("abs of {}, expected a number", of.type_name());
  const bool below = of.is_whole() ? of.whole() < 0 : std::signbit(of.real());
  return below ? negated(of) : of.is_whole() ? Value(of.whole()) : of;
}

Value attr(R run, V of, G given) {
  const std::string name = utf8(given.text(0));
  return of.is_dict() && !find_method(of, name)
             ? Value::undefined(fmt::format("'dict object' has no attribute '{}'", name))
             : run.attribute(of, name);
}

Value batch(R run, V of, G given) {
  const int64_t count = given.whole(0);
  if (count < 1) fault("batch() by {}, expected at least 1", count);
  Values out, row;
  for (Value& item : items_of(of, run.budget)) {
    if (int64_t(row.size()) == count)
      out.push_back(Value::list(run.budget, std::exchange(row, {})));
    row.push_back(std::move(item));
  }
  if (!row.empty()) {
    if (given.has(1) && !given[1].is_none()) {
      run.budget.take(size_t(count) * sizeof(Value));
      row.resize(size_t(count), given[1]);
    }
    out.push_back(Value::list(run.budget, std::move(row)));
  }
  return Value::list(run.budget, std::move(out), Sequence::generator);
}

Value slice(R run, V of, G given) {
  const int64_t slices = given.whole(0);
  const Values all = items_of(of, run.budget);
  if (slices < 1 || slices > 100'000) fault("slice() into {}, expected 1 to 100000", slices);
  const size_t each = all.size() / size_t(slices), more = all.size() % size_t(slices);
  Values out;
  for (size_t i = 0, at = 0; i < size_t(slices); ++i) {
    const size_t count = each + (i < more);
    Values row(all.begin() + ptrdiff_t(at), all.begin() + ptrdiff_t(at + count));
    at += count;
    if (given.has(1) && !given[1].is_none() && i >= more) row.push_back(given[1]);
    out.push_back(Value::list(run.budget, std::move(row)));
  }
  return Value::list(run.budget, std::move(out), Sequence::generator);
}

Value capitalize(R run, V of, G) {
  Text out = lower(text_of_value(run, of));
  if (!out.empty()) out[0] = upper(out[0]);
  return run.text(std::move(out));
}

Value center(R run, V of, G given) {
  const Text text = text_of_value(run, of);
  const int64_t width = given.whole(0, 80), space = width - int64_t(text.size());
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

// Sorted by a key each, stably.
Values sorted(R run, Values items, const Values& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? less(keys[b], keys[a], run.budget) : less(keys[a], keys[b], run.budget);
  });
  Values out;
  for (const size_t i : order) out.push_back(items[i]);
  return out;
}

Value dictsort(R run, V of, G given) {
  if (!of.is_dict()) fault("dictsort of {}, expected a dict", of.type_name());
  const bool by_value = same(given.text(1, U"key"), U"value");
  Values pairs, keys;
  for (const auto& [key, value] : of.dict().items) {
    const Value& by = by_value ? value : key;
    keys.push_back(given.truth(0, false) ? by : without_case(run, by));
    pairs.push_back(Value::list(run.budget, {key, value}, Sequence::tuple));
  }
  return Value::list(run.budget, sorted(run, std::move(pairs), keys, given.truth(2, false)));
}

Value sort(R run, V of, G given) {
  Values items = items_of(of, run.budget), keys;
  const bool with_case = given.truth(1, false);
  for (const Value& item : items) {
    Values key;
    if (given.has(2) && given[2].is_text()) {
      const View names = given.text(2);
      for (size_t from = 0; from <= names.size();) {
        const size_t comma = std::min(names.find(U',', from), names.size());
        key.push_back(run.path(item, run.text(Text(names.substr(from, comma - from)))));
        from = comma + 1;
      }
    } else {
      key.push_back(attribute_or(run, item, given, 2));
    }
    for (Value& one : key)
      if (!with_case) one = without_case(run, one);
    keys.push_back(Value::list(run.budget, std::move(key)));
  }
  return Value::list(run.budget, sorted(run, std::move(items), keys, given.truth(0, false)));
}

Value unique(R run, V of, G given) {
  Values out, seen;
  for (Value& item : items_of(of, run.budget)) {
    Value key = attribute_or(run, item, given, 1);
    if (!given.truth(0, false)) key = without_case(run, key);
    const auto is_key = [&](const Value& one) { return equal(one, key, run.budget); };
    if (std::any_of(seen.begin(), seen.end(), is_key)) continue;
    seen.push_back(key);
    out.push_back(std::move(item));
  }
  return Value::list(run.budget, std::move(out), Sequence::generator);
}

Value groupby(R run, V of, G given) {
  Values items = items_of(of, run.budget), keys;
  const auto key_of = [&](const Value& item) {
    Value key = run.path(item, given[0]);
    return key.is_undefined() && given.has(1) ? given[1] : key;
  };
  const bool with_case = given.truth(2, false);
  const auto sort_key = [&](const Value& item) {
    return with_case ? key_of(item) : without_case(run, key_of(item));
  };
  for (const Value& item : items) keys.push_back(sort_key(item));
  items = sorted(run, std::move(items), keys, false);
  Values out;
  for (size_t from = 0, to = 0; from < items.size(); from = to) {
    const Value key = sort_key(items[from]);
    while (to < items.size() && equal(sort_key(items[to]), key, run.budget)) ++to;
    Values group(items.begin() + ptrdiff_t(from), items.begin() + ptrdiff_t(to));
    out.push_back(Value::list(run.budget,
                              {key_of(items[from]), Value::list(run.budget, std::move(group))},
                              Sequence::tuple));
  }
  return Value::list(run.budget, std::move(out));
}

Value extreme(R run, V of, G given, bool largest) {
  const Values items = items_of(of, run.budget);
  if (items.empty()) return Value::undefined("there is no smallest or largest item of none");
  const auto key = [&](const Value& item) {
    const Value value = attribute_or(run, item, given, 1);
    return given.truth(0, false) ? value : without_case(run, value);
  };
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i)
    if (largest ? less(key(items[best]), key(items[i]), run.budget)
                : less(key(items[i]), key(items[best]), run.budget))
      best = i;
  return items[best];
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

Value first(R run, V of, G) {
  if (of.is_list() && !of.list().items.empty()) return of.list().items[0];
  const Values items = items_of(of, run.budget);
  return items.empty() ? Value::undefined("there is no first item of none") : items[0];
}

Value last(R run, V of, G) {
  if (of.is_list() && of.list().kind == Sequence::generator)
    fault("a generator has no last item, expected a list");
  const Values items = items_of(of, run.budget);
  return items.empty() ? Value::undefined("there is no last item of none") : items.back();
}

std::optional<double> read_real(View text) {
  std::string bytes = utf8(stripped(text, Side::both));
  std::erase(bytes, '_');
  const std::string_view digits = std::string_view(bytes).substr(bytes.starts_with('+') ? 1 : 0);
  double out = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  if (end.ec == std::errc::result_out_of_range) return HUGE_VAL;
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
  if (is_space_count && given.whole(0, 4) > 1'000) fault("indent() by more than 1000");
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

Value items(R run, V of, G) {
  if (of.is_undefined()) return Value::list(run.budget, {}, Sequence::generator);
  if (!of.is_dict()) fault("items of {}, expected a dict", of.type_name());
  Values out;
  for (const auto& [key, value] : of.dict().items)
    out.push_back(Value::list(run.budget, {key, value}, Sequence::tuple));
  return Value::list(run.budget, std::move(out), Sequence::generator);
}

Value join(R run, V of, G given) {
  Text out;
  const Text separator = given.has(0) ? text_of_value(run, given[0]) : Text();
  bool more = false;
  for (const Value& item : items_of(of, run.budget)) {
    if (std::exchange(more, true)) append(out, separator, run.budget);
    append_shown(out, attribute_or(run, item, given, 1), run.budget);
  }
  return run.text(std::move(out));
}

// Calls the filter or test that the first of the arguments names.
struct Named {
  const Builtin* builtin;
  Arguments rest;
};
Named named(const Arguments& all, size_t place, const Builtin* (*find)(std::string_view)) {
  if (place >= all.positional.size() || !all.positional[place].is_text())
    fault("the name of a filter or test is expected");
  const std::string name = utf8(all.positional[place].text());
  const Builtin* builtin = find(name);
  if (!builtin) fault("\"{}\" is no filter or test", name);
  Arguments rest = all;
  rest.positional.erase(rest.positional.begin(), rest.positional.begin() + ptrdiff_t(place + 1));
  return {builtin, std::move(rest)};
}

Value map(R run, V of, G given) {
  const Arguments& all = given.all();
  const Value *attribute = nullptr, *otherwise = nullptr;
  for (const auto& [name, value] : all.named)
    (name == "attribute" ? attribute : name == "default" ? otherwise : attribute) = &value;
  Values out;
  if (!of.truth()) return Value::list(run.budget, {}, Sequence::generator);
  if (all.positional.empty() && attribute) {
    for (const Value& item : items_of(of, run.budget)) {
      Value value = run.path(item, *attribute);
      out.push_back(value.is_undefined() && otherwise ? *otherwise : std::move(value));
    }
  } else {
    const Named filter = named(all, 0, find_filter);
    for (const Value& item : items_of(of, run.budget))
      out.push_back(call(*filter.builtin, run, item, filter.rest));
  }
  return Value::list(run.budget, std::move(out), Sequence::generator);
}

Value chosen(R run, V of, const Arguments& all, bool attribute, bool wanted) {
  Values out;
  if (!of.truth()) return Value::list(run.budget, {}, Sequence::generator);
  if (attribute && all.positional.empty()) fault("the name of an attribute is expected");
  const size_t place = attribute;
  const Named test =
      all.positional.size() > place ? named(all, place, find_test) : Named{nullptr, {}};
  for (Value& item : items_of(of, run.budget)) {
    const Value value = attribute ? run.path(item, all.positional[0]) : item;
    const Value holds = test.builtin ? call(*test.builtin, run, value, test.rest) : value;
    if (holds.truth() == wanted) out.push_back(std::move(item));
  }
  return Value::list(run.budget, std::move(out), Sequence::generator);
}

Value replace(R run, V of, G given) {
  const Text text = text_of_value(run, of), from = text_of_value(run, given[0]),
             to = text_of_value(run, given[1]);
  int64_t left = given.has(2) && !given[2].is_none() ? given.whole(2) : -1;
  Text out;
  size_t at = 0;
  while (left != 0) {
    const size_t next = find(text, from, at, run.budget);
    if (next == View::npos) break;
    append(out, View(text).substr(at, next - at), run.budget);
    append(out, to, run.budget);
    at = next + from.size();
    --left;
    if (from.empty()) {  // stands between all characters
      if (at >= text.size()) return run.text(std::move(out));
      append(out, View(&text[at++], 1), run.budget);
    }
  }
  append(out, View(text).substr(at), run.budget);
  return run.text(std::move(out));
}

Value reverse(R run, V of, G) {
  if (of.is_text()) return run.text(Text(of.text().rbegin(), of.text().rend()));
  Values items = items_of(of, run.budget);
  std::reverse(items.begin(), items.end());
  return Value::list(run.budget, std::move(items), Sequence::generator);
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
      return of.is_whole() ? Value(int64_t(rounded)) : Value(rounded);
    }
    const std::string text = fmt::format("{:.{}f}", of.real(), digits);
    return *read_real(text_of(text));
  }
  if (method != "ceil" && method != "floor")
    fault("round has the method \"{}\", expected common, ceil or floor", method);
  const double scaled = of.real() * scale;
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
}

Value sum(R run, V of, G given) {
  Value out = given.has(1) ? given[1] : Value(int64_t(0));
  for (const Value& item : items_of(of, run.budget))
    out = operate("+", out, attribute_or(run, item, given, 0), run.budget);
  return out;
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
    if (given[1].is_whole() && given.whole(1) > 100) fault("tojson() indents by more than 100");
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
Value length(R, V of, G) { return int64_t(length_of(of)); }

constexpr Builtin kFilters[] = {
    {"abs", "", abs},
    {"attr", "name", attr},
    {"batch", "linecount fill_with", batch},
    {"capitalize", "", capitalize},
    {"center", "width", center},
    {"count", "", length},
    {"d", "default_value boolean", or_default},
    {"default", "default_value boolean", or_default},
    {"dictsort", "case_sensitive by reverse", dictsort},
    {"e", "", escape},
    {"escape", "", escape},
    {"first", "", first},
    {"float", "default", to_float},
    {"format", "*", format},
    {"groupby", "attribute default case_sensitive", groupby},
    {"indent", "width first blank", indent},
    {"int", "default base", to_int},
    {"items", "", items},
    {"join", "d attribute", join},
    {"last", "", last},
    {"length", "", length},
    {"list", "", [](R run, V of, G) { return Value::list(run.budget, items_of(of, run.budget)); }},
    {"lower", "", [](R run, V of, G) { return run.text(lower(text_of_value(run, of))); }},
    {"map", "*", map},
    {"max", "case_sensitive attribute",
     [](R run, V of, G given) { return extreme(run, of, given, true); }},
    {"min", "case_sensitive attribute",
     [](R run, V of, G given) { return extreme(run, of, given, false); }},
    {"reject", "*",
     [](R run, V of, G given) { return chosen(run, of, given.all(), false, false); }},
    {"rejectattr", "*",
     [](R run, V of, G given) { return chosen(run, of, given.all(), true, false); }},
    {"replace", "old new count", replace},
    {"reverse", "", reverse},
    {"round", "precision method", round},
    {"safe", "", itself},
    {"select", "*", [](R run, V of, G given) { return chosen(run, of, given.all(), false, true); }},
    {"selectattr", "*",
     [](R run, V of, G given) { return chosen(run, of, given.all(), true, true); }},
    {"slice", "slices fill_with", slice},
    {"sort", "reverse case_sensitive attribute", sort},
    {"string", "", itself},
    {"sum", "attribute start", sum},
    {"title", "", title},
    {"tojson", "ensure_ascii indent separators sort_keys", tojson},
    {"trim", "chars", trim},
    {"truncate", "length killwords end leeway", truncate},
    {"unique", "case_sensitive attribute", unique},
    {"upper", "", [](R run, V of, G) { return run.text(upper(text_of_value(run, of))); }},
    {"urlencode", "", urlencode},
    {"wordcount", "", wordcount},
};

}  // namespace

const Builtin* find_filter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                   [&](const Builtin& one) { return one.name == name; });
  return found == std::end(kFilters) ? nullptr : found;
}

}  // namespace chaski::jinja
