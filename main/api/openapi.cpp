#include "main/api/openapi.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <set>
#include <string>

#include "engine/sampling/steps.h"
#include "main/api/ollama.h"
#include "main/api/openai_parts.h"
#include "main/flags/flags.h"  // for kMaxCount
#include "main/flags/manual.h"

extern "C" const char chaski_openapi_begin[], chaski_openapi_end[];

namespace chaski {

namespace {

// {"type": "number", "minimum": 0, ...} of a parameter of the sampler.
OrderedJson schema_of(double, const Range& range) {
  OrderedJson json = {{"type", "number"}};
  if (!range.is_limited()) return json;
  json[range.without_least ? "exclusiveMinimum" : "minimum"] = range.least;
  if (range.most < std::numeric_limits<double>::infinity()) json["maximum"] = range.most;
  return json;
}
OrderedJson schema_of(int, const Range& range) {
  OrderedJson json = schema_of(0.0, range);
  json["type"] = "integer";
  if (!json.contains("maximum")) json["maximum"] = kMaxCount;
  return json;
}
OrderedJson schema_of(const std::vector<std::string>&, const Range&) {
  const OrderedJson text = {{"type", "string"}};
  return {{"anyOf", OrderedJson::array({text, {{"type", "array"}, {"items", text}}})}};
}

void add_sampling(OrderedJson& properties) {
  const SamplerOptions defaults;
  each_parameter(defaults, [&](const auto& part, const auto& parameter) {
    OrderedJson schema = schema_of(part.*parameter.value, parameter.range);
    schema["description"] = std::string(parameter.letter) + ": " + parameter.help;
    const std::vector<std::string> names = names_of_parameter(parameter.flag);
    for (const std::string& name : names) {
      properties[name] = schema;
      if (name != names[0]) properties[name]["description"] = "The same as " + names[0];
    }
  });
}

// A field that is null counts as absent, so null is a value of every field that may be absent.
class NullAdder {
 public:
  explicit NullAdder(OrderedJson& document) : document_(document) {}

  void add_to_fields_of(OrderedJson& schema) {
    if (schema.is_array())
      for (OrderedJson& one : schema) add_to_fields_of(one);
    if (!schema.is_object()) return;
    if (const auto ref = schema.find("$ref"); ref != schema.end()) return follow(*ref);
    const OrderedJson required = schema.value("required", OrderedJson::array());
    if (const auto fields = schema.find("properties"); fields != schema.end())
      for (auto& [name, field] : fields->items()) {
        add_to_fields_of(field);
        if (std::ranges::count(required, OrderedJson(name)) == 0) add_to(field);
      }
    for (const char* inner : {"items", "anyOf", "allOf"})
      if (const auto found = schema.find(inner); found != schema.end()) add_to_fields_of(*found);
  }

 private:
  void follow(const std::string& ref) {
    if (!seen_.insert(ref).second) return;
    add_to_fields_of(document_.at(OrderedJson::json_pointer(ref.substr(1))));
  }
  static void add_to(OrderedJson& field) {
    const OrderedJson null = {{"type", "null"}};
    if (const auto type = field.find("type"); type != field.end()) {
      if (!type->is_array()) *type = OrderedJson::array({*type});
      if (std::ranges::count(*type, OrderedJson("null")) == 0) type->push_back("null");
    } else if (field.contains("anyOf")) {
      field["anyOf"].push_back(null);
    } else if (!field.empty() && !(field.size() == 1 && field.contains("description"))) {
      field = {{"anyOf", OrderedJson::array({field, null})}};
    }
  }

  OrderedJson& document_;
  std::set<std::string> seen_;
};

std::string method_key(const Endpoint& route) {
  std::string key = route.method;
  std::ranges::transform(key, key.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return key;
}

// The description of a route under its own path; null: there is none.
OrderedJson* described(OrderedJson& paths, const Endpoint& route) {
  const std::string_view own = route.path;
  for (auto& [path, methods] : paths.items()) {
    if (path != own && !(own.ends_with('/') && path.starts_with(own) && path.ends_with('}')))
      continue;
    const auto found = methods.find(method_key(route));
    if (found != methods.end()) return &*found;
  }
  return nullptr;
}

// The same, or that of another route with the same function. A route without any is missing from
// the document: the server goes on, and a test fails.
OrderedJson* operation_of(OrderedJson& paths, const Endpoint& route) {
  if (OrderedJson* const own = described(paths, route)) return own;
  for (const auto routes : all_routes())
    for (const Endpoint& other : routes) {
      if (other.answer != route.answer) continue;
      const OrderedJson* const found = described(paths, other);
      if (!found) continue;
      OrderedJson copy = *found;
      copy["operationId"] = copy.value("operationId", "") + "Also";
      copy["summary"] = std::string("The same as ") + other.path;
      return &(paths[route.path][method_key(route)] = std::move(copy));
    }
  return nullptr;
}

void add_errors(OrderedJson& operation, const Endpoint& route) {
  const std::string dialect = &route.dialect == &kOllama                             ? "Ollama"
                              : std::string_view(route.path).starts_with("/v1/mess") ? "Anthropic"
                                                                                     : "OpenAi";
  const OrderedJson error = {{"$ref", "#/components/responses/" + dialect + "Error"}};
  OrderedJson& responses = operation["responses"];
  const bool has_body = operation.contains("requestBody");
  const bool has_name =
      std::string_view(route.path).ends_with('/') || operation.contains("parameters");
  for (const char* status : {"400", "401", "403", "404", "413", "429", "500", "503"}) {
    const std::string_view name = status;
    if ((name == "400" || name == "413" || name == "500") && !has_body) continue;
    if (name == "404" && !has_body && !has_name) continue;
    responses[status] = error;
  }
}

OrderedJson make_document() {
  OrderedJson document = parsed_json(std::string_view(chaski_openapi_begin, chaski_openapi_end));
  document["info"]["version"] = kVersion;
  OrderedJson& components = document["components"];
  add_sampling(components["schemas"]["Settings"]["properties"]);
  for (const auto routes : all_routes())
    for (const Endpoint& route : routes) {
      if (OrderedJson* const operation = operation_of(document["paths"], route))
        add_errors(*operation, route);
    }
  NullAdder nulls(document);
  for (auto& [name, body] : components["requestBodies"].items())
    nulls.add_to_fields_of(body["content"][kJsonType]["schema"]);
  for (auto& [path, methods] : document["paths"].items())
    for (auto& [method, operation] : methods.items())
      if (operation.is_object() && operation.contains("requestBody") &&
          operation["requestBody"].contains("content"))
        nulls.add_to_fields_of(operation["requestBody"]["content"][kJsonType]["schema"]);
  return document;
}

void put_document(Api&, const Call&, Reply& reply) {
  static const std::string text = written(openapi_document());
  reply.whole(200, kJsonType, text);
}

}  // namespace

const OrderedJson& openapi_document() {
  static const OrderedJson document = make_document();
  return document;
}

std::span<const Endpoint> openapi_routes() {
  static const Endpoint kRoutes[] = {
      {"GET", "/openapi.json", put_document, kOpenAi, false},
  };
  return kRoutes;
}

}  // namespace chaski
