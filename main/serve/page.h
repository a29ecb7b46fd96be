// The files of the chat page, which are compiled into the program (main/serve/page/).
#pragma once
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace chaski {

struct PageFile {
  std::string_view type;   // value of Content-Type
  std::string_view bytes;  // the body
  std::string_view etag;   // value of ETag, with its quotes; changes with the bytes
};

// The file at a path of the URL without query: "/" is index.html, "/page/NAME" each other file. The
// comparison is exact, so no path leads out of the table. Thread-safe. The views live as long as
// the program.
std::optional<PageFile> page_file(std::string_view path);

// The headers (name, value) that each answer with a file of the page carries, a 304 included. They
// forbid code and resources that are not files of this origin.
std::span<const std::pair<std::string_view, std::string_view>> page_headers();

}  // namespace chaski
