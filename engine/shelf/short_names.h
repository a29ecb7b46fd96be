// Short names of small models for `chaski pull` and -m. A first chat then needs no search for a
// repository and a file.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace chaski {

struct ShortName {
  const char* name;          // "qwen3:0.6b"
  const char *model, *file;  // on the hub: OWNER/MODEL, and the file in it
  uint64_t bytes;
  const char* sha256;
  const char *licence, *good_for;
  const char* other_kind = "";  // architecture that chaski does not run (models/other_kinds.h)

  void expect_runnable() const;  // throws Error(bad_file), so that nothing is downloaded in vain
  std::string about() const;     // "Qwen3-0.6B-Q8_0.gguf, 639 MB, Apache-2.0"
};

std::span<const ShortName> short_names();
// Ignores case. Null if there is none.
const ShortName* find_short_name(std::string_view name);

}  // namespace chaski
