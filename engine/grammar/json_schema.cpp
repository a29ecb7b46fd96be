#include "engine/grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "engine/grammar/json_parts.h"
#include "engine/grammar/reader.h"
#include "engine/grammar/recognizer.h"
#include "engine/grammar/regex.h"

namespace chaski {

namespace {

using Json = nlohmann::ordered_json;  // members in the order of the text

constexpr int kMostNested = 64, kMostSteps = 1 << 14;
constexpr size_t kMostMembers = 4096, kMostUnique = 256;
// What may be read, copied and compared of a schema while its parts are put together: about half a
// second, and 200 MB. Counted are bytes of text, and so many for a value and for a part.
constexpr size_t kMostWork = 1 << 26, kValueWork = 32, kPartWork = 512;
// Whole numbers that a double holds, one by one.
constexpr double kMostBound = 9007199254740992;
constexpr double kMostMultiple = 1e9;  // of multipleOf, so that the common one of two has room

// What says nothing of a value.
constexpr std::string_view kRemarks[] = {"$schema",
                                         "$id",
                                         "id",
                                         "$comment",
                                         "$defs",
                                         "definitions",
                                         "title",
                                         "default",
                                         "examples",
                                         "readOnly",
                                         "writeOnly",
                                         "deprecated",
                                         "description",
                                         "example",
                                         "$anchor",
                                         "discriminator",
                                         "contentMediaType",
                                         "$vocabulary"};

struct Family {
  const char* type;
  std::vector<std::string_view> keywords;
};
const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"object",
       {"properties", "required", "additionalProperties", "patternProperties", "minProperties",
        "maxProperties"}},
      {"array", {"items", "prefixItems", "additionalItems", "minItems", "maxItems", "uniqueItems"}},
      {"string", {"pattern", "format", "minLength", "maxLength"}},
      {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}},
      {"integer", {}},
      {"boolean", {}},
      {"null", {}}};
  return all;
}

constexpr std::string_view kForAll[] = {"$ref", "allOf", "anyOf", "oneOf",
                                        "enum", "const", "type",  "nullable"};

bool is_remark(std::string_view key) {
  return std::find(std::begin(kRemarks), std::end(kRemarks), key) != std::end(kRemarks) ||
         key.starts_with("x-");
}

bool is_known(std::string_view key) {
  if (std::find(std::begin(kForAll), std::end(kForAll), key) != std::end(kForAll)) return true;
  return std::any_of(families().begin(), families().end(), [&](const Family& f) {
    return std::find(f.keywords.begin(), f.keywords.end(), key) != f.keywords.end();
  });
}

struct Format {
  std::string_view name, pattern;
};
// Dates are days that every year has.
constexpr Format kFormats[] = {
    {"date",
     "[1-9]\\d{3}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|"
     "(?:0[13578]|1[02])-31)"},
    {"time",
     "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"}};

// What stands between the brackets of an object or a list: entries in their order, with commas
// between them, by how many have come so far; where that no longer matters, more are as many.
class CountedEntries {
 public:
  CountedEntries(Rules& rules, JsonParts& parts, Rules::State open, int least, int most)
      : rules_(rules),
        parts_(parts),
        most_(most),
        counted_(most == Rules::kUnlimited ? std::max(least, 1) : most),
        at_{{0, open}} {}
  size_t ways() const { return at_.size(); }

  void add(Rules::Rule entry, bool optional) {
    std::map<int, Rules::State> next;
    for (const auto& [n, state] : at_) {
      if (optional) rules_.skip(state, of(next, n));
      take(entry, n, state, next);
    }
    at_ = std::move(next);
  }

  // As many more of one kind as may be. Of these only one counts among the `least`.
  void add_others(Rules::Rule entry, int least) {
    std::map<int, Rules::State> others;
    for (const auto& [n, state] : at_)
      if (n + 1 >= least) take(entry, n, state, others);
    for (auto way = others.begin(); way != others.end(); ++way)
      take(entry, way->first, way->second, others);
    for (const auto& [n, state] : others) closing_.push_back({n, state});
  }

  // The state in which it is over.
  Rules::State close(int least) {
    const Rules::State close = rules_.state();
    for (const auto& [n, state] : at_)
      if (n >= least) closing_.push_back({n, state});
    for (const auto& [n, state] : closing_) {
      const Rules::Part space = n > 0 ? parts_.space() : rules_.nothing();
      rules_.skip(state, space.begin), rules_.skip(space.end, close);
    }
    return close;
  }

 private:
  Rules::State of(std::map<int, Rules::State>& states, int n) {
    const auto [at, fresh] = states.try_emplace(n);
    if (fresh) at->second = rules_.state();
    return at->second;
  }
  void take(Rules::Rule entry, int n, Rules::State from, std::map<int, Rules::State>& next) {
    if (n == most_) return;
    Rules::Part part = rules_.call(entry);
    if (n > 0) part = rules_.chain(parts_.comma(), part);
    rules_.skip(from, part.begin);
    rules_.skip(part.end, of(next, std::min(n + 1, counted_)));
  }

  Rules& rules_;
  JsonParts& parts_;
  const int most_, counted_;
  std::map<int, Rules::State> at_;
  std::vector<std::pair<int, Rules::State>> closing_;
};

// A schema of which no value holds; who has another choice takes that.
struct NothingFits {};

class SchemaParser {
 public:
  SchemaParser(const GrammarSource& source, Rules& rules)
      : source_(source), rules_(rules), parts_(rules) {}

  void parse() {
    root_ = read();
    const Rules::Rule root = rule_of(root_, "");
    rules_.finish(root);
  }

 private:
  // --- the text

  Json read() {
    std::vector<std::set<std::string>> names;
    expect_size(source_);
    const auto check = [&](int, Json::parse_event_t event, Json& parsed) {
      if (event == Json::parse_event_t::object_start) names.emplace_back();
      if (event == Json::parse_event_t::array_start) names.emplace_back();
      if (event == Json::parse_event_t::object_end || event == Json::parse_event_t::array_end)
        names.pop_back();
      if (names.size() > size_t(kMostNested))
        fail(source_.code, "{}: JSON is nested more than {} deep", source_.name, kMostNested);
      if (event == Json::parse_event_t::key) {
        const auto name = parsed.get<std::string>();
        if (!names.back().insert(name).second)
          fail(source_.code, "{}: key {} appears twice in one object", source_.name, escaped(name));
        if (names.back().size() > kMostMembers)
          fail(source_.code, "{}: an object with more than {} members", source_.name, kMostMembers);
      }
      return true;
    };
    try {
      return Json::parse(source_.text, check);
    } catch (const Json::parse_error& error) {
      source_.expected(std::min(source_.text.size(), std::max<size_t>(error.byte, 1) - 1), "JSON");
    } catch (const Json::exception&) {
      fail(source_.code, "{}: JSON has a number beyond the range of a double", source_.name);
    }
  }

  static std::string shown(const Json& value) {
    if (value.is_object()) return "an object";
    if (value.is_array()) return "an array";
    const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return escaped(text.substr(0, 60)) + (text.size() > 60 ? "..." : "");
  }
  template <class... Args>
  [[noreturn]] void wrong(const std::string& path, fmt::format_string<Args...> format,
                          Args&&... args) const {
    fail(source_.code, "{}: {}: {}", source_.name, path.empty() ? "the schema" : escaped(path),
         fmt::format(format, std::forward<Args>(args)...));
  }

  // --- schemas

  // $ref and allOf can repeat a schema without end in a short text.
  void spend(size_t work, const std::string& path) const {
    work_ += std::min(work, kMostWork);
    if (work_ > kMostWork)
      wrong(path,
            "its parts put together are more than {} MB of work, expected less of $ref, allOf, "
            "anyOf and oneOf within each other",
            kMostWork >> 20);
  }
  void spend(const Json& value, const std::string& path) const { spend(weight(value), path); }

  static size_t weight(const Json& value) {
    size_t sum = kValueWork;
    if (value.is_string()) sum += value.get_ref<const std::string&>().size();
    if (value.is_array())
      for (const Json& v : value) sum += weight(v);
    if (value.is_object())
      for (const auto& [key, v] : value.get_ref<const Json::object_t&>())
        sum += key.size() + weight(v);
    return sum;
  }

  // Equal schemas are one rule, whatever way leads to them: so a schema may refer to itself.
  Rules::Rule rule_of(const Json& schema, const std::string& path) {
    if (++steps_ > kMostSteps) wrong(path, "the schema becomes more than {} rules", kMostSteps);
    if (depth_ > 4 * kMostNested) wrong(path, "schemas are nested too deep, expected $ref");
    spend(kPartWork + path.size(), path);
    spend(schema, path);
    const auto [known, fresh] = known_.try_emplace(schema.dump(), Rules::Rule(-1));
    if (!fresh) return known->second;
    const Rules::Rule rule = known->second = rules_.declare(path.empty() ? "the schema" : path);
    ++depth_;
    rules_.define(rule, part_or_none(schema, path));
    --depth_;
    return rule;
  }
  // A part that is never read, where nothing fits: that leaves out all that calls its rule.
  Rules::Part part_or_none(const Json& schema, const std::string& path) {
    try {
      return part_of(schema, path);
    } catch (const NothingFits&) {
      return rules_.either({});
    }
  }
  Rules::Part called(const Json& schema, const std::string& path) {
    return rules_.call(rule_of(schema, path));
  }

  Rules::Part part_of(const Json& schema, const std::string& path) {
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) throw NothingFits();
      return parts_.any_value();
    }
    if (!schema.is_object()) wrong(path, "is {}, expected a schema: an object", shown(schema));
    for (const auto& [key, value] : schema.items())
      if (!is_remark(key) && !is_known(key))
        wrong(path, "keyword {} cannot be honoured, expected one of docs/grammar.md", escaped(key));
    if (schema.contains("$ref") || schema.contains("allOf")) return part_of_merged(schema, path);
    for (const char* key : {"anyOf", "oneOf"})
      if (schema.contains(key)) return part_of_choice(schema, key, path);
    if (schema.contains("enum") || schema.contains("const")) return part_of_values(schema, path);
    std::vector<Rules::Part> parts;
    const std::vector<std::string> types = types_of(schema, path);
    if (types.size() == families().size() &&
        std::none_of(families().begin(), families().end(),
                     [&](const Family& f) { return is_about(schema, f); }))
      return parts_.any_value();
    for (const std::string& type : types) parts.push_back(part_of_type(schema, type, path));
    return rules_.either(parts);
  }

  // A reference alone is the rule it refers to.
  Rules::Part part_of_merged(const Json& schema, const std::string& path) {
    size_t says = 0;
    for (const auto& [key, value] : schema.items()) says += is_remark(key) ? 0 : 1;
    if (says == 1 && schema.contains("$ref")) {
      const std::string to = reference(schema, path);
      return called(target(to, path), to);
    }
    return called(flat(schema, path), path + "/allOf");
  }

  std::string reference(const Json& schema, const std::string& path) const {
    const Json& to = schema["$ref"];
    if (!to.is_string() || !to.get<std::string>().starts_with('#'))
      wrong(path, "$ref is {}, expected a place in this schema: #/$defs/NAME", shown(to));
    return to.get<std::string>();
  }

  const Json& target(const std::string& to, const std::string& path) const {
    std::string pointer;  // a few characters are written as %41
    for (size_t i = 1; i < to.size(); ++i) {
      unsigned code = 0;
      if (to[i] == '%' && i + 2 < to.size() && std::sscanf(&to[i + 1], "%2x", &code) == 1)
        pointer += char(code), i += 2;
      else
        pointer += to[i];
    }
    try {
      return root_.at(Json::json_pointer(pointer));
    } catch (const Json::exception&) {
      wrong(path, "$ref is {}, expected a place in this schema: #/$defs/NAME", escaped(to));
    }
  }

  // --- several schemas at once

  // One schema that says what this and all it refers to say: without $ref and allOf.
  Json flat(const Json& schema, const std::string& path, int depth = 0) const {
    if (depth > kMostNested) wrong(path, "$ref and allOf lead around in a circle");
    if (schema.is_boolean()) {
      if (!schema.get<bool>()) throw NothingFits();
      return Json::object();
    }
    if (!schema.is_object()) wrong(path, "is {}, expected a schema: an object", shown(schema));
    spend(kPartWork, path);
    Json out = Json::object();
    std::vector<Json> more;
    for (const auto& [key, value] : schema.items()) {
      if (key == "$ref") {
        more.push_back(flat(target(reference(schema, path), path), path, depth + 1));
      } else if (key == "allOf") {
        expect_list(value, path + "/allOf");
        for (const Json& part : value) more.push_back(flat(part, path + "/allOf", depth + 1));
      } else if (key == "const") {
        spend(value, path);
        more.push_back({{"enum", Json::array({value})}});
      } else if (!is_remark(key)) {
        expect_kind(key, value, path);
        spend(value, path);
        out[key] = value;
      }
    }
    settle_null(out);
    for (Json& part : more) out = merged(std::move(out), std::move(part), path);
    return out;
  }

  // What merged() relies on.
  void expect_kind(const std::string& key, const Json& value, const std::string& path) const {
    if (key == "properties" && !value.is_object())
      wrong(path, "properties is {}, expected an object", shown(value));
    if (key == "enum") expect_list(value, path + "/enum");
    if (key == "type") expect_types(value, path);
    if (key == "required") expect_names(value, path);
  }

  void expect_types(const Json& said, const std::string& path) const {
    for (const Json& type : said.is_array() ? said : Json::array({said})) {
      const bool known =
          type.is_string() && std::any_of(families().begin(), families().end(),
                                          [&](const Family& f) { return type == Json(f.type); });
      if (!known)
        wrong(path, "type is {}, expected object, array, string, number, integer, boolean or null",
              shown(type));
    }
  }

  void expect_names(const Json& value, const std::string& path) const {
    if (!value.is_array()) wrong(path, "required is {}, expected a list of names", shown(value));
    for (const Json& name : value)
      if (!name.is_string()) wrong(path, "required has {}, expected names", shown(name));
  }

  // `nullable` is of the type beside it, and says nothing without one.
  static void settle_null(Json& schema) {
    if (!schema.contains("nullable")) return;
    if (schema["nullable"] == Json(true) && schema.contains("type")) {
      Json& type = schema["type"];
      if (!type.is_array()) type = Json::array({type});
      if (std::find(type.begin(), type.end(), Json("null")) == type.end()) type.push_back("null");
    }
    schema.erase("nullable");
  }

  static std::set<std::string> names_of(const Json& list) {
    std::set<std::string> names;
    for (const Json& name : list) names.insert(name.get_ref<const std::string&>());
    return names;
  }

  struct Less {
    bool operator()(const Json* a, const Json* b) const { return *a < *b; }
  };
  using Values = std::set<const Json*, Less>;
  static Values values_of(const Json& list) {
    Values values;
    for (const Json& value : list) values.insert(&value);
    return values;
  }

  Json both(const Json& a, const Json& b, const std::string& path) const {
    spend(a, path), spend(b, path);
    return a == b ? a : Json{{"allOf", Json::array({a, b})}};
  }

  // What one of two says of all other members concerns those that only the other one names.
  void spread_additional(const Json& from, Json& to, const std::string& path) const {
    const auto more = from.find("additionalProperties");
    if (more == from.end() || *more == Json(true) || !to.contains("properties")) return;
    const Json none = Json::object();
    const Json& named = from.contains("properties") ? from["properties"] : none;
    spend(to["properties"].size() * named.size(), path);
    for (auto& [name, schema] : to["properties"].items())
      if (!named.contains(name)) schema = *more == Json(false) ? *more : both(schema, *more, path);
  }

  Json merged(Json a, Json b, const std::string& path) const {
    spread_additional(a, b, path), spread_additional(b, a, path);
    if (a.contains("prefixItems") != b.contains("prefixItems") &&
        (a.contains("items") || b.contains("items")))
      wrong(path, "allOf: prefixItems beside items of another part cannot be honoured");
    for (const Json* one : {&a, &b})
      if (const Json& other = one == &a ? b : a;
          one->contains("patternProperties") && !other.contains("patternProperties") &&
          other.contains("additionalProperties") && other["additionalProperties"] != Json(true))
        wrong(path,
              "allOf: patternProperties beside additionalProperties of another part cannot be "
              "honoured");
    for (auto& [key, value] : b.items()) {
      if (!a.contains(key)) {
        a[key] = std::move(value);
        continue;
      }
      Json& mine = a[key];
      spend(mine, path), spend(value, path);
      if (mine == value) continue;
      if (key == "type") {
        mine = common_types(mine, value);
      } else if (key == "required") {
        std::set<std::string> names = names_of(mine);
        for (const Json& name : value)
          if (names.insert(name.get_ref<const std::string&>()).second) mine.push_back(name);
      } else if (key == "properties") {
        spend(3 * (mine.size() + value.size()) * value.size(), path);
        for (const auto& [name, schema] : value.items())
          mine[name] = mine.contains(name) ? both(mine[name], schema, path) : schema;
      } else if (key == "items" || key == "additionalProperties") {
        mine = mine == Json(false) || value == Json(false) ? Json(false) : both(mine, value, path);
      } else if (key == "enum") {
        Json common = Json::array();
        const Values others = values_of(value);
        for (const Json& v : mine)
          if (others.contains(&v)) common.push_back(v);
        if (common.empty()) throw NothingFits();
        mine = common;
      } else if (key == "uniqueItems") {
        mine = mine == Json(true) || value == Json(true);
      } else if (key == "multipleOf") {
        const auto common = std::lcm(step(mine, path), step(value, path));
        mine = common;
      } else if (mine.is_number() && value.is_number()) {
        const bool least = key.starts_with("min") || key == "exclusiveMinimum";
        if ((mine < value) == least) mine = value;
      } else {
        wrong(path, "{} differs in two schemas that both have to hold, which cannot be honoured",
              escaped(key));
      }
    }
    return a;
  }

  static Json common_types(const Json& a, const Json& b) {
    const auto list = [](const Json& t) { return t.is_array() ? t : Json::array({t}); };
    const auto has = [](const Json& types, const char* name) {
      return std::find(types.begin(), types.end(), Json(name)) != types.end();
    };
    const Json mine = list(a), other = list(b);
    Json common = Json::array();
    for (const Family& f : families()) {
      const bool integer = std::string_view(f.type) == "integer";
      const auto holds = [&](const Json& types) {
        return has(types, f.type) || (integer && has(types, "number"));
      };
      if (holds(mine) && holds(other)) common.push_back(f.type);
    }
    if (common.empty()) throw NothingFits();
    return common;
  }

  Rules::Part part_of_choice(const Json& schema, const char* key, const std::string& path) {
    const std::string here = path + "/" + key;
    expect_list(schema[key], here);
    const bool one = std::string_view(key) == "oneOf";
    Json rest = Json::object();
    for (const auto& [name, value] : schema.items()) {
      if (name == key || is_remark(name)) continue;
      expect_kind(name, value, path);
      spend(value, path);
      rest[name] = value;
    }
    settle_null(rest);
    std::vector<Rules::Part> parts;
    std::vector<Json> options;
    for (size_t i = 0; i < schema[key].size(); ++i) {
      const Json& option = schema[key][i];
      const std::string place = fmt::format("{}/{}", here, i);
      try {
        Json whole;
        if (one || !rest.empty()) {
          spend(rest, place);
          whole = merged(rest, flat(option, place), place);
        }
        parts.push_back(called(rest.empty() ? option : whole, place));
        if (one) options.push_back(std::move(whole));
      } catch (const NothingFits&) {
      }
    }
    const std::vector<bool> listed = listed_apart(options, path);
    for (size_t i = 0; i < options.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (!(listed[i] && listed[j]) && !apart(options[i], options[j], path, 0))
          wrong(path,
                "oneOf: a value may be of both schemas {} and {}, which cannot be honoured, "
                "expected anyOf, or a required member that tells them apart by its const",
                j, i);
    return rules_.either(parts);
  }

  // The schemas that list their values, if no two of them have one in common; otherwise none.
  std::vector<bool> listed_apart(const std::vector<Json>& options, const std::string& path) const {
    std::vector<bool> listed;
    std::map<const Json*, size_t, Less> of;
    for (const Json& option : options) {
      listed.push_back(option.contains("enum"));
      if (!listed.back()) continue;
      spend(option["enum"], path);
      for (const Json& value : option["enum"])
        if (of.try_emplace(&value, listed.size()).first->second != listed.size())
          return std::vector<bool>(options.size(), false);
    }
    return listed;
  }

  static bool disjoint(const Json& a, const Json& b) {
    const Values values = values_of(a);
    return std::none_of(b.begin(), b.end(), [&](const Json& v) { return values.contains(&v); });
  }

  // Whether surely no value is of both. Of schemas that are flat.
  bool apart(const Json& a, const Json& b, const std::string& path, int depth) const {
    if (depth > kMostNested || a.contains("anyOf") || b.contains("anyOf") || a.contains("oneOf") ||
        b.contains("oneOf"))
      return false;
    spend(kPartWork, path);
    for (const Json* schema : {&a, &b})
      for (const char* key : {"enum", "required"})
        if (schema->contains(key)) spend((*schema)[key], path);
    try {
      if (a.contains("enum") && b.contains("enum") && disjoint(a["enum"], b["enum"])) return true;
      const Json common = common_types(Json(said_types(a, path)), Json(said_types(b, path)));
      if (common != Json::array({"object"})) return false;
    } catch (const NothingFits&) {
      return true;
    }
    const Json none = Json::array();
    const auto needs = [&](const Json& s) {
      return names_of(s.contains("required") ? s["required"] : none);
    };
    const std::set<std::string> of_a = needs(a), of_b = needs(b);
    const auto lacks = [&](const Json& s, const std::string& name) {
      spend(s.contains("properties") ? s["properties"].size() : 0, path);
      return s.contains("additionalProperties") && s["additionalProperties"] == Json(false) &&
             !s.contains("patternProperties") &&
             (!s.contains("properties") || !s["properties"].contains(name));
    };
    for (const std::string& name : of_a)
      if (lacks(b, name)) return true;
    for (const std::string& name : of_b)
      if (lacks(a, name)) return true;
    if (!a.contains("properties") || !b.contains("properties")) return false;
    for (const auto& [name, schema] : a["properties"].items()) {
      spend(kValueWork, path);
      if (!of_a.contains(name) || !of_b.contains(name)) continue;
      spend(b["properties"].size(), path);
      if (!b["properties"].contains(name)) continue;
      try {
        if (apart(flat(schema, path), flat(b["properties"][name], path), path, depth + 1))
          return true;
      } catch (const NothingFits&) {
        return true;
      }
    }
    return false;
  }

  // --- values and types

  void expect_list(const Json& value, const std::string& path) const {
    if (!value.is_array() || value.empty())
      wrong(path, "is {}, expected a list with at least one entry", shown(value));
  }

  Rules::Part part_of_values(const Json& schema, const std::string& path) {
    for (const auto& [key, value] : schema.items())
      if (key != "enum" && key != "const" && key != "type" && key != "nullable" && !is_remark(key))
        wrong(path, "{} beside {} cannot be honoured, expected one of them", escaped(key),
              schema.contains("enum") ? "enum" : "const");
    Json values = schema.contains("enum") ? schema["enum"] : Json::array({schema["const"]});
    expect_list(values, path + "/enum");
    if (schema.contains("enum") && schema.contains("const")) {
      const bool in = std::find(values.begin(), values.end(), schema["const"]) != values.end();
      values = in ? Json::array({schema["const"]}) : Json::array();
    }
    const std::vector<std::string> types = types_of(schema, path);
    std::vector<Rules::Part> parts;
    for (const Json& value : values)
      if (std::any_of(types.begin(), types.end(),
                      [&](const std::string& type) { return is_of(value, type); }))
        parts.push_back(rules_.text(value.dump(-1, ' ', false, Json::error_handler_t::replace)));
    return rules_.either(parts);
  }

  static bool is_of(const Json& value, std::string_view type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "boolean") return value.is_boolean();
    if (type == "null") return value.is_null();
    if (type == "number") return value.is_number();
    return value.is_number_integer() ||
           (value.is_number() && std::floor(value.get<double>()) == value.get<double>());
  }

  // What may stand there by `type` and `nullable`, or `enum`; all types without them.
  std::vector<std::string> said_types(const Json& schema, const std::string& path) const {
    std::vector<std::string> types;
    if (!schema.contains("type")) {
      for (const Family& f : families())
        if (!schema.contains("enum") ||
            std::any_of(schema["enum"].begin(), schema["enum"].end(),
                        [&](const Json& value) { return is_of(value, f.type); }))
          types.push_back(f.type);
      return types;
    }
    const Json& said = schema["type"];
    expect_types(said, path);
    for (const Json& type : said.is_array() ? said : Json::array({said}))
      types.push_back(type.get<std::string>());
    const bool null = schema.contains("nullable") && schema["nullable"] == Json(true);
    if (null && std::find(types.begin(), types.end(), "null") == types.end())
      types.push_back("null");
    return types;
  }

  static bool is_about(const Json& schema, const Family& f) {
    return std::any_of(f.keywords.begin(), f.keywords.end(),
                       [&](std::string_view key) { return schema.contains(key); });
  }

  // A schema without a type means those types of which it says something.
  std::vector<std::string> types_of(const Json& schema, const std::string& path) const {
    const std::vector<std::string> types = said_types(schema, path);
    if (schema.contains("type")) return types;
    std::vector<std::string> meant;
    for (const Family& f : families())
      if (is_about(schema, f)) meant.push_back(f.type);
    return meant.empty() ? types : meant;
  }

  Rules::Part part_of_type(const Json& schema, std::string_view type, const std::string& path) {
    if (type == "null") return rules_.text("null");
    if (type == "boolean") {
      const Rules::Part values[] = {rules_.text("true"), rules_.text("false")};
      return rules_.either(values);
    }
    if (type == "integer" || type == "number") return part_of_number(schema, type, path);
    if (type == "string") return part_of_string(schema, path);
    return type == "array" ? part_of_array(schema, path) : part_of_object(schema, path);
  }

  // --- numbers and strings

  // A bound as a whole number: of an integer the next one that is allowed.
  std::optional<int64_t> bound(const Json& schema, const char* key, bool integer,
                               const std::string& path) const {
    if (!schema.contains(key)) return std::nullopt;
    const Json& value = schema[key];
    if (!value.is_number() || std::abs(value.get<double>()) > kMostBound)
      wrong(path, "{} is {}, expected a number between -2^53 and 2^53", key, shown(value));
    const double x = value.get<double>();
    const bool least = std::string_view(key).ends_with("inimum");
    if (x == std::floor(x)) return int64_t(x);
    if (!integer)
      wrong(path, "{} is {}, which cannot be honoured, expected a whole number", key, shown(value));
    // Exclusive or not is the same here, but for the step that is taken for exclusive ones.
    const bool exclusive = std::string_view(key).starts_with("ex");
    const double next = least ? std::ceil(x) : std::floor(x);
    return int64_t(exclusive ? next + (least ? -1 : 1) : next);
  }

  int64_t step(const Json& value, const std::string& path) const {
    if (!value.is_number() || value.get<double>() < 1 || value.get<double>() > kMostMultiple ||
        value.get<double>() != std::floor(value.get<double>()))
      wrong(path, "multipleOf is {}, which cannot be honoured, expected a whole number from 1 on",
            shown(value));
    return int64_t(value.get<double>());
  }

  // Whole multiples are written as whole numbers.
  Rules::Part part_of_number(const Json& schema, std::string_view type, const std::string& path) {
    const bool multiple = schema.contains("multipleOf"), integer = type == "integer" || multiple;
    JsonParts::Bounds b;
    b.least = bound(schema, "minimum", integer, path);
    b.most = bound(schema, "maximum", integer, path);
    const auto above = bound(schema, "exclusiveMinimum", integer, path),
               below = bound(schema, "exclusiveMaximum", integer, path);
    if (above && (!b.least || *above >= *b.least)) b.least = above, b.least_too = false;
    if (below && (!b.most || *below <= *b.most)) b.most = below, b.most_too = false;
    if (!integer) return parts_.number(b);
    if (b.least && !b.least_too) ++*b.least;
    if (b.most && !b.most_too) --*b.most;
    if (!multiple) return parts_.integer(b.least, b.most);
    const int64_t of = step(schema["multipleOf"], path);
    if (!parts_.can_be_multiple(of, b.least, b.most))
      wrong(path,
            "multipleOf is {}, which cannot be honoured, expected at most 100, or bounds with at "
            "most 1000 multiples between them",
            of);
    return parts_.multiple(of, b.least, b.most);
  }

  int count(const Json& schema, const char* key, int otherwise, const std::string& path) const {
    if (!schema.contains(key)) return otherwise;
    const Json& value = schema[key];
    if (!value.is_number_integer() || value < Json(0) || value > Json(Rules::kMostRepeats))
      wrong(path, "{} is {}, expected a whole number from 0 to {}", key, shown(value),
            Rules::kMostRepeats);
    return value.get<int>();
  }

  Rules::Part part_of_string(const Json& schema, const std::string& path) {
    const int least = count(schema, "minLength", 0, path),
              most = count(schema, "maxLength", Rules::kUnlimited, path);
    const bool bounded = schema.contains("minLength") || schema.contains("maxLength");
    const char* of = schema.contains("pattern") ? "pattern" : "format";
    if (!schema.contains(of)) {
      if (!bounded) return parts_.any_string();
      if (most != Rules::kUnlimited && most < least) throw NothingFits();
      return parts_.string(least, most);
    }
    if (bounded || (schema.contains("pattern") && schema.contains("format")))
      wrong(path, "{} beside {} cannot be honoured, expected one of them", of,
            schema.contains("minLength")   ? "minLength"
            : schema.contains("maxLength") ? "maxLength"
                                           : "format");
    const Json& value = schema[of];
    if (!value.is_string()) wrong(path, "{} is {}, expected a text", of, shown(value));
    std::string pattern = value.get<std::string>();
    if (of == std::string_view("format")) pattern = "^(?:" + pattern_of(pattern, path) + ")$";
    const GrammarSource source{source_.name + ": " + escaped(path + "/" + of), pattern,
                               source_.code};
    return parts_.quoted(
        search_part(rules_, source, [&](const CodeSet& set) { return parts_.character(set); }));
  }

  std::string pattern_of(const std::string& format, const std::string& path) const {
    std::string names;
    for (const Format& f : kFormats) {
      if (f.name == format) return std::string(f.pattern);
      names += std::string(f.name) + ", ";
    }
    if (format == "date-time") return pattern_of("date", path) + "T" + pattern_of("time", path);
    wrong(path, "format {} cannot be honoured, expected {}date-time or a pattern", escaped(format),
          names);
  }

  // --- arrays and objects

  Rules::Part part_of_array(const Json& schema, const std::string& path) {
    Json first = Json::array(), rest;  // null: no more
    if (schema.contains("prefixItems")) first = schema["prefixItems"];
    if (schema.contains("items")) rest = schema["items"];
    if (rest.is_array()) {  // as draft 7 has it
      first = rest;
      rest = schema.contains("additionalItems") ? schema["additionalItems"] : Json();
    } else if (schema.contains("additionalItems")) {
      wrong(path, "additionalItems without a list of items cannot be honoured");
    }
    if (!first.is_array())
      wrong(path, "prefixItems is {}, expected a list of schemas", shown(first));
    const int least = count(schema, "minItems", 0, path),
              most = count(schema, "maxItems", Rules::kUnlimited, path);
    // What nothing is said of may be anything; it comes only where it has to.
    if (rest.is_null() && (first.empty() || least > int(first.size()))) rest = true;
    if (rest == Json(false)) rest = Json();

    if (is_unique(schema, path) && (most == Rules::kUnlimited || most > 1)) {
      if (!first.empty())
        wrong(path, "uniqueItems beside prefixItems cannot be honoured, expected one of them");
      return part_of_set(rest, least, most, path);
    }

    const Rules::Part open = rules_.chain(rules_.text("["), parts_.space());
    const Rules::State close = rules_.state();
    Rules::State at = open.end;
    const auto add = [&](Rules::Rule item, int i) {
      Rules::Part part = rules_.call(item);
      if (i > 0) part = rules_.chain(parts_.comma(), part);
      rules_.skip(at, part.begin);
      at = part.end;
    };
    const auto may_close = [&](int i) {
      if (i < least) return;
      const Rules::Part space = i > 0 ? parts_.space() : rules_.nothing();
      rules_.skip(at, space.begin), rules_.skip(space.end, close);
    };
    const auto full = [&](int i) { return most != Rules::kUnlimited && i >= most; };
    int i = 0;
    for (; i < int(first.size()) && !full(i); ++i)
      may_close(i), add(rule_of(first[size_t(i)], fmt::format("{}/prefixItems/{}", path, i)), i);
    if (!rest.is_null()) {
      const Rules::Rule item = rule_of(rest, path + "/items");
      for (; most == Rules::kUnlimited ? i < std::max(least, 1) : i < most; ++i)
        may_close(i), add(item, i);
      if (most == Rules::kUnlimited) {
        const Rules::Part more =
            rules_.repeated(rules_.chain(parts_.comma(), rules_.call(item)), 0, Rules::kUnlimited);
        rules_.skip(at, more.begin);
        at = more.end;
      }
    }
    may_close(i);
    return rules_.chain({open.begin, close}, rules_.text("]"));
  }

  bool is_unique(const Json& schema, const std::string& path) const {
    if (!schema.contains("uniqueItems")) return false;
    if (!schema["uniqueItems"].is_boolean())
      wrong(path, "uniqueItems is {}, expected true or false", shown(schema["uniqueItems"]));
    return schema["uniqueItems"].get<bool>();
  }

  // Some of the values that an item may have, in their order: no grammar remembers which have come.
  Rules::Part part_of_set(const Json& item, int least, int most, const std::string& path) {
    const Json said = item.is_object() ? flat(item, path + "/items") : item;
    Json values = Json::array();
    if (said.is_object() && said.contains("enum")) {
      for (const auto& [key, value] : said.items())
        if (key != "enum" && key != "type") values = Json();
      const std::vector<std::string> types = types_of(said, path);
      if (said["enum"].size() > kMostUnique)
        wrong(path, "uniqueItems cannot be honoured of an enum of more than {} values",
              kMostUnique);
      if (values.is_array())
        for (const Json& value : said["enum"]) {
          if (value.is_structured())
            wrong(path, "uniqueItems cannot be honoured of an enum of objects or lists");
          if (std::find(values.begin(), values.end(), value) == values.end() &&
              std::any_of(types.begin(), types.end(),
                          [&](const std::string& type) { return is_of(value, type); }))
            values.push_back(value);
        }
    } else if (said == Json{{"type", "boolean"}}) {
      values = {true, false};
    }
    if (!values.is_array() || values.empty())
      wrong(path,
            "uniqueItems cannot be honoured where items have no enum, expected one or maxItems 1");
    if (least > int(values.size()) || (most != Rules::kUnlimited && most < least))
      throw NothingFits();
    if (most >= int(values.size())) most = Rules::kUnlimited;
    const Rules::Part open = rules_.chain(rules_.text("["), parts_.space());
    CountedEntries entries(rules_, parts_, open.end, least, most);
    for (const Json& value : values) {
      const Rules::Rule one = rules_.declare(path + "/items");
      rules_.define(one, rules_.text(value.dump(-1, ' ', false, Json::error_handler_t::replace)));
      entries.add(one, true);
    }
    return rules_.chain({open.begin, entries.close(least)}, rules_.text("]"));
  }

  // Others, by one pattern of their names or several of one schema. Names that the schema has have
  // to be told from them.
  struct Patterned {
    std::vector<std::string> patterns;
    const Json* schema = nullptr;
  };
  Patterned patterned(const Json& schema, const std::set<std::string>& names,
                      const std::string& path) {
    Patterned out;
    if (!schema.contains("patternProperties")) return out;
    const Json& said = schema["patternProperties"];
    const std::string place = path + "/patternProperties";
    if (!said.is_object()) wrong(place, "is {}, expected an object", shown(said));
    if (schema.contains("additionalProperties") && schema["additionalProperties"] != Json(false))
      wrong(path,
            "patternProperties beside additionalProperties cannot be honoured, expected false");
    for (const auto& [pattern, value] : said.items()) {
      if (out.schema && *out.schema != value)
        wrong(path, "several patternProperties cannot be honoured, expected one of them");
      out.schema = &value;
      out.patterns.push_back(pattern);
      const GrammarSource source{source_.name + ": " + escaped(place), pattern, source_.code};
      Rules rules(source);
      const Rules::Rule root = rules.declare("root");
      rules.define(
          root, search_part(rules, source, [&](const CodeSet& set) { return rules.one_of(set); }));
      rules.finish(root);
      Recognizer recognizer(rules);
      for (const std::string& name : names) {
        spend(name.size() + kValueWork, path);
        recognizer.allow_work();
        const Recognizer::Place at = recognizer.read(recognizer.start(), name);
        if (at != Recognizer::kNowhere && recognizer.may_end(at))
          wrong(path,
                "patternProperties {} fits {}, which properties or required name: that cannot be "
                "honoured",
                escaped(pattern), escaped(name));
      }
    }
    return out;
  }

  Rules::Part name_of(const Patterned& others, const std::string& path) {
    std::vector<Rules::Part> names;
    for (const std::string& pattern : others.patterns) {
      const GrammarSource source{source_.name + ": " + escaped(path), pattern, source_.code};
      names.push_back(
          search_part(rules_, source, [&](const CodeSet& set) { return parts_.character(set); }));
    }
    return parts_.quoted(rules_.either(names));
  }

  Rules::Part part_of_object(const Json& schema, const std::string& path) {
    const Json none = Json::object();
    const Json& said = schema.contains("properties") ? schema["properties"] : none;
    if (!said.is_object()) wrong(path, "properties is {}, expected an object", shown(said));
    std::set<std::string> required;
    if (schema.contains("required")) {
      expect_names(schema["required"], path);
      required = names_of(schema["required"]);
    }
    // With members named, others come only if the schema speaks of them.
    Json more = said.empty() && required.empty() ? Json(true) : Json(false);
    if (schema.contains("additionalProperties")) more = schema["additionalProperties"];
    if (!more.is_object() && !more.is_boolean())
      wrong(path, "additionalProperties is {}, expected true, false or a schema", shown(more));
    const int least = count(schema, "minProperties", 0, path),
              most = count(schema, "maxProperties", Rules::kUnlimited, path);
    const bool counted = least > 0 || most != Rules::kUnlimited;
    std::set<std::string> unnamed = required, all_names = required;
    std::vector<std::pair<std::string, const Json*>> members;
    for (const auto& [name, value] : said.items())
      members.emplace_back(name, &value), unnamed.erase(name), all_names.insert(name);
    const Patterned others = patterned(schema, all_names, path);
    if (said.empty() && required.empty() && more == Json(true) && !others.schema && !counted)
      return parts_.any_object();
    if (!unnamed.empty() && schema.contains("additionalProperties") && more == Json(false))
      throw NothingFits();
    const Json any = more == Json(false) ? Json(true) : more;
    for (const std::string& name : unnamed) members.emplace_back(name, &any);
    if (others.schema)
      more = *others.schema;
    else if (least > int(members.size()) && !schema.contains("additionalProperties"))
      more = true;
    // Others may all have one name.
    const int surely = int(members.size()) + (more != Json(false) ? 1 : 0);
    if ((least > surely && more == Json(false)) ||
        (most != Rules::kUnlimited && most < std::max(least, int(required.size()))))
      throw NothingFits();
    if (least > surely)
      wrong(path,
            "minProperties is {}, which cannot be honoured beside {} named members, expected "
            "at most {}",
            least, members.size(), surely);
    const Rules::Part open = rules_.chain(rules_.text("{"), parts_.space());
    CountedEntries entries(rules_, parts_, open.end, least, most);
    std::vector<std::string> names;
    for (const auto& [name, value] : members) {
      const std::string place = path + "/properties/" + name;
      names.push_back(name);
      const Rules::Part key =
          rules_.text(Json(name).dump(-1, ' ', false, Json::error_handler_t::replace) + ":");
      spend(counted ? kPartWork * entries.ways() : 0, path);
      entries.add(member(key, *value, place), !required.contains(name));
    }
    if (more != Json(false)) {
      const std::string place =
          path + (others.schema ? "/patternProperties" : "/additionalProperties");
      const Rules::Part name = others.schema ? name_of(others, place) : parts_.name_besides(names);
      spend(counted ? kPartWork * entries.ways() : 0, path);
      entries.add_others(member(rules_.chain(name, rules_.text(":")), more, place), least);
    }
    return rules_.chain({open.begin, entries.close(least)}, rules_.text("}"));
  }

  Rules::Rule member(Rules::Part key, const Json& value, const std::string& path) {
    spend(path.size(), path);
    const Rules::Rule rule = rules_.declare(path);
    rules_.define(rule, rules_.chain(rules_.chain(key, parts_.space()), called(value, path)));
    return rule;
  }

  const GrammarSource& source_;
  Rules& rules_;
  JsonParts parts_;
  Json root_;
  std::map<std::string, Rules::Rule> known_;
  int steps_ = 0, depth_ = 0;
  mutable size_t work_ = 0;
};

}  // namespace

std::shared_ptr<const Rules> parse_json_schema(const GrammarSource& source) {
  auto rules = std::make_shared<Rules>(source);
  SchemaParser(source, *rules).parse();
  return rules;
}

}  // namespace chaski
