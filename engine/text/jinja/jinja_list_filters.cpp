// The filters of lists and dicts, as in Jinja 3.
#include <algorithm>

#include "engine/text/jinja/jinja_run.h"

namespace chaski::jinja {

namespace {

using R = Run&;
using V = const Value&;
using G = const Given&;

Value attribute_or(R run, const Value& item, const Given& given, size_t place) {
  return given.has(place) && !given[place].is_none() ? run.path(item, given[place]) : item;
}

Value without_case(R run, Value value) {
  return value.is_text() ? run.text(lower(value.text())) : value;
}

Value batch(R run, V of, G given) {
  const int64_t count = given.whole(0);
  if (count < 1 || count > 1'000'000)
    fault("batch() has a size of {}, expected 1 to 1000000", count);
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

// Stable sort by one key for each item.
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
  if (items.empty()) return Value::undefined("an empty list has no smallest or largest item");
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

Value first(R run, V of, G) {
  if (of.is_list() && !of.list().items.empty()) return of.list().items[0];
  const Values items = items_of(of, run.budget);
  return items.empty() ? Value::undefined("an empty list has no first item") : items[0];
}

Value last(R run, V of, G) {
  if (of.is_list() && of.list().kind == Sequence::generator)
    fault("a generator has no last item, expected a list");
  const Values items = items_of(of, run.budget);
  return items.empty() ? Value::undefined("an empty list has no last item") : items.back();
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
  const Text separator = given.has(0) ? shown(given[0], run.budget) : Text();
  bool more = false;
  for (const Value& item : items_of(of, run.budget)) {
    if (std::exchange(more, true)) append(out, separator, run.budget);
    append_shown(out, attribute_or(run, item, given, 1), run.budget);
  }
  return run.text(std::move(out));
}

// Calls the filter or test named by the first of the arguments.
struct Named {
  const Builtin* builtin;
  Arguments rest;
};

Named named(const Arguments& all, size_t place, const Builtin* (*find)(std::string_view)) {
  if (place >= all.positional.size() || !all.positional[place].is_text())
    fault("the name of a filter or test is expected");
  const std::string name = utf8(all.positional[place].text());
  const Builtin* builtin = find(name);
  if (!builtin) fault("\"{}\" is not a known filter or test", name);
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

Value reverse(R run, V of, G) {
  if (of.is_text()) return run.text(Text(of.text().rbegin(), of.text().rend()));
  Values items = items_of(of, run.budget);
  std::reverse(items.begin(), items.end());
  return Value::list(run.budget, std::move(items), Sequence::generator);
}

Value sum(R run, V of, G given) {
  Value out = given.has(1) ? given[1] : Value(int64_t(0));
  for (const Value& item : items_of(of, run.budget))
    out = operate("+", out, attribute_or(run, item, given, 0), run.budget);
  return out;
}

Value length(R, V of, G) { return int64_t(length_of(of)); }

constexpr Builtin kListFilters[] = {
    {"batch", "linecount fill_with", batch},
    {"count", "", length},
    {"dictsort", "case_sensitive by reverse", dictsort},
    {"first", "", first},
    {"groupby", "attribute default case_sensitive", groupby},
    {"items", "", items},
    {"join", "d attribute", join},
    {"last", "", last},
    {"length", "", length},
    {"list", "", [](R run, V of, G) { return Value::list(run.budget, items_of(of, run.budget)); }},
    {"map", "*", map},
    {"max", "case_sensitive attribute",
     [](R run, V of, G given) { return extreme(run, of, given, true); }},
    {"min", "case_sensitive attribute",
     [](R run, V of, G given) { return extreme(run, of, given, false); }},
    {"reject", "*",
     [](R run, V of, G given) { return chosen(run, of, given.all(), false, false); }},
    {"rejectattr", "*",
     [](R run, V of, G given) { return chosen(run, of, given.all(), true, false); }},
    {"reverse", "", reverse},
    {"select", "*", [](R run, V of, G given) { return chosen(run, of, given.all(), false, true); }},
    {"selectattr", "*",
     [](R run, V of, G given) { return chosen(run, of, given.all(), true, true); }},
    {"slice", "slices fill_with", slice},
    {"sort", "reverse case_sensitive attribute", sort},
    {"sum", "attribute start", sum},
    {"unique", "case_sensitive attribute", unique},
};

}  // namespace

std::span<const Builtin> list_filters() { return kListFilters; }

}  // namespace chaski::jinja
