// The operators, with Python's meaning: + - * / // % **, the % of texts, and slices.
#include <algorithm>
#include <cmath>

#include "engine/text/jinja/jinja_builtins.h"

namespace chaski::jinja {

namespace {

[[noreturn]] void no_such(std::string_view sign, const Value& a, const Value& b) {
  for (const Value* one : {&a, &b})
    if (one->is_undefined()) fault("{}", one->why_undefined());
  fault("{} {} {} is not defined", a.type_name(), sign, b.type_name());
}

[[noreturn]] void too_large() { fault("a whole number is larger than 63 bits"); }

int64_t floor_quotient(int64_t a, int64_t b) {
  if (b == 0) fault("division by zero");
  if (a == INT64_MIN && b == -1) too_large();
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

Value power(const Value& a, const Value& b) {
  if (!a.is_whole() || !b.is_whole() || b.whole() < 0) {
    if (a.real() == 0 && b.real() < 0) fault("division by zero");
    return std::pow(a.real(), b.real());
  }
  int64_t out = 1, base = a.whole();
  for (int64_t n = b.whole(); n > 0; n >>= 1) {
    if ((n & 1) && __builtin_mul_overflow(out, base, &out)) too_large();
    if (n > 1 && __builtin_mul_overflow(base, base, &base)) too_large();
  }
  return out;
}

Value of_whole(std::string_view sign, int64_t a, int64_t b) {
  int64_t out = 0;
  bool over = false;
  if (sign == "+")
    over = __builtin_add_overflow(a, b, &out);
  else if (sign == "-")
    over = __builtin_sub_overflow(a, b, &out);
  else if (sign == "*")
    over = __builtin_mul_overflow(a, b, &out);
  else
    out = floor_quotient(a, b);
  if (over) too_large();
  return sign == "%" ? a - out * b : out;
}

Value of_real(std::string_view sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (b == 0) fault("division by zero");
  if (sign == "/") return a / b;
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return sign == "%" ? rest : std::floor((a - rest) / b + 0.5);
}

Value times(const Value& what, int64_t count, Budget& budget) {
  count = std::max<int64_t>(count, 0);
  const size_t size = length_of(what);
  if (size > 0 && size_t(count) > SIZE_MAX / 64 / size) fault("takes too much memory");
  if (what.is_text()) {
    budget.room(size * size_t(count));
    Text out;
    for (int64_t i = 0; size > 0 && i < count; ++i) append(out, what.text(), budget);
    return Value::text(budget, std::move(out));
  }
  Values out;
  budget.take(size * size_t(count) * sizeof(Value));
  for (int64_t i = 0; size > 0 && i < count; ++i)
    out.insert(out.end(), what.list().items.begin(), what.list().items.end());
  return Value::list(budget, std::move(out), what.list().kind);
}

bool is_row(const Value& value) {  // the operands that + concatenates and * repeats
  return value.is_text() || (value.is_list() && value.list().kind <= Sequence::tuple);
}

Value joined(const Value& a, const Value& b, Budget& budget) {
  if (a.is_text()) {
    Text out(a.text());
    append(out, b.text(), budget);
    return Value::text(budget, std::move(out));
  }
  Values out = items_of(a, budget);
  const Values more = items_of(b, budget);
  out.insert(out.end(), more.begin(), more.end());
  return Value::list(budget, std::move(out), a.list().kind);
}

}  // namespace

Value negated(const Value& value) {
  if (value.is(Value::Type::real)) return -value.real();
  return of_whole("-", 0, value.whole());
}

Value operate(std::string_view sign, const Value& a, const Value& b, Budget& budget) {
  if (a.is_number() && b.is_number()) {
    if (sign == "**") return power(a, b);
    return a.is_whole() && b.is_whole() && sign != "/" ? of_whole(sign, a.whole(), b.whole())
                                                       : of_real(sign, a.real(), b.real());
  }
  if (sign == "+" && is_row(a) && is_row(b) && a.type() == b.type() &&
      (a.is_text() || a.list().kind == b.list().kind))
    return joined(a, b, budget);
  if (sign == "*" && is_row(a) && b.is_whole()) return times(a, b.whole(), budget);
  if (sign == "*" && a.is_whole() && is_row(b)) return times(b, a.whole(), budget);
  if (sign == "%" && a.is_text()) {
    Arguments values;
    if (b.is_list() && b.list().kind == Sequence::tuple)
      values.positional = b.list().items;
    else if (b.is_dict())
      for (const auto& [key, value] : b.dict().items)
        values.named.emplace_back(utf8(shown(key, budget)), value);
    else
      values.positional = {b};
    return Value::text(budget, formatted(a.text(), values, budget));
  }
  no_such(sign, a, b);
}

Value sliced(const Value& of, const Value& from, const Value& to, const Value& step,
             Budget& budget) {
  const bool list =
      of.is_list() && (of.list().kind <= Sequence::tuple || of.list().kind == Sequence::range);
  if (of.is_undefined()) fault("{}", of.why_undefined());
  if (!of.is_text() && !list) fault("{} cannot be sliced", of.type_name());
  for (const Value* bound : {&from, &to, &step})
    if (!bound->is_none() && !bound->is_whole())
      fault("{} as the bound of a slice, expected a whole number", bound->type_name());
  const int64_t n = int64_t(length_of(of)), by = step.is_none() ? 1 : step.whole();
  if (by == 0) fault("a slice has a step of 0");
  const auto bound = [&](const Value& value, int64_t otherwise) {
    if (value.is_none()) return otherwise;
    const int64_t i = value.whole() < 0 ? value.whole() + n : value.whole();
    return by > 0 ? std::clamp<int64_t>(i, 0, n) : std::clamp<int64_t>(i, -1, n - 1);
  };
  const int64_t first = bound(from, by > 0 ? 0 : n - 1), last = bound(to, by > 0 ? n : -1);
  Text text;
  Values items;
  for (int64_t i = first; by > 0 ? i < last : i > last;) {
    if (of.is_text())
      text += of.text()[size_t(i)];
    else
      items.push_back(of.list().items[size_t(i)]);
    if (by > 0 ? by >= last - i : by <= last - i) break;
    i += by;
  }
  return of.is_text() ? Value::text(budget, std::move(text))
                      : Value::list(budget, std::move(items), of.list().kind);
}

namespace {

struct Conversion {
  std::string flags;
  int64_t width = 0, precision = -1;
  char32_t kind = 0;
  bool has(char flag) const { return flags.find(flag) != std::string::npos; }
};

int64_t number_at(View format, size_t& at) {
  int64_t out = 0;
  while (at < format.size() && plain(format[at]) >= '0' && plain(format[at]) <= '9')
    out = std::min<int64_t>(out * 10 + int64_t(plain(format[at++]) - '0'), 1'000'000);
  return out;
}

Conversion conversion_at(View format, size_t& at) {
  Conversion out;
  const auto is = [&](std::string_view set) {
    return at < format.size() && plain(format[at]) < 0x80 &&
           set.find(char(plain(format[at]))) != std::string_view::npos;
  };
  while (is("#0- +")) out.flags += char(plain(format[at++]));
  out.width = number_at(format, at);
  if (is(".")) out.precision = number_at(format, ++at);
  if (is("hlL")) ++at;
  if (at >= format.size()) fault("a format ends after its %");
  out.kind = plain(format[at++]);
  return out;
}

std::string number(const Conversion& c, const Value& value) {
  if (!value.is_number()) fault("%{} of {}, expected a number", char(c.kind), value.type_name());
  const std::string_view kind(std::u32string_view(U"diu").find(c.kind) != View::npos ? "d" : "");
  std::string out;
  if (!kind.empty()) {
    if (!(std::abs(value.real()) < 9e18)) too_large();
    out = std::to_string(value.is_whole() ? value.whole() : int64_t(value.real()));
    if (out[0] == '-') out.erase(0, 1);
  } else if (c.kind == 'x' || c.kind == 'X' || c.kind == 'o') {
    if (!value.is_whole())
      fault("%{} of {}, expected a whole number", char(c.kind), value.type_name());
    const auto size = uint64_t(std::abs(value.whole()));
    out = c.kind == 'x'   ? fmt::format("{:x}", size)
          : c.kind == 'X' ? fmt::format("{:X}", size)
                          : fmt::format("{:o}", size);
  } else {
    const int digits = int(std::min<int64_t>(c.precision < 0 ? 6 : c.precision, 300));
    const double size = std::abs(value.real());
    out = c.kind == 'f' || c.kind == 'F' ? fmt::format("{:.{}f}", size, digits)
          : c.kind == 'e'                ? fmt::format("{:.{}e}", size, digits)
                                         : fmt::format("{:.{}g}", size, std::max(digits, 1));
  }
  const bool below = value.is_whole() ? value.whole() < 0 : std::signbit(value.real());
  const std::string sign = below ? "-" : c.has('+') ? "+" : c.has(' ') ? " " : "";
  if (c.has('0') && !c.has('-') && int64_t(out.size() + sign.size()) < c.width)
    out.insert(0, size_t(c.width) - out.size() - sign.size(), '0');
  return sign + out;
}

}  // namespace

Text formatted(View format, const Arguments& arguments, Budget& budget) {
  Text out;
  size_t next = 0, at = 0;
  while (at < format.size()) {
    const size_t sign = std::min(find(format, U"%", at, budget), format.size());
    append(out, format.substr(at, sign - at), budget);
    at = sign + 1;
    if (at > format.size()) break;
    if (at < format.size() && plain(format[at]) == '%') {
      append(out, U"%", budget), ++at;
      continue;
    }
    const Value* value = nullptr;
    if (at < format.size() && plain(format[at]) == '(') {
      const size_t end = find(format, U")", at, budget);
      if (end == View::npos) fault("a format has %( without a )");
      const std::string name = utf8(format.substr(at + 1, end - at - 1));
      for (const auto& [own, named] : arguments.named)
        if (own == name) value = &named;
      if (!value) fault("a format asks for \"{}\", which is not given", name);
      at = end + 1;
    }
    const Conversion c = conversion_at(format, at);
    if (!value) {
      if (next >= arguments.positional.size())
        fault("a format asks for more values than are given");
      value = &arguments.positional[next++];
    }
    Text text;
    if (c.kind == 's' || c.kind == 'r') {
      if (c.kind == 's')
        append_shown(text, *value, budget);
      else
        append_repr(text, *value, budget);
      if (c.precision >= 0) text.resize(std::min(text.size(), size_t(c.precision)));
    } else if (View(U"diuxXofFeEgG").find(c.kind) != View::npos) {
      text = text_of(number(c, *value));
    } else {
      fault("a format has the unknown %{}", utf8(View(&c.kind, 1)));
    }
    const Text space(c.width > int64_t(text.size()) ? size_t(c.width) - text.size() : 0, U' ');
    append(out, c.has('-') ? text + space : space + text, budget);
  }
  if (next < arguments.positional.size()) fault("a format asks for fewer values than are given");
  return out;
}

}  // namespace chaski::jinja
