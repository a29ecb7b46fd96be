// /openapi.json describes what the parsers read: every route, and every field that they ask for.
#include "main/api/openapi.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "tests/api/api_kit.h"

using namespace chaski;
using namespace chaski::test;

namespace {

const json& document() {
  static const json one = json::parse(written(openapi_document()));
  return one;
}

const json& resolved(const json& value) {
  if (!value.is_object() || !value.contains("$ref")) return value;
  return document().at(json::json_pointer(value["$ref"].get<std::string>().substr(1)));
}

// Paths of fields: "messages[].role". The fields of every variant of a schema count.
void add_fields(const json& of, const std::string& path, std::set<std::string>& fields) {
  const json& schema = resolved(of);
  for (const char* variants : {"allOf", "anyOf"})
    if (schema.contains(variants))
      for (const json& one : schema[variants]) add_fields(one, path, fields);
  if (schema.contains("items")) add_fields(schema["items"], path + "[]", fields);
  if (!schema.contains("properties")) return;
  for (const auto& [name, field] : schema["properties"].items()) {
    const std::string inner = path.empty() ? name : path + "." + name;
    fields.insert(inner);
    add_fields(field, inner, fields);
  }
}

std::string without_indices(const std::string& path) {
  std::string out;
  for (size_t i = 0; i < path.size(); ++i)
    if (out.empty() || out.back() != '[' || !std::isdigit(static_cast<unsigned char>(path[i])))
      out += path[i];
  return out;
}

std::string upper_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return char(std::toupper(c)); });
  return text;
}

constexpr const char* kStored = "/page/api/conversations";  // not a route of an API

struct Operation {
  std::string method, path;
  const json& description;
  bool has_fields() const {
    return description.contains("requestBody") && !path.starts_with(kStored);
  }
  const json& body() const {
    return resolved(description["requestBody"])["content"]["application/json"];
  }
};

std::vector<Operation> operations() {
  std::vector<Operation> all;
  for (const auto& [path, methods] : document()["paths"].items())
    for (const auto& [method, description] : methods.items())
      if (method != "parameters") all.push_back({upper_case(method), path, description});
  return all;
}

void expect_references(const json& value) {
  if (value.is_object() && value.contains("$ref"))
    CHECK_MESSAGE(
        document().contains(json::json_pointer(value["$ref"].get<std::string>().substr(1))),
        value["$ref"]);
  for (const json& inner : value)
    if (inner.is_structured()) expect_references(inner);
}

}  // namespace

TEST_CASE("api: openapi.json describes every route once, and nothing else") {
  std::set<std::string> described, ids,
      routes = {"GET /health",
                "GET /v1/health",
                "GET /slots",
                "GET /metrics",
                "GET /page/api/conversations",
                "GET /page/api/conversations/{id}",
                "POST /page/api/conversations/{id}",
                "DELETE /page/api/conversations/{id}"};
  for (const Operation& operation : operations()) {
    described.insert(operation.method + " " + operation.path);
    CHECK_MESSAGE(ids.insert(operation.description["operationId"].get<std::string>()).second,
                  operation.description["operationId"]);
    CHECK_MESSAGE(!operation.description["responses"].empty(), operation.path);
  }
  for (const auto all : all_routes())
    for (const Endpoint& route : all) {
      const std::string path = route.path;
      const std::string last = path == "/v1/models/"      ? "{model}"
                               : path == "/v1/responses/" ? "{response_id}"
                                                          : "";
      routes.insert(route.method + (" " + path) + last);
    }
  for (const std::string& route : routes)
    CHECK_MESSAGE(described.contains(route), route, " is not in openapi.json");
  for (const std::string& route : described)
    CHECK_MESSAGE(routes.contains(route), route, " is in openapi.json only");
  expect_references(document());
}

TEST_CASE(
    "api: openapi.json has every field that a parser asks for, and the parsers ask for each") {
  std::map<std::string, std::set<std::string>> asked_of;
  for (const Operation& operation : operations()) {
    if (!operation.has_fields()) continue;
    const std::string place = operation.method + " " + operation.path;
    std::set<std::string>& asked = asked_of[place];
    REQUIRE_MESSAGE(!operation.body()["examples"].empty(), place);
    for (const auto& [name, example] : operation.body()["examples"].items()) {
      TestApi t;
      t.embeds = true;
      AskedFields fields;
      const TestReply& reply = t.call(operation.method.c_str(), operation.path, example["value"]);
      CHECK_MESSAGE(operation.description["responses"].contains(std::to_string(reply.status)),
                    place, ", ", name, ": ", reply.body);
      const bool refuses = !operation.description["responses"].contains("200") ||
                           operation.path == "/infill";  // the bundled model has no such tokens
      CHECK_MESSAGE((reply.status == 200 || refuses), place, ", ", name, ": ", reply.body);
      for (const std::string& path : fields.paths) asked.insert(without_indices(path));
    }
  }
  for (const std::string& path : asked_of["POST /completion"])  // its prompt is a text
    if (!path.starts_with("prompt.") && !path.starts_with("prompt[") && path != "parse_special")
      asked_of["POST /infill"].insert(path);
  for (const Operation& operation : operations()) {
    if (!operation.has_fields()) continue;
    const std::string place = operation.method + " " + operation.path;
    std::set<std::string> described, settings;
    add_fields(operation.body()["schema"], "", described);
    // Without `options`, ollama's requests may have the settings outside of it.
    if (place == "POST /api/chat" || place == "POST /api/generate")
      add_fields({{"$ref", "#/components/schemas/Settings"}}, "", settings);
    for (const std::string& path : asked_of[place])
      CHECK_MESSAGE((described.contains(path) || settings.contains(path)), place, " asks for ",
                    path);
    for (const std::string& path : described)
      CHECK_MESSAGE(asked_of[place].contains(path), place, " never asks for ", path);
  }
}

TEST_CASE(
    "api: openapi.json has the bounds of the sampler, and null for fields that may be absent") {
  const json& settings = document()["components"]["schemas"]["Settings"]["properties"];
  CHECK(settings["temperature"]["minimum"] == 0);
  CHECK(settings["temperature"]["maximum"] == 100);
  CHECK(settings["dynatemp_exponent"]["exclusiveMinimum"] == 0);
  CHECK(settings["top_k"]["type"] == json{"integer", "null"});
  CHECK(settings["context_policy"]["anyOf"].back() == json{{"type", "null"}});
  const json& schemas = document()["components"]["schemas"];
  CHECK(schemas["ModelFields"]["properties"]["model"]["type"] == json{"string", "null"});
  CHECK(schemas["ChatFields"]["properties"]["messages"] ==
        json{{"$ref", "#/components/schemas/Messages"}});
  TestApi t;
  CHECK(json::parse(t.call("GET", "/openapi.json", {}).body) == document());
}
