// GBNF, the grammar format of llama.cpp: rules `name ::= ...`; `root` is the rule of the whole
// text. It has literals, classes, any character (.), tokens of the vocabulary, groups,
// alternatives,
// * + ? {m,n}, comments and recursion.
#pragma once
#include <memory>

#include "engine/grammar/rules.h"

namespace chaski {

// Throws an Error that names line and column. The rules are finished.
std::shared_ptr<const Rules> parse_gbnf(const GrammarSource& source);

}  // namespace chaski
