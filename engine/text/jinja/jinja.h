// Chat templates as model files carry them: Jinja, as transformers runs it (trim_blocks,
// lstrip_blocks, loop controls, its tojson, an immutable sandbox). Steps, depth and memory are
// bounded. There is no include, import, block or extends. Nothing is HTML: `safe` does
// nothing, where Jinja would escape what is put together with it.
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
  // `origin` stands in front of errors. Throws Error(bad_file) that says line, found and expected.
  Template(std::string_view source, std::string origin);
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // With these names known. Characters keep the marks that those of the values have. Throws
  // Error(bad_file), and Error(usage) with the template's own words if it refuses what is given.
  Text render(const Names& names, std::time_t now) const;

 private:
  struct Parsed;
  std::unique_ptr<const Parsed> parsed_;
  std::string origin_;
};

}  // namespace chaski::jinja
