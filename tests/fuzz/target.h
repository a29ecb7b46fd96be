// A fuzz target is one function over bytes: it uses them as a stranger's file, or a stranger's
// text, and promises that nothing worse than an Error comes out. `make fuzz` runs each under
// libFuzzer (main.cpp), fuzz_test.cpp replays the corpus in `make test`. Each target is one file
// here.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ggml-like-tensor/file/model_source.h"

namespace chaski::fuzz {

struct Target {
  const char* name;  // of its file, and of its folder in corpus/
  void (*run)(std::string_view input);
};
std::vector<Target>& targets();

// A target declares itself: const Declared here("gguf", [](std::string_view input) { ... });
struct Declared {
  Declared(const char* name, void (*run)(std::string_view)) { targets().push_back({name, run}); }
};

// What must hold for every input. Not an assertion of the test framework: a fuzzer stops at
// abort().
void expect(bool condition, const char* what);

// Files in a folder of this process. They are the same names each time, so that a run leaves no
// more behind than one input.
std::string write(const std::string& name, std::string_view bytes);
std::string folder();
void empty_folder();

// The parts of an input that stands for several files, cut at lines "----".
std::vector<std::string_view> parts_of(std::string_view input);

// Calls f; an Error is fine if it is a line for a terminal.
template <class F>
void may_fail(F f);

// What every command does with a model before its first pass: reads the tensors, binds them to an
// architecture, makes the tokenizer and lets it work.
void use(const ModelSource& source);
// Text of a user must not become a control token, and must be read again as it was unless the
// vocabulary lacks a byte.
void use_tokenizer(const Metadata& meta, std::string_view text);
// The tokenizer of a Hugging Face folder that has nothing but this file.
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
