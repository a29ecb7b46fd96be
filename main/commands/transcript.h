// Shows messages of a conversation as text.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "engine/conversation/chat_template.h"

namespace chaski {

// With spaces for tabs, which messages would show as \x09.
std::string without_tabs(std::string_view line);

// Calls `show` for each line of a message, at most `most_lines` lines of its text. An empty line
// follows an answer.
enum class ShownAs { note, state };
void put_transcript(const ChatMessage& message, size_t most_lines, ShownAs shown);

}  // namespace chaski
