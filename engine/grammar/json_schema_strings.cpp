// JSON schemas: strings, by length, pattern or format.
#include "engine/grammar/json_schema_parser.h"
#include "engine/grammar/regex.h"

namespace chaski::json_schema {

namespace {

struct Format {
  std::string_view name, pattern;
};
// A date is a day that every year has, so February ends with the 28th.
constexpr Format kFormats[] = {
    {"date",
     "[1-9]\\d{3}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|"
     "(?:0[13578]|1[02])-31)"},
    {"time",
     "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"}};

}  // namespace

Rules::Part SchemaParser::part_of_string(const Json& schema, const std::string& path) {
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
    wrong(path, "{} together with {} is not supported, expected one of them", of,
          schema.contains("minLength")   ? "minLength"
          : schema.contains("maxLength") ? "maxLength"
                                         : "format");
  const Json& value = schema[of];
  if (!value.is_string()) wrong(path, "{} is {}, expected a text", of, shown(value));
  std::string pattern = value.get<std::string>();
  if (of == std::string_view("format")) pattern = "^(?:" + pattern_of(pattern, path) + ")$";
  const GrammarSource source = pattern_source(path + "/" + of, pattern);
  return parts_.quoted(
      search_part(rules_, source, [&](const CodeSet& set) { return parts_.character(set); }));
}

std::string SchemaParser::pattern_of(const std::string& format, const std::string& path) const {
  std::string names;
  for (const Format& f : kFormats) {
    if (f.name == format) return std::string(f.pattern);
    names += std::string(f.name) + ", ";
  }
  if (format == "date-time") return pattern_of("date", path) + "T" + pattern_of("time", path);
  wrong(path, "format {} is not supported, expected {}date-time or a pattern", escaped(format),
        names);
}

}  // namespace chaski::json_schema
