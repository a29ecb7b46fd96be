// Values of flags as typed: numbers, and names of models.
#pragma once
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "engine/shelf/shelf.h"

namespace chaski {

struct ShortName;

// A number that is the whole text, or nothing.
template <class T>
std::optional<T> number_of(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stopped == end ? std::optional(value) : std::nullopt;
}

std::string small(std::string text);  // ASCII letters in lower case

std::optional<int> whole_of(const std::string& text);  // "4k" is 4096, "1M" 1048576

// 180M, 180MB, 1.5g, 90000K or a number of bytes. Throws Error(usage) that names the flag.
uint64_t bytes_of(const char* flag, const std::string& text);

// The second part of an error about a flag's value: "is "x", expected a number".
std::string refusal(const std::string& text, const std::string& expected);

// The path of a model that the user may have named as in `chaski list`, or by a part of that name.
// Remembers the name for with_name_of_model() in flags.h. Returns any other text as it is.
std::string path_of_named_model(const std::string& name);
// "NAME=MODEL" as a name and a model. The name is empty if the text is a file or has no name.
std::pair<std::string, std::string> name_and_model(const std::string& text);
// Throws Error(io): `advice` says how to get the model, or which other names there are.
[[noreturn]] void refuse_missing_model(const std::string& name, const std::string& advice);
// The same for a model of a short name that is not on this machine: chaski pull downloads it.
[[noreturn]] void refuse_missing_model(const ShortName& model);
// Throws Error(io) with the nearest names of models, unless such a file exists or the text can only
// be the name of a file: then opening it gives the reason.
void refuse_unknown_model(const std::string& text, WantedModel wanted);
// Checks of CLI11: they return nothing, or what is wrong with the text. A number is rewritten in
// the form that CLI11 reads correctly: "010" becomes "10".
std::string rewrite_whole(std::string& text, int least, int most);
std::string expect_real(const std::string& text);

// Says which models were taken for a part of their names, one line each.
void put_models_taken();

}  // namespace chaski
