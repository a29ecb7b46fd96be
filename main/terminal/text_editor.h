// Lets the user edit a text in the editor that $VISUAL or $EDITOR names.
#pragma once
#include <string>

namespace chaski {

bool has_text_editor();
// Returns the edited text without the line ends after it. Throws Error(usage) if no editor is set,
// Error(io) if the editor fails or the text cannot be written and read.
std::string edited_text(const std::string& text);

}  // namespace chaski
