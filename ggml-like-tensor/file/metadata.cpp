// Typed access to a model's key/values. If a value is missing or of another type, the error names
// the file, the key, what was found and what was expected. value_io.h has the encoding of values in
// a file.
#include "ggml-like-tensor/file/metadata.h"

#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

std::string_view kind_of(ValueType type) {
  switch (type) {
    case ValueType::str:
      return "string";
    case ValueType::boolean:
      return "boolean";
    case ValueType::f32:
    case ValueType::f64:
      return "float";
    case ValueType::array:
      return "array";
    default:
      return "integer";
  }
}

std::string described(const Value& value) {
  if (value.type == ValueType::array) return fmt::format("an array of {}s", kind_of(value.element));
  const std::string_view kind = kind_of(value.type);
  return fmt::format("{} {}", kind == "integer" ? "an" : "a", kind);
}

[[noreturn]] void wrong_kind(const Metadata& meta, const std::string& key, const Value& value,
                             std::string_view wanted) {
  fail(Exit::bad_file, "{}: {} is {}, expected {}", meta.origin, escaped(key), described(value),
       wanted);
}

const Value& present(const Metadata& meta, const std::string& key, std::string_view wanted) {
  if (const Value* value = meta.find(key)) return *value;
  fail(Exit::bad_file, "{}: {} is missing, expected {}", meta.origin, escaped(key), wanted);
}

bool is_integer(const Value& value) { return kind_of(value.type) == "integer"; }

constexpr std::string_view kStr = "a string", kInteger = "an integer", kNumber = "a float",
                           kBoolean = "a boolean";

const std::string& to_str(const Metadata& meta, const std::string& key, const Value& value) {
  if (value.type != ValueType::str) wrong_kind(meta, key, value, kStr);
  return std::get<std::string>(value.data);
}

int64_t to_integer(const Metadata& meta, const std::string& key, const Value& value) {
  if (!is_integer(value)) wrong_kind(meta, key, value, kInteger);
  const int64_t integer = std::get<int64_t>(value.data);
  // u64 is the only type whose values do not all fit; no count or id is that large.
  if (value.type == ValueType::u64 && integer < 0)
    fail(Exit::bad_file, "{}: {} is {}, expected less than 2^63", meta.origin, escaped(key),
         static_cast<uint64_t>(integer));
  return integer;
}

double to_number(const Metadata& meta, const std::string& key, const Value& value) {
  if (is_integer(value)) return static_cast<double>(to_integer(meta, key, value));
  if (kind_of(value.type) != "float") wrong_kind(meta, key, value, kNumber);
  return std::get<double>(value.data);
}

// An array of type Array, or an empty one if the key is absent. Booleans count as integers here,
// because they have no other getter.
template <class Array>
const Array& to_array(const Metadata& meta, const std::string& key, std::string_view wanted) {
  static const Array empty;
  const Value* value = meta.find(key);
  if (!value) return empty;
  if (value->type != ValueType::array || !std::holds_alternative<Array>(value->data))
    wrong_kind(meta, key, *value, wanted);
  return std::get<Array>(value->data);
}

Value scalar(ValueType type, Data data) { return {type, ValueType::i64, std::move(data)}; }
Value array(ValueType element, Data data) { return {ValueType::array, element, std::move(data)}; }

}  // namespace

void Metadata::set_str(const std::string& key, std::string value) {
  set(key, scalar(ValueType::str, std::move(value)));
}
void Metadata::set_int(const std::string& key, int64_t value) {
  set(key, scalar(ValueType::i64, value));
}
void Metadata::set_float(const std::string& key, double value) {
  set(key, scalar(ValueType::f64, value));
}
void Metadata::set_bool(const std::string& key, bool value) {
  set(key, scalar(ValueType::boolean, int64_t{value}));
}
void Metadata::set_strs(const std::string& key, Texts value) {
  set(key, array(ValueType::str, std::move(value)));
}
void Metadata::set_floats(const std::string& key, Floats value) {
  set(key, array(ValueType::f32, std::move(value)));
}
void Metadata::set_ints(const std::string& key, Ints value) {
  set(key, array(ValueType::i32, std::move(value)));
}

const Value* Metadata::find(const std::string& key) const {
  const auto at = values_.find(key);
  return at == values_.end() ? nullptr : &at->second;
}

const std::string& Metadata::str(const std::string& key) const {
  return to_str(*this, key, present(*this, key, kStr));
}

std::string Metadata::str(const std::string& key, std::string_view otherwise) const {
  const Value* value = find(key);
  return value ? to_str(*this, key, *value) : std::string(otherwise);
}

int64_t Metadata::integer(const std::string& key) const {
  return to_integer(*this, key, present(*this, key, kInteger));
}

int64_t Metadata::integer(const std::string& key, int64_t otherwise) const {
  const Value* value = find(key);
  return value ? to_integer(*this, key, *value) : otherwise;
}

double Metadata::number(const std::string& key) const {
  return to_number(*this, key, present(*this, key, kNumber));
}

double Metadata::number(const std::string& key, double otherwise) const {
  const Value* value = find(key);
  return value ? to_number(*this, key, *value) : otherwise;
}

bool Metadata::boolean(const std::string& key, bool otherwise) const {
  const Value* value = find(key);
  if (!value) return otherwise;
  if (value->type != ValueType::boolean) wrong_kind(*this, key, *value, kBoolean);
  return std::get<int64_t>(value->data) != 0;
}

const Texts& Metadata::strs(const std::string& key) const {
  return to_array<Texts>(*this, key, "an array of strings");
}
const Floats& Metadata::floats(const std::string& key) const {
  return to_array<Floats>(*this, key, "an array of floats");
}
const Ints& Metadata::ints(const std::string& key) const {
  return to_array<Ints>(*this, key, "an array of integers");
}

}  // namespace chaski
