// Compares the template language with Python's Jinja in transformers
// (scripts/golden/golden_templates.py): every template with every conversation, byte for byte, and
// an error where Python has one. Other tests cover what Python does not have: budgets and the line
// numbers of errors.
#include <ctime>
#include <nlohmann/json.hpp>

#include "engine/text/jinja/jinja.h"
#include "ggml-like-tensor/base/error.h"
#include "tests/kit/support.h"

using namespace chaski;
using namespace chaski::test;
using nlohmann::ordered_json;

namespace {

constexpr std::time_t kNow = 1772719629;  // 2026-03-05 14:07:09

jinja::Budget unlimited = jinja::Budget::unlimited();

// Text of a conversation is marked as not from the template.
jinja::Value value_of(const ordered_json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string())
    return jinja::Value::text(unlimited, json.get<std::string>(), jinja::kFromOutside);
  if (json.is_array()) {
    jinja::Values items;
    for (const auto& item : json) items.push_back(value_of(item));
    return jinja::Value::list(unlimited, std::move(items));
  }
  if (!json.is_object()) return {};
  std::vector<std::pair<jinja::Value, jinja::Value>> items;
  for (const auto& [key, value] : json.items())
    items.emplace_back(jinja::Value::text(unlimited, key), value_of(value));
  return jinja::Value::dict(unlimited, std::move(items));
}

jinja::Names names_of(const ordered_json& conversation) {
  jinja::Names out = {{"tools", {}}, {"documents", {}}};
  for (const auto& [key, value] : conversation.items()) {
    if (key == "what") continue;
    std::erase_if(out, [&](const auto& name) { return name.first == key; });
    out.emplace_back(key, value_of(value));
  }
  out.emplace_back("bos_token", jinja::Value::text(unlimited, "<s>"));
  out.emplace_back("eos_token", jinja::Value::text(unlimited, "</s>"));
  return out;
}

// The text, or nothing if there is an error.
std::optional<std::string> rendered(const std::string& source, const jinja::Names& names = {}) {
  try {
    return jinja::utf8(jinja::Template(source, "test").render(names, kNow));
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string error(const std::string& source, const jinja::Names& names = {}) {
  return error_of([&] { jinja::Template(source, "test").render(names, kNow); }).what();
}

void compare(const std::string& source, const ordered_json& conversation,
             const ordered_json& theirs) {
  const auto ours = rendered(source, names_of(conversation));
  if (theirs.is_null())
    CHECK_MESSAGE(!ours, ours.value_or(""));
  else
    CHECK_EQ(ours ? *ours : error(source, names_of(conversation)), theirs.get<std::string>());
}

std::vector<std::pair<std::string, std::string>> templates_in(const std::string& text) {
  const std::string mark = "===== ";
  std::vector<std::pair<std::string, std::string>> out;
  for (size_t at = text.find(mark); at < text.size();) {
    const size_t line = text.find('\n', at), next = std::min(text.find(mark, line), text.size());
    out.emplace_back(text.substr(at + mark.size(), line - at - mark.size()),
                     text.substr(line + 1, next - line - 1));
    at = next;
  }
  return out;
}

}  // namespace

TEST_CASE("template: the same text as transformers") {
  setenv("TZ", "UTC", 1);
  const auto templates = templates_in(read_file(golden("templates/templates.txt")));
  const auto conversations = ordered_json::parse(read_file(golden("templates/conversations.json")));
  const auto expected = ordered_json::parse(read_file(golden("templates/rendered.json")));
  CHECK_GE(templates.size(), 60);
  CHECK_EQ(conversations.size(), 12);
  for (const auto& [name, source] : templates) {
    CAPTURE(name);
    for (size_t i = 0; i < conversations.size(); ++i) {
      CAPTURE(i);
      compare(source, conversations[i], expected.at(name).at(i));
    }
  }
}

// The file is made by `scripts/golden/golden_templates.py tests/golden/templates --models ../real`.
// It has templates of models whose licence does not allow a copy in the project.
TEST_CASE("template: the same text as transformers for templates of real models") {
  const char* folder = std::getenv("CHASKI_REAL_MODELS");
  const std::string path = std::string(folder ? folder : "../real") + "/rendered_templates.json";
  if (!have(path)) return;
  const auto conversations = ordered_json::parse(read_file(golden("templates/conversations.json")));
  const auto models = ordered_json::parse(read_file(path));
  for (const auto& [name, model] : models.items()) {
    CAPTURE(name);
    for (size_t i = 0; i < conversations.size(); ++i) {
      CAPTURE(i);
      compare(model.at("template"), conversations[i], model.at("rendered").at(i));
    }
  }
}

TEST_CASE("template: an error names the line and the reason") {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"a\n{% if x %}", "test: line 2: found the end of the template, expected {% endif %}"},
      {"{{ 1 +\n }}", "line 2: found \"}}\", expected an expression"},
      {"{{ a ? b }}", "unexpected \"?\" in an expression"},
      {"{{ (1] }}", "\"]\" closes nothing"},
      {"{{ 'x }}", "a text has no end"},
      {"{# x", "comment {# has no end #}"},
      {"{% raw %}x", "{% raw %} has no {% endraw %}"},
      {"{{ 1 | nonsense }}", "the filter \"nonsense\" is unknown"},
      {"{{ 1 is nonsense }}", "the test \"nonsense\" is unknown"},
      {"{% include 'x' %}", "found \"include\", expected a tag (for, if, set"},
      {"{% break %}", "{% break %} is outside of a loop"},
      {"\n\n{{ a.b }}", "test: line 3: 'a' is undefined"},
      {"{{ 'a'.join(1) }}", "int cannot be iterated, expected a list"},
      {"{{ 'a'.split(1, 2, 3) }}", "split() has 3 arguments, expected at most 2"},
      {"{{ 9223372036854775807 + 1 }}", "a whole number is larger than 63 bits"},
      {"{{ 99999999999999999999 }}", "the number 99999999999999999999 is too large"},
      {"{{ raise_exception('no') }}", "test: line 1: the template refuses the conversation: no"},
      {"{% set x.y = 1 %}", "x is not a namespace"},
      {std::string(300'000, 'x'), "template has 300000 bytes, expected at most 262144"}};
  for (const auto& [source, says] : wrong) {
    const std::string line = error(source);
    CHECK_MESSAGE(line.find(says) != std::string::npos, line, " instead of ", says);
  }
}

// Files are not trusted: every template ends soon, with little memory and a short error.
TEST_CASE("template: hostile templates end with an error") {
  const auto repeated = [](const std::string& text, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += text;
    return out;
  };
  const std::vector<std::string> hostile = {
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% set ns = namespace(x='xxxxxxxx') %}{% for i in range(99) %}"
      "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
      "{% set ns = namespace(x=[1, 2]) %}{% for i in range(99) %}"
      "{% set ns.x = ns.x + ns.x %}{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}"
      "{{ ns.x }}",
      "{% set ns = namespace(x={}) %}{% for i in range(9999) %}"
      "{% set ns.x = {'a': ns.x, 'b': ns.x} %}{% endfor %}{{ ns.x | tojson }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}{{ ns.x | tojson }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}{{ ns.x == ns.x }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(f) %}{{ f(f) }}{{ f(f) }}{% endmacro %}{{ m(m) }}",
      "{% for x in [[]] recursive %}{{ loop([x]) }}{% endfor %}",
      "{{ 'x' * 9999999999 }}",
      "{{ [1] * 9999999999 }}",
      "{{ 'x' | center(9999999999) }}",
      "{{ 'x'.ljust(9999999999) }}",
      "{% for i in range(9999) %}{{ '%9999999999d' % 1 }}{% endfor %}",
      "{{ 'x' | indent(9999999999) }}",
      "{{ range(999999999) | length }}",
      "{{ (range(99999) | list | string * 40) | replace('', 'xxxxxxxxxxxx') }}",
      "{% set a = 'a' * 999999 %}{% for i in range(9999) %}{{ a.find('a' * 99999 ~ 'b') }}"
      "{% endfor %}",
      "{% set a = 'a' * 999999 %}{% for i in range(9999) %}{{ a == a ~ '' }}{% endfor %}",
      "{% set a = 'a' * 999999 %}{% for i in range(9999) %}{{ a.strip(a) }}{% endfor %}",
      "{% set a = 'a ' * 99999 %}{% for i in range(9999) %}{{ a.split() | length }}{% endfor %}",
      "{% set a = range(99999) | list %}{% for i in range(9999) %}{{ a | sort | length }}"
      "{% endfor %}",
      "{{ range(99999) | unique | list | length }}",
      "{% set a = range(99999) | list %}{{ dict(a | batch(2)) | length }}",
      "{{ 2 ** 99999999999 }}",
      "{{ " + repeated("(", 100'000) + "1" + repeated(")", 100'000) + " }}",
      "{{ " + repeated("-", 100'000) + "1 }}",
      "{{ " + repeated("not ", 60'000) + "1 }}",
      "{{ 1" + repeated(" + 1", 60'000) + " }}",
      "{{ a" + repeated(".a", 100'000) + " }}",
      "{{ 1" + repeated(" | abs", 40'000) + " }}",
      "{{ 1" + repeated(" if 1", 40'000) + " }}",
      "{{ " + repeated("[", 100'000),
      repeated("{% if 1 %}", 25'000),
      repeated("{% for i in range(9) %}", 50) + repeated("{% endfor %}", 50),
      repeated("{{", 100'000),
      repeated("{%raw%}", 30'000),
      repeated("{#", 100'000),
      "{{ '%x' % 1.5 }}",
      "{{ '%d' % ('nan' | float) }}",
      "{{ [1] | batch(2305843009213693952, 0) | list }}",
      "{{ 9223372036854775807 | round(-1) }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(200) %}{% set ns.x = [ns.x].index %}{% "
      "endfor %}",
      "{% set b = 'b' * 99999 %}{{ range(60000) | map('attr', b) | list | length }}",
      "{{ 'a' | map(*(['map'] * 12000 + ['upper'])) | list }}",
      "{% set b = 'b' * 512000 %}{% for i in range(99999) %}{{ b.isalpha() }}{% endfor %}",
      "{% set loop = 1 %}{% set ns = namespace() %}{% set ns.me = ns %}{{ ns.me.me.me.x.y }}",
      "{% for i in [1] %}{{ loop.changed(loop) }}{% set ns = namespace(l=loop) %}{{ x.y }}"
      "{% endfor %}",
      "{% set m = namespace() %}{% macro f() %}{{ m.f() }}{% endmacro %}{% set m.f = f %}{{ f() }}",
  };
  for (const std::string& source : hostile) {
    CAPTURE(source.substr(0, 100));
    const std::string line = error(source);
    CHECK_NE(line, "no error");
    CHECK_LT(line.size(), 300);
  }
}
