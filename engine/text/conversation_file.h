// Conversations as files: JSON, a list of {"role": "user", "content": "..."}, alone or as
// "messages" of an object, which is what other programs keep too.
#pragma once
#include <string>
#include <vector>

#include "engine/text/chat_template.h"

namespace chaski {

// Throws Error(io), and Error(bad_file) that names the place in the file.
std::vector<ChatMessage> read_conversation(const std::string& path);

}  // namespace chaski
