// chaski pull with a server in the test, which serves complete, truncated, wrong and missing files.
#include <nlohmann/json.hpp>

#include "tests/cli/pull_kit.h"

using namespace chaski::test;
namespace fs = std::filesystem;

TEST_CASE("base: SHA-256 of the standard's examples") {
  CHECK(sum_of("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sum_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sum_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sum_of(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  chaski::Sha256 parts;
  const std::string text = some_bytes(1000);
  for (size_t at = 0, n = 1; at < text.size(); at += n, n = n * 2 % 129)
    parts.add(std::as_bytes(std::span(text).subspan(at, std::min(n, text.size() - at))));
  CHECK(parts.finish() == sum_of(text));
}

TEST_CASE("cli/pull: a file by its URL, and -m accepts its name afterwards") {
  const Shelf shelf;
  const std::string story = read_file(kStory);
  Server server([&](const std::string& path, const std::string& head, Connection& to) {
    if (path == "/a") return to.put(reply("302 Found", "Location: /b/\r\n", "moved"));
    if (path == "/README.md") return to.put(reply("200 OK", "", "# Tales\n"));
    if (path == "/noise.gguf") return to.put(reply("200 OK", "", some_bytes(5000)));
    if (path == "/b/") return to.put(reply("307 Temporary", "Location: /tales.quipu\r\n", ""));
    to.put(reply_with(story, head));
  });
  const std::string url = server.url() + "/tales.quipu?key=secret";
  const Outcome first = chaski_run({"pull", url, "--sha256", sum_of(story)});
  CHECK_MESSAGE(first.status == 0, first.err);
  CHECK(first.out == shelf / "tales.quipu\n");
  CHECK_MESSAGE(first.error_says("checksums match; chaski run -m tales\n"), first.err);
  CHECK(read_file(shelf / "tales.quipu") == story);
  CHECK(files_in(shelf.folder) == 1);
  CHECK(chaski_run({"run", "-m", "tales", "-p", "The", "-n", "3"}).status == 0);

  // An existing file with the right checksum is not downloaded again.
  const size_t before = server.heads().size();
  const Outcome again = chaski_run({"pull", url, "--sha256", sum_of(story), "--json"});
  CHECK_MESSAGE(again.error_says("already downloaded"), again.err);
  CHECK(server.heads().size() == before);
  const nlohmann::json said = nlohmann::json::parse(again.out);
  CHECK(said["model"] == "tales");
  CHECK(said["files"][0]["fetched"] == 0);
  CHECK(said["files"][0]["sha256"] == sum_of(story));

  // A file that is not a model is downloaded, too, but not offered as one.
  const Outcome page = chaski_run({"pull", server.url() + "/README.md"});
  CHECK_MESSAGE(page.status == 0, page.err);
  CHECK_MESSAGE(page.error_says("MB in 1 file, downloaded in "), page.err);
  CHECK_MESSAGE(!page.error_says("chaski run"), page.err);
  const Outcome noise = chaski_run({"pull", server.url() + "/noise.gguf"});
  CHECK_MESSAGE(noise.status == 0, noise.err);
  CHECK_MESSAGE(noise.error_says("note: chaski cannot run it: "), noise.err);
  CHECK_MESSAGE(!noise.error_says("chaski run"), noise.err);

  const Outcome moved = chaski_run({"pull", server.url() + "/a", "--to", shelf.tmp / "x/y", "-q"});
  CHECK_MESSAGE(moved.status == 0, moved.err);
  CHECK(moved.err.empty());
  CHECK(read_file(shelf.tmp / "x/y/a") == story);
}

TEST_CASE("cli/pull: a partial download continues, and one of a changed file starts again") {
  const Shelf shelf;
  const std::string file = some_bytes(300000), other = some_bytes(200000, 7);
  std::string version = "\"one\"", now = file;
  std::atomic<size_t> keep = 100000;
  Server server([&](const std::string&, const std::string& head, Connection& to) {
    const std::string all = reply_with(now, head, version);
    to.put(keep > 0 ? cut(all, keep.exchange(0)) : all);
  });
  // Connects again after the connection broke.
  const std::string url = server.url() + "/x.gguf", path = shelf / "x.gguf";
  const Outcome whole = chaski_run({"pull", url});
  CHECK_MESSAGE(whole.status == 0, whole.err);
  CHECK(read_file(path) == file);
  REQUIRE(server.heads().size() == 2);
  CHECK(contains(server.heads()[1], "Range: bytes=100000-"));
  CHECK(contains(server.heads()[1], "If-Range: \"one\""));
  CHECK(files_in(shelf.folder) == 2);  // the file and its tag

  // Continues a part of an earlier run, unless the version has changed.
  fs::remove(path);
  write_file(path + ".part", file.substr(0, 123456));
  write_file(path + ".part.tag", "\"one\"\n");
  CHECK(chaski_run({"pull", url, "--sha256", sum_of(file)}).status == 0);
  CHECK(contains(server.heads().back(), "Range: bytes=123456-"));
  CHECK(read_file(path) == file);
  fs::remove(path);
  write_file(path + ".part", file.substr(0, 123456));
  write_file(path + ".part.tag", "\"one\"\n");
  now = other, version = "\"two\"";
  const Outcome changed = chaski_run({"pull", url});
  CHECK_MESSAGE(changed.status == 0, changed.err);
  CHECK_MESSAGE(changed.error_says("starts again"), changed.err);
  CHECK(read_file(path) == other);
  CHECK(files_in(shelf.folder) == 2);
}

TEST_CASE("cli/pull: Ctrl-C keeps the part and says how to continue") {
  const Shelf shelf;
  const std::string file = some_bytes(400000);
  std::atomic<bool> hangs = true;
  Server server([&](const std::string&, const std::string& head, Connection& to) {
    to.put(hangs ? cut(reply_with(file, head), 150000) : reply_with(file, head));
    if (hangs) to.hang();
  });
  const std::string part = shelf / "x.gguf.part";
  Program program({"pull", server.url() + "/x.gguf"}, "");
  for (int i = 0; i < 500; ++i) {
    std::error_code none;
    if (fs::file_size(part, none) == 150000 && !none) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  program.signal(SIGINT);
  const Outcome stopped = program.wait();
  CHECK(stopped.status == 130);
  CHECK_MESSAGE(stopped.error_says("x.gguf.part has 150000 bytes; run the same command again"),
                stopped.err);
  CHECK(stopped.out.empty());
  CHECK(!fs::exists(shelf / "x.gguf"));
  hangs = false;
  CHECK(chaski_run({"pull", server.url() + "/x.gguf"}).status == 0);
  CHECK(read_file(shelf / "x.gguf") == file);
  CHECK(contains(server.heads().back(), "Range: bytes=150000-"));
}

TEST_CASE("cli/pull: each error is one line, and no incomplete file has the final name") {
  const Shelf shelf;
  const std::string file = some_bytes(5000);
  Server server([&](const std::string& path, const std::string& head, Connection& to) {
    if (path == "/gone.gguf") return to.put(reply("404 Not Found", "", "no"));
    if (path == "/locked.gguf")
      return to.put(contains(head, "Authorization: Bearer open\r\n")
                        ? reply_with(file, head)
                        : reply("401 Unauthorized", "", "no"));
    if (path == "/busy.gguf") return to.put(reply("503 Busy", "", ""));
    if (path == "/page.gguf")
      return to.put(reply("200 OK", "Content-Type: text/html; charset=utf-8\r\n", "<html>"));
    if (path == "/out.gguf")
      return to.put(reply("302 Found", "Location: http://example.invalid/x.gguf\r\n", ""));
    if (path == "/round.gguf") return to.put(reply("302 Found", "Location: /round.gguf\r\n", ""));
    if (path == "/short.gguf") return to.put(cut(reply("200 OK", "", file), 1000));
    if (path.starts_with("/error."))
      return to.put(reply("200 OK", "", R"({"error": "come again\r"})" + std::string(5000, ' ')));
    if (path == "/tiny.gguf") return to.put(reply("200 OK", "", "GG"));
    if (path == "/linked.gguf")
      return to.put(reply("200 OK", "X-Linked-ETag: \"" + sum_of("x") + "\"\r\n", file));
    to.put(reply_with(file, head));
  });
  const auto pull = [&](const std::string& name) {
    return chaski_run({"pull", server.url() + name});
  };
  check_one_line(pull("/gone.gguf"), 5, "/gone.gguf does not exist on the server (404)");
  check_one_line(pull("/locked.gguf"), 5, "denies access (401), expected --token-file FILE");
  check_one_line(pull("/busy.gguf"), 5, "the server answers with status 503");
  check_one_line(pull("/page.gguf"), 5, "is a web page");
  check_one_line(pull("/out.gguf"), 5,
                 "redirects to http://example.invalid/x.gguf is not encrypted");
  check_one_line(pull("/round.gguf"), 5, "redirects more than 10 times");
  check_one_line(pull("/short.gguf"), 5, "only 1000 of 5000 bytes were downloaded");
  fs::remove(shelf / "short.gguf.part"), fs::remove(shelf / "short.gguf.part.tag");
  check_one_line(pull("/linked.gguf"), 3, "expected " + sum_of("x") + "; removed it");
  for (const char* name : {"/error.gguf", "/error.quipu", "/error.safetensors", "/tiny.gguf"})
    check_one_line(pull(name), 3, "expected a GGUF, .quipu or safetensors file");
  check_one_line(pull("/error.gguf"), 3, R"(is not a model, because it begins with "{"error":)");
  check_one_line(pull("/"), 2, "does not name a file");
  check_one_line(chaski_run({"pull", "https" + server.url().substr(4) + "/x.gguf"}), 5,
                 "cannot be downloaded: ");
  check_one_line(chaski_run({"pull", "http://example.invalid/x.gguf"}), 2, "is not encrypted");
  check_one_line(chaski_run({"pull", "ftp://127.0.0.1/x.gguf"}), 2, "is not encrypted");
  check_one_line(chaski_run({"pull", "https://a:b@example.invalid/x.gguf"}), 2, "--token-file");
  check_one_line(chaski_run({"pull", "http://127.0.0.1:1/x.gguf"}), 5, "cannot be downloaded: ");
  check_one_line(chaski_run({"pull", server.url() + "/x.gguf", "--sha256", "abc"}), 2,
                 "expected 64 hexadecimal digits");
  check_one_line(chaski_run({"pull", server.url() + "/x.gguf", "--to", "/proc/no"}), 5, "/proc/no");
  check_one_line(
      Program({"-c", "ulimit -f 2; exec " + chaski_binary() + " pull " + server.url() + "/x.gguf"},
              "", "", "/bin/sh")
          .wait(),
      5, "x.gguf.part: cannot be written: File too large");
  check_one_line(chaski_run({"pull", "author/tiny"}), 2,
                 "author/tiny: CHASKI_HUB=none forbids downloads");
  for (const auto& left : fs::directory_iterator(shelf.folder))
    CHECK_MESSAGE(left.path().filename().string().starts_with("x.gguf.part"), left.path().string());

  const std::string key = write_file(shelf.tmp / "key", "open\n");
  const Outcome opened = chaski_run({"pull", server.url() + "/locked.gguf", "--token-file", key});
  CHECK_MESSAGE(opened.status == 0, opened.err);
}

TEST_CASE("cli/pull: a token goes to its host only, a checksum comes from the first host") {
  const Shelf shelf;
  const std::string file = some_bytes(5000);
  std::string sum = sum_of(file);
  Server store([&](const std::string&, const std::string& head, Connection& to) {
    to.put(reply_with(file, head));
  });
  Server hub([&](const std::string&, const std::string&, Connection& to) {
    to.put(reply("302 Found",
                 "X-Linked-ETag: \"" + sum + "\"\r\nLocation: " + store.url() + "/blob\r\n", "on"));
  });
  const std::string key = write_file(shelf.tmp / "key", "open\n");
  const Arguments pull = {"pull", hub.url() + "/x.gguf", "--token-file", key, "--json"};
  const Outcome fetched = chaski_run(pull);
  CHECK_MESSAGE(fetched.status == 0, fetched.err);
  CHECK(nlohmann::json::parse(fetched.out)["files"][0]["proven"] == true);
  CHECK(read_file(shelf / "x.gguf") == file);
  REQUIRE(hub.heads().size() == 1);
  REQUIRE(store.heads().size() == 1);
  CHECK(contains(hub.heads()[0], "Authorization: Bearer open"));
  CHECK(!contains(store.heads()[0], "Authorization"));
  fs::remove(shelf / "x.gguf");
  sum[0] = sum[0] == '0' ? '1' : '0';
  check_one_line(chaski_run(pull), 3, "expected " + sum);
}

TEST_CASE("cli/pull: names on a hub: one quantization, all parts of a model, a folder") {
  const Shelf shelf;
  const std::string one = some_bytes(3000, 1), two = some_bytes(4000, 2), three = read_file(kStory);
  const std::string folder = golden("models/qwen2");
  Server server([&](const std::string& path, const std::string& head, Connection& to) {
    const auto lists = [&](const std::string& files) {
      to.put(reply("200 OK", "", R"({"id": "x", "siblings": [)" + files + "]}"));
    };
    const auto listed = [](const std::string& name, const std::string& file) {
      return R"({"rfilename": ")" + name + R"(", "size": )" + std::to_string(file.size()) +
             R"(, "lfs": {"sha256": ")" + sum_of(file) + R"("}})";
    };
    const std::string some = "/author/many-GGUF/resolve/main/", tiny = "/author/tiny/resolve/main/";
    if (path.starts_with("/api/models/author/many-GGUF"))
      return lists(listed("many.Q8_0.gguf", one) + "," + listed("many.Q4_K_M.gguf", three) + "," +
                   listed("mmproj-many.gguf", one) + ", {\"rfilename\": \"../../evil.gguf\"}," +
                   listed("$(touch x).gguf", one) + "," + listed("`x`.gguf", one) + "," +
                   listed("big/many.F16-00002-of-00002.gguf", two) + "," +
                   listed("big/many.F16-00001-of-00002.gguf", one) + "," +
                   listed("half.F32-00001-of-00002.gguf", one) + "," +
                   listed("bad.Q2_K.gguf", two));
    if (path.starts_with("/api/models/author/tiny"))
      return lists(R"({"rfilename": "config.json"}, {"rfilename": "model.safetensors"},
                      {"rfilename": "onnx/model.safetensors"}, {"rfilename": "picture.png"})");
    if (path.starts_with("/api/models/author/empty")) return lists("");
    if (path == some + "many.Q8_0.gguf") return to.put(reply_with(one, head));
    if (path == some + "many.Q4_K_M.gguf") return to.put(reply_with(three, head));
    if (path == some + "big/many.F16-00001-of-00002.gguf") return to.put(reply_with(one, head));
    if (path == some + "big/many.F16-00002-of-00002.gguf") return to.put(reply_with(two, head));
    if (path == some + "bad.Q2_K.gguf") return to.put(reply_with(some_bytes(4000, 9), head));
    if (path.starts_with(tiny) && fs::exists(folder + "/" + path.substr(tiny.size())))
      return to.put(reply("200 OK", "", read_file(folder + "/" + path.substr(tiny.size()))));
    to.put(reply("404 Not Found", "", ""));
  });
  setenv("CHASKI_HUB", (server.url() + "/").c_str(), 1);
  const std::string many = shelf / "author/many-GGUF/";

  const Outcome usual = chaski_run({"pull", "author/many-GGUF"});
  CHECK_MESSAGE(usual.status == 0, usual.err);
  CHECK(usual.out == many + "many.Q4_K_M.gguf\n");
  CHECK(read_file(many + "many.Q4_K_M.gguf") == three);
  CHECK(chaski_run({"pull", "author/many-GGUF:q8_0"}).out == many + "many.Q8_0.gguf\n");

  const Outcome split = chaski_run({"pull", "author/many-GGUF:F16"});
  CHECK_MESSAGE(split.status == 0, split.err);
  CHECK(split.out == many + "big/many.F16-00001-of-00002.gguf\n");
  CHECK_MESSAGE(split.error_says("2 files"), split.err);
  CHECK(read_file(many + "big/many.F16-00002-of-00002.gguf") == two);
  // The URL of any part downloads all parts.
  const Outcome by_url = chaski_run(
      {"pull", server.url() + "/author/many-GGUF/resolve/main/big/many.F16-00002-of-00002.gguf"});
  CHECK_MESSAGE(by_url.status == 0, by_url.err);
  CHECK(by_url.out == shelf / "many.F16-00001-of-00002.gguf\n");
  CHECK(read_file(shelf / "many.F16-00001-of-00002.gguf") == one);

  check_one_line(chaski_run({"pull", "author/many-GGUF:Q3_K"}), 2, "has no Q3_K, expected");
  check_one_line(chaski_run({"pull", "author/many-GGUF:Q8"}), 2, "has no Q8, expected");
  check_one_line(chaski_run({"pull", "author/many-GGUF:F32"}), 5, "half.F32-00002-of-00002.gguf");
  check_one_line(chaski_run({"pull", "author/many-GGUF:Q2_K"}), 3, "expected " + sum_of(two));
  check_one_line(chaski_run({"pull", "author/many-GGUF", "--file", "*.bin"}), 2, "no such file");
  check_one_line(chaski_run({"pull", "author/empty"}), 2, "has no model that chaski can read");
  check_one_line(chaski_run({"pull", "author/none"}), 5, "does not exist on the server (404)");
  for (const char* name : {"someone", "a/b/c", "../x", "a/..", "a/b:", "/etc/passwd"})
    check_one_line(chaski_run({"pull", name}), 2, "is not the name of a model");
  check_one_line(chaski_run({"pull", "smolm2"}), 2, "the name of a model, did you mean smollm2?");
  CHECK(chaski_run({"pull", "author/many-GGUF", "--file", "*Q8*"}).status == 0);
  fs::remove_all(many + "big");
  CHECK(chaski_run({"pull", "author/many-GGUF", "--file", "*F16-00001*"}).out ==
        many + "big/many.F16-00001-of-00002.gguf\n");
  CHECK(read_file(many + "big/many.F16-00002-of-00002.gguf") == two);
  for (const char* name : {"*evil*", "*$*"})
    check_one_line(chaski_run({"pull", "author/many-GGUF", "--file", name}), 2, "no such file");

  const Outcome whole = chaski_run({"pull", "author/tiny"});
  CHECK_MESSAGE(whole.status == 0, whole.err);
  CHECK(whole.out == shelf / "author/tiny\n");
  CHECK_MESSAGE(whole.error_says("chaski run -m tiny\n"), whole.err);
  CHECK(read_file(shelf / "author/tiny/config.json") == read_file(folder + "/config.json"));
  CHECK(!fs::exists(shelf / "author/tiny/picture.png"));
  CHECK(contains(server.heads().back(), "GET /author/tiny/resolve/main/config.json"));
  CHECK(chaski_run({"inspect", "tiny"}).status == 0);
  // Small files without a checksum are downloaded again and compared.
  const Outcome same = chaski_run({"pull", "author/tiny"});
  CHECK_MESSAGE(same.status == 0, same.err);
  write_file(shelf / "author/tiny/config.json", "{}");
  check_one_line(chaski_run({"pull", "author/tiny"}), 2, "config.json already exists with");
  CHECK(read_file(shelf / "author/tiny/config.json") == "{}");
}

TEST_CASE("cli/pull: names with characters that a shell or a terminal interprets are refused") {
  const Shelf shelf;
  Server server([&](const std::string&, const std::string& head, Connection& to) {
    to.put(reply_with(some_bytes(5000), head));
  });
  const std::string url = server.url();
  for (const char* name :
       {"$(x).gguf", "%24x.gguf", "%60x%60.gguf", "x%22.gguf", "x%27.gguf", "x;y.gguf",
        "x%7Cy.gguf", "x&y.gguf", "x%3Cy.gguf", "x%5Cy.gguf", "x%C2%9B31m.gguf", "x%9B31m.gguf"})
    check_one_line(chaski_run({"pull", url + "/" + name}), 2,
                   "the name of the file has control characters");
  check_one_line(chaski_run({"pull", url + "/x%0Ay.gguf"}), 2, "does not name a file");
  check_one_line(chaski_run({"pull", url + "/" + std::string(201, 'x')}), 2,
                 "has 201 bytes, expected at most 200");
  check_one_line(chaski_run({"pull", url + "/x%2D00001-of-00002.gguf"}), 2,
                 "expected a URL that ends in \"-00001-of-00002.gguf\"");
  CHECK(chaski_run({"pull", url + "/na\u00efve%20x.gguf"}).status == 0);
  for (const std::string secret : {"ftp://me:secret@127.0.0.1/x.gguf", "me:secret@x/y/z",
                                   "https://me:secret@h:port/x", "http://h.invalid/x#secret"}) {
    const Outcome said = chaski_run({"pull", secret});
    check_one_line(said, 2, "expected");
    CHECK_MESSAGE(!said.error_says("secret"), said.err);
  }
  setenv("CHASKI_HUB", "my hub", 1);
  check_one_line(chaski_run({"pull", "author/x"}), 2, "CHASKI_HUB: my hub is not a URL");
}

TEST_CASE("cli/pull: a second download of the same file is refused") {
  const Shelf shelf;
  const std::string file = some_bytes(400000);
  std::atomic<bool> hangs = true;
  Server server([&](const std::string&, const std::string& head, Connection& to) {
    to.put(hangs ? cut(reply_with(file, head), 150000) : reply_with(file, head));
    if (hangs) to.hang();
  });
  const std::string url = server.url() + "/x.gguf", part = shelf / "x.gguf.part";
  Program first({"pull", url}, "");
  for (int i = 0; i < 500; ++i) {
    std::error_code none;
    if (fs::file_size(part, none) == 150000 && !none) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  check_one_line(chaski_run({"pull", url}), 5,
                 "x.gguf.part: another chaski process is downloading it");
  CHECK(read_file(part).size() == 150000);
  CHECK(fs::exists(part + ".tag"));
  first.signal(SIGINT);
  CHECK(first.wait().status == 130);
  hangs = false;
  CHECK(chaski_run({"pull", url}).status == 0);
  CHECK(contains(server.heads().back(), "Range: bytes=150000-"));
  CHECK(read_file(shelf / "x.gguf") == file);
}

TEST_CASE("cli/pull: a different file with the same name is not replaced") {
  const Shelf shelf;
  const std::string file = some_bytes(2000000), other = some_bytes(2000000, 7);
  Server server([&](const std::string& path, const std::string& head, Connection& to) {
    to.put(path == "/bare.gguf" ? reply("200 OK", "", file) : reply_with(file, head));
  });
  const std::string url = server.url() + "/x.gguf", path = shelf / "x.gguf";
  CHECK(chaski_run({"pull", url}).status == 0);
  const Outcome again = chaski_run({"pull", url, "--json"});
  CHECK_MESSAGE(again.status == 0, again.err);
  CHECK(nlohmann::json::parse(again.out)["files"][0]["fetched"] == 0);
  const std::string says = "no checksum shows that it is " + server.url();
  check_one_line(chaski_run({"pull", server.url() + "/other/x.gguf"}), 2, says + "/other/x.gguf");
  write_file(path, other);
  check_one_line(chaski_run({"pull", url}), 2, says);
  check_one_line(chaski_run({"pull", url, "--sha256", sum_of(file)}), 2,
                 "x.gguf already exists with the checksum " + sum_of(other) + ", expected ");
  CHECK(read_file(path) == other);
  write_file(shelf / "bare.gguf", file);
  check_one_line(chaski_run({"pull", server.url() + "/bare.gguf"}), 2, says);
  CHECK(chaski_run({"pull", server.url() + "/bare.gguf", "--sha256", sum_of(file)}).status == 0);

  const std::string part = write_file(shelf / "mine.gguf.part", "mine");
  check_one_line(chaski_run({"pull", server.url() + "/mine.gguf"}), 2,
                 "mine.gguf.part was not written by chaski");
  CHECK(read_file(part) == "mine");
  // A part from another URL is downloaded from its beginning.
  write_file(part + ".tag", "\"one\"\n" + server.url() + "/other\n");
  CHECK(chaski_run({"pull", server.url() + "/mine.gguf"}).status == 0);
  CHECK(!contains(server.heads().back(), "Range"));
  CHECK(read_file(shelf / "mine.gguf") == file);
}

TEST_CASE("cli/pull: answers that contradict the part or the list") {
  const Shelf shelf;
  const std::string file = some_bytes(5000);
  std::atomic<bool> away = false;
  Server server([&](const std::string& path, const std::string& head, Connection& to) {
    const std::string name = path.substr(path.rfind('/') + 1);
    if (path.starts_with("/api"))
      return to.put(reply("200 OK", "", R"({"siblings": [{"rfilename": "short.gguf", "size": 5000},
          {"rfilename": "long.gguf", "size": 4000}]})"));
    if (name == "short.gguf") return to.put("HTTP/1.1 200 OK\r\n\r\n" + file.substr(0, 3000));
    if (name == "long.gguf") return to.put("HTTP/1.1 200 OK\r\n\r\n" + file);
    if (name == "empty.gguf") return to.put(reply("200 OK", "", ""));
    if (name == "never.gguf" || (name == "once.gguf" && contains(head, "Range")))
      return to.put(reply("416 No", "Content-Range: bytes */10\r\n", ""));
    if (name == "less.gguf" && contains(head, "Range"))
      return to.put(reply("206 Part", "Content-Range: bytes 3000-3009/2000\r\n", "0123456789"));
    if (name == "away.gguf" && away.exchange(true))
      return to.put(reply("302 Found", "Location: http://127.0.0.1:1/x\r\n", ""));
    if (name == "away.gguf") return to.put(cut(reply_with(file, head), 3000));
    to.put(reply_with(file, head));
  });
  setenv("CHASKI_HUB", server.url().c_str(), 1);
  const auto pull = [&](const std::string& name) {
    return chaski_run({"pull", server.url() + "/" + name});
  };
  check_one_line(chaski_run({"pull", "a/b", "--file", "short*"}), 5, "only 3000 of 5000 bytes");
  check_one_line(chaski_run({"pull", "a/b", "--file", "long*"}), 5,
                 "sends more than the announced 4000 bytes");
  check_one_line(pull("empty.gguf"), 5, "empty.gguf is an empty file");
  for (const char* name : {"once.gguf", "never.gguf", "less.gguf"}) {
    write_file(shelf / (std::string(name) + ".part"), file.substr(0, 3000));
    write_file(shelf / (std::string(name) + ".part.tag"), "\"one\"\n");
  }
  CHECK(pull("once.gguf").status == 0);
  CHECK(read_file(shelf / "once.gguf") == file);
  const size_t before = server.heads().size();
  check_one_line(pull("never.gguf"), 5, "the server answers with status 416");
  CHECK(server.heads().size() == before + 2);
  CHECK(read_file(shelf / "never.gguf.part").size() == 3000);
  check_one_line(pull("less.gguf"), 5, "/2000\", expected a total of more than the 3000 bytes");
  check_one_line(pull("away.gguf"), 5, "run the same command again to continue");
  CHECK(read_file(shelf / "away.gguf.part").size() == 3000);
}

TEST_CASE("cli/pull: a model that the server has only in part is an error, and it is removed") {
  const Shelf shelf;
  REQUIRE(chaski_run({"convert", kStory, shelf.tmp / "whole.gguf", "-q"}).status == 0);
  const std::string whole = read_file(shelf.tmp / "whole.gguf"),
                    half = whole.substr(0, whole.size() - 5000);
  Server server([&](const std::string&, const std::string& head, Connection& to) {
    to.put(reply_with(half, head));
  });
  const Outcome cut = chaski_run({"pull", server.url() + "/trunc.gguf"});
  check_one_line(cut, 3, "/trunc.gguf: the server's file is cut short: ");
  CHECK_MESSAGE(cut.error_says(std::to_string(half.size()) + " of " + std::to_string(whole.size()) +
                               " bytes; removed it"),
                cut.err);
  CHECK(cut.out.empty());
  CHECK(!fs::exists(shelf / "trunc.gguf"));
  CHECK(!fs::exists(shelf / "trunc.gguf.tag"));
}
