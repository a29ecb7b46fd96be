// JSON on stdout, one object in one line. docs/json.md describes the fields, and tests check it.
// JsonValue can only be built and printed, so only json_output.cpp includes the JSON library.
#pragma once
#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace chaski {

struct JsonMember;

class JsonValue {
 public:
  JsonValue(bool value);
  JsonValue(std::integral auto value);
  JsonValue(double value);
  JsonValue(std::string_view value);
  JsonValue(const std::string& value);
  JsonValue(const char* value);
  template <class T>
  JsonValue(const std::vector<T>& values);
  JsonValue(std::initializer_list<JsonMember> members);  // an object, in this order
  static JsonValue array();
  static JsonValue object();

  JsonValue& operator[](const std::string& key);  // of an object; a new member comes last
  void update(const JsonValue& object);
  void push_back(JsonValue value);
  JsonValue& back();
  const std::vector<JsonMember>& members() const { return members_; }

  bool is_array() const { return kind_ == Kind::array; }
  bool is_string() const { return kind_ == Kind::string; }
  const std::string& string() const { return text_; }
  // Bytes that are not UTF-8 become U+FFFD. Models and files may contain them, JSON may not.
  std::string dump() const;

 private:
  enum class Kind { plain, string, array, object };
  explicit JsonValue(Kind kind);
  JsonValue(std::string text, Kind kind);

  Kind kind_ = Kind::plain;
  std::string text_;
  std::vector<JsonMember> members_;  // without names in an array
};

struct JsonMember {
  std::string name;
  JsonValue value;
};

// Code that destroys a JsonValue needs JsonMember, so it is after it.
JsonValue::JsonValue(std::integral auto value) : JsonValue(std::to_string(value), Kind::plain) {}

template <class T>
JsonValue::JsonValue(const std::vector<T>& values) : kind_(Kind::array) {
  for (const T& value : values) push_back(value);
}

// The version of the fields of docs/json.md. It increases when a field is removed or changes its
// meaning.
constexpr int kJsonSchema = 1;

// Prints an object or an array of objects, each with the version of the schema as its first field.
void put_json(const JsonValue& json);
// Prints one line of --jsonl. `event` is "text", "progress" or "result".
void put_event(const char* event, const JsonValue& object);

// The output that --json and --jsonl ask for.
struct JsonForm {
  bool whole = false, lines = false;  // --json, --jsonl
  bool any() const { return whole || lines; }
  void put_result(const JsonValue& object) const;
};

}  // namespace chaski
