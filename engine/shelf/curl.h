// libcurl's functions. The library is loaded on first use, because it loads about thirty others,
// and `chaski run` should not wait for them.
#pragma once
#include <curl/curl.h>

namespace chaski {

constexpr const char* kCurl = "libcurl.so.4";

// The address of a function of the library. Throws Error(io) if the library is missing or too old.
void* symbol_of_curl(const char* name);

// The functions under their own names, without "curl_".
struct Curl {
#define CHASKI_CURL(name) \
  decltype(::curl_##name)* name = reinterpret_cast<decltype(name)>(symbol_of_curl("curl_" #name))
  CHASKI_CURL(easy_init);
  CHASKI_CURL(easy_cleanup);
  CHASKI_CURL(easy_setopt);
  CHASKI_CURL(easy_getinfo);
  CHASKI_CURL(easy_perform);
  CHASKI_CURL(easy_strerror);
  CHASKI_CURL(multi_init);
  CHASKI_CURL(multi_cleanup);
  CHASKI_CURL(multi_add_handle);
  CHASKI_CURL(multi_remove_handle);
  CHASKI_CURL(multi_perform);
  CHASKI_CURL(multi_poll);
  CHASKI_CURL(multi_info_read);
  CHASKI_CURL(multi_strerror);
  CHASKI_CURL(slist_append);
  CHASKI_CURL(slist_free_all);
  CHASKI_CURL(url);
  CHASKI_CURL(url_cleanup);
  CHASKI_CURL(url_get);
  CHASKI_CURL(url_set);
  CHASKI_CURL(free);
#undef CHASKI_CURL
};

// Loads the library at the first call. Throws Error(io). Thread-safe.
const Curl& curl();

}  // namespace chaski
