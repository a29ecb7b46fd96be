// GBNF, the grammars of llama.cpp's users: rules `name ::= ...`, of which `root` is the whole.
// Literals, classes, any character (.), groups, alternatives, * + ? {m,n}, comments, recursion.
#pragma once
#include <memory>

#include "engine/grammar/rules.h"

namespace chaski {

// Throws an Error that names line and column. The rules are finished.
std::shared_ptr<const Rules> parse_gbnf(const GrammarSource& source);

}  // namespace chaski
