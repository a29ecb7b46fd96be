#include "engine/text/jinja/jinja.h"

#include "engine/text/jinja/jinja_run.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski::jinja {

namespace {

constexpr size_t kMostSource = 256 << 10;  // bytes; the longest known templates have 30 000
// The budget of a rendering, and the addition for each character of its input.
constexpr size_t kSteps = 1'000'000, kBytes = 24 << 20;
constexpr size_t kStepsEach = 32, kBytesEach = 64;

size_t characters(const Value& value) {
  size_t out = 1;
  if (value.is_text()) out += value.text().size();
  if (value.is_list())
    for (const Value& item : value.list().items) out += characters(item);
  if (value.is_dict())
    for (const auto& [key, item] : value.dict().items) out += characters(key) + characters(item);
  return out;
}

}  // namespace

struct Template::Parsed {
  Body body;
};

Template::Template(std::string_view source, std::string origin) : origin_(std::move(origin)) {
  if (source.size() > kMostSource)
    fail(Exit::bad_file, "{}: template has {} bytes, expected at most {}", origin_, source.size(),
         kMostSource);
  try {
    parsed_ = std::make_unique<const Parsed>(Parsed{parse(source)});
  } catch (const Fault& fault) {
    fail(Exit::bad_file, "{}: {}", origin_, fault.what);
  }
}

Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Text Template::render(const Names& names, std::time_t now) const {
  size_t given = 0;
  for (const auto& name : names) given += characters(name.second);
  Run run(Budget(kSteps + kStepsEach * given, kBytes + kBytesEach * given), now);
  run.frame->names = names;
  const Run::Inside inside(run);
  try {
    Text out;
    run.execute(parsed_->body, out);
    return out;
  } catch (const Fault& fault) {
    fail(Exit::bad_file, "{}: line {}: {}", origin_, run.line, escaped(fault.what));
  } catch (const Refusal& refusal) {
    fail(Exit::usage, "{}: line {}: the template refuses the conversation: {}", origin_, run.line,
         escaped(refusal.message));
  }
}

}  // namespace chaski::jinja
