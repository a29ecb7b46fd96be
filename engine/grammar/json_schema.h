// JSON Schema (draft 2020-12, and what draft 7 writes otherwise) as rules: every text of the rules
// is JSON of which the schema holds. Not every such JSON is a text of them: members come in the
// order of the schema, white space is short, numbers have at most 15 digits. A keyword that cannot
// be honoured is an Error that names it.
#pragma once
#include <memory>

#include "engine/grammar/rules.h"

namespace chaski {

std::shared_ptr<const Rules> parse_json_schema(const GrammarSource& source);

}  // namespace chaski
