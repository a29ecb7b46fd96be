// The model that run and chat speak with: opened as the flags say, with a session of its own, and
// whoever guesses ahead as --draft says. What is dropped of a full context is said on stderr.
#pragma once
#include <memory>

#include "engine/drafting/drafter.h"
#include "engine/requests/answer_cache.h"
#include "engine/session/session.h"
#include "main/flags/options.h"

namespace chaski {

struct Speaker {
  std::shared_ptr<Engine> engine, draft;  // draft: the smaller model, if there is one
  std::shared_ptr<DraftHeads> heads;      // that guess, if there are such
  std::shared_ptr<Engine> eagle;          // of an EAGLE head that guesses
  std::unique_ptr<Session> session;
  std::unique_ptr<Drafter> drafter;
  std::unique_ptr<Grammar> grammar;  // of all texts, if there is one
  Governor governor;
  GenerateOptions options;
  std::optional<AnswerCache> answers;  // given before
  std::optional<AnswerKeys> keys;      // of this model, when the first is asked for
  bool lost_drafter = false;           // was said
  bool shows_reading = true;           // a line on a terminal says how far a long prompt is read

  explicit Speaker(const GenerationFlags& flags);
  Speaker(const Speaker&) = delete;  // options point into it
  // From the next text on: how tokens are drawn, how many, and what ends it.
  void set(const GenerateOptions& settings);
  // Another, for texts with these settings; none if nobody guesses.
  std::unique_ptr<Drafter> new_drafter(const SamplerOptions& sampling) const;

  // generate() with these options, unless the answer was given before.
  GenerateResult answer(std::span<const TokenId> prompt, const GenerateOptions& options,
                        const Sink& sink);

  GenerateResult generate(std::span<const TokenId> prompt, GenerateOptions options,
                          const Sink& sink) const;
  // What is said when the context is full: of tokens that are dropped, and of a text that ends.
  std::string drop_line(int dropped, int before, int behind) const;
  std::string full_line() const;
};

// Before keys and values are written to a file: Error(usage) if it is there and holds something
// else.
void expect_saved_states(const std::string& path);

}  // namespace chaski
