#include "engine/loadtest/answer.h"

#include "engine/text/ordered_json.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

int count_in(const OrderedJson& usage, const char* name) {
  const auto at = usage.find(name);
  return at != usage.end() && at->is_number_integer() ? at->get<int>() : -1;
}

std::string text_in(const OrderedJson& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

// The words of {"error": {"message": ...}} or {"error": "..."}.
std::string words_of(const OrderedJson& error) {
  const std::string message = error.is_object() ? text_in(error, "message") : "";
  return !message.empty() ? message : error.is_string() ? error.get<std::string>() : written(error);
}

}  // namespace

void LoadAnswer::refuse(const std::string& kind, const std::string& words) {
  if (problem.empty()) problem = kind, detail = words;
}

void AnswerReader::add(std::string_view bytes, double now) {
  try {
    stream_.add(bytes, [&](const std::string& data) { take(data, now); });
  } catch (const Error& error) {
    answer_.refuse("malformed", error.what());
  }
}

void AnswerReader::end(double now) {
  stream_.end([&](const std::string& data) { take(data, now); });
  if (!answer_.done && answer_.finish.empty())
    answer_.refuse("cut", "the stream ended without a finish_reason and without [DONE]");
  if (answer_.times.empty()) answer_.refuse("empty", "the answer has no text");
}

void AnswerReader::take(const std::string& data, double now) {
  if (data == "[DONE]") return void(answer_.done = true);
  const OrderedJson event = maybe_json(data);
  if (!event.is_object()) return answer_.refuse("malformed", "not a JSON object: " + data);
  if (const auto error = event.find("error"); error != event.end() && !error->is_null())
    return answer_.refuse("error in the stream", words_of(*error));
  if (const auto usage = event.find("usage"); usage != event.end() && usage->is_object()) {
    answer_.prompt_tokens = count_in(*usage, "prompt_tokens");
    answer_.answer_tokens = count_in(*usage, "completion_tokens");
    const auto details = usage->find("prompt_tokens_details");
    if (details != usage->end() && details->is_object())
      answer_.cached_tokens = count_in(*details, "cached_tokens");
  }
  const auto choices = event.find("choices");
  if (choices == event.end() || !choices->is_array() || choices->empty() ||
      !(*choices)[0].is_object())
    return;
  const OrderedJson& choice = (*choices)[0];
  const auto delta = choice.find("delta");  // of a chat; a completion has the text in the choice
  const OrderedJson& parts = delta != choice.end() && delta->is_object() ? *delta : choice;
  std::string text = text_in(parts, "content") + text_in(parts, "text");
  const bool thinks =
      !text_in(parts, "reasoning_content").empty() || !text_in(parts, "reasoning").empty();
  const auto calls = parts.find("tool_calls");
  if (!text.empty() || thinks || (calls != parts.end() && calls->is_array() && !calls->empty()))
    answer_.times.push_back(now);
  answer_.text += text;
  if (std::string finish = text_in(choice, "finish_reason"); !finish.empty())
    answer_.finish = std::move(finish);
}

}  // namespace chaski
