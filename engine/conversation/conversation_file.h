// Conversations as JSON files, in a form that other programs use too: a list of
// {"role": "user", "content": "..."}, alone or as "messages" of an object. Tool calls have OpenAI's
// form: "tool_calls" of an answer, with their arguments as a string of JSON, and "tool_call_id" of
// a result. An object may also have "set": the settings of the chat by name, "model": the model
// that it was saved with, and "dropped": how many of the oldest messages a full context left out.
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
  std::string model;   // its name in `chaski list`, its path or "(bundled)"; empty: not known
  size_t dropped = 0;  // the first messages after the system message, which a full context left out
};

// Throws Error(io), and Error(bad_file) that names the place in the file.
SavedConversation read_conversation(const std::string& path);
// The same; Error(bad_file) also says that the file is not a saved conversation.
SavedConversation read_saved_conversation(const std::string& path);

// Writes one line. The old file stays intact until the new one is complete. Throws Error(io).
void write_conversation(const std::string& path, const SavedConversation& conversation);

}  // namespace chaski
