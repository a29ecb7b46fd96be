#include "models/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/nearest.h"

namespace chaski {

namespace {

struct Reader {
  const Key& key;
  const Metadata& meta;

  void expect_range(const std::string& name, int64_t found) const {
    if (found < key.least || found > key.most)
      fail(Exit::bad_file, "{}: {} is {}, expected {} to {}", meta.origin, name, found, key.least,
           key.most);
  }
  // A NaN or an infinity would be in every logit.
  void expect_number(const std::string& name, double found) const {
    if (key.above_zero && !(found > 0 && std::isfinite(found)))
      fail(Exit::bad_file, "{}: {} is {}, expected a number above 0", meta.origin, name, found);
    const bool bounded = std::isfinite(key.least_number) && std::isfinite(key.most_number);
    if (bounded && !(found >= key.least_number && found <= key.most_number))
      fail(Exit::bad_file, "{}: {} is {}, expected {} to {}", meta.origin, name, found,
           key.least_number, key.most_number);
  }
  template <class T>
  void whole(T* member) const {
    const int64_t found = meta.integer(key.ours);
    expect_range(key.ours, found);
    *member = static_cast<T>(found);
  }
  template <class T>
  void real(T* member) const {
    const double found = meta.number(key.ours);
    expect_number(key.ours, found);
    *member = static_cast<T>(found);
  }
  void operator()(int64_t* member) const { whole(member); }
  void operator()(int* member) const { whole(member); }
  void operator()(double* member) const { real(member); }
  void operator()(float* member) const { real(member); }
  void operator()(bool* member) const { *member = meta.boolean(key.ours, false); }
  void expect_count(size_t found, int64_t count) const {
    if (int64_t(found) != count)
      fail(Exit::bad_file, "{}: {} has {} entries, expected {}", meta.origin, key.ours, found,
           count);
  }
  void operator()(const Key::Each<int64_t>& each) const {
    const Ints& found = meta.ints(key.ours);
    expect_count(found.size(), each.count());
    for (size_t i = 0; i < found.size(); ++i)
      expect_range(fmt::format("{}[{}]", key.ours, i), found[i]);
    each.list->assign(found.begin(), found.end());
  }
  void operator()(const Key::Each<float>& each) const {
    const Floats& found = meta.floats(key.ours);
    expect_count(found.size(), each.count());
    each.list->clear();
    for (size_t i = 0; i < found.size(); ++i) {
      expect_number(fmt::format("{}[{}]", key.ours, i), found[i]);
      each.list->push_back(float(found[i]));
    }
  }
  void operator()(const Key::Words& words) const {
    const std::string& found = meta.str(key.ours);
    const auto at = std::find(words.names.begin(), words.names.end(), found);
    if (at == words.names.end())
      fail(Exit::bad_file, "{}: {} is {}, expected {}", meta.origin, key.ours, escaped(found),
           expected_names(found, words.names));
    words.set(size_t(at - words.names.begin()));
  }
};

}  // namespace

std::string_view kind_name(Kind kind) {
  constexpr std::string_view names[] = {
      "str",      "array of str",     "an integer", "array of integers",
      "a number", "array of numbers", "bool",       "array of bool"};
  return names[static_cast<int>(kind)];
}

Value to_value(const Given& given) {
  const auto scalar = [](ValueType type, Data data) {
    return Value{type, ValueType::i64, std::move(data)};
  };
  if (auto* number = std::get_if<double>(&given)) return scalar(ValueType::f64, *number);
  if (auto* flag = std::get_if<bool>(&given)) return scalar(ValueType::boolean, int64_t{*flag});
  if (auto* text = std::get_if<std::string>(&given)) return scalar(ValueType::str, *text);
  if (auto* list = std::get_if<std::vector<int64_t>>(&given))
    return {ValueType::array, ValueType::i32, *list};
  if (auto* texts = std::get_if<std::vector<std::string>>(&given))
    return {ValueType::array, ValueType::str, *texts};
  if (auto* list = std::get_if<std::vector<double>>(&given))
    return {ValueType::array, ValueType::f32, *list};
  return scalar(ValueType::i64, std::get<int64_t>(given));
}

Key& Key::in_gguf(std::string name) { return gguf = std::move(name), *this; }
Key& Key::in_hf(std::vector<std::string> places) { return hf = std::move(places), *this; }
Key& Key::hf_word(std::string theirs, std::string ours_is) {
  hf_words.emplace_back(std::move(theirs), std::move(ours_is));
  return *this;
}
Key& Key::converted_from_hf(std::function<Given(double)> convert) {
  return from_hf = std::move(convert), *this;
}
Key& Key::converted_from_hf_integer(std::function<Given(int64_t)> convert) {
  return from_hf_integer = std::move(convert), *this;
}
Key& Key::or_one(std::function<Given(int64_t)> list_of) {
  return from_one = std::move(list_of), *this;
}
Key& Key::range(int64_t low, int64_t high) { return least = low, most = high, *this; }
Key& Key::between(double low, double high) { return least_number = low, most_number = high, *this; }
Key& Key::positive() { return above_zero = true, *this; }
Key& Key::optional() { return can_be_absent = true, *this; }
Key& Key::when(std::function<bool()> condition) { return applies = std::move(condition), *this; }

std::optional<Value> Key::read(const Metadata& meta, const std::string& spelled) const {
  if (applies && !applies()) return std::nullopt;
  if (meta.has(ours)) {
    std::visit(Reader{*this, meta}, member);
    return std::nullopt;
  }
  const std::optional<Given> given = default_value ? default_value(meta.origin) : std::nullopt;
  if (!given && can_be_absent) return std::nullopt;
  if (!given)
    fail(Exit::bad_file, "{}: {} is missing, expected {}", meta.origin, escaped(spelled),
         kind_name(kind));
  Metadata assumed;
  assumed.origin = meta.origin;
  assumed.set(ours, to_value(*given));
  std::visit(Reader{*this, assumed}, member);
  return *assumed.find(ours);
}

Key& Keys::add(std::string name, Kind kind, Key::Member member) {
  Key& key = list.emplace_back();
  key.ours = "model." + name, key.gguf = std::move(name), key.kind = kind;
  key.member = std::move(member);
  return key;
}

Key& Keys::operator[](std::string_view name) {
  const auto at = std::find_if(list.begin(), list.end(),
                               [&](const Key& key) { return key.ours.substr(6) == name; });
  ENSURE(at != list.end(), "only a key that is there can be changed");
  return *at;
}

int64_t RowOrder::theirs(int64_t ours) const {
  if (across > 0) return (first + ours % down) * across + ours / down;
  const int64_t in_head = head > 0 ? ours % head : 0;
  if (in_head < rotated) ours += in_head / 2 + (in_head % 2) * (rotated / 2) - in_head;
  return first + (run > 0 ? ours / run * pitch + ours % run : ours);
}

Slots::Slot& Slots::Slot::in_hf(std::string theirs, RowOrder order) {
  return hf = std::move(theirs), hf_order = order, *this;
}
Slots::Slot& Slots::Slot::in_gguf(std::string theirs, RowOrder order) {
  return gguf = std::move(theirs), gguf_order = order, *this;
}
Slots::Slot& Slots::Slot::with(Bias b) { return bias = b, *this; }
Slots::Slot& Slots::Slot::as(Role r) { return role = r, *this; }
Slots::Slot& Slots::Slot::of_experts(int64_t n, int64_t k) {
  return experts = gguf_planes = n, chosen = k, as(Role::experts);
}
Slots::Slot& Slots::Slot::optional() { return is_optional = true, *this; }
Slots::Slot& Slots::Slot::bare_in_hf() { return hf_bare = true, *this; }
Slots::Slot& Slots::Slot::rows_in_hf(int64_t n) { return hf_rows = n == rows ? 0 : n, *this; }
Slots::Slot& Slots::Slot::unit_rows_in_hf() { return hf_unit_rows = true, *this; }
Slots::Slot& Slots::Slot::ternary_in_hf() { return hf_ternary = true, *this; }
Slots::Slot& Slots::Slot::matrix_of(int64_t n) { return matrix_rows = n, *this; }
Slots::Slot& Slots::Slot::transpose_of(int64_t down, int64_t first, int64_t all) {
  for (RowOrder* order : {&hf_order, &gguf_order}) {
    order->down = down, order->across = cols / down, order->first = first;
    order->whole = all * order->across;
  }
  return matrix_of(all > 0 ? all : down);
}
Slots::Slot& Slots::Slot::or_in_gguf(std::string theirs, RowOrder order) {
  return gguf_else = std::move(theirs), gguf_else_order = order, *this;
}

namespace {

Projection projection_of(std::string_view name) {
  if (name.starts_with("ffn_down")) return Projection::down;  // of experts too
  return name == "attn_k"        ? Projection::keys
         : name == "attn_v"      ? Projection::values
         : name == "attn_qkv"    ? Projection::qkv
         : name == "attn_kv_b"   ? Projection::values
         : name == "attn_output" ? Projection::outputs
                                 : Projection::other;
}

// The spelling of a name that does not end in ".weight" (models/import/gguf/gguf_names.h).
std::string bare_gguf_name(const std::string& ours) {
  return "gguf.blk." + ours.substr(std::string_view("layer.").size());
}

}  // namespace

Slots::Slot& Slots::add(Linear& member, const std::string& name, int64_t rows, int64_t cols) {
  Slot& slot = list_.emplace_back();
  slot.layer = ours_, slot.name = slot.gguf = name, slot.hf_layer = hf_;
  slot.rows = rows, slot.cols = cols;
  slot.member = &member, slot.role = rows == 1 ? Role::vector : Role::matmul;
  return slot;
}

void Slots::layer(int64_t i, const std::string& hf_layers) {
  ours_ = fmt::format("layer.{}.", i), hf_ = fmt::format("{}{}.", hf_layers, i);
}

std::vector<TensorSlot> Slots::all() const {
  std::vector<TensorSlot> out;
  size_t slots = 0;
  for (const Slot& s : list_)
    slots += 1 + (s.role == Role::matmul ? 3 : 0) + (s.bias != Bias::none);
  out.reserve(slots);
  for (const Slot& s : list_) {
    const auto named = [&](const char* ours, const char* theirs) {
      TensorSlot slot;
      slot.name = s.layer + s.name + ours, slot.gguf = s.layer + s.gguf + ours;
      if (!s.hf.empty()) slot.hf = s.hf_layer + s.hf + theirs;
      slot.rows = s.rows, slot.cols = s.cols, slot.role = s.role, slot.optional = s.is_optional;
      slot.gguf_order = s.gguf_order, slot.hf_order = s.hf_order;
      return slot;
    };
    TensorSlot weight = named("", s.hf_bare ? "" : ".weight");
    weight.weight = &s.member->weight;
    weight.projection = s.projection.value_or(projection_of(s.gguf));
    weight.experts = s.experts, weight.chosen = s.chosen;
    weight.hf_less = s.hf_less, weight.hf_rows = s.hf_rows;
    weight.hf_unit_rows = s.hf_unit_rows, weight.hf_ternary = s.hf_ternary;
    weight.hf_minus_exp = s.hf_minus_exp;
    weight.hf_constant = s.hf_constant;
    weight.matrix_rows = s.matrix_rows;
    weight.gguf_planes = s.gguf_planes, weight.gguf_always = s.gguf_always;
    weight.gguf_shape = s.gguf_shape;
    if (s.gguf_bare) weight.gguf = bare_gguf_name(weight.gguf);
    if (!s.gguf_else.empty()) weight.gguf_else = s.layer + s.gguf_else;
    if (!s.hf_else.empty()) weight.hf_else = s.hf_layer + s.hf_else + ".weight";
    weight.gguf_else_order = s.gguf_else_order;
    out.push_back(std::move(weight));
    if (s.role == Role::matmul) {
      TensorSlot& order = out.emplace_back();
      order.name = order.gguf = s.layer + s.name + std::string(kOrder);
      order.cols = s.cols, order.role = Role::column_order, order.optional = true;
      order.of = s.layer + s.name, order.weight = &s.member->order;
      const auto add_outliers = [&](std::string_view end, int64_t rows, Role role,
                                    const Weight** to) {
        TensorSlot& slot = out.emplace_back();
        slot.name = slot.gguf = s.layer + s.name + std::string(end);
        slot.of = s.layer + s.name;
        slot.rows = rows, slot.role = role, slot.optional = true, slot.weight = to;
      };
      add_outliers(kOutliers, 1, Role::outlier_columns, &s.member->outliers);
      add_outliers(kOutlierWeight, s.rows, Role::outliers, &s.member->outlier_weight);
    }
    if (s.bias == Bias::none) continue;
    // Hugging Face: "o_proj.weight" and "o_proj.bias"; bare: "down_proj" and "down_proj_bias".
    TensorSlot bias = named(".bias", s.hf_bare ? "_bias" : ".bias");
    bias.cols = s.rows == 1 ? s.cols : s.rows, bias.rows = 1;
    bias.role = Role::vector, bias.optional = s.is_optional || s.bias == Bias::maybe;
    bias.gguf_order.transposed = bias.hf_order.transposed = false;
    bias.not_in_gguf = s.role == Role::matmul && !matmul_biases_in_gguf;
    if (s.role == Role::experts) bias.matrix_rows = s.experts;
    bias.weight = &s.member->bias;
    out.push_back(std::move(bias));
  }
  return out;
}

}  // namespace chaski
