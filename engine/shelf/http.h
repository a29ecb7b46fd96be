// One GET request with libcurl, over https. Plain http works only for this machine, unless the
// caller allows it.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace chaski {

struct Url {
  std::string scheme, host, port, path;  // the path is decoded
  bool is_this_machine() const;
};
enum class PlainHttp { this_machine, anywhere };  // where a URL may begin with http://
// Throws Error(usage) if it is not https (or a permitted http), or contains a user or password.
Url read_url(const std::string& url, PlainHttp plain = PlainHttp::this_machine);
// The URL without user, password, query and fragment, for messages: these parts may be secret.
std::string without_query(const std::string& url);

struct GetRequest {
  std::string url;
  std::string token;                // sent to the URL's own host only, not after a redirect
  std::vector<std::string> fields;  // "Range: bytes=5-"
  PlainHttp plain = PlainHttp::this_machine;
};

struct HttpAnswer {
  int status = 0;
  // Header fields of the last answer, and x-linked-... of redirects before it. Names in lower case.
  std::map<std::string, std::string> fields;
  std::string field(const std::string& name) const;

  enum class End { whole, cut, enough, stopped } end = End::whole;
  std::string why;  // reason for End::cut
};

// Passes the body of a 200 or 206 answer to `take` in parts (an empty body as one empty part),
// other bodies not at all. `take` returns whether it wants more; its exceptions leave http_get().
// Follows redirects to https. `stop` may be null. The status is 0 if there is no answer.
using HttpTake = std::function<bool(const HttpAnswer& so_far, std::string_view part)>;
HttpAnswer http_get(const GetRequest& request, const HttpTake& take, const std::atomic<bool>* stop);

}  // namespace chaski
