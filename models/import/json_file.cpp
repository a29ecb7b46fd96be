#include "models/import/json_file.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/mapping.h"

namespace chaski {
namespace {

using json = nlohmann::ordered_json;  // as in hf/, so that one parser is compiled

constexpr size_t kMaxDepth = 64;  // real files have less than 10
constexpr size_t kMaxShown = 60;  // characters of a value in a message
constexpr double kInfinity = 1e308;

// A document is a sequence of values. Each begins with a byte for its kind, followed by:
//   null, true, false   nothing
//   from_0, below_0     a varint: the integer, or its complement
//   real                8 bytes
//   string              the length as a varint, then the bytes
//   array, object       4 bytes with the length of the content, then the values; each value of an
//                       object follows its name (the length as a varint, then the bytes)
enum JsonKind : char {
  kAbsent,
  kNull,
  kTrue,
  kFalse,
  kFrom0,
  kBelow0,
  kReal,
  kString,
  kArray,
  kObject
};

// No value's text grows by more than this factor: [[]] has four bytes and becomes ten.
constexpr size_t most_bytes(size_t text) { return text / 2 * 5 + 16; }

template <class T>
T take(const char*& at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  at += sizeof value;
  return value;
}

uint64_t take_varint(const char*& at) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(*at++);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

std::string_view take_text(const char*& at) {
  const size_t size = take_varint(at);
  at += size;
  return {at - size, size};
}

// The end of the value at `at`.
const char* end_of(const char* at) {
  switch (*at++) {
    case kFrom0:
    case kBelow0:
      take_varint(at);
      return at;
    case kReal:
      return at + sizeof(double);
    case kString:
      take_text(at);
      return at;
    case kArray:
    case kObject: {
      const auto bytes = take<uint32_t>(at);
      return at + bytes;
    }
  }
  return at;
}

// The content of an array or object.
std::string_view inside(const char* value) {
  const char* at = value + 1;
  const auto bytes = take<uint32_t>(at);
  return {at, bytes};
}

// Calls f(name, value) for the members of an object in file order, until it returns true.
template <class F>
void find_member(const char* object, const F& f) {
  const std::string_view all = inside(object);
  for (const char* at = all.data(); at != all.data() + all.size(); at = end_of(at))
    if (const std::string_view name = take_text(at); f(name, at)) return;
}

// Calls f(value) for the items of an array until it returns true.
template <class F>
void find_item(const char* array, const F& f) {
  const std::string_view all = inside(array);
  for (const char* at = all.data(); at != all.data() + all.size(); at = end_of(at))
    if (f(at)) return;
}

// Pointers to the names of an object's members, sorted.
std::vector<const char*> sorted_names(const char* object) {
  std::vector<const char*> names;
  const std::string_view all = inside(object);
  for (const char* at = all.data(); at != all.data() + all.size(); at = end_of(at)) {
    names.push_back(at);
    take_text(at);
  }
  std::sort(names.begin(), names.end(),
            [](const char* a, const char* b) { return take_text(a) < take_text(b); });
  return names;
}

// Writes the document while parsing, and refuses JSON features that a model file does not need.
// (The library's own tree takes ten times the size of the text.)
class DocumentWriter {
 public:
  DocumentWriter(const std::string& file, std::string& out) : file_(file), out_(out) {}

  bool null() { return put(kNull); }
  bool boolean(bool value) { return put(value ? kTrue : kFalse); }
  bool number_integer(int64_t value) {
    if (value >= 0) return number_unsigned(static_cast<uint64_t>(value));  // -0
    return put(kBelow0), put_varint(~static_cast<uint64_t>(value));
  }
  bool number_unsigned(uint64_t value) { return put(kFrom0), put_varint(value); }
  bool number_float(double value, const std::string&) {
    put(kReal);
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return true;
  }
  bool string(const std::string& value) { return put(kString), put_text(value); }
  bool binary(json::binary_t&) { return false; }  // binary values do not occur in JSON text
  bool start_object(size_t) { return open(kObject); }
  bool start_array(size_t) { return open(kArray); }
  bool end_object() {
    const char* object = out_.data() + open_.back();
    close();
    const auto names = sorted_names(object);
    const auto twice = std::adjacent_find(
        names.begin(), names.end(),
        [](const char* a, const char* b) { return take_text(a) == take_text(b); });
    if (twice == names.end()) return true;
    const char* name = *twice;
    fail(Exit::bad_file, "{}: key {} appears twice in one object", file_, escaped(take_text(name)));
  }
  bool end_array() { return close(); }
  bool key(const std::string& name) { return put_text(name); }
  bool parse_error(size_t byte, const std::string&, const json::exception& error) {
    if (dynamic_cast<const json::out_of_range*>(&error))
      fail(Exit::bad_file, "{}: JSON has a number beyond the range of a double", file_);
    fail(Exit::bad_file, "{}: byte {} is not valid JSON", file_, byte);
  }

 private:
  bool put(JsonKind kind) {
    out_ += kind;
    return true;
  }
  bool put_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
    out_ += static_cast<char>(value);
    return true;
  }
  bool put_text(const std::string& text) {
    put_varint(text.size());
    out_ += text;
    return true;
  }
  bool open(JsonKind kind) {
    if (open_.size() == kMaxDepth)
      fail(Exit::bad_file, "{}: JSON is nested deeper than {} levels", file_, kMaxDepth);
    open_.push_back(out_.size());
    put(kind);
    out_.append(sizeof(uint32_t), 0);
    return true;
  }
  bool close() {
    char* bytes = out_.data() + open_.back() + 1;
    const auto size = static_cast<uint32_t>(out_.data() + out_.size() - bytes - sizeof(uint32_t));
    std::memcpy(bytes, &size, sizeof size);
    open_.pop_back();
    return true;
  }

  const std::string& file_;
  std::string& out_;
  std::vector<size_t> open_;  // where each unfinished array or object begins
};

// Python writes Infinity, which JSON does not have: here it is kInfinity. Returns nothing if the
// text has none.
std::string with_finite_numbers(std::string_view text) {
  constexpr std::string_view kWord = "Infinity", kLarge = "1e308   ";
  std::string finite;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      quoted = !quoted;
    else if (!quoted && text.substr(i, kWord.size()) == kWord) {
      if (finite.empty()) finite = text;
      finite.replace(i, kLarge.size(), kLarge);
    }
  }
  return finite;
}

}  // namespace

Json parse_json(const std::string& file, std::string_view text) {
  if (text.size() > kMaxJsonBytes)
    fail(Exit::bad_file, "{}: JSON has {} bytes, expected at most {}", file, text.size(),
         kMaxJsonBytes);
  auto document = std::make_shared<Json::Document>();
  document->file = file;
  // Reserved pages take no memory until they are written; growing would copy.
  document->values.reserve(most_bytes(text.size()));
  DocumentWriter writer(file, document->values);
  const std::string finite = with_finite_numbers(text);
  json::sax_parse(finite.empty() ? text : std::string_view(finite), &writer);
  return {document, "", document->values.data()};
}

Json read_json(const std::string& path) {
  auto mapping = Mapping::open(path);
  auto bytes = mapping->bytes();
  return parse_json(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

bool Json::present() const { return kind() != kAbsent && kind() != kNull; }
bool Json::is_null() const { return kind() == kNull; }
bool Json::is_object() const { return kind() == kObject; }
bool Json::is_array() const { return kind() == kArray; }
bool Json::is_string() const { return kind() == kString; }
bool Json::is_integer() const { return kind() == kFrom0 || kind() == kBelow0; }

Json Json::operator[](std::string_view key) const {
  const std::string name(key);
  Json found{document_, path_.empty() ? name : path_ + "." + name, nullptr};
  if (!present()) return found;
  if (!is_object()) wrong("an object");
  find_member(value_, [&](std::string_view member, const char* value) {
    if (member == key) found.value_ = value;
    return member == key;
  });
  return found;
}

Json Json::item(size_t index, const char* value) const {
  return {document_, fmt::format("{}[{}]", path_, index), value};
}

Json Json::at(size_t index) const {
  if (!is_array()) wrong("an array");
  size_t left = index;
  const char* found = nullptr;
  find_item(value_, [&](const char* value) {
    if (left == 0) found = value;
    return left-- == 0;
  });
  return item(index, found);
}

int64_t Json::integer() const {
  if (!is_integer()) wrong("an integer");
  const char* at = value_ + 1;
  const uint64_t value = take_varint(at);
  if (value > INT64_MAX) wrong("an integer");
  return static_cast<int64_t>(kind() == kFrom0 ? value : ~value);
}

double Json::number() const {
  // transformers 5 writes infinity as {"__float__": "Infinity"}.
  if (is_object())
    if (const Json name = (*this)["__float__"]; name.is_string() && name.str() == "Infinity")
      return kInfinity;
  if (kind() != kReal && !is_integer()) wrong("a number");
  const char* at = value_ + 1;
  if (kind() == kReal) return take<double>(at);
  const uint64_t value = take_varint(at);
  return kind() == kFrom0 ? static_cast<double>(value)
                          : static_cast<double>(static_cast<int64_t>(~value));
}

std::string Json::str() const {
  if (!is_string()) wrong("a string");
  const char* at = value_ + 1;
  return std::string(take_text(at));
}

bool Json::boolean(bool otherwise) const {
  if (!present()) return otherwise;
  if (kind() != kTrue && kind() != kFalse) wrong("true or false");
  return kind() == kTrue;
}

bool Json::equals(const Json& other) const {
  if (!value_ || !other.value_) return value_ == other.value_;
  return std::string_view(value_, end_of(value_)) ==
         std::string_view(other.value_, end_of(other.value_));
}

size_t Json::size() const {
  if (!present()) return 0;
  if (!is_array() && !is_object()) wrong("a list or an object");
  size_t count = 0;
  is_array() ? find_item(value_, [&](const char*) { return ++count == 0; })
             : find_member(value_, [&](auto, auto) { return ++count == 0; });
  return count;
}

void Json::each(const std::function<void(const std::string&, const Json&)>& visit) const {
  if (!is_object()) wrong("an object");
  for (const char* at : sorted_names(value_)) {
    const std::string name(take_text(at));
    visit(name, {document_, path_.empty() ? name : path_ + "." + name, at});
  }
}

void Json::each(const std::function<void(const Json&)>& visit) const {
  if (!present()) return;
  if (!is_array()) wrong("an array");
  size_t index = 0;
  find_item(value_, [&](const char* value) {
    visit(item(index++, value));
    return false;
  });
}

std::string Json::described() const {
  if (is_object()) return "an object";
  if (is_array()) return "an array";
  json value;
  if (is_string()) value = str();
  if (kind() == kReal) value = number();
  if (kind() == kTrue || kind() == kFalse) value = boolean(false);
  if (is_integer()) {
    const char* at = value_ + 1;
    const uint64_t number = take_varint(at);
    kind() == kFrom0 ? value = number : value = static_cast<int64_t>(~number);
  }
  std::string text = value.dump();
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return escaped(text);
}

void Json::wrong(std::string_view expected) const {
  const std::string& file = document_->file;
  const std::string field = !path_.empty()           ? escaped(path_)
                            : file.starts_with("--") ? "the JSON"  // of a flag
                                                     : "the file";
  if (!present()) fail(Exit::bad_file, "{}: {} is missing, expected {}", file, field, expected);
  fail(Exit::bad_file, "{}: {} is {}, expected {}", file, field, described(), expected);
}

}  // namespace chaski
