// The methods of texts, lists and dicts, as in Python, except those that modify their object.
#include <algorithm>

#include "engine/text/jinja/jinja_run.h"

namespace chaski::jinja {

namespace {

using R = Run&;
using V = const Value&;
using G = const Given&;

Value list_of(R run, const std::vector<View>& parts, Sequence kind = Sequence::list) {
  Values out;
  for (const View part : parts) out.push_back(run.text(Text(part)));
  return Value::list(run.budget, std::move(out), kind);
}

template <Side side>
Value strip(R run, V of, G given) {
  if (!given.has(0) || given[0].is_none()) return run.text(Text(stripped(of.text(), side)));
  run.budget.spend(of.text().size() * given.text(0).size() / 32);
  return run.text(Text(stripped(of.text(), side, given.text(0))));
}

// The last position of `what` before `end`.
size_t find_last(View all, View what, size_t end, Budget& budget) {
  for (size_t at = std::min(end, all.size()) + 1; at-- > 0;) {
    if ((at & 31) == 0) budget.spend(1 + what.size() / 32);
    if (at + what.size() <= end && starts_with(all.substr(at), what)) return at;
  }
  return View::npos;
}

std::vector<View> words_of(View text, int64_t most, bool from_right) {
  std::vector<View> out;
  const auto trimmed = [&] { return stripped(text, from_right ? Side::right : Side::left); };
  for (text = trimmed(); !text.empty(); text = trimmed()) {
    if (most-- == 0) {
      out.push_back(stripped(text, from_right ? Side::right : Side::left));
      break;
    }
    size_t size = 0;
    while (size < text.size() && !is_space(from_right ? text[text.size() - 1 - size] : text[size]))
      ++size;
    out.push_back(from_right ? text.substr(text.size() - size) : text.substr(0, size));
    from_right ? text.remove_suffix(size) : text.remove_prefix(size);
  }
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

template <bool from_right>
Value split(R run, V of, G given) {
  View text = of.text();
  int64_t most = given.count(1, -1);
  run.budget.take(text.size() * 4);
  if (!given.has(0) || given[0].is_none()) {
    std::vector<View> words = words_of(text, most, from_right);
    return list_of(run, words);
  }
  const View separator = given.text(0);
  if (separator.empty()) fault("split() has an empty separator");
  std::vector<View> out;
  for (; most != 0; --most) {
    const size_t at = from_right ? find_last(text, separator, text.size(), run.budget)
                                 : find(text, separator, 0, run.budget);
    if (at == View::npos) break;
    out.push_back(from_right ? text.substr(at + separator.size()) : text.substr(0, at));
    text = from_right ? text.substr(0, at) : text.substr(at + separator.size());
  }
  out.push_back(text);
  if (from_right) std::reverse(out.begin(), out.end());
  return list_of(run, out);
}

template <bool from_right>
Value partition(R run, V of, G given) {
  const View text = of.text(), separator = given.text(0);
  if (separator.empty()) fault("partition() has an empty separator");
  const size_t at = from_right ? find_last(text, separator, text.size(), run.budget)
                               : find(text, separator, 0, run.budget);
  if (at == View::npos)
    return list_of(run, from_right ? std::vector<View>{{}, {}, text} : std::vector{text, {}, {}},
                   Sequence::tuple);
  return list_of(
      run,
      {text.substr(0, at), text.substr(at, separator.size()), text.substr(at + separator.size())},
      Sequence::tuple);
}

// The part of a text between start and end.
struct Cut {
  View text;
  size_t from;
  bool whole;  // false: start and end exclude even an empty text
};
Cut cut(V of, G given, size_t place) {
  const int64_t n = int64_t(of.text().size());
  const auto bound = [&](size_t i, int64_t otherwise) {
    if (!given.has(i) || given[i].is_none()) return otherwise;
    const int64_t value = given.whole(i);
    return value < 0 ? std::max<int64_t>(value + n, 0) : value;
  };
  const int64_t from = bound(place, 0), to = std::min(bound(place + 1, n), n);
  if (from > to) return {{}, 0, false};
  return {of.text().substr(size_t(from), size_t(to - from)), size_t(from), true};
}

template <bool at_end>
Value begins(R run, V of, G given) {
  const Cut part = cut(of, given, 1);
  const auto fits = [&](const Value& one) {
    if (!one.is_text()) fault("startswith() or endswith() of {}, expected a text", one.type_name());
    return part.whole &&
           (at_end ? ends_with(part.text, one.text()) : starts_with(part.text, one.text()));
  };
  if (!given[0].is_list()) return fits(given[0]);
  const Values any = items_of(given[0], run.budget);
  return std::any_of(any.begin(), any.end(), fits);
}

template <bool from_right, bool must_be_there>
Value position(R run, V of, G given) {
  const Cut part = cut(of, given, 1);
  const View what = given.text(0);
  const size_t at = !part.whole  ? View::npos
                    : from_right ? find_last(part.text, what, part.text.size(), run.budget)
                                 : find(part.text, what, 0, run.budget);
  if (at == View::npos && must_be_there) fault("index() did not find the text");
  return at == View::npos ? int64_t(-1) : int64_t(at + part.from);
}

Value count(R run, V of, G given) {
  const Cut part = cut(of, given, 1);
  const View what = given.text(0);
  if (!part.whole) return int64_t(0);
  if (what.empty()) return int64_t(part.text.size() + 1);
  int64_t out = 0;
  for (size_t at = 0; (at = find(part.text, what, at, run.budget)) != View::npos; at += what.size())
    ++out;
  return out;
}

template <Side side>  // the side of the text
Value justify(R run, V of, G given) {
  const View text = of.text(), fill = given.text(1, U" ");
  const int64_t width = given.count(0, 0), space = width - int64_t(text.size());
  if (fill.size() != 1) fault("a filling of {} characters, expected 1", fill.size());
  if (space <= 0) return of;
  run.budget.room(size_t(width));
  const size_t left = side == Side::left    ? 0
                      : side == Side::right ? size_t(space)
                                            : size_t(space / 2 + (space & width & 1));
  return run.text(Text(left, fill[0]) + Text(text) + Text(size_t(space) - left, fill[0]));
}

Value zfill(R run, V of, G given) {
  const View text = of.text();
  const int64_t space = given.count(0, 0) - int64_t(text.size());
  if (space <= 0) return of;
  run.budget.room(size_t(space) + text.size());
  const size_t sign = !text.empty() && (plain(text[0]) == '-' || plain(text[0]) == '+');
  return run.text(Text(text.substr(0, sign)) + Text(size_t(space), U'0') + Text(text.substr(sign)));
}

Value join_items(R run, V of, G given) {
  Text out;
  bool more = false;
  for (const Value& item : items_of(given[0], run.budget)) {
    if (!item.is_text()) fault("join() of {}, expected texts", item.type_name());
    if (std::exchange(more, true)) append(out, of.text(), run.budget);
    append(out, item.text(), run.budget);
  }
  return run.text(std::move(out));
}

Value title_case(R run, V of, G) {
  Text out(of.text());
  bool inside = false;
  for (char32_t& c : out) {
    const bool letter = is_letter(c);
    if (letter) c = inside ? lower(c) : upper(c);
    inside = letter;
  }
  return run.text(std::move(out));
}

Value swapcase(R run, V of, G) {
  Text out(of.text());
  for (char32_t& c : out) c = is_upper(c) ? lower(c) : upper(c);
  return run.text(std::move(out));
}

Value removeprefix(R run, V of, G given) {
  const View text = of.text(), what = given.text(0);
  return run.text(Text(starts_with(text, what) ? text.substr(what.size()) : text));
}
Value removesuffix(R run, V of, G given) {
  const View text = of.text(), what = given.text(0);
  return run.text(Text(ends_with(text, what) ? text.substr(0, text.size() - what.size()) : text));
}

template <bool (*fits)(char32_t)>
Value all(R, V of, G) {
  const View text = of.text();
  return !text.empty() && std::all_of(text.begin(), text.end(), fits);
}

template <bool (*wanted)(char32_t), bool (*other)(char32_t)>
Value all_cased(R, V of, G) {
  const View text = of.text();
  return std::any_of(text.begin(), text.end(), wanted) &&
         std::none_of(text.begin(), text.end(), other);
}

// The fields of format(): only the plain {}, {0} and {name} are supported.
Value format_braces(R run, V of, G given) {
  Text out;
  const View text = of.text();
  size_t next = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char32_t c = plain(text[at]);
    const bool twice = at + 1 < text.size() && plain(text[at + 1]) == c;
    if ((c != '{' && c != '}') || twice) {
      append(out, text.substr(at, 1), run.budget);
      at += (c == '{' || c == '}');
      continue;
    }
    const size_t end = find(text, U"}", at, run.budget);
    if (c == '}' || end == View::npos) fault("format() has an unmatched brace");
    const std::string name = utf8(text.substr(at + 1, end - at - 1));
    const bool number = name.size() < 9 && std::all_of(name.begin(), name.end(),
                                                       [](char d) { return d >= '0' && d <= '9'; });
    const Arguments& all = given.all();
    const Value* value = nullptr;
    const size_t place = name.empty() ? next++ : number ? size_t(std::stoul(name)) : SIZE_MAX;
    if (place < all.positional.size()) value = &all.positional[place];
    for (const auto& [own, one] : all.named)
      if (own == name) value = &one;
    if (!value) fault("format(): the text has {{{}}}, but no such argument is given", name);
    append_shown(out, *value, run.budget);
    at = end;
  }
  return run.text(std::move(out));
}

constexpr Builtin kTextMethods[] = {
    {"capitalize", "",
     [](R run, V of, G) { return call(*find_filter("capitalize"), run, of, {}); }},
    {"center", "width fillchar", justify<Side::both>},
    {"count", "sub start end", count},
    {"endswith", "suffix start end", begins<true>},
    {"find", "sub start end", position<false, false>},
    {"format", "*", format_braces},
    {"index", "sub start end", position<false, true>},
    {"isalnum", "", all<[](char32_t c) { return is_letter(c) || is_digit(c); }>},
    {"isalpha", "", all<is_letter>},
    {"isascii", "",
     [](R, V of, G) -> Value {
       return std::all_of(of.text().begin(), of.text().end(),
                          [](char32_t c) { return plain(c) < 0x80; });
     }},
    {"isdecimal", "", all<is_digit>},
    {"isdigit", "", all<is_digit>},
    {"islower", "", all_cased<is_lower, is_upper>},
    {"isnumeric", "", all<is_digit>},
    {"isspace", "", all<is_space>},
    {"isupper", "", all_cased<is_upper, is_lower>},
    {"join", "iterable", join_items},
    {"ljust", "width fillchar", justify<Side::left>},
    {"lower", "", [](R run, V of, G) { return run.text(lower(of.text())); }},
    {"lstrip", "chars", strip<Side::left>},
    {"partition", "sep", partition<false>},
    {"removeprefix", "prefix", removeprefix},
    {"removesuffix", "suffix", removesuffix},
    {"replace", "old new count",
     [](R run, V of, G given) {
       Arguments same{{Value(given[0]), Value(given[1])}, {}};
       if (given.text(0).empty() && given.text(1).empty()) return Value(of);
       if (given.has(2) && given.whole(2) >= 0) same.positional.push_back(given[2]);
       return call(*find_filter("replace"), run, of, std::move(same));
     }},
    {"rfind", "sub start end", position<true, false>},
    {"rindex", "sub start end", position<true, true>},
    {"rjust", "width fillchar", justify<Side::right>},
    {"rpartition", "sep", partition<true>},
    {"rsplit", "sep maxsplit", split<true>},
    {"rstrip", "chars", strip<Side::right>},
    {"split", "sep maxsplit", split<false>},
    {"splitlines", "keepends",
     [](R run, V of, G given) { return list_of(run, lines_of(of.text(), given.truth(0, false))); }},
    {"startswith", "prefix start end", begins<false>},
    {"strip", "chars", strip<Side::both>},
    {"swapcase", "", swapcase},
    {"title", "", title_case},
    {"upper", "", [](R run, V of, G) { return run.text(upper(of.text())); }},
    {"zfill", "width", zfill},
};

Value changes(R, V of, G) {
  fault("a template must not call a method that modifies a {}", of.type_name());
}

Value index(R run, V of, G given) {
  const Values& items = of.list().items;
  for (size_t i = 0; i < items.size(); ++i)
    if (equal(items[i], given[0], run.budget)) return int64_t(i);
  fault("index() did not find the item");
}

Value count_items(R run, V of, G given) {
  int64_t out = 0;
  for (const Value& item : of.list().items) out += equal(item, given[0], run.budget);
  return out;
}

constexpr Builtin kListMethods[] = {
    {"count", "value", count_items},
    {"index", "value", index},
    {"copy", "", [](R, V of, G) { return Value(of); }},
    {"append", "*", changes},
    {"clear", "*", changes},
    {"extend", "*", changes},
    {"insert", "*", changes},
    {"pop", "*", changes},
    {"remove", "*", changes},
    {"reverse", "*", changes},
    {"sort", "*", changes},
};

enum class Half { keys, values, both };

template <Half side>
Value view(R run, V of, G) {
  Values out;
  for (const auto& [key, value] : of.dict().items)
    out.push_back(side == Half::keys     ? key
                  : side == Half::values ? value
                                         : Value::list(run.budget, {key, value}, Sequence::tuple));
  return Value::list(run.budget, std::move(out), Sequence::view);
}

Value get(R run, V of, G given) {
  if (const Value* value = of.dict().find(given[0], run.budget)) return *value;
  return given.has(1) ? given[1] : Value();
}

constexpr Builtin kDictMethods[] = {
    {"copy", "", [](R, V of, G) { return Value(of); }},
    {"get", "key default", get},
    {"items", "", view<Half::both>},
    {"keys", "", view<Half::keys>},
    {"values", "", view<Half::values>},
    {"clear", "*", changes},
    {"pop", "*", changes},
    {"popitem", "*", changes},
    {"setdefault", "*", changes},
    {"update", "*", changes},
};

}  // namespace

const Builtin* find_method(const Value& of, std::string_view name) {
  if (of.is_text()) return row_of(kTextMethods, name);
  if (of.is_dict()) return row_of(kDictMethods, name);
  if (!of.is_list() || of.list().kind >= Sequence::view) return nullptr;
  const bool tuple = of.list().kind == Sequence::tuple;
  return tuple && name != "count" && name != "index" ? nullptr : row_of(kListMethods, name);
}

}  // namespace chaski::jinja
