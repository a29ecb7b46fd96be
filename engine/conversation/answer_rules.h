// Grammars of whole answers: what may come before, or instead of, the text that a grammar of the
// user constrains.
#pragma once
#include <memory>

#include "engine/conversation/tools.h"
#include "engine/grammar/rules.h"
#include "engine/text/tokenizer/tokenizer.h"

namespace chaski {

// The answer fits `rules`, or it is one call or several of the functions of `tools`, in the
// spelling `syntax`, which must be one that can be forced.
std::shared_ptr<const Rules> rules_or_calls(const Rules& rules, const ToolSyntax& syntax,
                                            const Tools& tools, const Tokenizer& tokenizer);

// A thought comes before the text that fits `rules`. `opened`: the prompt ends inside of it; else
// the answer may also have none.
std::shared_ptr<const Rules> rules_after_thought(const Rules& rules, bool opened,
                                                 const Tokenizer& tokenizer);

}  // namespace chaski
