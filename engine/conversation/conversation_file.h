// Conversations as files: JSON, a list of {"role": "user", "content": "..."}, alone or as
// "messages" of an object, which is what other programs keep too. Calls of tools are spelled as
// OpenAI's interface spells them: "tool_calls" of an answer, with arguments that are a text of
// JSON, and "tool_call_id" of what a tool gave. Beside "messages" of an object may stand "set", by
// name what was set while they were written.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "engine/conversation/chat_template.h"

namespace chaski {

using Settings = std::map<std::string, std::string>;

struct SavedConversation {
  std::vector<ChatMessage> messages;
  Settings settings;
};

// Throws Error(io), and Error(bad_file) that names the place in the file.
SavedConversation read_conversation(const std::string& path);

// As one line; the old file is whole until the new one is. Throws Error(io).
void write_conversation(const std::string& path, const SavedConversation& conversation);

}  // namespace chaski
