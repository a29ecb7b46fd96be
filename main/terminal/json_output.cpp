#include "main/terminal/json_output.h"

#include <utility>

#include "engine/text/ordered_json.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

std::string spelled(const std::string& text) { return written(OrderedJson(text)); }

}  // namespace

JsonValue::JsonValue(Kind kind) : kind_(kind) {}
JsonValue::JsonValue(std::string text, Kind kind) : kind_(kind), text_(std::move(text)) {}
JsonValue::JsonValue(bool value) : text_(value ? "true" : "false") {}
JsonValue::JsonValue(double value) : text_(written(OrderedJson(value))) {}
JsonValue::JsonValue(std::string_view value) : kind_(Kind::string), text_(value) {}
JsonValue::JsonValue(const std::string& value) : JsonValue(std::string_view(value)) {}
JsonValue::JsonValue(const char* value) : JsonValue(std::string_view(value)) {}

JsonValue::JsonValue(std::initializer_list<JsonMember> members)
    : kind_(Kind::object), members_(members) {}

JsonValue JsonValue::array() { return JsonValue(Kind::array); }
JsonValue JsonValue::object() { return JsonValue(Kind::object); }

JsonValue& JsonValue::operator[](const std::string& key) {
  for (JsonMember& member : members_)
    if (member.name == key) return member.value;
  members_.push_back({key, JsonValue(Kind::object)});
  return members_.back().value;
}

void JsonValue::update(const JsonValue& object) {
  for (const JsonMember& member : object.members_) (*this)[member.name] = member.value;
}

void JsonValue::push_back(JsonValue value) { members_.push_back({"", std::move(value)}); }

JsonValue& JsonValue::back() { return members_.back().value; }

std::string JsonValue::dump() const {
  if (kind_ == Kind::plain) return text_;
  if (kind_ == Kind::string) return spelled(text_);
  std::string all(1, kind_ == Kind::array ? '[' : '{');
  for (const JsonMember& member : members_) {
    if (all.size() > 1) all += ',';
    if (kind_ == Kind::object) all += spelled(member.name) + ":";
    all += member.value.dump();
  }
  return all + (kind_ == Kind::array ? ']' : '}');
}

void put_json(const JsonValue& json) {
  const auto with_schema = [](const JsonValue& object) {
    JsonValue all = {{"schema", kJsonSchema}};
    all.update(object);
    return all;
  };
  if (!json.is_array()) return put(with_schema(json).dump() + "\n");
  JsonValue array = JsonValue::array();
  for (const JsonMember& member : json.members()) array.push_back(with_schema(member.value));
  put(array.dump() + "\n");
}

void put_event(const char* event, const JsonValue& object) {
  JsonValue all = {{"event", event}};
  all.update(object);
  put_json(all);
}

void JsonForm::put_result(const JsonValue& object) const {
  lines ? put_event("result", object) : put_json(object);
}

}  // namespace chaski
