#include "engine/conversation/conversation_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/text/ordered_json.h"
#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/base/error.h"
#include "models/import/json_file.h"

namespace chaski {

namespace {

constexpr std::string_view kRoles[] = {"system", "user", "assistant", "tool"};

OrderedJson calls_of(const std::vector<ToolCall>& calls) {
  OrderedJson list = OrderedJson::array();
  for (const ToolCall& call : calls)
    list.push_back({{"id", call.id},
                    {"type", "function"},
                    {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  return list;
}

ToolCall call_of(const Json& json) {
  const Json function = json["function"], arguments = function["arguments"];
  const ToolCall call{json["id"].str(""), function["name"].str(), arguments.str()};
  if (!is_json_object(call.arguments)) arguments.wrong("a string that holds a JSON object");
  return call;
}

}  // namespace

SavedConversation read_conversation(const std::string& path) {
  const Json file = read_json(path);
  const Json messages = file.is_object() ? file["messages"] : file;
  if (!messages.is_array()) messages.wrong("a list of messages");
  SavedConversation out;
  if (file.is_object()) out.model = file["model"].str("");
  if (file.is_object() && file["set"].is_object())
    file["set"].each(
        [&](const std::string& name, const Json& value) { out.settings[name] = value.str(); });
  messages.each([&](const Json& message) {
    // A template writes roles unchanged, even control tokens, so only known roles are accepted.
    const Json role = message["role"];
    if (std::find(std::begin(kRoles), std::end(kRoles), role.str()) == std::end(kRoles))
      role.wrong(fmt::format("{}", fmt::join(kRoles, ", ")));
    ChatMessage read{role.str(), ""};
    message["tool_calls"].each([&](const Json& call) { read.calls.push_back(call_of(call)); });
    const Json content = message["content"];
    read.content = read.calls.empty() ? content.str() : content.str("");
    read.call_id = message["tool_call_id"].str(""), read.name = message["name"].str("");
    out.messages.push_back(std::move(read));
  });
  if (file.is_object() && file.has("dropped")) {
    const bool system = !out.messages.empty() && out.messages[0].role == "system";
    const auto most = int64_t(out.messages.size()) - system;
    const int64_t dropped = file["dropped"].integer();
    if (dropped < 0 || dropped > most)
      file["dropped"].wrong(fmt::format("0 to {}, the number of messages", most));
    out.dropped = size_t(dropped);
  }
  return out;
}

SavedConversation read_saved_conversation(const std::string& path) {
  try {
    return read_conversation(path);
  } catch (const Error& error) {
    const std::string line = error.what();
    if (error.code != Exit::bad_file) throw;
    fail(error.code, "{} is not a saved conversation{}", path,
         line.starts_with(path) ? line.substr(path.size()) : ": " + line);
  }
}

void write_conversation(const std::string& path, const SavedConversation& conversation) {
  OrderedJson list = OrderedJson::array();
  for (const ChatMessage& m : conversation.messages) {
    list.push_back({{"role", m.role}, {"content", m.content}});
    if (!m.calls.empty()) list.back()["tool_calls"] = calls_of(m.calls);
    if (!m.call_id.empty()) list.back()["tool_call_id"] = m.call_id;
    if (!m.name.empty()) list.back()["name"] = m.name;
  }
  OrderedJson file_text{{"messages", list}};
  if (!conversation.model.empty()) file_text["model"] = conversation.model;
  if (conversation.dropped > 0) file_text["dropped"] = conversation.dropped;
  if (!conversation.settings.empty()) file_text["set"] = conversation.settings;
  // Bytes that are not UTF-8 become U+FFFD.
  const std::string text = written(file_text) + "\n";
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace chaski
