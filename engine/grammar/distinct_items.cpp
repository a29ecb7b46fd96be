#include "engine/grammar/distinct_items.h"

#include <cmath>
#include <map>
#include <utility>

#include "engine/text/ordered_json.h"

namespace chaski {

namespace {

// Equal values have one text: 1.0 is 1, and an object's members are sorted by name.
void append(std::string& out, const OrderedJson& value) {
  if (value.is_number_float() && std::abs(value.get<double>()) < 1e15 &&
      value.get<double>() == std::floor(value.get<double>())) {
    out += std::to_string(int64_t(value.get<double>()));
  } else if (value.is_array()) {
    const char* before = "[";
    for (const OrderedJson& item : value) out += std::exchange(before, ","), append(out, item);
    out += value.empty() ? "[]" : "]";
  } else if (value.is_object()) {
    std::map<std::string, const OrderedJson*> members;
    for (const auto& [name, member] : value.items()) members[name] = &member;
    const char* before = "{";
    for (const auto& [name, member] : members) {
      out += std::exchange(before, ",") + written(name) + ":";
      append(out, *member);
    }
    out += value.empty() ? "{}" : "}";
  } else {
    out += written(value);
  }
}

}  // namespace

std::string text_of_value(const std::string& json) {
  std::string text;
  append(text, maybe_json(json));
  return text;
}

bool DistinctItems::may_become_used() const {
  const auto next = used_->texts.lower_bound(item_);
  return next != used_->texts.end() && next->starts_with(item_);
}

// A number may get more digits.
bool DistinctItems::is_whole() const {
  return depth_ == list_depth_ && !in_string_ && !item_.empty() &&
         (item_.back() < '0' || item_.back() > '9');
}

bool DistinctItems::is_used() const {
  return used_->texts.contains(item_) || used_->values.contains(text_of_value(item_));
}

bool DistinctItems::end_item() {
  if (item_.empty()) return true;
  if (is_used()) return false;
  Used more = *used_;
  more.texts.insert(item_);
  more.values.insert(text_of_value(item_));
  used_ = std::make_shared<const Used>(std::move(more));
  item_.clear();
  return true;
}

bool DistinctItems::take(uint8_t byte, bool opens_list) {
  const bool inside = used_ != nullptr;
  if (in_string_) {
    in_string_ = escaped_ || byte != '"';
    escaped_ = !escaped_ && byte == '\\';
  } else if (byte == '"') {
    in_string_ = true;
  } else if (byte == '[' || byte == '{') {
    ++depth_;
    if (opens_list && !inside) {
      used_ = std::make_shared<const Used>(), list_depth_ = depth_;
      return true;
    }
  } else if (byte == ']' || byte == '}') {
    if (inside && depth_ == list_depth_) {
      const bool distinct = end_item();
      --depth_, used_.reset();
      return distinct;
    }
    --depth_;
  } else if (byte == ',' && inside && depth_ == list_depth_) {
    return end_item();
  } else if (byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r') {
    return true;
  }
  if (inside) item_ += char(byte);
  return true;
}

// Whether this item can become a new one. If no earlier item begins like it, it can: a grammar has
// no place without a way to its end.
bool DistinctItems::has_future(Recognizer& recognizer, Recognizer::Place place) const {
  if (!used_ || !may_become_used()) return !used_ || !is_whole() || !is_used();
  for (int byte = '!'; byte < 0x100; ++byte) {  // white space leads to nothing else
    const Recognizer::Place next = recognizer.step(place, uint8_t(byte));
    if (next == Recognizer::kNowhere) continue;
    DistinctItems then = *this;
    if (then.take(uint8_t(byte), false) &&
        (item_.size() > then.item_.size() || !then.used_ || then.has_future(recognizer, next)))
      return true;
  }
  if (in_string_)
    if (const auto next = recognizer.step(place, ' '); next != Recognizer::kNowhere) {
      DistinctItems then = *this;
      return then.take(' ', false) && then.has_future(recognizer, next);
    }
  return false;
}

Recognizer::Place DistinctItems::read(Recognizer& recognizer, Recognizer::Place place,
                                      std::string_view bytes) {
  for (const char byte : bytes) {
    place = recognizer.step(place, uint8_t(byte));
    if (place == Recognizer::kNowhere || !take(uint8_t(byte), recognizer.opens_distinct(place)))
      return Recognizer::kNowhere;
  }
  return has_future(recognizer, place) ? place : Recognizer::kNowhere;
}

bool DistinctItems::surely_allows(std::string_view bytes) const {
  if (!used_) return bytes.find('[') == bytes.npos;
  return !may_become_used() && !is_whole() &&
         bytes.find_first_of(in_string_ ? "\"" : ",[]{}\"el") == bytes.npos;
}

}  // namespace chaski
