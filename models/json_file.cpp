#include "models/json_file.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/mapping.h"

namespace chaski {
namespace {

using nlohmann::json;

constexpr size_t kMaxDepth = 64;  // real files stay below 10
constexpr size_t kMaxShown = 60;  // characters of a value in an error line

// Watches the parser: what JSON allows and a model file has no reason to contain.
class Guard {
 public:
  explicit Guard(const std::string& file) : file_(file) {}

  bool operator()(int, json::parse_event_t event, json& parsed) {
    using Event = json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) open();
    if (event == Event::object_end || event == Event::array_end) keys_.pop_back();
    if (event == Event::key && !keys_.back().insert(parsed.get<std::string>()).second)
      fail(Exit::bad_file, "{}: key {} appears twice in one object", file_,
           escaped(parsed.get<std::string>()));
    return true;
  }

 private:
  void open() {
    if (keys_.size() == kMaxDepth)
      fail(Exit::bad_file, "{}: JSON is nested more than {} deep", file_, kMaxDepth);
    keys_.emplace_back();
  }

  const std::string& file_;
  std::vector<std::unordered_set<std::string>> keys_;
};

}  // namespace

Json parse_json(const std::string& file, std::string_view text) {
  if (text.size() > kMaxJsonBytes)
    fail(Exit::bad_file, "{}: JSON has {} bytes, expected at most {}", file, text.size(),
         kMaxJsonBytes);
  try {
    Guard guard(file);
    auto root = std::make_shared<const json>(
        json::parse(text, [&](int depth, json::parse_event_t event, json& parsed) {
          return guard(depth, event, parsed);
        }));
    return {file, "", root, root.get()};
  } catch (const json::parse_error& error) {
    fail(Exit::bad_file, "{}: byte {} is not valid JSON", file, error.byte);
  } catch (const json::out_of_range&) {
    fail(Exit::bad_file, "{}: JSON has a number beyond the range of a double", file);
  }
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
  if (!is_array()) wrong("an array");
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
