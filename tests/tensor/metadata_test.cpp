// The typed getters of a model's key/values. quipu_test.cpp tests how values are stored.
#include "ggml-like-tensor/file/metadata.h"

#include "ggml-like-tensor/base/error.h"
#include "tests/kit/support.h"

namespace chaski {
namespace {

using test::error_of;

TEST_CASE("metadata: getters give the value, the default, or an error that says what is wrong") {
  Metadata meta;
  meta.origin = "x.gguf";
  meta.set_str("s", "text");
  meta.set_int("i", -5);
  meta.set_float("f", 0.1);
  meta.set_bool("b", true);
  meta.set_strs("ss", {"a", ""});
  meta.set_floats("ff", {0.5});
  meta.set_ints("ii", {1, 2});
  meta.set("u", {ValueType::u64, ValueType::i64, int64_t{-1}});
  meta.set("bb", {ValueType::array, ValueType::boolean, std::vector<int64_t>{0, 1}});
  CHECK(meta.str("s") == "text");
  CHECK(meta.str("none", "other") == "other");
  CHECK(meta.integer("i") == -5);
  CHECK(meta.integer("none", 7) == 7);
  CHECK(meta.number("f") == 0.1);
  CHECK(meta.number("i") == -5.0);
  CHECK(meta.number("none", 0.5) == 0.5);
  CHECK(meta.boolean("b", false));
  CHECK(meta.boolean("none", true));
  CHECK(meta.strs("ss") == std::vector<std::string>{"a", ""});
  CHECK(meta.floats("ff") == std::vector<double>{0.5});
  CHECK(meta.ints("ii") == std::vector<int64_t>{1, 2});
  CHECK(meta.ints("bb") == std::vector<int64_t>{0, 1});
  CHECK(meta.strs("none").empty());
  CHECK(meta.has("s"));
  CHECK(!meta.has("none"));

  const auto line = [&](auto get) {
    const Error error = error_of([&] { get(meta); });
    CHECK(error.code == Exit::bad_file);
    return std::string(error.what());
  };
  CHECK(line([](auto& m) { m.str("none"); }) == "x.gguf: none is missing, expected a string");
  CHECK(line([](auto& m) { m.integer("none"); }) == "x.gguf: none is missing, expected an integer");
  CHECK(line([](auto& m) { m.number("none"); }) == "x.gguf: none is missing, expected a float");
  CHECK(line([](auto& m) { m.str("i"); }) == "x.gguf: i is an integer, expected a string");
  CHECK(line([](auto& m) { m.str("i", ""); }) == "x.gguf: i is an integer, expected a string");
  CHECK(line([](auto& m) { m.integer("f", 1); }) == "x.gguf: f is a float, expected an integer");
  CHECK(line([](auto& m) { m.integer("b"); }) == "x.gguf: b is a boolean, expected an integer");
  CHECK(line([](auto& m) { m.number("s", 1); }) == "x.gguf: s is a string, expected a float");
  CHECK(line([](auto& m) { m.boolean("i", true); }) ==
        "x.gguf: i is an integer, expected a boolean");
  CHECK(line([](auto& m) { m.strs("ii"); }) ==
        "x.gguf: ii is an array of integers, expected an array of strings");
  CHECK(line([](auto& m) { m.floats("s"); }) ==
        "x.gguf: s is a string, expected an array of floats");
  CHECK(line([](auto& m) { m.ints("ff"); }) ==
        "x.gguf: ff is an array of floats, expected an array of integers");
  CHECK(line([](auto& m) { m.integer("u"); }) ==
        "x.gguf: u is 18446744073709551615, expected less than 2^63");
  meta.erase("s");
  CHECK(!meta.has("s"));
}

}  // namespace
}  // namespace chaski
