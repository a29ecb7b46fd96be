#include "engine/shelf/http.h"

#include <algorithm>
#include <cctype>
#include <exception>
#include <memory>
#include <optional>

#include "engine/shelf/curl.h"
#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

constexpr int kMostRedirects = 10;
constexpr long kConnectSeconds = 30, kSilentSeconds = 60;

std::string in_small_letters(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::optional<std::string> part_of(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl().url_get(url, part, &text, flags) != CURLUE_OK) return std::nullopt;
  const std::unique_ptr<char, decltype(curl().free)> owner(text, curl().free);
  return std::string(text);
}

std::string authority(const Url& url) { return url.scheme + "://" + url.host + ":" + url.port; }

// State of one transfer, for libcurl's callbacks.
struct Transfer {
  const HttpTake& take;
  const std::atomic<bool>* stop;
  HttpAnswer answer;
  bool handed = false, enough = false, refused = false;
  std::exception_ptr thrown;

  bool has_body() const { return answer.status == 200 || answer.status == 206; }
  bool hand(std::string_view part) {
    handed = true;
    try {
      enough = !take(answer, part);
    } catch (...) {
      thrown = std::current_exception();
    }
    return !enough && !thrown;
  }
};

// Called for each line of the head: "HTTP/1.1 206 Partial Content", "ETag: \"x\"", or an empty
// line.
size_t on_field(char* data, size_t, size_t size, void* to) {
  auto& answer = static_cast<Transfer*>(to)->answer;
  std::string_view line(data, size);
  while (!line.empty() && std::isspace(static_cast<unsigned char>(line.back())))
    line.remove_suffix(1);
  if (line.starts_with("HTTP/")) {
    std::erase_if(answer.fields, [](auto& f) { return !f.first.starts_with("x-linked-"); });
    const size_t at = std::min(line.find(' '), line.size());
    answer.status = std::atoi(std::string(line.substr(at)).c_str());
  } else if (const size_t colon = line.find(':'); colon != std::string_view::npos) {
    const size_t value = std::min(line.find_first_not_of(" \t", colon + 1), line.size());
    answer.fields.try_emplace(in_small_letters(std::string(line.substr(0, colon))),
                              line.substr(value));
  }
  return size;
}

size_t on_data(char* data, size_t, size_t size, void* to) {
  auto& transfer = *static_cast<Transfer*>(to);
  if (transfer.has_body()) return transfer.hand({data, size}) ? size : 0;
  transfer.refused = transfer.answer.status >= 400;
  return transfer.refused ? 0 : size;  // skips the body of a redirect
}

int on_progress(void* to, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const auto* stop = static_cast<Transfer*>(to)->stop;
  return stop && *stop;
}

// Sends one request to a checked URL. Returns the target of a redirect, or "".
std::string perform(const GetRequest& request, const std::string& at, bool own_host,
                    Transfer& transfer) {
  const Curl& c = curl();
  const std::unique_ptr<CURL, decltype(c.easy_cleanup)> easy(c.easy_init(), c.easy_cleanup);
  if (!easy) fail(Exit::memory, "not enough memory for libcurl");
  curl_slist* list = nullptr;
  for (const std::string& field : request.fields) list = c.slist_append(list, field.c_str());
  if (own_host && !request.token.empty())
    list = c.slist_append(list, ("Authorization: Bearer " + request.token).c_str());
  const std::unique_ptr<curl_slist, decltype(c.slist_free_all)> fields(list, c.slist_free_all);
  char why[CURL_ERROR_SIZE] = "";
  const auto set = [&](CURLoption option, auto value) {
    if (const CURLcode code = c.easy_setopt(easy.get(), option, value); code != CURLE_OK)
      fail(Exit::io, "{}: {}", kCurl, c.easy_strerror(code));
  };
  set(CURLOPT_URL, at.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_USERAGENT, "chaski");
  set(CURLOPT_HTTPHEADER, fields.get());
  set(CURLOPT_ERRORBUFFER, why);
  set(CURLOPT_HEADERFUNCTION, on_field), set(CURLOPT_HEADERDATA, &transfer);
  set(CURLOPT_WRITEFUNCTION, on_data), set(CURLOPT_WRITEDATA, &transfer);
  set(CURLOPT_XFERINFOFUNCTION, on_progress), set(CURLOPT_XFERINFODATA, &transfer);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);  // ignore the proxy's own answer
  set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L), set(CURLOPT_LOW_SPEED_TIME, kSilentSeconds);
  set(CURLOPT_BUFFERSIZE, 256L << 10);
  if (read_url(at, request.plain).is_this_machine()) set(CURLOPT_NOPROXY, "*");

  transfer.answer.status = 0, transfer.refused = false;
  const CURLcode code = c.easy_perform(easy.get());
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);
  char* next = nullptr;
  c.easy_getinfo(easy.get(), CURLINFO_REDIRECT_URL, &next);
  if (next) return next;
  if (code == CURLE_OK && transfer.has_body() && !transfer.handed) transfer.hand({});
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);
  HttpAnswer& answer = transfer.answer;
  if (code == CURLE_ABORTED_BY_CALLBACK) {
    answer.end = HttpAnswer::End::stopped;
  } else if (transfer.enough) {
    answer.end = HttpAnswer::End::enough;
  } else if (code != CURLE_OK && !transfer.refused) {
    answer.why = *why ? why : c.easy_strerror(code);
    answer.end = HttpAnswer::End::cut;
  }
  return "";
}

}  // namespace

bool Url::is_this_machine() const {
  return host == "localhost" || host == "[::1]" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos);
}

std::string without_query(const std::string& url) {
  std::string text = url.substr(0, url.find_first_of("?#"));
  const size_t scheme = text.find("://"), host = scheme == std::string::npos ? 0 : scheme + 3;
  const size_t user = text.rfind('@', text.find('/', host));
  return user == std::string::npos || user < host ? text : text.erase(host, user + 1 - host);
}

Url read_url(const std::string& text, PlainHttp plain) {
  const Curl& c = curl();
  const std::unique_ptr<CURLU, decltype(c.url_cleanup)> url(c.url(), c.url_cleanup);
  if (!url) fail(Exit::memory, "not enough memory for libcurl");
  const bool anywhere = plain == PlainHttp::anywhere;
  const char* const expected = anywhere ? "http://HOST:PORT or https://HOST" : "https://HOST/FILE";
  if (c.url_set(url.get(), CURLUPART_URL, text.c_str(), CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK)
    fail(Exit::usage, "{} is not a URL, expected {}", without_query(text), expected);
  const Url parts{part_of(url.get(), CURLUPART_SCHEME).value_or(""),
                  in_small_letters(part_of(url.get(), CURLUPART_HOST).value_or("")),
                  part_of(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT).value_or(""),
                  part_of(url.get(), CURLUPART_PATH, CURLU_URLDECODE).value_or("")};
  if (anywhere && parts.scheme != "https" && parts.scheme != "http")
    fail(Exit::usage, "{} begins with {}://, expected {}", without_query(text), parts.scheme,
         expected);
  const bool plain_is_allowed = anywhere || parts.is_this_machine();
  if (parts.scheme != "https" && !(parts.scheme == "http" && plain_is_allowed))
    fail(Exit::usage, "{} is not encrypted, expected https://", without_query(text));
  if (part_of(url.get(), CURLUPART_USER))
    fail(Exit::usage,
         "the URL contains a user name; secrets belong into --token-file FILE of pull, or into "
         "CHASKI_API_KEY for load-test");
  return parts;
}

std::string HttpAnswer::field(const std::string& name) const {
  const auto at = fields.find(name);
  return at == fields.end() ? "" : at->second;
}

HttpAnswer http_get(const GetRequest& request, const HttpTake& take,
                    const std::atomic<bool>* stop) {
  const Url first = read_url(request.url, request.plain);
  Transfer transfer{take, stop, {}, false, false, false, nullptr};
  std::string at = request.url;
  Url here = first;
  for (int i = 0; i <= kMostRedirects; ++i) {
    const std::string next = perform(request, at, authority(here) == authority(first), transfer);
    if (next.empty()) return transfer.answer;
    try {
      const Url there = read_url(next, request.plain);
      if (here.scheme == "https" && there.scheme != "https")
        fail(Exit::usage, "{} is not encrypted, expected https://", without_query(next));
      at = next, here = there;
    } catch (const Error& error) {
      fail(Exit::io, "{}: the server redirects to {}", without_query(request.url), error.what());
    }
  }
  fail(Exit::io, "{}: the server redirects more than {} times", without_query(request.url),
       kMostRedirects);
}

}  // namespace chaski
