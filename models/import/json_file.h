// JSON from an untrusted file: bounded depth and size, no duplicate keys, and getters whose
// messages give the position of the value: "model/config.json: rope_scaling.factor is "two",
// expected a number".
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace chaski {

// A value and its path. It keeps the document alive, which takes at most two and a half times the
// size of its text. An absent value and null are the same.
class Json {
 public:
  Json operator[](std::string_view key) const;  // of an object; absent if this is absent
  Json at(size_t index) const;  // of an array; linear in `index`, so use each() for long arrays
  bool has(std::string_view key) const { return (*this)[key].present(); }
  bool present() const;
  bool is_null() const;

  bool is_object() const;
  bool is_array() const;
  bool is_string() const;
  bool is_integer() const;

  // Without a default the value must be present. All throw Error(bad_file).
  int64_t integer() const;
  int64_t integer(int64_t otherwise) const { return present() ? integer() : otherwise; }
  double number() const;
  double number(double otherwise) const { return present() ? number() : otherwise; }
  std::string str() const;
  std::string str(std::string_view otherwise) const {
    return present() ? str() : std::string(otherwise);
  }
  bool boolean(bool otherwise) const;
  size_t size() const;                   // of an array or object, by counting; absent: 0
  bool equals(const Json& other) const;  // the same text, or both absent
  // of an object, sorted by name
  void each(const std::function<void(const std::string& name, const Json& value)>& visit) const;
  // of an array, in file order; nothing if absent
  void each(const std::function<void(const Json& value)>& visit) const;

  [[noreturn]] void wrong(std::string_view expected) const;  // "... is FOUND, expected EXPECTED"

 private:
  friend Json parse_json(const std::string& file, std::string_view text);
  struct Document {
    std::string file, values;
  };
  Json(std::shared_ptr<const Document> document, std::string path, const char* value)
      : document_(std::move(document)), path_(std::move(path)), value_(value) {}
  char kind() const { return value_ ? *value_ : '\0'; }
  Json item(size_t index, const char* value) const;
  std::string described() const;

  std::shared_ptr<const Document> document_;
  std::string path_;
  const char* value_;  // in the document; null if absent
};

// Throws Error(bad_file); read_json also Error(io).
Json parse_json(const std::string& file, std::string_view text);
Json read_json(const std::string& path);

// The limit that safetensors sets for its headers. The largest tokenizer.json has a third of it.
constexpr size_t kMaxJsonBytes = 100'000'000;

}  // namespace chaski
