// Regular expressions, as ECMA-262 writes them: characters, classes, groups, alternatives,
// repetitions (lazy ones too: the texts are the same), ^ and $ at the ends. What looks around or
// back is refused by name.
#pragma once
#include <functional>
#include <memory>

#include "engine/grammar/rules.h"

namespace chaski {

// The whole text fits the expression. Throws an Error that names line and column. The rules are
// finished.
std::shared_ptr<const Rules> parse_regex(const GrammarSource& source);

// A text somewhere in which the expression fits, as JSON Schema's `pattern` has it, as a part of
// other rules. `characters`: how one character of a set is written there.
Rules::Part search_part(Rules& rules, const GrammarSource& source,
                        const std::function<Rules::Part(const CodeSet&)>& characters);

}  // namespace chaski
