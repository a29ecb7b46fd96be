// A fuzz target is a function over bytes: it reads them as an untrusted file or text, which may
// cause nothing worse than an Error. `make fuzz` runs each target under libFuzzer (main.cpp), and
// fuzz_test.cpp replays the corpus in `make test`. Each target is one file in this folder.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ggml-like-tensor/file/model_source.h"

namespace chaski::fuzz {

struct Target {
  const char* name;  // also of its file and of its folder in corpus/
  void (*run)(std::string_view input);
};
std::vector<Target>& targets();

// A target declares itself: const Declared here("gguf", [](std::string_view input) { ... });
struct Declared {
  Declared(const char* name, void (*run)(std::string_view)) { targets().push_back({name, run}); }
};

// Aborts unless `condition` holds. Not an assertion of the test framework, because a fuzzer needs
// abort().
void expect(bool condition, const char* what);

// Files in a folder of this process. Each input writes the same names, so that a run leaves only
// the files of one input.
std::string write(const std::string& name, std::string_view bytes);
std::string folder();
void empty_folder();

// Splits an input that contains several files at lines "----".
std::vector<std::string_view> parts_of(std::string_view input);

// Calls f. An Error is allowed if its message is one line that is safe for a terminal.
template <class F>
void may_fail(F f);

// Does what every command does with a model before its first pass: reads the tensors, binds them to
// an architecture, makes the tokenizer and uses it.
void use(const ModelSource& source);
// Checks that a user's text never becomes a control token, and that decoding returns the text
// unless bytes are missing in the vocabulary.
void use_tokenizer(const Metadata& meta, std::string_view text);
// Uses the tokenizer of a Hugging Face folder with only this file.
void use_hf_tokenizer(const std::string& name, std::string_view bytes);

void check_line(int code, const std::string& line);

}  // namespace chaski::fuzz

#include "ggml-like-tensor/base/error.h"

template <class F>
void chaski::fuzz::may_fail(F f) {
  try {
    f();
  } catch (const Error& error) {
    check_line(static_cast<int>(error.code), error.what());
  }
}
