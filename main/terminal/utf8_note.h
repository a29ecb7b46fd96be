// A note about text that is not UTF-8.
#pragma once
#include <string_view>

#include "engine/text/tokenizer/tokenizer.h"

namespace chaski {

// Prints "chaski: note: the question is not UTF-8: the byte at offset 3 is \xe9, which ..." if the
// text has such a byte. `what`: the first words. The note also says what the tokenizer does with
// the byte.
void put_utf8_note(std::string_view what, std::string_view text, const Tokenizer& tokenizer);

}  // namespace chaski
