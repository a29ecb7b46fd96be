#include "main/api/fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace chaski {

namespace {

thread_local AskedFields* asked_of_thread = nullptr;

constexpr size_t kShown = 60;  // bytes of a value in a message

std::string shown(const OrderedJson& json) {
  if (json.is_object()) return "an object";
  if (json.is_array()) return fmt::format("a list of {}", json.size());
  std::string text = escaped(written(json));
  if (text.size() > kShown) text = text.substr(0, kShown) + "...";
  return text;
}

std::string joined(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

// "found the end of the text, expected '}'", of the parser's error, which ends in " - unexpected X;
// expected Y" or in " - invalid X; last read: Z; expected Y". `last` is Z.
std::string found_and_expected(const std::string& error, const std::string& last) {
  constexpr std::string_view kReason = " - ", kUnexpected = "unexpected ",
                             kExpected = "; expected ", kLastRead = "; last read: ";
  constexpr size_t kTail = 20;  // bytes
  const size_t begin = error.find(kReason);
  if (begin == std::string::npos)  // the only other error
    return fmt::format("found {:.{}}, a number that is too large", escaped(last), kShown);
  const std::string rest = error.substr(begin + kReason.size());
  const size_t read = rest.find(kLastRead), end = rest.rfind(kExpected);
  const bool expects = end != std::string::npos && (read == std::string::npos || end > read);
  const std::string expected =
      expects ? ", expected " + rest.substr(end + kExpected.size()) : std::string();
  const std::string found = rest.substr(0, std::min(read, end));
  if (found == "unexpected end of input") return "found the end of the text" + expected;
  if (found.starts_with(kUnexpected)) return "found " + found.substr(kUnexpected.size()) + expected;
  size_t tail = last.size() - std::min(last.size(), kTail);
  while (tail < last.size() && (last[tail] & 0xc0) == 0x80) ++tail;  // whole characters
  return fmt::format("found {} after {}{}", found, escaped(last.substr(tail)), expected);
}

// Refuses what would make the parser or a search through a value slow.
class Limits : public nlohmann::json_sax<OrderedJson> {
 public:
  bool null() override { return value(); }
  bool boolean(bool) override { return value(); }
  bool number_integer(number_integer_t) override { return value(); }
  bool number_unsigned(number_unsigned_t) override { return value(); }
  bool number_float(number_float_t, const string_t&) override { return value(); }
  bool string(string_t&) override { return value(); }
  bool binary(binary_t&) override { return value(); }
  bool key(string_t&) override {
    return ++members_.back() <= Body::kMostMembers ||
           no(fmt::format("has an object with more than {} members", Body::kMostMembers));
  }
  bool start_object(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t at, const std::string& last,
                   const nlohmann::detail::exception& error) override {
    return no(fmt::format("is not JSON, byte {}: {}", at, found_and_expected(error.what(), last)));
  }
  const std::string& fault() const { return fault_; }

 private:
  bool open() {
    members_.push_back(0);
    return value() && (members_.size() <= size_t(Body::kMostNested) ||
                       no(fmt::format("is nested deeper than {} levels", Body::kMostNested)));
  }
  bool close() {
    members_.pop_back();
    return true;
  }
  bool no(const std::string& why) {
    fault_ = why;
    return false;
  }

  bool value() {
    return ++values_ <= Body::kMostValues ||
           no(fmt::format("has more than {} values", Body::kMostValues));
  }

  std::vector<int> members_;
  size_t values_ = 0;
  std::string fault_;
};

}  // namespace

AskedFields::AskedFields() { asked_of_thread = this; }
AskedFields::~AskedFields() { asked_of_thread = nullptr; }

Field::Field(Body& body, const OrderedJson& json, std::string path)
    : body_(&body), json_(&json), path_(std::move(path)) {
  body.read_.insert(&json);
}

void Field::wrong(std::string_view expected) const {
  refuse(fmt::format("is {}, expected {}", shown(*json_), expected));
}

std::string Field::text() const {
  if (!is_text()) wrong("a text");
  return json_->get<std::string>();
}

std::string Field::one_of(const std::vector<std::string>& names) const {
  if (is_text() && std::ranges::count(names, json_->get_ref<const std::string&>()) > 0)
    return text();
  wrong(fmt::format("{}", fmt::join(names, ", ")));
}

bool Field::flag() const {
  if (!is_flag()) wrong("true or false");
  return json_->get<bool>();
}

int Field::whole(int least, int most) const {
  const bool bounded = most < std::numeric_limits<int>::max();
  const auto expected = [&] {
    return bounded ? fmt::format("a whole number, {} to {}", least, most)
                   : fmt::format("a whole number, at least {}", least);
  };
  // Some clients write whole numbers as 40.0.
  const double value = is_number() ? json_->get<double>() : 0;
  if (!is_number() || value != double(int64_t(std::clamp(value, -1e15, 1e15))) ||
      !(value >= least && value <= most))
    wrong(expected());
  return int(value);
}

std::optional<uint64_t> Field::unsigned_whole() const {
  if (json_->is_number_unsigned()) return json_->get<uint64_t>();
  if (!json_->is_number_integer() || json_->get<int64_t>() < -1)
    wrong("a whole number, -1 to 18446744073709551615");
  const auto value = json_->get<int64_t>();
  return value < 0 ? std::nullopt : std::optional(uint64_t(value));
}

double Field::number(const Range& range) const {
  const double value = is_number() ? json_->get<double>() : 0;
  if (!is_number() || !range.holds(value))
    wrong(range.is_limited() ? "a number, " + range.text() : "a number");
  return value;
}

std::vector<std::string> Field::texts() const {
  if (is_text()) return {text()};
  if (!is_list()) wrong("a text or a list of texts");
  std::vector<std::string> all;
  for (const Field& item : items()) all.push_back(item.text());
  return all;
}

std::vector<Field> Field::items() const {
  if (!is_list()) wrong("a list");
  std::vector<Field> all;
  for (size_t i = 0; i < json_->size(); ++i)
    all.push_back(Field(*body_, (*json_)[i], fmt::format("{}[{}]", path_, i)));
  return all;
}

std::vector<int> Field::wholes(int least, int most) const {
  if (!is_list()) wrong("a list");
  std::vector<int> all;
  all.reserve(json_->size());
  for (size_t i = 0; i < json_->size(); ++i) {
    const OrderedJson& one = (*json_)[i];
    const int64_t value = one.is_number_integer() ? one.get<int64_t>() : int64_t(least) - 1;
    // A path is made only for a value that needs it.
    all.push_back(value >= least && value <= most
                      ? int(value)
                      : Field(*body_, one, fmt::format("{}[{}]", path_, i)).whole(least, most));
  }
  return all;
}

std::vector<std::pair<std::string, Field>> Field::members() const {
  if (!is_object()) wrong("an object");
  std::vector<std::pair<std::string, Field>> all;
  for (const auto& [name, value] : json_->items())
    all.emplace_back(name, Field(*body_, value, joined(path_, name)));
  return all;
}

std::optional<Field> Field::find(const std::string& name) const {
  if (!is_object()) wrong("an object");
  if (asked_of_thread) asked_of_thread->paths.insert(joined(path_, name));
  const auto found = json_->find(name);
  if (found == json_->end()) return std::nullopt;
  const Field field(*body_, *found, joined(path_, name));
  return found->is_null() ? std::nullopt : std::optional(field);
}

Field Field::operator[](const std::string& name) const {
  if (const std::optional<Field> field = find(name)) return *field;
  refuse_field(joined(path_, name), "is missing");
}

const OrderedJson& Field::whole_json() const {
  body_->whole_.insert(json_);
  return *json_;
}

void Field::accept(std::initializer_list<const char*> names) const {
  for (const char* name : names)
    if (const std::optional<Field> field = find(name)) field->whole_json();
}

Body::Body(std::string_view text) {
  Limits limits;
  if (!OrderedJson::sax_parse(text, &limits)) refuse_field("", "the body " + limits.fault());
  json_ = parsed_json(text);
  if (!json_.is_object())
    refuse_field("", "the body is " + shown(json_) + ", expected a JSON object");
}

std::vector<std::string> Body::warnings() const {
  std::vector<std::string> lines = more_;
  collect(json_, "", lines);
  if (lines.size() > kMostWarnings) lines.resize(kMostWarnings);
  return lines;
}

void Body::collect(const OrderedJson& json, const std::string& path,
                   std::vector<std::string>& lines) const {
  if (whole_.contains(&json) || lines.size() > kMostWarnings) return;
  if (json.is_array())
    for (size_t i = 0; i < json.size(); ++i)
      if (json[i].is_structured()) collect(json[i], fmt::format("{}[{}]", path, i), lines);
  if (!json.is_object()) return;
  for (const auto& [name, value] : json.items()) {
    const std::string inner = joined(path, name);
    if (read_.contains(&value))
      collect(value, inner, lines);
    else
      lines.push_back(escaped(inner) + " is not a field that chaski knows: it is ignored");
  }
}

}  // namespace chaski
