// Reads the JSON body of a request field by field. Every error names the path of the field, what it
// is and what was expected. Fields that no code has asked for become warnings.
#pragma once
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sampling/steps/step.h"
#include "engine/text/ordered_json.h"
#include "main/api/api_error.h"

namespace chaski {

class Body;

// While it exists, notes the path of each field that this thread asks for, whether or not a body
// has it: "messages[0].role". A test compares them with openapi.json.
class AskedFields {
 public:
  AskedFields();
  ~AskedFields();
  AskedFields(const AskedFields&) = delete;
  std::set<std::string> paths;
};

// A value of a body and its path. Valid as long as its Body.
class Field {
 public:
  const OrderedJson& json() const { return *json_; }
  const std::string& path() const { return path_; }
  // "PATH is FOUND, expected EXPECTED"
  [[noreturn]] void wrong(std::string_view expected) const;
  // "PATH MESSAGE", for a value that is right and cannot be honoured.
  [[noreturn]] void refuse(const std::string& message) const { refuse_field(path_, message); }

  bool is_text() const { return json_->is_string(); }
  bool is_list() const { return json_->is_array(); }
  bool is_object() const { return json_->is_object(); }
  bool is_flag() const { return json_->is_boolean(); }
  bool is_number() const { return json_->is_number(); }

  // All throw ApiError if the value is something else.
  std::string text() const;
  std::string one_of(const std::vector<std::string>& names) const;
  bool flag() const;
  int whole(int least, int most = std::numeric_limits<int>::max()) const;
  std::optional<uint64_t> unsigned_whole() const;  // nothing for -1
  double number(const Range& range = {}) const;
  std::vector<std::string> texts() const;                      // one text, or a list of texts
  std::vector<Field> items() const;                            // of a list
  std::vector<int> wholes(int least, int most) const;          // of a list, without a Field each
  std::vector<std::pair<std::string, Field>> members() const;  // of an object
  // A member of an object; nothing if it is absent or null.
  std::optional<Field> find(const std::string& name) const;
  Field operator[](const std::string& name) const;  // it must be there
  // Marks this value with everything inside it as read.
  const OrderedJson& whole_json() const;
  // Accepts members that have no effect on an answer.
  void accept(std::initializer_list<const char*> names) const;

 private:
  friend Body;
  Field(Body& body, const OrderedJson& json, std::string path);

  Body* body_;
  const OrderedJson* json_;
  std::string path_;
};

class Body {
 public:
  static constexpr int kMostNested = 100;    // levels
  static constexpr int kMostMembers = 4096;  // of an object: a search reads all of them
  static constexpr size_t kMostValues = 1'000'000;
  static constexpr size_t kMostWarnings = 20;

  // Throws ApiError (400) unless the text is one JSON object within these limits.
  explicit Body(std::string_view text);
  Body(const Body&) = delete;
  Field fields() { return Field(*this, json_, ""); }
  // A line for each member that was not read, in objects of which some member was.
  std::vector<std::string> warnings() const;
  void warn(std::string line) { more_.push_back(std::move(line)); }

 private:
  friend Field;
  void collect(const OrderedJson& json, const std::string& path,
               std::vector<std::string>& lines) const;

  OrderedJson json_;
  std::set<const OrderedJson*> read_, whole_;
  std::vector<std::string> more_;
};

}  // namespace chaski
