// The chat page as the program serves it: headers, types, ETags, and no file names another origin.
// scripts/check/page.py tests what the page does, in a browser.
#include <algorithm>
#include <filesystem>
#include <set>

#include "tests/kit/client.h"
#include "tests/kit/regex.h"

using namespace chaski::test;

namespace {

// The value of a header; empty if the response has none or several.
std::string page_header(const HttpResponse& response, const std::string& name) {
  std::string value;
  int count = 0;
  for (const std::string& line : lines_of(response.head)) {
    if (!line.starts_with(name + ": ")) continue;
    value = line.substr(name.size() + 2, line.find('\r') - name.size() - 2);
    ++count;
  }
  return count == 1 ? value : "";
}

// The paths of the page's files: a file that is missing in page_files.S is not served.
std::vector<std::string> page_paths() {
  std::vector<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator("main/serve/page")) {
    const std::string name = entry.path().filename();
    all.push_back(name == "index.html" ? "/" : "/page/" + name);
  }
  std::ranges::sort(all);
  return all;
}

std::string page_source(const std::string& path) {
  return read_file("main/serve/page/" + (path == "/" ? "index.html" : path.substr(6)));
}

std::string page_type(const std::string& path) {
  if (path == "/") return "text/html; charset=utf-8";
  if (path.ends_with(".js")) return "text/javascript; charset=utf-8";
  return path.ends_with(".css") ? "text/css; charset=utf-8" : "image/svg+xml";
}

}  // namespace

TEST_CASE("serve/page: each file has its bytes, type, ETag and the headers that forbid the rest") {
  std::set<std::string> tags;
  for (const std::string& path : page_paths()) {
    CAPTURE(path);
    const HttpResponse response = story_server().get(path);
    CHECK(response.status == 200);
    CHECK(response.body == page_source(path));
    CHECK(page_header(response, "Content-Type") == page_type(path));
    CHECK(page_header(response, "X-Content-Type-Options") == "nosniff");
    CHECK(page_header(response, "Referrer-Policy") == "no-referrer");
    CHECK(page_header(response, "X-Frame-Options") == "DENY");
    CHECK(page_header(response, "Cache-Control") == "no-cache");
    const std::string policy = page_header(response, "Content-Security-Policy");
    CHECK(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"));
    for (const char* part : {"connect-src 'self'", "base-uri 'none'", "frame-ancestors 'none'",
                             "require-trusted-types-for 'script'"})
      CHECK(policy.find(part) != std::string::npos);
    for (const char* word : {"unsafe", "http", "*", "data:"})
      CHECK(policy.find(word) == std::string::npos);

    const std::string tag = page_header(response, "ETag");
    CHECK(tag.size() == 18);
    CHECK(tags.insert(tag).second);
    const HttpResponse same = story_server().get(path, "If-None-Match: " + tag + "\r\n");
    CHECK(same.status == 304);
    CHECK(same.body.empty());
    CHECK(page_header(same, "ETag") == tag);
    CHECK(page_header(same, "Content-Security-Policy") == policy);
    CHECK(story_server().get(path, "If-None-Match: \"other\"\r\n").status == 200);
  }
  for (const char* path : {"/page/", "/page/../page/dom.js", "/page/%2e%2e/page.h", "/index.html",
                           "/page/page.js/", "/page/page.cpp", "//page/dom.js"})
    CHECK_MESSAGE(story_server().get(path).status == 404, path);
}

TEST_CASE("serve/page: no file names an outside origin, takes markup or has inline code") {
  // Namespaces of XML are names and no addresses. The scheme alone is compared with links.
  const StdRegex outside("(https?:)?//[a-z0-9-]+\\.[a-z]", true);
  for (const std::string& path : page_paths()) {
    CAPTURE(path);
    std::string text = page_source(path);
    const std::string space = "http://www.w3.org/2000/svg";
    if (const size_t at = text.find(space); at != std::string::npos) text.erase(at, space.size());
    CHECK_FALSE(outside.finds(text));
    for (const char* word : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
                             "eval(", "new Function", "DOMParser", "srcdoc", "@import"})
      CHECK_MESSAGE(text.find(word) == std::string::npos, word);
    for (const std::string& line : lines_of(text)) CHECK(line.size() <= 110);
    CHECK(lines_of(text).size() <= 600);
  }
  const std::string html = page_source("/");
  CHECK_FALSE(StdRegex("<script(?! type=\"module\" src=)|<style|\\son\\w+=|\\sstyle=|javascript:")
                  .finds(html));
  // Every address that the page's first file names is served.
  for (const std::string& path : StdRegex("(?:src|href)=\"([^\"#]+)\"").all(html))
    CHECK_MESSAGE(story_server().get("/" + path).status == 200, path);
}

TEST_CASE("serve/page: an answer begun with its own first tokens goes on as it did") {
  const auto ask = [](const std::string& begun, int tokens) {
    nlohmann::json messages = {{{"role", "user"}, {"content", "Once upon a time"}}};
    if (!begun.empty()) messages.push_back({{"role", "assistant"}, {"content", begun}});
    return story_server()
        .post("/v1/chat/completions",
              {{"messages", messages}, {"seed", 5}, {"max_tokens", tokens}, {"logprobs", true}})
        .json()["choices"][0];
  };
  const nlohmann::json whole = ask("", 24);
  const std::string text = whole["message"]["content"];
  std::string begun;
  for (int count = 1; count <= 16; ++count) {
    begun += whole["logprobs"]["content"][size_t(count - 1)]["token"].get<std::string>();
    if (count % 5 == 1)
      CHECK(begun + ask(begun, 24 - count)["message"]["content"].get<std::string>() == text);
  }
  const HttpResponse refused = story_server().post(
      "/v1/chat/completions",
      {{"messages",
        {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", "{"}}}},
       {"response_format", {{"type", "json_object"}}}});
  CHECK(refused.status == 400);
  CHECK(refused.json()["error"]["param"] == "messages");
}
