// The answers of --answer-cache for run and chat. Nothing in the folder costs an answer: what
// cannot be read or written is a notice on stderr.
#pragma once
#include <functional>

#include "engine/requests/answer_cache.h"

namespace chaski {

class StoredAnswers {
 public:
  // If the folder cannot be used, the first answer says why.
  explicit StoredAnswers(const std::string& folder);
  // The stored answer, whose text `sink` gets. If there is none, calls `generate` and stores its
  // result. Always of the same engine.
  GenerateResult answer(Engine& engine, std::span<const TokenId> prompt,
                        const GenerateOptions& options, const Sink& sink,
                        const std::function<GenerateResult()>& generate);

 private:
  std::optional<AnswerCache> answers_;
  std::optional<AnswerKeys> keys_;  // made for the first answer
  std::string fault_;               // why the folder cannot be used, until it is reported
};

}  // namespace chaski
