#include "main/serve/gate.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "main/flags/values.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

constexpr std::chrono::minutes kMinute(1);

// "localhost:8080" and "[::1]:8080" without the port.
std::string name_of_host(std::string_view host) {
  if (host.starts_with('[')) return std::string(host.substr(1, host.find(']') - 1));
  return std::string(host.substr(0, host.find(':')));
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
  return lower;
}

bool is_address(const std::string& name) {
  unsigned char bytes[sizeof(in6_addr)];
  return ::inet_pton(AF_INET, name.c_str(), bytes) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), bytes) == 1;
}

// Takes the same time for every key of the same length.
bool same_key(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char differs = 0;
  for (size_t i = 0; i < a.size(); ++i) differs |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differs == 0;
}

[[noreturn]] void forbid(const std::string& message) {
  throw ApiError(403, "permission_error", "forbidden", message);
}

}  // namespace

std::vector<ApiKey> read_api_keys(const std::string& path) {
  std::vector<ApiKey> keys;
  std::istringstream lines(read_text(path));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line);
    ApiKey key;
    if (!(words >> key.key) || key.key.starts_with('#')) continue;
    for (std::string word; words >> word && !word.starts_with('#');) {
      const size_t equals = std::min(word.find('='), word.size());
      const std::string name = word.substr(0, equals),
                        value = equals < word.size() ? word.substr(equals + 1) : "";
      const std::optional<int> n = whole_of(value);
      if (name == "name" && !value.empty())
        key.name = value;
      else if (name == "requests" && n && *n > 0)
        key.requests = *n;
      else if (name == "tokens" && n && *n > 0)
        key.tokens = *n;
      else
        fail(Exit::bad_file,
             "{}: line {}: \"{}\" is unknown, expected name=NAME, requests=N or tokens=N (of a "
             "minute)",
             path, number, escaped(word));
    }
    if (!key.name.empty() && std::ranges::count(keys, key.name, &ApiKey::name) > 0)
      fail(Exit::bad_file, "{}: line {}: the name {} is taken, expected another one", path, number,
           escaped(key.name));
    keys.push_back(std::move(key));
  }
  if (keys.empty()) fail(Exit::bad_file, "{} has no keys, expected one a line", path);
  return keys;
}

Gate::Gate(Options options) : options_(std::move(options)) { read_keys(); }

void Gate::read_keys() {
  if (!options_.keys_file.empty()) keys_ = read_api_keys(options_.keys_file);
}

void Gate::check_host(std::string_view host) const {
  if (host.empty()) return;  // HTTP/1.0
  const std::string name = lower_case(name_of_host(host));
  if (name == "localhost" || name.ends_with(".localhost") || is_address(name) ||
      std::ranges::count(options_.hosts, name, lower_case) > 0)
    return;
  forbid(
      fmt::format("the host {} is not allowed, expected an address, localhost, or a name given "
                  "with --allow-host when the server was started",
                  escaped(name)));
}

std::string Gate::check_origin(std::string_view origin, std::string_view host) const {
  if (origin.empty()) return "";
  if (const size_t at = origin.find("://"); at != origin.npos && origin.substr(at + 3) == host)
    return "";
  for (const std::string& allowed : options_.origins)
    if (allowed == "*" || allowed == origin) return allowed == "*" ? "*" : std::string(origin);
  forbid(
      fmt::format("pages of {} may not use this server, expected its own page, or an origin "
                  "given with --allow-origin when the server was started",
                  escaped(origin)));
}

std::string Gate::check_key(std::string_view authorization, std::string_view x_api_key) {
  if (options_.keys_file.empty()) return "";
  constexpr std::string_view kBearer = "bearer ";
  const bool bears = lower_case(authorization.substr(0, kBearer.size())) == kBearer;
  const std::string_view given = bears ? authorization.substr(kBearer.size()) : x_api_key;
  const ApiKey* found = nullptr;
  for (const ApiKey& key : keys_)
    if (same_key(key.key, given)) found = &key;
  if (!found)
    throw ApiError(401, "authentication_error", "invalid_api_key",
                   given.empty() ? "the request has no API key, expected Authorization: Bearer KEY"
                                 : "the API key is unknown, expected one of --api-keys");
  Use& use = used_[found->owner()];
  const Clock::time_point now = Clock::now();
  while (!use.requests.empty() && now - use.requests.front() > kMinute) use.requests.pop_front();
  int tokens = 0;
  while (!use.tokens.empty() && now - use.tokens.front().first > kMinute) use.tokens.pop_front();
  for (const auto& [when, n] : use.tokens) tokens += n;
  // `oldest`: when it is a minute old, it no longer counts.
  const auto expect_below = [&](int used, int most, const char* what, Clock::time_point oldest) {
    if (most == 0 || used < most) return;
    ApiError error(
        429, "rate_limit_error", "rate_limit_exceeded",
        fmt::format("the key had {} {} in the last minute, expected at most {}", used, what, most));
    error.retry_seconds = std::chrono::duration<double>(oldest + kMinute - now).count();
    throw error;
  };
  if (!use.requests.empty())
    expect_below(int(use.requests.size()), found->requests, "requests", use.requests.front());
  if (!use.tokens.empty()) expect_below(tokens, found->tokens, "tokens", use.tokens.front().first);
  if (found->requests > 0) use.requests.push_back(now);
  return found->owner();
}

void Gate::count_tokens(const std::string& owner, int tokens) {
  const auto key = std::ranges::find(keys_, owner, &ApiKey::owner);
  if (key != keys_.end() && key->tokens > 0) used_[owner].tokens.emplace_back(Clock::now(), tokens);
}

}  // namespace chaski
