#include "engine/text/conversation_file.h"

#include "models/import/json_file.h"

namespace chaski {

std::vector<ChatMessage> read_conversation(const std::string& path) {
  const Json file = read_json(path);
  const Json messages = file.is_object() ? file["messages"] : file;
  if (!messages.is_array()) messages.wrong("a list of messages");
  std::vector<ChatMessage> out;
  messages.each([&](const Json& message) {
    out.push_back({message["role"].str(), message["content"].str()});
  });
  return out;
}

}  // namespace chaski
