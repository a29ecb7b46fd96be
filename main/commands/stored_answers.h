// The answers of --answer-cache for run and chat. A file that cannot be read or written is reported
// on stderr, and the answer is generated.
#pragma once
#include <functional>

#include "engine/requests/answer_cache.h"

namespace chaski {

class StoredAnswers {
 public:
  // If the folder cannot be used, the first answer says why.
  explicit StoredAnswers(const std::string& folder);
  // Returns the stored answer and passes its text to `sink`. If there is none, calls `generate` and
  // stores its result. `engine` must be the same in every call.
  GenerateResult answer(Engine& engine, std::span<const TokenId> prompt,
                        const GenerateOptions& options, const Sink& sink,
                        const std::function<GenerateResult()>& generate);

 private:
  std::optional<AnswerCache> answers_;
  std::optional<AnswerKeys> keys_;  // made for the first answer
  std::string fault_;               // why the folder cannot be used, until it is reported
};

}  // namespace chaski
