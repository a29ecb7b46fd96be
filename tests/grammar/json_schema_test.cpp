// JSON Schema: which texts a schema allows, and which schemas are refused.
#include <random>

#include "tests/kit/grammar_support.h"

namespace chaski::test {
namespace {

struct SchemaCase {
  const char* schema;
  std::vector<const char*> fit, others;
};

void check_schemas(const std::vector<SchemaCase>& cases) {
  for (const SchemaCase& c : cases) {
    CAPTURE(c.schema);
    TextReader reader(schema(c.schema));
    for (const char* text : c.fit) CHECK_MESSAGE(reader.fits(text), text);
    for (const char* text : c.others) CHECK_MESSAGE(!reader.fits(text), text);
  }
}

TEST_CASE("grammar: a schema allows fitting JSON and no other") {
  check_schemas(
      {{R"({})",
        {R"({"a": [1, 2.5, true, null, "x"], "b": {}})", "[]", "\"\\u00e9\\n\"", "-0.5", "-1.5e-3",
         "null"},
        {"{\"a\" 1}", "[1,]", "01", "nul", "\"\n\"", "\"\\ud800\"", "{,}", " 1"}},
       {R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
         "required": ["name"]})",
        {R"({"name": "x"})", R"({"name":"x","age":3})", "{\n  \"name\": \"x\",\n  \"age\": -1\n}"},
        {"{}", R"({"age":3})", R"({"age":3,"name":"x"})", R"({"name":"x","more":1})",
         R"({"name":"x",})", R"({"name":"x","age":1.5})"}},
       {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}},
         "additionalProperties": {"type": "boolean"}})",
        {"{}", R"({"a":null})", R"({"b":null})", R"({"a":null,"b":null,"c":true,"ab":false})",
         R"({"x":true})", R"({"":true})"},
        {R"({"a":true})", R"({"c":1})", R"({"c":true,"a":null})", R"({"x":true,"b":false})",
         R"({"\u0061":true})"}},
       {R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
        {"[1,2]", "[1, 2, 3]", "[\n 1,\n 2\n]"},
        {"[]", "[1]", "[1,2,3,4]", "[1,\"a\"]"}},
       {R"({"prefixItems": [{"const": 1}, {"type": "string"}], "items": false})",
        {"[]", "[1]", "[1,\"a\"]"},
        {"[2]", "[1,\"a\",1]"}},
       {R"({"type": "array", "items": [{"const": 1}], "additionalItems": {"type": "null"}})",
        {"[]", "[1]", "[1,null,null]"},
        {"[null]", "[1,1]"}},
       {R"({"enum": ["a\"b", 1, 2.5, null, {"x": [1]}]})",
        {"\"a\\\"b\"", "1", "2.5", "null", "{\"x\":[1]}"},
        {"\"a\"", "3", "{\"x\":[2]}"}},
       {R"({"type": "string", "enum": ["a", 1]})", {"\"a\""}, {"1"}},
       {R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}]})",
        {"12", "\"ab\"", "\"é\\n\""},
        {"\"abc\"", "null", "1.5"}},
       {R"({"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "null"}},
                      "required": ["kind", "x"]},
                     {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]}]})",
        {R"({"kind":"a","x":null})", R"({"kind":"b"})"},
        {R"({"kind":"a"})", R"({"kind":"c"})"}},
       {R"({"type": "object", "required": ["a", "b"], "anyOf": [
            {"properties": {"a": {"const": 1}, "b": {"const": 1}}},
            {"properties": {"a": {"const": 2}, "b": {"const": 2}}}]})",
        {R"({"a":1,"b":1})", R"({"a":2,"b":2})"},
        {R"({"a":1,"b":2})", R"({"a":1})"}},
       {R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                     {"type": "object", "properties": {"b": {"type": "null"}, "a": {"minimum": 5}}}]})",
        {R"({"a":5})", R"({"a":12,"b":null})"},
        {R"({"a":4})", R"({"b":null})"}},
       {R"({"allOf": [{"properties": {"a": {}}, "additionalProperties": false},
                     {"properties": {"b": {}}}], "type": "object"})",
        {"{}", R"({"a":1})"},
        {R"({"b":1})"}},
       {R"({"$defs": {"node": {"type": "object", "properties": {"next": {"anyOf": [
            {"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["next"]}}, "$ref": "#/$defs/node"})",
        {R"({"next":{"next":{"next":null}}})"},
        {R"({"next":{}})", R"({"next":1})"}},
       {R"({"type": "string", "pattern": "^[a-c\"]+\\d$"})",
        {"\"ab1\"", "\"a\\\"2\""},
        {"\"d1\"", "\"a\"", "\"a1x\""}},
       {R"({"type": "string", "pattern": "b"})", {"\"abc\"", "\"b\"", "\"\\nb\""}, {"\"ac\""}},
       {R"({"type": "string", "minLength": 2, "maxLength": 3})",
        {"\"ab\"", "\"a\\u0041c\""},
        {"\"a\"", "\"abcd\""}},
       {R"({"type": "string", "format": "date"})",
        {"\"2024-02-28\"", "\"1999-12-31\""},
        {"\"2024-02-30\"", "\"2024-04-31\"", "\"2024-13-01\"", "\"24-01-01\""}},
       {R"({"type": "string", "format": "date-time"})",
        {"\"2024-02-28T23:59:59.5Z\"", "\"2024-02-28T00:00:00+01:30\""},
        {"\"2024-02-28\"", "\"2024-02-28T24:00:00Z\""}},
       {R"({"type": "string", "format": "uuid"})",
        {"\"123e4567-e89b-12d3-a456-426614174000\""},
        {"\"123e4567\""}},
       {R"({"allOf": [{"type": "string", "nullable": true}, {"type": "string"}]})",
        {"\"a\""},
        {"null"}},
       {R"({"$ref": "#/$defs/a", "nullable": true, "$defs": {"a": {"type": "string"}}})",
        {"\"a\""},
        {"null"}},
       {R"({"type": "string", "nullable": true, "anyOf": [{"type": "string"}]})",
        {"\"a\""},
        {"null"}},
       {R"({"type": ["string", "null"]})", {"\"\"", "null"}, {"1"}},
       {R"({"type": "integer", "nullable": true, "minimum": -3, "maximum": 12})",
        {"-3", "0", "9", "12", "null"},
        {"-4", "13", "-0", "00"}},
       {R"({"type": "number", "exclusiveMinimum": 0, "maximum": 2})",
        {"0.1", "1", "1.25", "2"},
        {"0", "-1", "2.5", "3", "0.0"}},
       {R"({"type": "object", "properties": {"a": false, "b": {"type": "null"}}})",
        {"{}", R"({"b":null})"},
        {R"({"a":1})"}},
       {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"},
         "c": {"type": "null"}}, "minProperties": 1, "maxProperties": 2})",
        {R"({"a":null})", R"({"b": null, "c": null})", R"({"a":null,"b":null})"},
        {"{}", R"({"a":null,"b":null,"c":null})", R"({"d":null})", R"({"b":null,"a":null})"}},
       {R"({"type": "object", "properties": {"a": {"type": "null"}}, "minProperties": 2})",
        {R"({"a":null,"x":1})", R"({"a":null,"x":1,"y":2})"},
        {"{}", R"({"a":null})", R"({"x":1})", R"({"x":1,"y":2})", R"({"x":1,"x":2})"}},
       {R"({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1,
         "maxProperties": 2})",
        {R"({"x":1})", R"({"x":1, "y":2})"},
        {"{}", R"({"x":1,"y":2,"z":3})", R"({"x":null})"}},
       {R"({"type": "object", "maxProperties": 0})", {"{}"}, {R"({"x":1})"}},
       {R"({"allOf": [{"type": "object", "maxProperties": 3}, {"maxProperties": 1}]})",
        {"{}", R"({"x":1})"},
        {R"({"x":1,"y":1})"}},
       {R"({"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"],
         "patternProperties": {"^x_[a-z]+$": {"type": "null"}}, "additionalProperties": false})",
        {R"({"id":1})", R"({"id":1,"x_a":null})", R"({"id": 1, "x_a": null, "x_bc": null})"},
        {"{}", R"({"id":1,"x_":null})", R"({"id":1,"x_a":1})", R"({"id":1,"y":null})",
         R"({"x_a":null})"}},
       {R"({"type": "object", "patternProperties": {"^\"": {"const": 1}, "a$": {"const": 1}},
         "minProperties": 1, "maxProperties": 2})",
        {R"({"\"":1})", R"({"ba":1})", R"({"a":1,"\"b":1})"},
        {"{}", R"({"b":1})", R"({"a":2})", R"({"a":1,"a":1,"a":1})"}},
       {R"({"type": "array", "items": {"enum": ["a", "b", 1, "c"], "type": "string"},
         "uniqueItems": true, "minItems": 1})",
        {R"(["a"])", R"(["a", "c"])", R"(["a","b","c"])", R"(["c","a"])"},
        {"[]", R"(["a","a"])", R"([1])", R"(["c","b","c"])"}},
       {R"({"items": {"enum": [1, 2, 3, 4, 5, 6, 7, 8, 9]}, "uniqueItems": true})",
        {"[1,9]", "[9, 1]", "[1,2,3,4,5,6,7,8,9]"},
        {"[1,1]", "[1,9,1]"}},
       {R"({"uniqueItems": true, "type": "array"})",
        {R"([1,"1",12,[1],{"a":1,"b":2},{},null])"},
        {"[null, null]", "[1,1]", R"([{"a":1,"b":2},{"b":2,"a":1}])", "[[[1]],[[1]]]",
         "[[1.0],[1]]", R"([[{"a":[],"b":{}}],[{"b":{},"a":[]}]])"}},
       {R"({"items": {"type": "integer"}, "uniqueItems": true})",
        {"[1,12,2]", "[]"},
        {"[1,1]", "[1, 12, 1]"}},
       {R"({"prefixItems": [{"enum": [1, 2]}, {"type": "integer"}], "items": {"type": "string"},
         "uniqueItems": true})",
        {R"([1,2,"a","b"])"},
        {"[1,1]", R"([1,2,"a","a"])"}},
       {R"({"items": {"enum": [1, 2, 1.0]}, "uniqueItems": true, "minItems": 2})",
        {"[1,2]", "[2,1]"},
        {"[1]", "[1,2,1]"}},
       {R"({"type": "array", "items": {"enum": [1, 2, 3, 1.0]}, "uniqueItems": true, "maxItems": 2})",
        {"[]", "[1,3]", "[3]"},
        {"[1,2,3]", "[1,1]", "[1,1.0]"}},
       {R"({"type": "array", "items": {"type": "boolean"}, "uniqueItems": true})",
        {"[true, false]", "[false]"},
        {"[true,true]"}},
       {R"({"items": {"type": "integer"}, "uniqueItems": true, "maxItems": 1})",
        {"[]", "[7]"},
        {"[7,8]"}},
       {R"({"items": {"type": "integer"}, "uniqueItems": false})", {"[7,7]"}, {"[null]"}},
       {R"({"type": "number", "multipleOf": 5, "minimum": 4.5})",
        {"5", "1000005"},
        {"0", "7", "-5", "5.0"}},
       {R"({"allOf": [{"type": "integer", "multipleOf": 4}, {"multipleOf": 6}]})",
        {"0", "12", "-24", "999999999996"},
        {"4", "6", "-0", "012"}},
       {R"({"type": "integer", "multipleOf": 1000, "minimum": -2000, "exclusiveMaximum": 90000})",
        {"-2000", "0", "89000"},
        {"90000", "-3000", "500"}},
       {R"({"type": "object", "properties": {"ключ": {"const": "да"}}, "required": ["ключ"]})",
        {R"({"ключ":"да"})"},
        {R"({"ключ":"нет"})"}}});
}

// These schemas, texts and verdicts were checked with jsonschema and its format checkers, except
// that its divisions are those of doubles.
TEST_CASE("grammar: conditions, names and decimals of a schema") {
  check_schemas({
      {R"({"type": "number", "multipleOf": 0.01})",
       {R"(1.5)", R"(0.07)", R"(12)", R"(-3.25)", R"(1.50)", R"(0)"},
       {R"(0.001)", R"(1.)"}},
      {R"({"type": "number", "multipleOf": 0.25, "minimum": 0.3, "maximum": 2})",
       {R"(0.5)", R"(0.75)", R"(2)", R"(2.0)", R"(1.25)"},
       {R"(0.25)", R"(0.3)", R"(2.25)", R"(0)"}},
      {R"({"type": "number", "multipleOf": 2.5})",
       {R"(5)", R"(2.5)", R"(-7.5)", R"(0)"},
       {R"(1)", R"(2)"}},
      {R"({"type": "integer", "multipleOf": 2.5})", {R"(5)", R"(-10)", R"(0)"}, {R"(2.5)", R"(1)"}},
      {R"({"type": "number", "minimum": 0.5, "maximum": 0.7})",
       {R"(0.5)", R"(0.6)", R"(0.70)", R"(0.65)"},
       {R"(0.49)", R"(0.71)", R"(1)", R"(0)"}},
      {R"({"type": "number", "exclusiveMinimum": 0.5, "exclusiveMaximum": 2})",
       {R"(0.500001)", R"(1.999999)", R"(1)"},
       {R"(0.5)", R"(2)", R"(0.50)", R"(2.0)"}},
      {R"({"type": "integer", "minimum": 9007199254740993, "maximum": 9007199254740995})",
       {R"(9007199254740993)", R"(9007199254740995)"},
       {R"(9007199254740992)", R"(9007199254740996)"}},
      {R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807})",
       {R"(9223372036854775807)", R"(-9223372036854775808)"},
       {R"(9223372036854775808)", R"(-9223372036854775809)"}},
      {R"({"type": "integer", "maximum": 18446744073709551615, "minimum": 0})",
       {R"(18446744073709551615)"},
       {R"(18446744073709551616)"}},
      {R"({"const": 9007199254740993})", {R"(9007199254740993)"}, {R"(9007199254740992)"}},
      {R"({"type": "string", "format": "email", "maxLength": 12, "minLength": 8})",
       {R"("ab@cde.fg")"},
       {R"("a@b.c")", R"("abcdefgh@abc.de")"}},
      {R"({"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 3})",
       {R"("ab")", R"("abc")"},
       {R"("a")", R"("abcd")", R"("AB")"}},
      {R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}], "type": "string"})",
       {R"("ab")", R"("xbya")"},
       {R"("a")", R"("b")"}},
      {R"({"type": "string", "not": {"enum": ["a", "b"]}})",
       {R"("c")", R"("ab")", R"("")"},
       {R"("a")", R"("b")"}},
      {R"({"type": "string", "not": {"pattern": "^x"}})",
       {R"("ax")", R"("")"},
       {R"("x")", R"("xa")"}},
      {R"({"not": {"type": "string"}})", {R"(1)", R"(null)", R"([])", R"({})"}, {R"("a")"}},
      {R"({"type": "integer", "not": {"const": 3}})", {R"(2)", R"(4)", R"(33)"}, {R"(3)"}},
      {R"({"type": "integer", "minimum": 0, "maximum": 9, "not": {"enum": [0, 5, 9]}})",
       {R"(1)", R"(4)", R"(6)", R"(8)"},
       {R"(0)", R"(5)", R"(9)"}},
      {R"({"enum": ["a", "bb", "ccc", 4], "minLength": 2})",
       {R"("bb")", R"("ccc")", R"(4)"},
       {R"("a")"}},
      {R"({"enum": [1, 2, 3, 4, 5], "multipleOf": 2})", {R"(2)", R"(4)"}, {R"(1)", R"(3)"}},
      {R"({"type": "object", "properties": {"k": {"enum": ["a", "b"]}, "x": {"type": "integer"}, "y": {"type": "integer"}}, "required": ["k"], "if": {"properties": {"k": {"const": "a"}}}, "then": {"required": ["x"]}, "else": {"required": ["y"]}})",
       {R"({"k":"a","x":1})", R"({"k":"b","y":1})", R"({"k":"a","x":1,"y":2})"},
       {R"({"k":"a"})", R"({"k":"b","x":1})", R"({})"}},
      {R"({"type": "object", "properties": {"k": {"type": "string"}, "x": {"type": "integer"}}, "if": {"properties": {"k": {"const": "a"}}, "required": ["k"]}, "then": {"required": ["x"]}})",
       {R"({})", R"({"k":"b"})", R"({"k":"a","x":1})", R"({"x":1})"},
       {R"({"k":"a"})"}},
      {R"({"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 20}, "x": {"type": "null"}}, "required": ["n"], "if": {"properties": {"n": {"minimum": 10}}}, "then": {"required": ["x"]}})",
       {R"({"n":9})", R"({"n":10,"x":null})"},
       {R"({"n":10})"}},
      {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}, "c": {"type": "null"}}, "dependentRequired": {"a": ["b"], "b": ["c"]}})",
       {R"({})", R"({"c":null})", R"({"b":null,"c":null})", R"({"a":null,"b":null,"c":null})"},
       {R"({"a":null})", R"({"a":null,"b":null})", R"({"b":null})"}},
      {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "integer"}}, "dependentSchemas": {"a": {"required": ["b"], "properties": {"b": {"minimum": 5}}}}})",
       {R"({})", R"({"b":1})", R"({"a":null,"b":5})"},
       {R"({"a":null})", R"({"a":null,"b":4})"}},
      {R"({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "integer"}}, "dependencies": {"a": ["b"]}})",
       {R"({})", R"({"a":null,"b":5})"},
       {R"({"a":null})"}},
      {R"({"type": "object", "propertyNames": {"pattern": "^[a-z]{2,4}$"}, "additionalProperties": {"type": "integer"}})",
       {R"({})", R"({"ab":1})", R"({"ab":1,"abcd":2})"},
       {R"({"a":1})", R"({"AB":1})"}},
      {R"({"type": "object", "propertyNames": {"enum": ["x", "y"]}, "additionalProperties": {"type": "integer"}})",
       {R"({})", R"({"x":1})", R"({"x":1,"y":2})"},
       {R"({"z":1})"}},
      {R"({"type": "object", "properties": {"ab": {"type": "null"}}, "propertyNames": {"maxLength": 3}, "additionalProperties": {"type": "integer"}})",
       {R"({})", R"({"ab":null,"abc":1})"},
       {R"({"ab":1})", R"({"abcd":1})"}},
      {R"({"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": true})",
       {R"(["c","a"])", R"(["a","b","c"])", R"([])"},
       {R"(["a","a"])"}},
      {R"({"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 5}, "uniqueItems": true, "minItems": 2})",
       {R"([5,1])", R"([3,2,1,5,4])"},
       {R"([1])", R"([1,1])", R"([6,1])"}},
      {R"({"type": "array", "items": {"type": ["boolean", "null"]}, "uniqueItems": true})",
       {R"([null,true])", R"([false])"},
       {R"([true,true])"}},
      {R"({"type": "object", "properties": {"country": {"enum": ["US", "CA", "NL"]}, "zip": {"type": "string"}}, "required": ["country", "zip"], "allOf": [{"if": {"properties": {"country": {"const": "US"}}}, "then": {"properties": {"zip": {"pattern": "^[0-9]{5}$"}}}}, {"if": {"properties": {"country": {"const": "NL"}}}, "then": {"properties": {"zip": {"pattern": "^[0-9]{4} [A-Z]{2}$"}}}}]})",
       {R"({"country":"US","zip":"12345"})", R"({"country":"NL","zip":"1234 AB"})",
        R"({"country":"CA","zip":"K1M"})"},
       {R"({"country":"US","zip":"1234 AB"})", R"({"country":"NL","zip":"12345"})"}},
      {R"({"type": "string", "format": "ipv4", "not": {"const": "127.0.0.1"}})",
       {R"("127.0.0.2")"},
       {R"("127.0.0.1")"}},
      {R"({"type": "integer", "format": "int32"})",
       {R"(2147483647)", R"(-2147483648)"},
       {R"(2147483648)"}},
      {R"({"not": {"anyOf": [{"type": "object"}, {"type": "array"}, {"type": "string"}]}})",
       {R"(1)", R"(null)", R"(true)"},
       {R"("a")", R"([])"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}], "allOf": [{"anyOf": [{"properties": {"a": {"minimum": 5}}}, {"properties": {"b": {"maximum": 3}}}]}]})",
       {R"({"a":5})", R"({"b":3})", R"({"a":6,"b":100})"},
       {R"({})", R"({"a":1,"b":9})"}},
  });
}

TEST_CASE("grammar: formats of a schema") {
  check_schemas(
      {{R"({"oneOf": [{"type": "integer", "minimum": 5}, {"type": "string", "format": "uuid"}]})",
        {R"(5)"},
        {R"(4)"}},
       {R"({"type": "string", "format": "email"})",
        {R"("john.doe+tag@mail.example.com")", R"("a@b.co")", R"("o'neil@x.org")",
         R"("user%x@example-site.com")"},
        {R"("@a.b")", R"("a@")", R"("a@b")", R"("a..b@c.de")", R"(".a@b.cd")", R"("a@-b.cd")",
         R"("a b@c.de")"}},
       {R"({"type": "string", "format": "hostname"})",
        {R"("localhost")", R"("www.example.com")", R"("a-b.c")",
         R"("ec2-203-0-113-25.compute-1.amazonaws.com")",
         R"("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.com")", R"("1.2.3")"},
        {R"("-a.b")", R"("a-.b")", R"("a..b")", R"(".a")", R"("a.")",
         R"("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx")", R"("ab--c")",
         R"("a_b")"}},
       {R"({"type": "string", "format": "ipv4"})",
        {R"("0.0.0.0")", R"("255.255.255.255")", R"("192.168.1.1")"},
        {R"("256.1.1.1")", R"("1.2.3")", R"("01.2.3.4")", R"("1.2.3.4.5")"}},
       {R"({"type": "string", "format": "ipv6"})",
        {R"("::")", R"("::1")", R"("2001:db8::8a2e:370:7334")", R"("fe80::1")",
         R"("1:2:3:4:5:6:7:8")", R"("::ffff:1.2.3.4")", R"("1::2:1.2.3.4")", R"("1:2:3:4:5:6:7::")",
         R"("::2:3:4:5:6:7:8")", R"("1:2:3:4:5:6:1.2.3.4")"},
        {R"("1:2:3")", R"("1::2::3")", R"("1:2:3:4:5:6:7:8:9")", R"("12345::")", R"(":1")",
         R"("1:2:3:4:5:6:7:8::")", R"("1:2:3:4:5:6:7:1.2.3.4")"}},
       {R"({"type": "string", "format": "uri"})",
        {R"("https://example.com")", R"("http://user:pw@example.com:8080/a/b?x=1&y=2#top")",
         R"("mailto:a@b.co")", R"("urn:isbn:0451450523")",
         R"("ftp://ftp.is.co.za/rfc/rfc1808.txt")", R"("http://[2001:db8::7]/c?d")",
         R"("file:///etc/hosts")", R"("tel:+1-816-555-1212")", R"("https://example.com/%7Efoo")"},
        {R"("//a.b")", R"("a/b")", R"("http://a b")", R"("http://")", R"("https://exa mple")",
         R"("http://a/%zz")", R"("1a:b")"}},
       {R"({"type": "string", "format": "uuid"})",
        {R"("123e4567-e89b-12d3-a456-426614174000")", R"("123E4567-E89B-12D3-A456-426614174000")"},
        {R"("123e4567e89b12d3a456426614174000")"}},
       {R"({"type": "string", "format": "date"})",
        {R"("2024-02-29")", R"("2023-02-28")", R"("2000-02-29")", R"("0001-01-01")",
         R"("1999-12-31")"},
        {R"("2023-02-29")", R"("1900-02-29")", R"("2024-13-01")", R"("2024-04-31")",
         R"("0000-01-01")"}},
       {R"({"type": "string", "format": "time"})",
        {R"("12:00:00Z")", R"("23:59:59.123456+05:30")"},
        {R"("24:00:00Z")", R"("12:00:00")", R"("12:60:00Z")"}},
       {R"({"type": "string", "format": "date-time"})",
        {R"("2024-02-29T12:00:00Z")", R"("1985-04-12T23:20:50.52Z")"},
        {R"("2024-02-29 12:00:00Z")", R"("2024-02-30T12:00:00Z")"}},
       {R"({"type": "string", "format": "duration"})",
        {R"("P1D")", R"("PT1H30M")", R"("P3Y6M4DT12H30M5S")", R"("P2W")", R"("PT0S")"},
        {R"("P")", R"("PT")", R"("P1S")", R"("1D")", R"("P1Y1D")", R"("P1DT")"}}});
}

TEST_CASE("grammar: a bounded integer allows exactly the numbers between its bounds") {
  std::mt19937 random(5);
  for (int i = 0; i < 60; ++i) {
    const int scale = i % 3 == 0 ? 30 : i % 3 == 1 ? 400 : 3000;
    int low = int(random() % unsigned(2 * scale)) - scale,
        high = int(random() % unsigned(2 * scale)) - scale;
    if (low > high) std::swap(low, high);
    CAPTURE(low);
    CAPTURE(high);
    TextReader reader(
        schema(fmt::format(R"({{"type": "integer", "minimum": {}, "maximum": {}}})", low, high)));
    for (int n = -3100; n <= 3100; ++n)
      if (reader.fits(std::to_string(n)) != (low <= n && n <= high)) FAIL_CHECK(n);
  }
  for (int of = 1; of <= 100; of += 1 + of / 3) {
    // a few, which are listed; many on both sides of 0; and without an upper bound
    const int near = int(random() % 6000) - 3000, low = of % 3 == 1 ? near - 250000 : near,
              high = of % 3 == 0 ? near + 400 : near;
    const bool open = of % 3 == 2;
    CAPTURE(of);
    CAPTURE(low);
    CAPTURE(high);
    TextReader reader(schema(
        open ? fmt::format(R"({{"type": "integer", "multipleOf": {}, "minimum": {}}})", of, low)
             : fmt::format(
                   R"({{"type": "integer", "multipleOf": {}, "minimum": {}, "maximum": {}}})", of,
                   low, high)));
    for (int n = -3100; n <= 3100; ++n)
      if (reader.fits(std::to_string(n)) != (low <= n && n % of == 0 && (open || n <= high)))
        FAIL_CHECK(n);
  }
  TextReader above(schema(R"({"type": "integer", "exclusiveMinimum": 9.5, "maximum": 100})"));
  CHECK(!above.fits("9"));
  CHECK(above.fits("10"));
  CHECK(above.fits("100"));
}

TEST_CASE("grammar: a schema that is not supported is refused by name") {
  const std::pair<const char*, const char*> cases[] = {
      {"{\"type\": \"object\",}", "test.json: line 1, column 19: found '}', expected JSON"},
      {"{\"a\": 1, \"a\": 2}", "key a appears twice"},
      {R"({"type": "text"})", "the schema: type is \"text\", expected object"},
      {R"({"properties": {"a": {"contains": {}}}})",
       "/properties/a/contains: keyword contains is not supported"},
      {R"({"not": {"items": {}}})", "/not/items: is not supported inside not and if"},
      {R"({"if": {"uniqueItems": true}, "then": false})",
       "/if/uniqueItems: is not supported inside not and if"},
      {R"({"dependentRequired": {"a": 5}})",
       "/dependentRequired/a: is 5, expected a list of names"},
      {R"({"propertyNames": {"anyOf": [{"pattern": "a"}]}, "type": "object"})",
       "/propertyNames: anyOf is not supported here"},
      {R"({"maximum": 18446744073709551616})",
       "line 1, column 13: found 18446744073709551616, expected an integer of 64 bits"},
      {R"({"items": {"items": {}, "uniqueItems": true}, "uniqueItems": true})",
       "/items/uniqueItems: is not supported inside items of another such list"},
      {R"({"items": {"enum": [1, 1.0]}, "uniqueItems": true, "minItems": 2})", "no text fits"},
      {R"({"uniqueItems": 1})", "uniqueItems is 1, expected true or false"},
      {R"({"multipleOf": 0})", "/multipleOf: is 0, expected a number above 0"},
      {R"({"type": "integer", "multipleOf": 1001})", "/multipleOf: is 1001, which is not"},
      {R"({"type": "object", "minProperties": 2})",
       "minProperties is 2, which is not supported with 0 named members, expected at most 1"},
      {R"({"maxProperties": -1})", "maxProperties is -1, expected a whole number"},
      {R"({"properties": {"a": {}}, "minProperties": 2, "additionalProperties": false})",
       "no text fits"},
      {R"({"required": ["a", "b"], "maxProperties": 1})",
       "no text fits the schema: maxProperties is 1, with 2 named members, 2 of them required"},
      {R"({"minimum": 3, "maximum": 2})",
       "no text fits the schema: minimum is 3, maximum is 2: no number is between them"},
      {R"({"properties": {"a": {"minimum": 3, "maximum": 2}, "b": {"minLength": 3, "maxLength": 2}},
           "required": ["b"]})",
       "no text fits the schema: /properties/b: minLength is 3, maxLength is 2"},
      {R"({"properties": {"a": {"items": {"properties": {"b": {"enum": [1, 2], "type": "string"}},
           "required": ["b"]}, "minItems": 1}}, "required": ["a"]})",
       "no text fits the schema: /properties/a/items/properties/b: no value of enum fits"},
      {R"({"minItems": 3, "maxItems": 2})",
       "no text fits the schema: minItems is 3, maxItems is 2"},
      {R"({"anyOf": [{"minItems": 3, "maxItems": 2}, {"type": "string", "minLength": 1, "maxLength": 0}]})",
       "no text fits the schema: /anyOf/0: minItems is 3, maxItems is 2"},
      {R"({"prefixItems": [{}], "items": false, "minItems": 2})",
       "no text fits the schema: minItems is 2, but the schema allows at most 1"},
      {R"({"patternProperties": {"^a": {}}, "additionalProperties": {}})",
       "patternProperties together with additionalProperties is not supported"},
      {R"({"patternProperties": {"^a": {}, "^b": {"type": "null"}}})",
       "several patternProperties are not supported"},
      {R"({"patternProperties": {"b$": {}}, "properties": {"ab": {}}})",
       "/patternProperties: pattern b$ also fits ab, a name in \"properties\" or \"required\""},
      {R"({"patternProperties": {"(": {}}})", "/patternProperties: line 1, column 2"},
      {R"({"allOf": [{"patternProperties": {"^a": {}}}, {"additionalProperties": {}}]})",
       "patternProperties together with additionalProperties of another part"},
      {R"({"oneOf": [{"type": "object", "patternProperties": {"^k": {}}, "additionalProperties": false},
                     {"type": "object", "properties": {"k": {}}, "required": ["k"]}]})",
       "a value may fit both schemas 0 and 1"},
      {R"({"type": "string", "format": "iri"})",
       "/format: format \"iri\" is not supported, expected date"},
      {R"x({"type": "string", "pattern": "a(?=b)"})x",
       "/pattern: line 1, column 2: found a group that looks"},
      {R"({"type": "string", "pattern": "^a+$", "maxLength": 100000})",
       "pattern, format, lengths and exceptions together need more than"},
      {R"({"$ref": "other.json"})", "$ref is \"other.json\", expected a location in this schema"},
      {R"({"$ref": "#/$defs/none"})", "$ref is #/$defs/none"},
      {R"({"$ref": "#"})", "no text fits the schema: each way through it is infinite"},
      {R"({"not": {}})", "no text fits the schema: it allows nothing"},
      {R"({"properties": {"a": false}, "required": ["a"]})",
       "no text fits the schema: /properties/a: it allows nothing"},
      {R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})",
       "a value may fit both schemas 0 and 1"},
      {R"({"allOf": [{"type": "string"}, {"type": "null"}]})", "no text fits"},
      {R"({"type": "object", "properties": {"a": {}}, "required": ["b"], "additionalProperties": false})",
       "no text fits"},
      {R"({"type": "array", "minItems": -1})", "minItems is -1, expected a whole number"},
      {R"({"allOf": [{"required": "a"}, {"required": ["b"]}]})",
       "/allOf: required is \"a\", expected a list of names"},
      {R"({"allOf": [{"properties": [1]}, {"properties": {"a": true}}]})",
       "/allOf: properties is an array, expected an object"},
      {R"({"allOf": [{"type": "strng"}, {"type": "string"}]})",
       "/allOf: type is \"strng\", expected object"},
      {R"({"allOf": [{"enum": "a"}, {"enum": ["a"]}]})", "/allOf/enum: is \"a\", expected a list"},
      {R"({"enum": []})", "is empty, expected at least one entry"},
      {R"({"items": 5})", "is 5, expected a schema"},
      {R"({"const": [1], "prefixItems": 2})", "/prefixItems: is 2, expected a list"},
      {R"({"minimum": 1e400})", "beyond the range of a double"}};
  for (const auto& [text, line] : cases) {
    const Error error = error_of([&] { schema(text); });
    CHECK_MESSAGE(error.code == Exit::bad_file, text);
    CHECK_MESSAGE(contains(error.what(), line), std::string(error.what()));
  }
  std::string deep = "{}";
  for (int i = 0; i < 100; ++i) deep = "{\"items\": " + deep + "}";
  CHECK(contains(error_of([&] { schema(deep); }).what(), "nested more than 64 deep"));
}

TEST_CASE("grammar: a short schema cannot cause endless work") {
  std::string twice = "{\"$defs\": {";
  for (int i = 0; i < 24; ++i)
    twice += fmt::format(
        R"("a{0}": {{"allOf": [{{"$ref": "#/$defs/a{1}"}}, {{"$ref": "#/$defs/a{1}"}}]}}, )", i,
        i + 1);
  twice += R"("a24": {"type": "string"}}, "allOf": [{"$ref": "#/$defs/a0"}]})";
  const std::string within = R"({"$defs": {"a": {"type": "object", "properties": {
      "l": {"$ref": "#/$defs/a"}, "r": {"$ref": "#/$defs/a"}}, "required": ["l", "r"]}},
      "oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]})";
  std::string names, copies;
  for (int i = 0; i < 3000; ++i) names += fmt::format("{}\"k{}\": true", i > 0 ? ", " : "", i);
  for (int i = 0; i < 3000; ++i)
    copies += fmt::format(R"({}{{"$ref": "#/$defs/a", "type": "null", "maxLength": {}}})",
                          i > 0 ? ", " : "", i);
  copies = fmt::format(R"({{"$defs": {{"a": {{"properties": {{{}}}}}}}, "anyOf": [{}]}})", names,
                       copies);
  for (const std::string& text : {twice, within, copies}) {
    const Error error = error_of([&] { schema(text); });
    CHECK_MESSAGE(contains(error.what(), "needs more than 64 MB of work"),
                  std::string(error.what()));
  }
}

TEST_CASE("grammar: long lists in a schema are read quickly") {
  std::string values, options;
  for (int i = 0; i < 30000; ++i) values += fmt::format("\"{}\", ", i);
  for (int i = 0; i < 1500; ++i)
    options += fmt::format("{}{{\"const\": {}}}", i > 0 ? ", " : "", i);
  TextReader both(schema(
      fmt::format(R"({{"allOf": [{{"enum": [{0}"a"]}}, {{"enum": ["b", {0}"c"]}}]}})", values)));
  CHECK(both.begins("\"29999"));
  CHECK(!both.begins("\"a"));
  TextReader one(schema("{\"oneOf\": [" + options + "]}"));
  CHECK(one.fits("1499"));
  CHECK(contains(error_of([&] { schema("{\"oneOf\": [{\"const\": 7}, " + options + "]}"); }).what(),
                 "a value may fit both schemas"));
  CHECK(contains(error_of([&] { schema("{\"required\": [" + values + "\"a\"]}"); }).what(),
                 "more than 262144 states"));
}

}  // namespace
}  // namespace chaski::test
