// The model of run and chat with its session, drafter of --draft, grammar and answer cache, opened
// according to the flags. Notices go to stderr.
#pragma once
#include <memory>

#include "engine/requests/loaded_model.h"
#include "engine/session/session.h"
#include "main/commands/stored_answers.h"
#include "main/flags/options.h"

namespace chaski {

// Opens the model of the flags, and that of --draft. Throws what open_engine() throws, and
// Error(bad_file) if the model has no tokenizer.
std::shared_ptr<LoadedModel> open_loaded_model(const GenerationFlags& flags);

// What the model of --draft takes: memory_when_open(). 0: the drafter is no model, or only a layer
// of one, or open_loaded_model() will refuse it.
uint64_t draft_memory(const GenerationFlags& flags);

// For commands that answer requests, each with its own settings: serve, batch.
// Throws Error(usage) if a flag constrains all texts.
void expect_no_grammar(const GenerationFlags& flags);
// Leaves those flags out of the help.
void hide_grammar_flags(Flags& flags);
// The name by which requests ask for a model: of its file without the ending, or of its folder.
std::string served_name(const std::string& path);

struct Speaker {
  std::shared_ptr<LoadedModel> model;
  std::unique_ptr<Session> session;
  std::unique_ptr<Drafter> drafter;    // null with --draft none
  std::shared_ptr<const Rules> rules;  // of all texts; null: none
  std::shared_ptr<Grammar> grammar;    // made of `rules`
  Governor governor;
  GenerateOptions options;
  std::optional<StoredAnswers> answers;  // of --answer-cache
  std::string grammar_flag;              // the flag of `grammar`
  bool drafter_loss_reported = false;
  bool shows_reading = true;         // show the progress of reading a long prompt on a terminal
  std::function<void()> on_portion;  // called after each portion of a prompt; may be empty

  explicit Speaker(const GenerationFlags& flags) { open(flags, flags.rules()); }
  Speaker(const Speaker&) = delete;  // options point into it
  // Closes the model and opens that of the flags. If it throws, no model is open.
  void open(const GenerationFlags& flags, std::shared_ptr<const Rules> new_rules);
  // Applies settings to the next texts: all of GenerationFlags::declare_settings() but the grammar.
  void set(const GenerationFlags& settings);
  // The grammar of the next texts, null for none, and the flag that gave it. If it throws, nothing
  // has changed.
  void constrain(const std::shared_ptr<const Rules>& new_rules, const char* flag);
  Engine& engine() const { return *model->engine(); }
  const Tokenizer& tokenizer() const { return engine().tokenizer(); }

  // A stored answer, or that of generate(). `options.rules` are compiled.
  GenerateResult answer(std::span<const TokenId> prompt, GenerateOptions options, const Sink& sink);

  GenerateResult generate(std::span<const TokenId> prompt, GenerateOptions options,
                          const Sink& sink) const;
  // The message for a full context that drops tokens.
  std::string drop_line(int dropped, int before, int after) const;
  // Whether a --stop text ended it.
  bool is_stopped(const GenerateResult& result) const;
  // Whether the text ended, but not by Ctrl-C, before it satisfied its grammar or its tool call was
  // complete. The exit status is then Exit::incomplete.
  bool is_incomplete(const GenerateResult& result) const;
  // Prints a note if some of these answers, which were printed, were cut off.
  void put_cuts(std::span<const GenerateResult> results) const;

 private:
  std::string cut_line(const GenerateResult& result) const;
};

// Throws Error(usage) if the file exists and does not hold a KV cache, so that it is not
// overwritten.
void expect_kv_file(const std::string& path);

}  // namespace chaski
