#include "models/import/json_file.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/mapping.h"

namespace chaski {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 64;  // real files stay below 10
constexpr size_t kMaxShown = 60;  // characters of a value in an error line

// Builds the document as the parser goes, and refuses what JSON allows and a model file has no
// reason to contain. (The library's own callback looks through all siblings at every value.)
class Builder {
 public:
  Builder(const std::string& file, json& root) : file_(file), place_(&root) {}

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(int64_t value) { return put(value); }
  bool number_unsigned(uint64_t value) { return put(value); }
  bool number_float(double value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(json::binary_t&) { return false; }  // not in JSON text
  bool start_object(size_t) { return open(json::object()); }
  bool start_array(size_t) { return open(json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    const auto [at, fresh] = open_.back()->get_ref<json::object_t&>().emplace(name, nullptr);
    if (!fresh)
      fail(Exit::bad_file, "{}: key {} appears twice in one object", file_, escaped(name));
    place_ = &at->second;
    return true;
  }
  bool parse_error(size_t byte, const std::string&, const json::exception& error) {
    if (dynamic_cast<const json::out_of_range*>(&error))
      fail(Exit::bad_file, "{}: JSON has a number beyond the range of a double", file_);
    fail(Exit::bad_file, "{}: byte {} is not valid JSON", file_, byte);
  }

 private:
  // Returns where the value went: the root, behind its key, or the end of the open array.
  template <class T>
  json& placed(T&& value) {
    if (!open_.empty() && open_.back()->is_array())
      return open_.back()->get_ref<json::array_t&>().emplace_back(std::forward<T>(value));
    return *place_ = json(std::forward<T>(value));
  }
  template <class T>
  bool put(T&& value) {
    placed(std::forward<T>(value));
    return true;
  }
  bool open(json value) {
    if (open_.size() == kMaxDepth)
      fail(Exit::bad_file, "{}: JSON is nested more than {} deep", file_, kMaxDepth);
    open_.push_back(&placed(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& file_;
  json* place_;              // of the next value, unless an array is open
  std::vector<json*> open_;  // objects and arrays that have not ended, the innermost last
};

}  // namespace

Json parse_json(const std::string& file, std::string_view text) {
  if (text.size() > kMaxJsonBytes)
    fail(Exit::bad_file, "{}: JSON has {} bytes, expected at most {}", file, text.size(),
         kMaxJsonBytes);
  auto root = std::make_shared<json>();
  Builder builder(file, *root);
  json::sax_parse(text, &builder);
  return {file, "", root, root.get()};
}

Json read_json(const std::string& path) {
  auto mapping = Mapping::open(path);
  auto bytes = mapping->bytes();
  return parse_json(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

bool Json::present() const { return node_ && !node_->is_null(); }
bool Json::is_object() const { return node_ && node_->is_object(); }
bool Json::is_array() const { return node_ && node_->is_array(); }
bool Json::is_string() const { return node_ && node_->is_string(); }
bool Json::is_integer() const { return node_ && node_->is_number_integer(); }

Json Json::operator[](std::string_view key) const {
  const std::string name(key);
  const std::string path = path_.empty() ? name : path_ + "." + name;
  if (!present()) return {file_, path, root_, nullptr};
  if (!is_object()) wrong("an object");
  auto found = node_->find(name);
  return {file_, path, root_, found == node_->end() ? nullptr : &*found};
}

Json Json::at(size_t index) const {
  if (!is_array()) wrong("an array");
  const std::string path = fmt::format("{}[{}]", path_, index);
  return {file_, path, root_, index < node_->size() ? &(*node_)[index] : nullptr};
}

int64_t Json::integer() const {
  const bool fits =
      is_integer() && (!node_->is_number_unsigned() || node_->get<uint64_t>() <= INT64_MAX);
  if (!fits) wrong("an integer");
  return node_->get<int64_t>();
}

double Json::number() const {
  if (!node_ || !node_->is_number()) wrong("a number");
  return node_->get<double>();
}

const std::string& Json::str() const {
  if (!is_string()) wrong("a string");
  return node_->get_ref<const std::string&>();
}

bool Json::boolean(bool otherwise) const {
  if (!present()) return otherwise;
  if (!node_->is_boolean()) wrong("true or false");
  return node_->get<bool>();
}

size_t Json::size() const {
  if (!present()) return 0;
  if (!is_array() && !is_object()) wrong("a list or an object");
  return node_->size();
}

void Json::each(const std::function<void(const std::string&, const Json&)>& visit) const {
  if (!is_object()) wrong("an object");
  for (const auto& [name, node] : node_->items())
    visit(name, {file_, path_.empty() ? name : path_ + "." + name, root_, &node});
}

std::string Json::described() const {
  if (node_->is_object()) return "an object";
  if (node_->is_array()) return "an array";
  std::string text = node_->dump();
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  return escaped(text);
}

void Json::wrong(std::string_view expected) const {
  const std::string field = path_.empty() ? "the file" : escaped(path_);
  if (!present()) fail(Exit::bad_file, "{}: {} is missing, expected {}", file_, field, expected);
  fail(Exit::bad_file, "{}: {} is {}, expected {}", file_, field, described(), expected);
}

}  // namespace chaski
