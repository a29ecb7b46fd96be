// Flags that several subcommands share: each is declared here, once, with its default and its help.
#pragma once
#include <CLI/App.hpp>
#include <CLI/Validators.hpp>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/drafter.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "engine/session.h"

namespace chaski {

// What a value may be: a decimal number without anything before or behind it, a text of some
// length.
constexpr int kMaxCount = std::numeric_limits<int>::max();
CLI::Validator within(int least, int most);
CLI::Validator seed_number();
CLI::Validator real_number();
CLI::Validator not_empty(const std::string& expected);

// Which model, and on what it runs: run, chat, bench.
struct ModelFlags {
  EngineOptions engine;  // notices go to stderr
  std::vector<std::string> kv = {"f16"};
  std::string load = "mmap", gpu_layers = "auto";

  enum class Kv { one, list };  // whether --kv takes several
  void declare(CLI::App& app, Kv kvs = Kv::one);
  EngineOptions options() const { return options(kv[0]); }
  EngineOptions options(const std::string& kv_type) const;
};

// Engine::open with what people want to see meanwhile: how far the weights are on their way to a
// device.
std::shared_ptr<Engine> open_engine(EngineOptions options);

// A model that only has to be read: tokenize, convert, quantize.
void declare_model(CLI::App& app, std::string& model);
void declare_tokenizer(CLI::App& app, std::string& tokenizer);
void declare_threads(CLI::App& app, int& threads);
void declare_json(CLI::App& app, bool& json);

// Text from -p, -f or standard input: run, tokenize.
struct PromptFlags {
  std::string text, file;
  CLI::Option *text_flag = nullptr, *file_flag = nullptr;

  void declare(CLI::App& app);
  // Without -p and -f: standard input. Nothing if that is a terminal or empty.
  std::optional<std::string> read() const;
  std::string required() const;  // Error(usage) instead of nothing
};

// How text is made: run, chat.
struct GenerationFlags {
  ModelFlags model;
  GenerateOptions generate;
  std::string draft;
  int draft_length = 4;
  bool verbose = false;
  CLI::Option *seed = nullptr, *draft_length_flag = nullptr;

  void declare(CLI::App& app);
  void check() const;  // Error(usage); before a model is opened
  void choose_seed();  // a random one unless --seed was given
};

// A model with everything --draft asked for.
struct Speaker {
  std::shared_ptr<Engine> engine;
  std::unique_ptr<Session> session;
  std::unique_ptr<Drafter> drafter;
  GenerateOptions options;

  explicit Speaker(const GenerationFlags& flags);
};

}  // namespace chaski
