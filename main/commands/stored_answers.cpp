#include "main/commands/stored_answers.h"

#include <utility>

#include "main/terminal/output.h"

namespace chaski {

namespace {

// Printed before the answer costs time, also with --quiet.
void put_not_stored(const std::string& why) { put_loud_notice(why + ": the answer is not stored"); }

}  // namespace

StoredAnswers::StoredAnswers(const std::string& folder) {
  try {
    answers_.emplace(folder);
  } catch (const Error& error) {
    fault_ = error.what();
  }
}

GenerateResult StoredAnswers::answer(Engine& engine, std::span<const TokenId> prompt,
                                     const GenerateOptions& options, const Sink& sink,
                                     const std::function<GenerateResult()>& generate) {
  if (!answers_) {
    if (!fault_.empty()) put_not_stored(std::exchange(fault_, ""));
    return generate();
  }
  std::string key;
  std::optional<GenerateResult> known;
  try {
    if (!keys_) keys_.emplace(engine);
    key = keys_->key(prompt, options);
    known = answers_->find(key);
  } catch (const Error& error) {
    put_notice(std::string(error.what()) + ": the answer is generated and stored again");
  }
  if (known) {
    if (!known->text.empty()) sink(known->text);
    return *std::move(known);
  }
  if (!key.empty()) try {
      answers_->expect_can_keep(key);
    } catch (const Error& error) {
      put_not_stored(error.what());
      key.clear();
    }
  GenerateResult result = generate();
  if (key.empty()) return result;
  try {
    answers_->keep(key, result);
  } catch (const Error& error) {
    put_not_stored(error.what());
  }
  return result;
}

}  // namespace chaski
