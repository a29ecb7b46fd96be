// Flags that several subcommands share: each is declared here, once, with its default and its help.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/grammar/rules.h"
#include "engine/requests/generate.h"
#include "engine/session/engine.h"
#include "main/flags/flags.h"
#include "main/terminal/json_output.h"

namespace chaski {

// Which model, and on what it runs: run, chat, bench.
struct ModelFlags {
  EngineOptions engine;  // notices go to stderr
  std::vector<std::string> kv = {"f16"};
  std::string load = "mmap", verify = "once", gpu_layers = "auto";

  enum class Kv { one, list };  // whether --kv takes several
  void declare(Flags& flags, Kv kvs = Kv::one);
  void declare_running(Flags& flags, Kv kvs = Kv::one);  // all but which model
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
void declare_json(Flags& flags, JsonForm& json);  // --jsonl too

// Random weights in place of a model: bench, plan. After ModelFlags::declare().
void declare_shape(Flags& flags, std::string& shape);
ShapeOptions shape_of(const std::string& text);  // "llama-3.2-1b:q8"; Error(usage)

// Text from -p, -f or standard input: run, tokenize.
struct PromptFlags {
  std::string text, file;
  bool escape = false;  // of the text: \n is a line end
  Flag text_flag, file_flag;

  void declare(Flags& flags);
  // Without -p and -f: standard input. Nothing if that is a terminal or empty.
  std::optional<std::string> read() const;
  std::string required() const;  // Error(usage) instead of nothing
  bool given() const { return text_flag.given() || file_flag.given(); }
  std::optional<std::string> typed() const;  // what -p or -f says
};

// A text in windows, as engine/measure/perplexity.h reads it: eval, compare.
struct WindowFlags {
  ModelFlags model;
  PromptFlags text;
  int windows = 0;  // 0: all

  void declare(Flags& flags);  // all but which model
  std::string read() const;    // the text; Error(usage | io)
  // How many windows of a text of so many tokens are read: Error(usage) if it has none.
  int windows_of(size_t tokens, int window) const;
};

// "--top-k, --min-p have no effect with --mirostat 2", where there are names.
void put_no_effect(const std::vector<std::string>& names, const std::string& why);

// How text is made: run, chat.
struct GenerationFlags {
  ModelFlags model;
  GenerateOptions generate;
  std::string draft = "auto", context_policy = "stop";
  std::string samplers;
  std::vector<std::string> bias;
  std::string grammar, json_schema, regex;  // one of them at most
  std::string answer_cache;                 // a folder
  int draft_length = Governor::kMost;
  bool random_seed = true;
  Flag temperature, temperature_range;

  void declare(Flags& flags);
  bool verbose() const { return model.engine.verbose; }
  void give_way();  // what comes from the file of defaults and is against what is typed
  void check();     // reads the rest of the flags: Error(usage | io), before a model is opened
  // What the text has to be; null: any text. Error(usage | io | bad_file).
  std::shared_ptr<const Rules> rules() const;
  bool has_grammar() const { return !grammar.empty() || !json_schema.empty() || !regex.empty(); }
  void choose_seed();  // a random one unless --seed said which
  // With a random seed an answer is always a new one.
  bool repeats_answers() const { return !random_seed || generate.sampling.temperature == 0; }

  void declare_settings(Flags& flags);  // of them, what may change between two texts
};

}  // namespace chaski
