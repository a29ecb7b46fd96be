// Shows messages of a conversation as text.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "engine/conversation/chat_template.h"

namespace chaski {

// With spaces for tabs, which messages would show as \x09.
std::string without_tabs(std::string_view line);

enum class ShownAs { note, state };
// Prints each line of a message, at most `most_lines` lines of its text. An empty line follows an
// answer.
void put_transcript(const ChatMessage& message, size_t most_lines, ShownAs shown);

}  // namespace chaski
