// Flags that several subcommands share. Each is declared here once, with its default and its help.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/conversation/chat_template.h"
#include "engine/grammar/rules.h"
#include "engine/requests/generate.h"
#include "engine/session/engine.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "main/flags/flags.h"
#include "main/terminal/json_output.h"

namespace chaski {

// The model, and the hardware and memory it uses: run, chat, bench.
struct ModelFlags {
  EngineOptions engine;
  std::string hosts, rank_speeds;  // separated by commas
  std::vector<std::string> kv = {"f16"};
  std::string load = "mmap", verify = "once", gpu_layers = "auto", keep_converted = "auto",
              expert_memory = "auto", weight_memory = "auto";

  enum class Kv { one, list };  // how many formats --kv takes
  void declare(Flags& flags, Kv kvs = Kv::one);
  // Declares the same flags, but --model may be repeated: it adds to `models`.
  void declare(Flags& flags, std::vector<std::string>& models);
  void declare_running(Flags& flags, Kv kvs = Kv::one);  // all flags but --model and --tokenizer
  void declare_hosts(Flags& flags);
  void check_rank_speeds() const;  // against --hosts
  EngineOptions options() const { return options(kv[0]); }
  EngineOptions options(const std::string& kv_type) const;
};

std::vector<std::string> kv_names();  // the values of --kv
// "auto", "no" or a number of bytes: --keep-converted.
KeepConverted keep_converted_of(const std::string& text);
void declare_keep_converted(Flags& flags, std::string& text);

// Calls Engine::open and shows a progress bar while weights are uploaded to a device. Notices are
// printed after it succeeded, so that an error is printed alone.
std::shared_ptr<Engine> open_engine(EngineOptions options);

// Prints a note, once, if keys or values were larger than their format can store.
void put_saturation();

// For commands that only read a model: tokenize, convert, quantize.
void declare_model(Flags& flags, std::string& model);
// -m and --model that may be repeated: MODEL or NAME=MODEL.
void declare_models(Flags& flags, std::vector<std::string>& models);
void declare_tokenizer(Flags& flags, std::string& tokenizer);
void declare_threads(Flags& flags, int& threads);
void declare_json(Flags& flags, bool& json);
void declare_json(Flags& flags, JsonForm& json);  // with --jsonl

// Random weights instead of a model: bench, plan. Call it after ModelFlags::declare().
void declare_shape(Flags& flags, std::string& shape);
ShapeOptions shape_of(const std::string& text);  // "llama-3.2-1b:q8"; Error(usage)

// --chat-template: chat, template.
void declare_chat_template(Flags& flags, std::string& given);
// Reads the value of --chat-template. Throws Error(usage | io).
TemplateChoice template_of(const std::string& given);

// Text from -p, -f or standard input: run, chat, tokenize, eval, compare.
struct PromptFlags {
  std::string text;
  std::vector<std::string> files;
  std::optional<std::string> pipe;  // "last", "first" or "no"; nothing: the command has no --pipe
  bool keeps_line_end = false;  // whether the last line end of a pipe or file is part of the text
  bool escape = false;          // whether \n in the text is a line end
  bool parse_special = false;   // whether a control token spelled in the text is that token
  Flag text_flag, file_flag;

  void declare(Flags& flags);
  // Declares --pipe. Standard input is then joined with -p and -f, and without keeps_line_end the
  // last line end of a pipe or file is not part of the text.
  void declare_pipe(Flags& flags);
  // Declares --parse-special.
  void declare_special(Flags& flags);
  // What such a token is read as. Prints a note if that is text.
  Spelled spelled(const Tokenizer& tokenizer, const std::string& text) const;
  // The texts of -p, each -f and standard input that there are, with an empty line between two.
  // Without --pipe, standard input is read only if there is neither -p nor -f. Returns nothing if
  // no text is given, and standard input is a terminal or empty.
  std::optional<std::string> read() const;
  std::string required() const;  // like read(); throws Error(usage) instead of returning nothing
  bool given() const { return text_flag.given() || file_flag.given(); }

 private:
  bool names_standard_input() const;  // -f -
  bool reads_standard_input() const;
  std::string without_line_end(std::string text) const;
};

// A text that is read in windows (engine/measure/perplexity.h): eval, compare.
struct WindowFlags {
  ModelFlags model;
  PromptFlags text;
  int windows = 0;  // 0: all

  void declare(Flags& flags);  // all flags but --model and --tokenizer
  std::string read() const;    // the text; Error(usage | io)
  // Number of windows to read from a text of `tokens` tokens. Throws Error(usage) if the text is
  // too short for one window.
  int windows_of(size_t tokens, int window) const;
};
// If the whole text is read: a note about the tokens after its last whole window.
void put_rest_note(size_t tokens, int window, int windows);

// Prints "--top-k, --min-p have no effect with --mirostat 2", or nothing if `names` is empty.
void put_no_effect(const std::vector<std::string>& names, const std::string& why);

// How text is generated: run, chat, serve.
struct GenerationFlags {
  ModelFlags model;
  GenerateOptions generate;
  std::string draft = "auto", context_policy = "stop";
  std::string samplers;
  std::vector<std::string> bias;
  std::string grammar, json_schema, regex;  // at most one is set
  std::string answer_cache;                 // a folder
  int draft_length = Governor::kMost;
  bool random_seed = true;
  Flag temperature, temperature_range;

  void declare(Flags& flags);                                    // all flags but the next one
  void declare(Flags& flags, std::vector<std::string>& models);  // as ModelFlags has it
  void declare_answer_cache(Flags& flags);                       // run, chat
  bool verbose() const { return model.engine.verbose; }
  // Drops settings of the config file that contradict the command line, with a notice.
  void resolve_config_conflicts();
  // Turns a setting off that is a text or a list. Throws Error(usage) if `name` is another setting.
  void clear_setting(const std::string& name);
  // Parses the remaining flags. Throws Error(usage | io). Call it before a model is opened.
  void check();
  // The source of the grammar that constrains the text, or nothing. `may_be_file`: a value that
  // looks like a path is read as a file. Throws Error(io).
  std::optional<GrammarSource> grammar_source(bool may_be_file = true) const;
  // Parses it; null without one. Throws Error(usage).
  std::shared_ptr<const Rules> rules(const std::optional<GrammarSource>& source) const;
  std::shared_ptr<const Rules> rules() const { return rules(grammar_source()); }
  // The flag that constrains the text, such as "--regex"; "" if there is none.
  const char* grammar_flag() const;
  void choose_seed();  // draws a random seed unless --seed gave one
  // Whether a second run gives the same answer, so that a cached one may be used.
  bool repeats_answers() const { return !random_seed || generate.sampling.temperature == 0; }

  void declare_settings(Flags& flags);  // only the flags that may change between two texts

 private:
  void declare_rest(Flags& flags);
};

}  // namespace chaski
