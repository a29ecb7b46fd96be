// The text of a JSON schema: reads it, finds what $ref refers to, reports errors in it, and limits
// the work that a short text can cause.
#pragma once
#include <fmt/format.h>

#include <string>
#include <utility>

#include "engine/grammar/rules.h"
#include "engine/text/ordered_json.h"

namespace chaski::json_schema {

using Json = OrderedJson;

constexpr int kMostNested = 64;
constexpr size_t kMostMembers = 4096;
// The work to put the parts of a schema together is limited to about half a second and 200 MB. It
// is counted in bytes of text that are read, copied or compared, plus a constant for each value and
// for each part.
constexpr size_t kMostWork = 1 << 26, kValueWork = 32, kPartWork = 512;

class SchemaDocument {
 public:
  explicit SchemaDocument(const GrammarSource& source);

 protected:
  const Json& root() const { return root_; }
  const GrammarSource& source() const { return source_; }
  // The source of a regular expression inside the schema.
  GrammarSource pattern_source(const std::string& path, const std::string& pattern) const {
    return {source_.name + ": " + escaped(path), pattern, source_.code};
  }

  // A value as an error message shows it.
  static std::string shown(const Json& value);
  template <class... Args>
  [[noreturn]] void wrong(const std::string& path, fmt::format_string<Args...> format,
                          Args&&... args) const {
    fail(source_.code, "{}: {}: {}", source_.name, path.empty() ? "the schema" : escaped(path),
         fmt::format(format, std::forward<Args>(args)...));
  }
  [[noreturn]] void unknown(const std::string& key, const std::string& path) const {
    wrong(path + "/" + key,
          "keyword {} is not supported, expected a keyword that docs/grammar.md lists",
          escaped(key));
  }
  void expect_list(const Json& value, const std::string& path) const;

  // Counts work. $ref and allOf can repeat a schema exponentially often in a short text.
  void spend(size_t work, const std::string& path) const;
  void spend(const Json& value, const std::string& path) const { spend(weight(value), path); }

  // The text of $ref, and the schema that it refers to.
  std::string reference(const Json& schema, const std::string& path) const;
  const Json& target(const std::string& to, const std::string& path) const;

 private:
  Json read() const;
  void expect_exact_integers() const;
  static size_t weight(const Json& value);

  const GrammarSource& source_;
  Json root_;
  mutable size_t work_ = 0;
};

// A value as the text of an answer spells it.
inline std::string spelled(const Json& value) { return written(value); }

}  // namespace chaski::json_schema
