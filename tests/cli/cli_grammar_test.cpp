// run and chat with --grammar, --json-schema and --regex, with the real program.
#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/kit/program.h"
#include "tests/kit/regex.h"

using namespace chaski::test;

namespace {

Arguments grammar_run(const Arguments& more) {
  Arguments all = {"run", "-m", kStory, "-p", "Once upon a time", "--seed", "3"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

const std::string kPerson =
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
    "age": {"type": "integer", "minimum": 3, "maximum": 12}}, "required": ["name", "age"]})";

}  // namespace

TEST_CASE("cli/run with a grammar: a file, a text, a schema, an expression") {
  const TempFolder temp;
  const Outcome list = chaski_run(
      grammar_run({"--grammar", golden("grammars/list.gbnf"), "-n", "20", "--stop", "\n- "}));
  REQUIRE_MESSAGE(list.status == 9, list.err);  // -n ends it within an item
  CHECK_MESSAGE(list.out.starts_with("- "), list.out);
  CHECK(chaski_run(grammar_run({"--grammar", "root ::= \"one\" | \"two\""})).out.size() == 3);
  const Outcome chess =
      chaski_run(grammar_run({"--grammar", golden("grammars/chess.gbnf"), "-n", "12"}));
  CHECK_MESSAGE(chess.out.starts_with("1. "), chess.err);

  for (const std::string& given : {kPerson, write_file(temp / "person.json", kPerson)})
    for (const char* draft : {"none", "ngram"}) {
      const Outcome person = chaski_run(grammar_run({"--json-schema", given, "--draft", draft}));
      REQUIRE_MESSAGE(person.status == 0, person.err);
      const auto value = nlohmann::json::parse(person.out);
      CHECK(value["name"].is_string());
      CHECK(value["age"].get<double>() >= 3);
      CHECK(value["age"].get<double>() <= 12);
      static const std::string first = person.out;
      CHECK(person.out == first);
    }
  const Outcome any = chaski_run(grammar_run({"--json-schema", "{}", "-n", "30", "--temp", "0"}));
  CHECK_MESSAGE(any.status == 0, any.err);
  const Outcome date = chaski_run(grammar_run({"--regex", "\\d{4}-\\d\\d", "--json"}));
  REQUIRE_MESSAGE(date.status == 0, date.err);
  const auto told = nlohmann::json::parse(date.out);
  CHECK(StdRegex("\\d{4}-\\d\\d").matches(told["text"].get<std::string>()));
  CHECK(told["finish"] == "end");
}

TEST_CASE("cli/run with what schemas and grammars of llama.cpp demand") {
  const std::string schema = R"({"type": "object", "properties": {
      "mail": {"type": "string", "format": "email", "maxLength": 20},
      "price": {"type": "number", "multipleOf": 0.25, "minimum": 1.5, "maximum": 99},
      "id": {"type": "integer", "minimum": 9007199254740993, "maximum": 9007199254740999},
      "kind": {"enum": ["cat", "dog"]}, "lives": {"enum": [7, 9]}, "bark": {"type": "boolean"}},
      "required": ["mail", "price", "id", "kind"],
      "if": {"properties": {"kind": {"const": "cat"}}}, "then": {"required": ["lives"]},
      "else": {"required": ["bark"]}})";
  const Outcome pet = chaski_run(grammar_run({"--json-schema", schema, "--temp", "1"}));
  REQUIRE_MESSAGE(pet.status == 0, pet.err);
  const auto value = nlohmann::json::parse(pet.out);
  CHECK_MESSAGE(value["mail"].get<std::string>().find('@') != std::string::npos, pet.out);
  CHECK(value["mail"].get<std::string>().size() <= 20);
  CHECK(value["price"].get<double>() * 4 == std::floor(value["price"].get<double>() * 4));
  CHECK(value["id"].get<int64_t>() >= 9007199254740993);
  CHECK_MESSAGE(value.contains(value["kind"] == "cat" ? "lives" : "bark"), pet.out);
  const Outcome letters = chaski_run(grammar_run(
      {"--json-schema", R"x({"type": "string", "pattern": "^[^\\W_]{3,6}$"})x", "--temp", "2"}));
  CHECK_MESSAGE(StdRegex("\"[A-Za-z0-9]{3,6}\"").matches(letters.out), letters.out);
  const Outcome repeated = chaski_run(grammar_run({"--grammar", "root ::= \"ha\"{ 4}"}));
  CHECK(repeated.out == "hahahaha");
  // Any token but one, then a token by its id.
  const Outcome tokens =
      chaski_run(grammar_run({"--grammar", "root ::= !<[300]> <[300]>", "--json"}));
  REQUIRE_MESSAGE(tokens.status == 0, tokens.err);
  CHECK_MESSAGE(nlohmann::json::parse(tokens.out)["finish"] == "end", tokens.out);
  check_one_line(chaski_run(grammar_run({"--grammar", "root ::= \"a\" <none>"})), 2,
                 "--grammar: line 1, column 14: <none> is no token of the model");
}

TEST_CASE("cli/run --answers and chat with a grammar") {
  const Outcome answers =
      chaski_run(grammar_run({"--json-schema", kPerson, "--answers", "3", "--json"}));
  REQUIRE_MESSAGE(answers.status == 0, answers.err);
  for (const auto& one : nlohmann::json::parse(answers.out))
    CHECK_MESSAGE(nlohmann::json::accept(one["text"].get<std::string>()), answers.out);
  // The grammar starts again for each answer.
  const Outcome chat = chaski_run({"chat", "--lines", "-m", kStory, "--regex", "(yes|no), Tim"},
                                  "Is the ball red?\nIs it big?\n");
  REQUIRE_MESSAGE(chat.status == 0, chat.err);
  CHECK_MESSAGE(StdRegex("((yes|no), Tim\n){2}").matches(chat.out), chat.out);
}

TEST_CASE("cli/a grammar on a device keeps a text that fits, and constrains others") {
  const char* shim = std::getenv("CHASKI_SHIM_BIN");
  const std::string binary = shim ? shim : "build/tests/chaski-shim";
  if (!have(binary)) return;
  const auto on_device = [&](const Arguments& more) {
    setenv("CHASKI_SHIM_DEVICES", "1", 1), setenv("CHASKI_SHIM_MEMORY", "17179869184", 1);
    Arguments all = grammar_run({"--device", "cuda"});
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = Program(all, "", "", binary).wait();
    unsetenv("CHASKI_SHIM_DEVICES"), unsetenv("CHASKI_SHIM_MEMORY");
    return outcome;
  };
  const Outcome free = on_device({"-n", "6"}), any = on_device({"-n", "6", "--regex", "(.|\\n)*"});
  REQUIRE_MESSAGE(free.status == 0, free.err);
  CHECK(any.out == free.out);
  const Outcome yes = on_device({"--regex", " (yes|no)", "--draft", "none"}),
                guessed = on_device({"--regex", " (yes|no)"});
  CHECK_MESSAGE((yes.out == " yes" || yes.out == " no"), yes.err);
  CHECK(guessed.out == yes.out);
}

TEST_CASE("cli/a wrong grammar is one line of error, before a model is opened") {
  const TempFolder temp;
  const std::string bad = write_file(temp / "bad.gbnf", "root ::= item\nitem ::= (\"a\"\n");
  const Arguments no_model = {"run", "-m", temp / "none.gguf", "-p", "a"};
  const auto with = [&](const Arguments& more) {
    Arguments all = no_model;
    all.insert(all.end(), more.begin(), more.end());
    return chaski_run(all);
  };
  check_one_line(with({"--grammar", bad}), 2,
                 "bad.gbnf: line 3, column 1: found the end, expected ')'");
  check_one_line(with({"--grammar", temp / "none"}), 5, "cannot be opened");
  check_one_line(with({"--grammar", "root ::= [b-a]"}), 2, "--grammar: line 1, column 11");
  check_one_line(with({"--grammar", "root = \"a\""}), 2,
                 "--grammar: line 1, column 6: found '=', expected '::='");
  check_one_line(with({"--grammar", "list ::= \"a\""}), 2, "--grammar: line 1, column 13");
  // A file and a text have the same exit status.
  for (const auto& [text, line] :
       {std::pair("{\"items\": {\"contains\": {}}}", "/items/contains: keyword contains"),
        {"[1]", "expected a schema"},
        {"{\"a\": ", "line 1, column 7"}})
    for (const std::string& given : {std::string(text), write_file(temp / "s.json", text)})
      check_one_line(with({"--json-schema", given}), 2, line);
  check_one_line(with({"--regex", "a("}), 2, "--regex: line 1, column 3");
  check_one_line(with({"--regex", "a", "--json-schema", "{}"}), 2,
                 "--json-schema and --regex are both given, expected one of them");
  check_one_line(with({"--regex", ""}), 2, "--regex");
  check_one_line(with({"--regex", "a", "--ignore-end"}), 2, "--ignore-end");
}
