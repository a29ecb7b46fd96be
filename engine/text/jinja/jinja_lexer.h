// The text of a template, cut into data and the words of its tags. White space around tags goes as
// transformers has it: trim_blocks and lstrip_blocks are on.
#pragma once
#include <string>
#include <vector>

#include "engine/text/jinja/jinja_value.h"

namespace chaski::jinja {

struct Token {
  enum class Kind {
    data,  // text between tags
    print_begin,
    print_end,
    block_begin,
    block_end,
    name,
    text,
    integer,
    real,
    sign,
    end
  };
  Kind kind;
  int line;
  std::string word;  // of a name or sign
  Text text;         // of data or a text
  int64_t integer = 0;
  double real = 0;
};

// Throws Fault that names the line. The last token is `end`.
std::vector<Token> tokens_of(std::string_view source);

// For a line of an error: a token as it stands in the template.
std::string described(const Token& token);

}  // namespace chaski::jinja
