// Splits the source of a template into text and the tokens of its tags. White space around tags is
// treated as in transformers: trim_blocks and lstrip_blocks are on.
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
  Text text;         // of data or a text literal
  int64_t integer = 0;
  double real = 0;
};

// Throws Fault that names the line. The last token is `end`.
std::vector<Token> tokens_of(std::string_view source);

// For messages: the token as it is written in the template.
std::string described(const Token& token);

}  // namespace chaski::jinja
