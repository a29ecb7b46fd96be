// Which clients may use the server: the names of hosts and origins, and API keys.
#pragma once
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "main/api/api_error.h"

namespace chaski {

// A key with the most requests and tokens that it may have in a minute; 0: no limit.
struct ApiKey {
  std::string key, name;  // the name may be empty
  int requests = 0, tokens = 0;
  // Identifies the client in counts and conversations: by the name, also when the key is replaced;
  // without a name by the key, at any line of the file.
  std::string owner() const { return name.empty() ? "key " + key : "name " + name; }
};
// One key a line, after it "name=NAME requests=N tokens=N" in any order. A word that begins with #
// begins a comment. Names differ. Throws Error(io | bad_file) that names the line.
std::vector<ApiKey> read_api_keys(const std::string& path);

// Not thread-safe.
class Gate {
 public:
  struct Options {
    std::vector<std::string> hosts, origins;  // allowed by name; an origin "*" allows all
    std::string keys_file;                    // empty: no keys
  };
  explicit Gate(Options options);
  // Reads the file of keys again. Throws what read_api_keys() throws, and then nothing changes.
  void read_keys();

  // Refuses a name that another site could have pointed at this machine (DNS rebinding). Throws
  // ApiError (403).
  void check_host(std::string_view host) const;
  // The value of Access-Control-Allow-Origin; empty: none is needed. Throws ApiError (403) for
  // pages of other origins that no flag allows.
  std::string check_origin(std::string_view origin, std::string_view host) const;
  // Takes the key of "Authorization: Bearer KEY" or "x-api-key: KEY", and counts the request.
  // Returns the owner of the key, empty without --api-keys. Throws ApiError (401, 429).
  std::string check_key(std::string_view authorization, std::string_view x_api_key);
  // Counts tokens of answers to requests with this key.
  void count_tokens(const std::string& owner, int tokens);

 private:
  using Clock = std::chrono::steady_clock;
  struct Use {
    std::deque<Clock::time_point> requests;
    std::deque<std::pair<Clock::time_point, int>> tokens;
  };

  const Options options_;
  std::vector<ApiKey> keys_;
  std::map<std::string, Use> used_;  // in the last minute, by the owner of a key
};

}  // namespace chaski
