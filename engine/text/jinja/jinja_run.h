// One rendering of a template: the names that are known, the place that is being evaluated, and
// what the rendering may still use.
#pragma once
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/jinja/jinja_nodes.h"

namespace chaski::jinja {

// The names of one block, and behind them those of the blocks around it.
struct Frame {
  std::shared_ptr<Frame> outer;
  std::vector<std::pair<std::string, Value>> names;

  const Value* find(std::string_view name) const;
  void set(const std::string& name, Value value);
};

constexpr size_t kShownName = 80;  // bytes of a name that are shown where it is not defined

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
  int line = 0;  // of what is evaluated

  Value evaluate(const Expression& what);
  Flow execute(const Body& body, Text& out);
  Value text(Text text) { return Value::text(budget, std::move(text)); }

  // The names in sight. A block that has its own is between enter() and leave().
  std::shared_ptr<Frame> frame = std::make_shared<Frame>();
  class Inside;
  const Value* find(std::string_view name) const { return frame->find(name); }
  void assign(const Target& target, Value value);

  Value attribute(const Value& of, const std::string& name);  // of.name
  Value item(const Value& of, const Value& at);               // of[at]
  // What "a.b.0" leads to, as the filters take it.
  Value path(Value of, const Value& names);
  Value call(const Value& what, Arguments given);
  Arguments arguments(const CallParts& parts);

  // Values that may hold themselves are emptied when the rendering is over.
  std::shared_ptr<Namespace> make_namespace(std::vector<std::pair<std::string, Value>> values);
  std::shared_ptr<Frame> kept_frame();

 private:
  int depth_ = 0;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Frame>> frames_;
};

// A frame of its own, on top of `outer`, for as long as this lives.
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
