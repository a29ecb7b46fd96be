// Evaluation of expressions and execution of statements.
#include "engine/text/jinja/jinja_nodes.h"

#include <algorithm>

#include "engine/text/jinja/jinja_run.h"

namespace chaski::jinja {

namespace {

class MacroObject : public Object {
 public:
  MacroObject(const Macro& macro, std::shared_ptr<Frame> frame)
      : macro_(macro), frame_(std::move(frame)) {}
  bool callable() const override { return true; }
  std::string shown() const override { return fmt::format("<Macro '{}'>", macro_.name); }

  Value call(Run& run, Arguments given) override {
    const Run::Inside inside(run, frame_);
    bind(run, given);
    Text out;
    run.execute(macro_.body, out);
    return run.text(std::move(out));
  }

 private:
  void bind(Run& run, Arguments& given) const {
    const auto& names = macro_.parameters.names;
    const auto take_named = [&](const std::string& name) -> std::optional<Value> {
      for (auto it = given.named.begin(); it != given.named.end(); ++it)
        if (it->first == name) {
          Value value = std::move(it->second);
          given.named.erase(it);
          return value;
        }
      return std::nullopt;
    };
    if (auto caller = take_named("caller")) run.frame->set("caller", std::move(*caller));
    const size_t first_default = names.size() - macro_.parameters.defaults.size();
    for (size_t i = 0; i < names.size(); ++i) {
      if (i < given.positional.size())
        run.frame->set(names[i], given.positional[i]);
      else if (auto value = take_named(names[i]))
        run.frame->set(names[i], std::move(*value));
      else if (i >= first_default)
        run.frame->set(names[i], run.evaluate(*macro_.parameters.defaults[i - first_default]));
      else
        run.frame->set(
            names[i], Value::undefined(fmt::format("parameter \"{}\" was not provided", names[i])));
    }
    const size_t placed = std::min(names.size(), given.positional.size());
    given.positional.erase(given.positional.begin(), given.positional.begin() + ptrdiff_t(placed));
    std::vector<std::pair<Value, Value>> named;
    for (auto& [name, value] : given.named)
      named.emplace_back(Value::text(run.budget, name), std::move(value));
    run.frame->set("varargs",
                   Value::list(run.budget, std::move(given.positional), Sequence::tuple));
    run.frame->set("kwargs", Value::dict(run.budget, std::move(named)));
  }

  const Macro& macro_;
  std::shared_ptr<Frame> frame_;
};

class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  Loop(const For& loop, Values items, int depth, std::shared_ptr<Frame> frame)
      : items(std::move(items)), loop_(loop), depth_(depth), frame_(std::move(frame)) {
    for (const Value& item : this->items) holds_ = std::max(holds_, depth_around(item));
  }
  int depth() const override { return holds_; }

  std::optional<Value> attribute(std::string_view name) const override {
    const int64_t i = int64_t(index), n = int64_t(items.size());
    if (name == "index") return i + 1;
    if (name == "index0") return i;
    if (name == "revindex") return n - i;
    if (name == "revindex0") return n - i - 1;
    if (name == "first") return i == 0;
    if (name == "last") return i + 1 == n;
    if (name == "length") return n;
    if (name == "depth") return int64_t(depth_ + 1);
    if (name == "depth0") return int64_t(depth_);
    if (name == "previtem")
      return i > 0 ? items[index - 1] : Value::undefined("there is no previous item");
    if (name == "nextitem")
      return i + 1 < n ? items[index + 1] : Value::undefined("there is no next item");
    if (name == "cycle" || name == "changed") return method(name == "cycle");
    return std::nullopt;
  }

  Value cycle(const Values& of) const {
    if (of.empty()) fault("loop.cycle() has no items");
    return of[index % of.size()];
  }
  bool changed(Values now, Budget& budget) {
    const Value next = Value::list(budget, std::move(now));
    const bool differs = !equal(last_, next, budget);
    last_ = next;
    return differs;
  }

  bool callable() const override { return loop_.recursive; }
  Value call(Run& run, Arguments given) override {
    if (!loop_.recursive) fault("the loop is not recursive");
    if (!frame_) fault("the loop is over");
    if (given.positional.size() != 1) fault("loop() expects one list");
    const Run::Inside inside(run, frame_);
    Text out;
    loop_.go_over(run, given.positional[0], depth_ + 1, out);
    return run.text(std::move(out));
  }
  std::string shown() const override {
    return fmt::format("<LoopContext {}/{}>", index + 1, items.size());
  }

  Values items;
  size_t index = 0;
  void release() { last_ = Value(), frame_.reset(); }  // these might hold the loop itself

 private:
  Value method(bool cycles) const;

  int holds_ = 0;  // depth
  const For& loop_;
  int depth_;
  std::shared_ptr<Frame> frame_;
  Value last_;
};

// loop.cycle and loop.changed.
class LoopMethod : public Object {
 public:
  LoopMethod(std::shared_ptr<Loop> loop, bool cycles) : loop_(std::move(loop)), cycles_(cycles) {}
  bool callable() const override { return true; }
  Value call(Run& run, Arguments given) override {
    if (cycles_) return loop_->cycle(given.positional);
    return loop_->changed(std::move(given.positional), run.budget);
  }
  std::string shown() const override { return "<method of loop>"; }

 private:
  std::shared_ptr<Loop> loop_;
  bool cycles_;
};

Value Loop::method(bool cycles) const {
  auto self = std::const_pointer_cast<Loop>(shared_from_this());
  return Value(std::make_shared<LoopMethod>(std::move(self), cycles));
}

class Function : public Object {
 public:
  explicit Function(const Builtin& builtin) : builtin_(builtin) {}
  bool callable() const override { return true; }
  Value call(Run& run, Arguments given) override {
    return jinja::call(builtin_, run, Value(), std::move(given));
  }
  std::string shown() const override { return fmt::format("<function {}>", builtin_.name); }

 private:
  const Builtin& builtin_;
};

}  // namespace

Value Name::evaluate(Run& run) const {
  if (const Value* value = run.find(name)) return *value;
  if (const Builtin* function = find_function(name))
    return Value(std::make_shared<Function>(*function));
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

Value Attribute::evaluate(Run& run) const {
  const Value value = run.evaluate(*of);
  run.line = line;
  return run.attribute(value, name);
}

Value Subscript::evaluate(Run& run) const {
  const Value value = run.evaluate(*of), place = run.evaluate(*at);
  run.line = line;
  return run.item(value, place);
}

Value Slice::evaluate(Run& run) const {
  const Value value = run.evaluate(*of);
  const auto bound = [&](const Part& part) { return part ? run.evaluate(*part) : Value(); };
  const Value first = bound(from), last = bound(to), by = bound(step);
  run.line = line;
  return sliced(value, first, last, by, run.budget);
}

Value Call::evaluate(Run& run) const {
  const Value function = run.evaluate(*what);
  Arguments arguments = run.arguments(given);
  run.line = line;
  return run.call(function, std::move(arguments));
}

Value Filter::evaluate(Run& run) const {
  const Value value = of ? run.evaluate(*of) : *run.find("");  // the rendered text of a block
  Arguments arguments = run.arguments(given);
  run.line = line;
  if (!filter) fault("the filter \"{}\" is unknown", name);
  return call(*filter, run, value, std::move(arguments));
}

Value Test::evaluate(Run& run) const {
  const Value value = run.evaluate(*of);
  Arguments arguments = run.arguments(given);
  run.line = line;
  if (!test) fault("the test \"{}\" is unknown", name);
  return call(*test, run, value, std::move(arguments));
}

Value Unary::evaluate(Run& run) const {
  const Value value = run.evaluate(*of);
  run.line = line;
  if (!value.is_number()) fault("{}{} expects a number", sign, value.type_name());
  return sign == '-' ? negated(value) : value;
}

Value Binary::evaluate(Run& run) const {
  const Value a = run.evaluate(*left), b = run.evaluate(*right);
  run.line = line;
  return operate(sign, a, b, run.budget);
}

Value Concat::evaluate(Run& run) const {
  Text out;
  for (const Part& part : parts) append_shown(out, run.evaluate(*part), run.budget);
  return run.text(std::move(out));
}

Value Compare::evaluate(Run& run) const {
  Value a = run.evaluate(*first);
  for (const auto& [sign, part] : others) {
    const Value b = run.evaluate(*part);
    run.line = line;
    Budget& budget = run.budget;
    const bool holds = sign == "=="   ? equal(a, b, budget)
                       : sign == "!=" ? !equal(a, b, budget)
                       : sign == "<"  ? less(a, b, budget)
                       : sign == ">"  ? less(b, a, budget)
                       : sign == "<=" ? less(a, b, budget) || equal(a, b, budget)
                       : sign == ">=" ? less(b, a, budget) || equal(a, b, budget)
                       : sign == "in" ? contains(b, a, budget)
                                      : !contains(b, a, budget);
    if (!holds) return false;
    a = b;
  }
  return true;
}

Value Logic::evaluate(Run& run) const {
  const Value first = run.evaluate(*left);
  return first.truth() == both ? run.evaluate(*right) : first;
}

Value Not::evaluate(Run& run) const { return !run.evaluate(*of).truth(); }

Value Choice::evaluate(Run& run) const {
  if (run.evaluate(*test).truth()) return run.evaluate(*yes);
  if (no) return run.evaluate(*no);
  return Value::undefined(fmt::format("the if of line {} has no else", line));
}

Value ListOf::evaluate(Run& run) const {
  Values out;
  for (const Part& item : items) out.push_back(run.evaluate(*item));
  return Value::list(run.budget, std::move(out), kind);
}

Value DictOf::evaluate(Run& run) const {
  std::vector<std::pair<Value, Value>> out;
  for (const auto& [key, value] : items) {
    Value evaluated = run.evaluate(*key);
    out.emplace_back(std::move(evaluated), run.evaluate(*value));
  }
  return Value::dict(run.budget, std::move(out));
}

Flow Data::execute(Run& run, Text& out) const {
  append(out, text, run.budget);
  return Flow::on;
}

Flow Print::execute(Run& run, Text& out) const {
  append_shown(out, run.evaluate(*what), run.budget);
  return Flow::on;
}

Flow If::execute(Run& run, Text& out) const {
  for (const auto& [test, body] : branches)
    if (!test || run.evaluate(*test).truth()) return run.execute(body, out);
  return Flow::on;
}

Flow For::execute(Run& run, Text& out) const {
  go_over(run, run.evaluate(*over), 0, out);
  return Flow::on;
}

void For::go_over(Run& run, const Value& all, int depth, Text& out) const {
  Values items = items_of(all, run.budget);
  if (test)
    std::erase_if(items, [&](const Value& item) {
      const Run::Inside inside(run);
      run.assign(target, item);
      return !run.evaluate(*test).truth();
    });
  const auto loop = std::make_shared<Loop>(*this, std::move(items), depth, run.frame);
  const std::unique_ptr<Loop, void (*)(Loop*)> ended(loop.get(), [](Loop* l) { l->release(); });
  for (loop->index = 0; loop->index < loop->items.size(); ++loop->index) {
    const Run::Inside inside(run);
    run.frame->set("loop", Value(std::shared_ptr<Object>(loop)));
    run.assign(target, loop->items[loop->index]);
    if (run.execute(body, out) == Flow::leave) return;
  }
  if (loop->items.empty()) {
    const Run::Inside inside(run);
    run.execute(otherwise, out);
  }
}

Flow Set::execute(Run& run, Text&) const {
  run.assign(target, run.evaluate(*value));
  return Flow::on;
}

namespace {

// The text of a block, after its filters.
Value block_value(Run& run, const Body& body, const Expression* filter) {
  const Run::Inside inside(run);
  Text text;
  run.execute(body, text);
  Value out = run.text(std::move(text));
  if (!filter) return out;
  run.frame->set("", std::move(out));
  return run.evaluate(*filter);
}

}  // namespace

Flow SetBlock::execute(Run& run, Text&) const {
  run.assign(target, block_value(run, body, filter.get()));
  return Flow::on;
}

Flow FilterBlock::execute(Run& run, Text& out) const {
  append_shown(out, block_value(run, body, filter.get()), run.budget);
  return Flow::on;
}

Flow Macro::execute(Run& run, Text&) const {
  run.frame->set(name, Value(std::make_shared<MacroObject>(*this, run.kept_frame())));
  return Flow::on;
}

Flow CallBlock::execute(Run& run, Text& out) const {
  const Value function = run.evaluate(*call->what);
  Arguments arguments = run.arguments(call->given);
  arguments.named.emplace_back("caller",
                               Value(std::make_shared<MacroObject>(caller, run.kept_frame())));
  append_shown(out, run.call(function, std::move(arguments)), run.budget);
  return Flow::on;
}

Flow With::execute(Run& run, Text& out) const {
  Values values;
  for (const auto& [target, part] : names) values.push_back(run.evaluate(*part));
  const Run::Inside inside(run);
  for (size_t i = 0; i < names.size(); ++i) run.assign(names[i].first, values[i]);
  return run.execute(body, out);
}

}  // namespace chaski::jinja
