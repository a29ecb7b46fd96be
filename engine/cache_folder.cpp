#include "engine/cache_folder.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

std::string cache_folder() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache && cache[0] == '/') return std::string(cache) + "/chaski";
  return home && home[0] == '/' ? std::string(home) + "/.cache/chaski" : "";
}

std::string kept_text(const std::string& name) {
  if (cache_folder().empty()) return "";
  std::ifstream in(cache_folder() + "/" + name, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

void keep_text(const std::string& name, const std::string& text) {
  if (cache_folder().empty()) return;
  const std::string path = cache_folder() + "/" + name;
  std::error_code none;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), none);
  if (none) return;
  try {
    AtomicFile file(path);
    file.write(std::as_bytes(std::span(text)));
    file.commit();
  } catch (const Error&) {
  }
}

}  // namespace chaski
