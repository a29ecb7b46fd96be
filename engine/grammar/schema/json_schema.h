// JSON Schema (draft 2020-12, and the older spellings of draft 7) as rules. Every text of the rules
// is JSON that fits the schema. The reverse does not hold: members come in the order of the schema,
// white space is short, and numbers have at most 15 digits. A keyword that is not supported is an
// Error that names it.
#pragma once
#include <memory>

#include "engine/grammar/rules.h"

namespace chaski {

std::shared_ptr<const Rules> parse_json_schema(const GrammarSource& source);

}  // namespace chaski
