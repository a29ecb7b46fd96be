// A chat template and a user's message, which the input contains in this order. Rendered text that
// comes from the message must be marked so, whatever the template does with it.
#include <algorithm>

#include "engine/text/jinja/jinja.h"
#include "tests/fuzz/target.h"

namespace chaski::fuzz {
namespace {

using jinja::Value;

// Characters that occur in no seed's template.
constexpr std::string_view kOnlyUsers = "\xe2\x99\x9a\xe2\x99\x9b";  // U+265A, U+265B

const Declared template_target("template", [](std::string_view input) {
  const auto parts = parts_of(input);
  const std::string said =
      (parts.size() > 1 ? std::string(parts[1]) : "") + std::string(kOnlyUsers);
  jinja::Budget budget = jinja::Budget::unlimited();
  const auto text = [&](std::string_view s, char32_t mark = 0) {
    return Value::text(budget, s, mark);
  };
  const Value message = Value::dict(
      budget, {{text("role"), text("user")}, {text("content"), text(said, jinja::kFromOutside)}});
  const Value tool = Value::dict(budget, {{text("name"), text("count")}, {text("n"), Value(1.5)}});
  const jinja::Names names = {{"messages", Value::list(budget, {message, message})},
                              {"tools", Value::list(budget, {tool})},
                              {"add_generation_prompt", Value(true)},
                              {"bos_token", text("<s>")}};
  const bool forged = parts[0].find("\xe2\x99") != std::string_view::npos ||
                      parts[0].find('\\') != std::string_view::npos;
  may_fail([&] {
    const jinja::Text out = jinja::Template(parts[0], "fuzz").render(names, 0);
    for (const char32_t c : out)
      expect(forged || jinja::plain(c) < 0x265A || jinja::plain(c) > 0x265B ||
                 (c & jinja::kFromOutside),
             "text of the message is marked as such");
  });
});

}  // namespace
}  // namespace chaski::fuzz
