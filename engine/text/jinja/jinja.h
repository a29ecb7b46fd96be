// Chat templates of model files: Jinja with the settings of transformers (trim_blocks,
// lstrip_blocks, loop controls, its tojson, an immutable sandbox). Steps, depth and memory are
// bounded. include, import, block and extends are not supported. There is no HTML escaping, so
// `safe` does nothing.
#pragma once
#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/jinja/jinja_value.h"

namespace chaski::jinja {

using Names = std::vector<std::pair<std::string, Value>>;

class Template {
 public:
  // `origin` begins the messages. Throws Error(bad_file) with line, found and expected.
  Template(std::string_view source, std::string origin);
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // Renders the template with these variables. Characters keep the marks that they have in the
  // values. Throws Error(bad_file), or Error(usage) with the template's own words if the template
  // refuses the input.
  Text render(const Names& names, std::time_t now) const;

 private:
  struct Parsed;
  std::unique_ptr<const Parsed> parsed_;
  std::string origin_;
};

}  // namespace chaski::jinja
