#include "engine/text/jinja/jinja_run.h"

#include <algorithm>

namespace chaski::jinja {

namespace {

constexpr int kMostDepth = 800;  // of nested blocks, expressions and calls

class Method : public Object {
 public:
  Method(Value of, const Builtin& builtin)
      : of_(std::move(of)), depth_(depth_around(of_)), builtin_(builtin) {}
  bool callable() const override { return true; }
  int depth() const override { return depth_; }
  Value call(Run& run, Arguments given) override {
    return jinja::call(builtin_, run, of_, std::move(given));
  }
  std::string shown() const override { return fmt::format("<method {}>", builtin_.name); }

 private:
  Value of_;
  int depth_;
  const Builtin& builtin_;
};

Value undefined_part(const Value& of, std::string_view name) {
  return Value::undefined(
      fmt::format("'{} object' has no attribute '{}'", of.type_name(), name.substr(0, kShownName)));
}
}  // namespace

const Value* Frame::find(std::string_view name) const {
  for (const Frame* frame = this; frame; frame = frame->outer.get())
    for (const auto& [own, value] : frame->names)
      if (own == name) return &value;
  return nullptr;
}

void Frame::set(const std::string& name, Value value) {
  for (auto& [own, old] : names)
    if (own == name) {
      old = std::move(value);
      return;
    }
  names.emplace_back(name, std::move(value));
}

std::optional<Value> Namespace::attribute(std::string_view name) const {
  for (const auto& [own, value] : values_)
    if (own == name) return value;
  return std::nullopt;
}

void Namespace::set(const std::string& name, Value value) {
  for (auto& [own, old] : values_)
    if (own == name) {
      old = std::move(value);
      return;
    }
  values_.emplace_back(name, std::move(value));
}

Run::~Run() {
  for (const auto& one : namespaces_) one->clear();
  for (const auto& one : frames_) one->names.clear();
}

std::shared_ptr<Namespace> Run::make_namespace(std::vector<std::pair<std::string, Value>> values) {
  budget.take(200);
  namespaces_.push_back(std::make_shared<Namespace>(std::move(values)));
  return namespaces_.back();
}

std::shared_ptr<Frame> Run::kept_frame() {
  budget.take(200);
  frames_.push_back(frame);
  return frame;
}

Value Run::evaluate(const Expression& what) {
  budget.spend(1);
  if (++depth_ > kMostDepth) fault("nesting is deeper than {}", kMostDepth);
  line = what.line;
  Value out = what.evaluate(*this);
  --depth_;
  return out;
}

Flow Run::execute(const Body& body, Text& out) {
  if (++depth_ > kMostDepth) fault("nesting is deeper than {}", kMostDepth);
  Flow flow = Flow::on;
  for (size_t i = 0; i < body.size() && flow == Flow::on; ++i) {
    budget.spend(1);
    line = body[i]->line;
    flow = body[i]->execute(*this, out);
  }
  --depth_;
  return flow;
}

void Run::assign(const Target& target, Value value) {
  if (!target.several.empty()) {
    const Values items = items_of(value, budget);
    if (items.size() != target.several.size())
      fault("{} values for {} names", items.size(), target.several.size());
    for (size_t i = 0; i < items.size(); ++i) assign(target.several[i], items[i]);
  } else if (target.attribute.empty()) {
    budget.take(sizeof(Value));
    frame->set(target.name, std::move(value));
  } else {
    const Value* of = find(target.name);
    auto* space =
        of && of->is(Value::Type::object) ? dynamic_cast<Namespace*>(&of->object()) : nullptr;
    if (!space)
      fault("{} is not a namespace, so {}.{} cannot be set", target.name, target.name,
            target.attribute);
    budget.take(sizeof(Value));
    space->set(target.attribute, std::move(value));
  }
}

Value Run::attribute(const Value& of, const std::string& name) {
  if (of.is_undefined()) fault("{}", of.why_undefined());
  budget.spend(name.size() / 32);
  if (of.is(Value::Type::object)) {
    if (auto value = of.object().attribute(name)) return *value;
    return undefined_part(of, name);
  }
  if (const Builtin* method = find_method(of, name))
    return Value(std::make_shared<Method>(of, *method));
  if (of.is_dict())
    if (const Value* value = of.dict().find(text_of(name))) return *value;
  return undefined_part(of, name);
}

Value Run::item(const Value& of, const Value& at) {
  if (of.is_undefined()) fault("{}", of.why_undefined());
  if (of.is_dict())
    if (const Value* value = of.dict().find(at, budget)) return *value;
  if (at.is_whole() && (of.is_text() || (of.is_list() && of.list().kind <= Sequence::range &&
                                         of.list().kind != Sequence::view))) {
    const int64_t n = int64_t(length_of(of)), i = at.whole() < 0 ? at.whole() + n : at.whole();
    if (i >= 0 && i < n)
      return of.is_text() ? text(Text(1, of.text()[size_t(i)])) : of.list().items[size_t(i)];
  }
  if (at.is_text() && !of.is_dict()) return attribute(of, utf8(at.text()));
  if (at.is_text())
    if (const Builtin* method = find_method(of, utf8(at.text())))
      return Value(std::make_shared<Method>(of, *method));
  return undefined_part(of, at.is_text() ? utf8(at.text()) : utf8(jinja::shown(at, budget)));
}

Value Run::path(Value of, const Value& names) {
  if (!names.is_text()) return item(of, names);
  const View all = names.text();
  for (size_t from = 0; from <= all.size();) {
    const size_t dot = std::min(all.find(U'.', from), all.size());
    const View part = all.substr(from, dot - from);
    const bool number = !part.empty() && part.size() < 10 &&
                        std::all_of(part.begin(), part.end(),
                                    [](char32_t c) { return plain(c) >= '0' && plain(c) <= '9'; });
    of = item(of, number ? Value(int64_t(std::stoll(utf8(part)))) : text(Text(part)));
    from = dot + 1;
  }
  return of;
}

Value Run::call(const Value& what, Arguments given) {
  if (what.is_undefined()) fault("{}", what.why_undefined());
  if (!what.is(Value::Type::object) || !what.object().callable())
    fault("{} cannot be called", what.type_name());
  return what.object().call(*this, std::move(given));
}

Arguments Run::arguments(const CallParts& parts) {
  Arguments out;
  for (const Part& part : parts.positional) out.positional.push_back(evaluate(*part));
  if (parts.star)
    for (Value& item : items_of(evaluate(*parts.star), budget))
      out.positional.push_back(std::move(item));
  for (const auto& [name, part] : parts.named) out.named.emplace_back(name, evaluate(*part));
  if (parts.stars) {
    const Value more = evaluate(*parts.stars);
    if (!more.is_dict()) fault("** expects a dict, found {}", more.type_name());
    for (const auto& [key, value] : more.dict().items)
      out.named.emplace_back(utf8(jinja::shown(key, budget)), value);
  }
  return out;
}

}  // namespace chaski::jinja
