#include "main/serve/page.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstdint>
#include <map>
#include <string>

namespace {

// A row of the table in page_files.S.
struct PageRow {
  const char* name;
  const char* bytes;
  uint64_t size;
};

extern "C" const PageRow chaski_page_begin[], chaski_page_end[];

std::string_view page_type(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "text/javascript; charset=utf-8";
}

struct PageEntry {
  std::string etag;
  chaski::PageFile file;
};

std::map<std::string, PageEntry, std::less<>> read_page_table() {
  std::map<std::string, PageEntry, std::less<>> table;
  for (const PageRow* at = chaski_page_begin; at != chaski_page_end; ++at) {
    std::string_view name = at->name, bytes{at->bytes, at->size};
    std::string path = name == "index.html" ? "/" : fmt::format("/page/{}", name);
    PageEntry& entry = table[path];
    entry.etag = fmt::format("\"{:016x}\"", XXH3_64bits(bytes.data(), bytes.size()));
    entry.file = {page_type(name), bytes, entry.etag};
  }
  return table;
}

}  // namespace

namespace chaski {

std::optional<PageFile> page_file(std::string_view path) {
  static const std::map<std::string, PageEntry, std::less<>> table = read_page_table();
  auto found = table.find(path);
  if (found == table.end()) return std::nullopt;
  return found->second.file;
}

std::span<const std::pair<std::string_view, std::string_view>> page_headers() {
  static constexpr std::pair<std::string_view, std::string_view> kHeaders[] = {
      {"Content-Security-Policy",
       "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
       "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
       "require-trusted-types-for 'script'; trusted-types 'none'"},
      {"X-Content-Type-Options", "nosniff"},
      {"X-Frame-Options", "DENY"},
      {"Referrer-Policy", "no-referrer"},
      {"Cross-Origin-Opener-Policy", "same-origin"},
      {"Cross-Origin-Resource-Policy", "same-origin"},
      {"Permissions-Policy", "camera=(), geolocation=(), microphone=()"},
      // The browser keeps a file and asks by its ETag whether it changed.
      {"Cache-Control", "no-cache"},
  };
  return kHeaders;
}

}  // namespace chaski
