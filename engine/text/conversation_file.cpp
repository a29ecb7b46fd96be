#include "engine/text/conversation_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/import/json_file.h"

namespace chaski {

namespace {

constexpr std::string_view kRoles[] = {"system", "user", "assistant", "tool"};

}  // namespace

std::vector<ChatMessage> read_conversation(const std::string& path) {
  const Json file = read_json(path);
  const Json messages = file.is_object() ? file["messages"] : file;
  if (!messages.is_array()) messages.wrong("a list of messages");
  std::vector<ChatMessage> out;
  messages.each([&](const Json& message) {
    // A template writes roles as they are, control tokens and all.
    const Json role = message["role"];
    if (std::find(std::begin(kRoles), std::end(kRoles), role.str()) == std::end(kRoles))
      role.wrong(fmt::format("{}", fmt::join(kRoles, ", ")));
    out.push_back({role.str(), message["content"].str()});
  });
  return out;
}

}  // namespace chaski
