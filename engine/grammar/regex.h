// Regular expressions in the syntax of ECMA-262: characters, classes, groups, alternatives,
// repetitions, ^ and $ at the ends. Lazy repetitions are the same as greedy ones, because the texts
// are the same. Lookarounds and backreferences are refused by name.
#pragma once
#include <functional>
#include <memory>

#include "engine/grammar/rules.h"

namespace chaski {

// The whole text fits the expression. Throws an Error that names line and column. The rules are
// finished.
std::shared_ptr<const Rules> parse_regex(const GrammarSource& source);

// A text that contains a match of the expression, as `pattern` of JSON Schema demands; a part of
// other rules. `characters` makes the part for one character of a set.
Rules::Part search_part(Rules& rules, const GrammarSource& source,
                        const std::function<Rules::Part(const CodeSet&)>& characters);

}  // namespace chaski
