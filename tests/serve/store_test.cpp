// chaski serve --store: the page's conversations on the server.
#include "tests/kit/client.h"

using namespace chaski::test;
using nlohmann::json;

namespace {

const std::string kAll = "/page/api/conversations";

json conversation(const std::string& id, const std::string& text = "Hi", double changed = 1700) {
  return {{"id", id}, {"changed", changed}, {"nodes", {{"root", {{"text", text}}}}}};
}

}  // namespace

TEST_CASE("serve/--store: conversations are written, listed, read and deleted, over a restart") {
  const TempFolder folder;
  const std::string path = folder / "store";
  const json first = conversation("a-1", "\u00e9"), second = conversation("b_2");
  {
    Serving server({"--no-log", "--store", path, "--store-size", "1000"});
    CHECK(server.get(kAll).json()["conversations"] == json::array());
    CHECK(server.post(kAll + "/a-1", first).status == 200);
    CHECK(server.post(kAll + "/b_2", conversation("b_2", "old")).status == 200);
    CHECK(server.post(kAll + "/b_2", second).status == 200);
    const auto refused = [&](const std::string& id, const json& body, int status) {
      const HttpResponse response = server.post(kAll + "/" + id, body);
      CHECK_MESSAGE(response.status == status, response.body);
    };
    refused("other", first, 400);
    refused("a-1", {{"id", "a-1"}}, 400);
    refused("..", conversation(".."), 400);
    refused("..%2f..%2fx", conversation("x"), 400);
    refused("a/b", conversation("a/b"), 400);
    refused(std::string(65, 'a'), conversation(std::string(65, 'a')), 400);
    refused("big", conversation("big", std::string(2000, 'x')), 507);
    const HttpResponse large =
        server.post(kAll + "/l", conversation("l", std::string(9 << 20, 'x')));
    CHECK(large.status == 413);
    CHECK(server.get(kAll + "/none").status == 404);
    CHECK(server.post(kAll, first).status == 405);
    const auto from = [&](const std::string& origin) {
      return server.get(kAll, "Origin: " + origin + "\r\n").status;
    };
    CHECK(from("http://localhost") == 200);
    CHECK(from("http://evil.example") == 403);
    server.program().signal(SIGTERM);
    CHECK(server.program().wait().status == 0);
  }
  Serving server({"--no-log", "--store", path, "--allow-origin", "https://chat.example"});
  const json list = server.get(kAll).json()["conversations"];
  REQUIRE(list.size() == 2);
  for (const json& one : list) CHECK(one["changed"] == 1700);
  CHECK(server.get(kAll + "/a-1").json() == first);
  CHECK(server.get(kAll + "/b_2").json() == second);
  // An origin that may ask for answers may not ask for conversations.
  CHECK(server.get(kAll, "Origin: https://chat.example\r\n").status == 403);
  CHECK(server.send(request_text("DELETE", kAll + "/a-1")).status == 200);
  CHECK(server.get(kAll + "/a-1").status == 404);
  CHECK(server.get(kAll).json()["conversations"].size() == 1);
  CHECK(story_server().get(kAll).status == 404);
  write_file(folder / "file", "x");
  check_one_line(chaski_run({"serve", "-m", kStory, "--store", folder / "file/x"}), 5,
                 "cannot be created as a folder");
}

TEST_CASE("serve/--store: each API key sees its own conversations") {
  const TempFolder folder;
  const std::string keys = write_file(folder / "keys", "one\ntwo\n");
  const Serving server({"--no-log", "--store", folder / "store", "--api-keys", keys});
  const std::string one = "x-api-key: one\r\n", two = "x-api-key: two\r\n";
  CHECK(server.get(kAll).status == 401);
  CHECK(server.post(kAll + "/a", conversation("a")).status == 401);
  CHECK(server.post(kAll + "/a", conversation("a"), one).status == 200);
  CHECK(server.get(kAll, one).json()["conversations"].size() == 1);
  CHECK(server.get(kAll, two).json()["conversations"].empty());
  CHECK(server.get(kAll + "/a", two).status == 404);
}

TEST_CASE("serve/--store: keys keep their conversations when the file of keys changes") {
  const TempFolder folder;
  const std::string keys = write_file(folder / "keys", "one\ntwo\nthree name=anna\n");
  Serving server({"--no-log", "--store", folder / "store", "--api-keys", keys});
  const auto as = [](const std::string& key) { return "x-api-key: " + key + "\r\n"; };
  for (const std::string key : {"one", "two", "three"})
    CHECK(server.post(kAll + "/" + key, conversation(key), as(key)).status == 200);
  write_file(keys, "two\nfour name=anna\n");
  server.program().signal(SIGHUP);
  CHECK(soon([&] { return server.get(kAll, as("one")).status == 401; }));
  const auto ids = [&](const std::string& key) {
    std::vector<std::string> all;
    const json listed = server.get(kAll, as(key)).json();
    for (const json& one : listed["conversations"]) all.push_back(one["id"]);
    return all;
  };
  CHECK(ids("two") == std::vector<std::string>{"two"});
  CHECK(ids("four") == std::vector<std::string>{"three"});
}
