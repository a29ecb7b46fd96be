// One rendering of a template: the visible names, the current position, and the remaining budget.
#pragma once
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/jinja/jinja_nodes.h"

namespace chaski::jinja {

// The names of one block, with a link to the enclosing block.
struct Frame {
  std::shared_ptr<Frame> outer;
  std::vector<std::pair<std::string, Value>> names;

  const Value* find(std::string_view name) const;
  void set(const std::string& name, Value value);
};

constexpr size_t kShownName = 80;  // bytes of an undefined name that a message shows

// Thrown by raise_exception().
struct Refusal {
  std::string message;
};

class Namespace : public Object {
 public:
  explicit Namespace(std::vector<std::pair<std::string, Value>> values)
      : values_(std::move(values)) {}
  std::optional<Value> attribute(std::string_view name) const override;
  void set(const std::string& name, Value value);
  std::string shown() const override { return "<Namespace>"; }
  void clear() { values_.clear(); }

 private:
  std::vector<std::pair<std::string, Value>> values_;
};

class Run {
 public:
  Run(Budget budget, std::time_t now) : budget(budget), now(now) {}
  Run(const Run&) = delete;
  ~Run();

  Budget budget;
  const std::time_t now;
  int line = 0;  // of the current expression

  Value evaluate(const Expression& what);
  Flow execute(const Body& body, Text& out);
  Value text(Text text) { return Value::text(budget, std::move(text)); }

  // The visible names. A block with names of its own is between enter() and leave().
  std::shared_ptr<Frame> frame = std::make_shared<Frame>();
  class Inside;
  const Value* find(std::string_view name) const { return frame->find(name); }
  void assign(const Target& target, Value value);

  Value attribute(const Value& of, const std::string& name);  // of.name
  Value item(const Value& of, const Value& at);               // of[at]
  // The value at a path like "a.b.0", as filters accept it.
  Value path(Value of, const Value& names);
  Value call(const Value& what, Arguments given);
  Arguments arguments(const CallParts& parts);

  // These objects may hold themselves; they are emptied after the rendering.
  std::shared_ptr<Namespace> make_namespace(std::vector<std::pair<std::string, Value>> values);
  std::shared_ptr<Frame> kept_frame();

 private:
  int depth_ = 0;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Frame>> frames_;
};

// Adds a frame on top of `outer` for its lifetime.
class Run::Inside {
 public:
  Inside(Run& run, std::shared_ptr<Frame> outer) : run_(run), before_(run.frame) {
    run.frame = std::make_shared<Frame>(Frame{std::move(outer), {}});
  }
  explicit Inside(Run& run) : Inside(run, run.frame) {}
  ~Inside() { run_.frame = std::move(before_); }
  Inside(const Inside&) = delete;

 private:
  Run& run_;
  std::shared_ptr<Frame> before_;
};

}  // namespace chaski::jinja
