// One GET over https by libcurl. The library is opened when it is asked for: it brings thirty
// others along, for which a `chaski run` should not wait. Plain http is for this machine alone.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace chaski {

struct Url {
  std::string scheme, host, port, path;  // the path decoded
};
// Throws Error(usage) for what is no https URL (http only to this machine), or has a password.
Url read_url(const std::string& url);
// What lines about a URL call it: what stands behind the path may be a key, before the host a
// password.
std::string without_query(const std::string& url);

struct HttpRequest {
  std::string url;
  std::string token;                // for the URL's own host, not for one that it is sent on to
  std::vector<std::string> fields;  // "Range: bytes=5-"
};

struct HttpAnswer {
  int status = 0;
  // Names in small letters. Of the last answer, and what begins with x-linked- of those before it.
  std::map<std::string, std::string> fields;
  std::string field(const std::string& name) const;

  enum class End { whole, cut, enough, stopped } end = End::whole;
  std::string why;  // it was cut
};

// Hands the body of an answer of status 200 or 206 to `take`, in parts; one that is empty comes as
// an empty part, of other answers nothing does. `take` says whether it wants more. What it throws
// comes out here. Redirects are followed as far as they lead to https. `stop` may be null. Where no
// answer comes at all the status is 0.
using HttpTake = std::function<bool(const HttpAnswer& so_far, std::string_view part)>;
HttpAnswer http_get(const HttpRequest& request, const HttpTake& take,
                    const std::atomic<bool>* stop);

}  // namespace chaski
