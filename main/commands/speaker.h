// The model of run and chat: engine, session, drafter of --draft, grammar and answer cache, opened
// according to the flags. Notices go to stderr.
#pragma once
#include <memory>

#include "engine/drafting/drafters.h"
#include "engine/requests/answer_cache.h"
#include "engine/session/session.h"
#include "main/flags/options.h"

namespace chaski {

struct Speaker {
  std::shared_ptr<Engine> engine;
  NewDrafter drafters;  // what --draft names; empty: none
  std::unique_ptr<Session> session;
  std::unique_ptr<Drafter> drafter;
  std::unique_ptr<Grammar> grammar;  // of all texts; null: none
  Governor governor;
  GenerateOptions options;
  std::optional<AnswerCache> answers;  // of --answer-cache
  std::optional<AnswerKeys> keys;      // made for the first answer
  bool drafter_loss_reported = false;
  bool shows_reading = true;  // show the progress of reading a long prompt on a terminal

  explicit Speaker(const GenerationFlags& flags);
  Speaker(const Speaker&) = delete;  // options point into it
  // Changes the sampling settings and the most tokens of the next texts.
  void set(const GenerateOptions& settings);
  // A drafter for another text with these settings; null with --draft none.
  std::unique_ptr<Drafter> new_drafter(const SamplerOptions& sampling) const;

  // Returns the cached answer if there is one, else calls generate().
  GenerateResult answer(std::span<const TokenId> prompt, const GenerateOptions& options,
                        const Sink& sink);

  GenerateResult generate(std::span<const TokenId> prompt, GenerateOptions options,
                          const Sink& sink) const;
  // Messages for a full context: tokens are dropped, or the text ends.
  std::string drop_line(int dropped, int before, int after) const;
  std::string full_line() const;
};

// Throws Error(usage) if the file exists and does not hold a KV cache, so that it is not
// overwritten.
void expect_kv_file(const std::string& path);

}  // namespace chaski
