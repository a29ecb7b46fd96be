#include "engine/shelf/curl.h"

#include <dlfcn.h>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

void* symbol_of_curl(const char* name) {
  static void* const library = ::dlopen(kCurl, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    fail(Exit::io, "the network needs libcurl (Debian: apt-get install libcurl4): {}", ::dlerror());
  void* at = ::dlsym(library, name);
  if (!at) fail(Exit::io, "{} has no function {}, expected libcurl 7.85 or later", kCurl, name);
  return at;
}

const Curl& curl() {
  static const Curl curl;
  return curl;
}

}  // namespace chaski
