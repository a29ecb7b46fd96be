// Flags that several subcommands share: each is declared here, once, with its default and its help.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/generate.h"
#include "main/flags.h"

namespace chaski {

// Which model, and on what it runs: run, chat, bench.
struct ModelFlags {
  EngineOptions engine;  // notices go to stderr
  std::vector<std::string> kv = {"f16"};
  std::string load = "mmap", verify = "once", gpu_layers = "auto";

  enum class Kv { one, list };  // whether --kv takes several
  void declare(Flags& flags, Kv kvs = Kv::one);
  EngineOptions options() const { return options(kv[0]); }
  EngineOptions options(const std::string& kv_type) const;
};

// Engine::open with what people want to see meanwhile: how far the weights are on their way to a
// device. Notices come once it is open, so that an error comes alone.
std::shared_ptr<Engine> open_engine(EngineOptions options);

// A model that only has to be read: tokenize, convert, quantize.
void declare_model(Flags& flags, std::string& model);
void declare_tokenizer(Flags& flags, std::string& tokenizer);
void declare_threads(Flags& flags, int& threads);
void declare_json(Flags& flags, bool& json);

// Text from -p, -f or standard input: run, tokenize.
struct PromptFlags {
  std::string text, file;
  Flag text_flag, file_flag;

  void declare(Flags& flags);
  // Without -p and -f: standard input. Nothing if that is a terminal or empty.
  std::optional<std::string> read() const;
  std::string required() const;  // Error(usage) instead of nothing
};

// How text is made: run, chat.
struct GenerationFlags {
  ModelFlags model;
  GenerateOptions generate;
  std::string draft = "auto", context_policy = "stop";
  int draft_length = Governor::kMost;
  bool random_seed = true;

  void declare(Flags& flags);
  bool verbose() const { return model.engine.verbose; }
  void check() const;  // Error(usage | io); before a model is opened
  void choose_seed();  // a random one unless --seed said which
};

}  // namespace chaski
