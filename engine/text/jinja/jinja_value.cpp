#include "engine/text/jinja/jinja_value.h"

#include <algorithm>

namespace chaski::jinja {

namespace {

constexpr size_t kMostCharacters = 4 << 20;
constexpr int kMostListDepth = 100;

// Updates the depth of a list or dict that holds `inner`.
void grow(int& depth, const Value& inner) { depth = std::max(depth, depth_around(inner)); }

bool equal_lists(const Values& a, const Values& b, Budget& budget) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const Value& x, const Value& y) { return equal(x, y, budget); });
}

bool equal_dicts(const Dict& a, const Dict& b, Budget& budget) {
  return a.items.size() == b.items.size() &&
         std::all_of(a.items.begin(), a.items.end(), [&](const auto& item) {
           const Value* other = b.find(item.first, budget);
           return other && equal(item.second, *other, budget);
         });
}

}  // namespace

void Budget::spend(size_t steps) {
  if (steps > steps_) fault("takes too many steps");
  steps_ -= steps;
}

void Budget::take(size_t bytes) {
  if (bytes > bytes_) fault("takes too much memory");
  bytes_ -= bytes;
}

void Budget::room(size_t characters, size_t of_them_new) {
  if (characters > kMostCharacters)
    fault("makes a text of more than {} characters", kMostCharacters);
  spend(of_them_new / 32);
}

int depth_around(const Value& inner) {
  using Type = Value::Type;
  const int depth = 1 + (inner.is_list()          ? inner.list().depth
                         : inner.is_dict()        ? inner.dict().depth
                         : inner.is(Type::object) ? inner.object().depth()
                                                  : 0);
  if (depth > kMostListDepth)
    fault("lists are nested {} deep, expected at most {}", depth, kMostListDepth);
  return depth;
}

std::optional<Value> Object::attribute(std::string_view) const { return std::nullopt; }
Value Object::call(Run&, Arguments) { fault("{} cannot be called", shown()); }

Value Value::undefined(std::string what) {
  Value out;
  out.data_ = Undefined{std::make_shared<const std::string>(std::move(what))};
  return out;
}

Value Value::text(Budget& budget, Text text) {
  budget.room(text.size());
  budget.take(64 + text.size() * sizeof(char32_t));
  Value out;
  out.data_ = std::make_shared<const Text>(std::move(text));
  return out;
}

Value Value::text(Budget& budget, std::string_view utf8, char32_t mark) {
  return text(budget, text_of(utf8, mark));
}

Value Value::list(Budget& budget, Values items, Sequence kind) {
  budget.spend(items.size() / 8);
  budget.take(64 + items.size() * sizeof(Value));
  int depth = 1;
  for (const Value& item : items) grow(depth, item);
  Value out;
  out.data_ = std::make_shared<List>(List{kind, std::move(items), depth});
  return out;
}

Value Value::dict(Budget& budget, std::vector<std::pair<Value, Value>> items) {
  budget.take(64 + items.size() * 2 * sizeof(Value));
  auto made = std::make_shared<Dict>(Dict{{}, 1});
  for (auto& [key, value] : items) {
    if (key.is_list() || key.is_dict()) fault("a {} cannot be a key of a dict", key.type_name());
    grow(made->depth, value);
    if (const Value* old = made->find(key, budget))
      *const_cast<Value*>(old) = std::move(value);
    else
      made->items.emplace_back(std::move(key), std::move(value));
  }
  Value out;
  out.data_ = std::shared_ptr<const Dict>(std::move(made));
  return out;
}

int64_t Value::whole() const {
  return is(Type::boolean) ? int64_t(std::get<bool>(data_)) : std::get<int64_t>(data_);
}

double Value::real() const {
  return is(Type::real) ? std::get<double>(data_) : static_cast<double>(whole());
}

bool Value::truth() const {
  switch (type()) {
    case Type::undefined:
    case Type::none:
      return false;
    case Type::boolean:
    case Type::integer:
      return whole() != 0;
    case Type::real:
      return real() != 0;
    case Type::text:
      return !text().empty();
    case Type::list:
      return list().kind == Sequence::generator || !list().items.empty();
    case Type::dict:
      return !dict().items.empty();
    case Type::object:
      return true;
  }
  return false;
}

const char* Value::type_name() const {
  constexpr const char* kNames[] = {"Undefined", "NoneType", "bool", "int",   "float",
                                    "str",       "list",     "dict", "object"};
  constexpr const char* kSequences[] = {"list", "tuple", "dict view", "range", "generator"};
  return is_list() ? kSequences[int(list().kind)] : kNames[int(type())];
}

bool Value::same_object(const Value& other) const {
  if (type() != other.type()) return false;
  const auto address = [](const auto& held) -> const void* {
    if constexpr (requires { held.get(); }) return held.get();
    return nullptr;
  };
  const void* mine = std::visit(address, data_);
  if (mine) return mine == std::visit(address, other.data_);
  return is(Type::real) ? real() == other.real() : !is_whole() || whole() == other.whole();
}

const Value* Dict::find(const Value& key, Budget& budget) const {
  budget.spend(items.size() / 8);
  for (const auto& [own, value] : items)
    if (equal(own, key, budget)) return &value;
  return nullptr;
}

const Value* Dict::find(View key) const {
  for (const auto& [own, value] : items)
    if (own.is_text() && same(own.text(), key)) return &value;
  return nullptr;
}

Values items_of(const Value& value, Budget& budget) {
  Values out;
  const auto room = [&](size_t count, size_t bytes) {
    budget.spend(count / 4);
    budget.take(count * bytes);
    out.reserve(count);
  };
  if (value.is_list()) {
    List& list = const_cast<Value&>(value).list();
    if (list.kind == Sequence::generator && std::exchange(list.used, true)) return out;
    room(list.items.size(), sizeof(Value));
    out = list.items;
  } else if (value.is_dict()) {
    room(value.dict().items.size(), sizeof(Value));
    for (const auto& item : value.dict().items) out.push_back(item.first);
  } else if (value.is_text()) {
    room(value.text().size(), sizeof(Value));
    for (const char32_t c : value.text()) out.push_back(Value::text(budget, Text(1, c)));
  } else if (!value.is_undefined()) {
    fault("{} cannot be iterated, expected a list", value.type_name());
  }
  return out;
}

size_t length_of(const Value& value) {
  if (value.is_text()) return value.text().size();
  if (value.is_list() && value.list().kind != Sequence::generator) return value.list().items.size();
  if (value.is_dict()) return value.dict().items.size();
  if (value.is_undefined()) return 0;
  fault("{} has no length", value.type_name());
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  using Type = Value::Type;
  budget.spend(1);
  if (a.is_number() && b.is_number())
    return a.is_whole() && b.is_whole() ? a.whole() == b.whole() : a.real() == b.real();
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Type::undefined:
    case Type::none:
      return true;
    case Type::text:
      budget.spend(a.text().size() / 32);
      return same(a.text(), b.text());
    case Type::list:
      return a.list().kind == b.list().kind && equal_lists(a.list().items, b.list().items, budget);
    case Type::dict:
      return equal_dicts(a.dict(), b.dict(), budget);
    default:
      return a.same_object(b);
  }
}

bool less(const Value& a, const Value& b, Budget& budget) {
  budget.spend(1);
  if (a.is_number() && b.is_number())
    return a.is_whole() && b.is_whole() ? a.whole() < b.whole() : a.real() < b.real();
  if (a.is_text() && b.is_text()) {
    budget.spend(a.text().size() / 32);
    return less(a.text(), b.text());
  }
  if (a.is_list() && b.is_list() && a.list().kind == b.list().kind) {
    const Values &x = a.list().items, &y = b.list().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(x[i], y[i], budget)) return less(x[i], y[i], budget);
    return x.size() < y.size();
  }
  for (const Value* one : {&a, &b})
    if (one->is_undefined()) fault("{}", one->why_undefined());
  fault("{} and {} have no order", a.type_name(), b.type_name());
}

bool contains(const Value& all, const Value& one, Budget& budget) {
  if (all.is_text()) {
    if (!one.is_text()) fault("{} in a text, expected a text", one.type_name());
    return find(all.text(), one.text(), 0, budget) != View::npos;
  }
  if (all.is_dict()) return all.dict().find(one, budget) != nullptr;
  const Values items = items_of(all, budget);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& item) { return equal(item, one, budget); });
}

void append(Text& out, View more, Budget& budget) {
  budget.room(out.size() + more.size(), more.size());
  budget.take(more.size() * sizeof(char32_t));
  out += more;
}

size_t find(View all, View what, size_t from, Budget& budget) {
  if (what.empty()) return from <= all.size() ? from : View::npos;
  for (size_t at = from; at + what.size() <= all.size(); ++at) {
    size_t i = 0;
    while (i < what.size() && plain(all[at + i]) == plain(what[i])) ++i;
    if (i == what.size()) return at;
    if ((at & 31) == 0 || i > 32) budget.spend(1 + i / 32);
  }
  return View::npos;
}

}  // namespace chaski::jinja
