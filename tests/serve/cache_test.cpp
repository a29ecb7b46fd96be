// chaski serve --cache: answers and prefixes over restarts, on a disk in trouble too.
#include "tests/kit/client.h"

using namespace chaski::test;
using nlohmann::json;

namespace {

namespace fs = std::filesystem;

// More than 64 tokens, so that it is worth a file.
const std::string kBeginning =
    "Once upon a time there was a small house near the big forest. Every day the dog and the cat "
    "went to the river with the red ball, and played until the sun went down. One day a big bird "
    "sat on a rock in the middle of the river. The bird was lost and looked for the way home. The "
    "cat and the dog wanted to help the bird. ";

json asked(const std::string& end, int tokens = 12) {
  return {{"prompt", kBeginning + end}, {"seed", 5}, {"max_tokens", tokens}};
}

std::string text_of(const HttpResponse& response) {
  return response.json()["choices"][0]["text"].get<std::string>();
}
int cached_of(const HttpResponse& response) {
  return response.json()["usage"]["prompt_tokens_details"]["cached_tokens"].get<int>();
}

// What chaski run says alone.
std::string alone(const std::string& end, int tokens = 12) {
  return chaski_run({"run", "-m", kStory, "-p", kBeginning + end, "--seed", "5", "-n",
                     std::to_string(tokens), "-q"})
      .out;
}

Arguments caching(const std::string& folder, const Arguments& more = {}) {
  Arguments all = {"--no-log", "--cache", folder};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<std::string> files_of(const std::string& folder, const std::string& ending) {
  std::vector<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().string().ends_with(ending)) files.push_back(entry.path().string());
  return files;
}

void damage(const std::string& path) {
  std::string bytes = read_file(path);
  bytes[bytes.size() - 3] = char(bytes[bytes.size() - 3] ^ 1);
  write_file(path, bytes);
}

// Two prompts with one beginning: its pages are written once the second one has used them.
void fill(const Serving& server) {
  const double before = metric(server, "chaski_cache_writes_total");
  CHECK(text_of(server.post("/v1/completions", asked("The dog"))) == alone("The dog"));
  CHECK(text_of(server.post("/v1/completions", asked("The ball"))) == alone("The ball"));
  CHECK(soon([&] { return metric(server, "chaski_cache_writes_total") == before + 3; }));
}

}  // namespace

TEST_CASE("serve/--cache: answers and prefixes after a restart, byte for byte") {
  const TempFolder folder;
  const json tale = {{"prompt", "Once upon a time"}, {"max_tokens", 20}};
  json seeded = tale, streamed = tale;
  seeded["seed"] = 7, streamed["seed"] = 7, streamed["stream"] = true;
  streamed["stream_options"] = {{"include_usage", true}};
  const auto streamed_text = [&](const Serving& server, json* usage) {
    std::string text;
    for (const json& event : server.post("/v1/completions", streamed).events()) {
      if (!event["choices"].empty()) text += event["choices"][0]["text"].get<std::string>();
      if (event.contains("usage") && event["usage"].is_object()) *usage = event["usage"];
    }
    return text;
  };
  json first, usage;
  std::string text;
  {
    Serving server(caching(folder.path));
    first = server.post("/v1/completions", seeded).json();
    CHECK(soon([&] { return metric(server, "chaski_cache_writes_total") == 1; }));
    text = first["choices"][0]["text"];
    server.post("/v1/completions", tale);  // a random seed is not stored
    fill(server);
    CHECK(files_of(folder.path, ".answer").size() == 3);
    CHECK(files_of(folder.path, ".prefix").size() == 1);
    server.program().signal(SIGTERM);
    const Outcome outcome = server.program().wait();
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    CHECK_MESSAGE(contains(outcome.err, "4.00 GB in "), outcome.err);
  }
  {
    const Serving server(caching(folder.path));
    const json again = server.post("/v1/completions", seeded).json();
    CHECK(again["choices"] == first["choices"]);
    for (const char* name : {"prompt_tokens", "completion_tokens", "total_tokens"})
      CHECK(again["usage"][name] == first["usage"][name]);
    CHECK(streamed_text(server, &usage) == text);
    CHECK(usage["completion_tokens"] == first["usage"]["completion_tokens"]);
    CHECK(metric(server, "chaski_cache_answer_hits_total") == 2);
    CHECK(metric(server, "llamacpp:tokens_predicted_total") == 0);
    const HttpResponse other = server.post("/v1/completions", asked("The river"));
    CHECK(text_of(other) == alone("The river"));
    CHECK(cached_of(other) >= 64);
    CHECK(metric(server, "chaski_cache_prefix_tokens_total") == cached_of(other));
    CHECK(metric(server, "chaski_cache_prefix_hits_total") == 1);
    CHECK(metric(server, "chaski_cache_faults_total") == 0);
  }
  {  // another context: nothing of the files is used
    const Serving server(caching(folder.path, {"--ctx", "256"}));
    CHECK(server.post("/v1/completions", seeded).json()["choices"] == first["choices"]);
    CHECK(metric(server, "chaski_cache_answer_hits_total") == 0);
    CHECK(metric(server, "chaski_cache_bytes") > 1000);
  }
}

TEST_CASE("serve/--cache: damaged files cost a note, and kill -9 nothing that was written") {
  const TempFolder folder;
  {
    Serving server(caching(folder.path));
    fill(server);
    server.program().signal(SIGKILL);
    server.program().wait();
  }
  const std::string prefix = files_of(folder.path, ".prefix")[0];
  write_file(prefix.substr(0, prefix.rfind('/') + 1) + ".x.prefix.0123456789abcdef.tmp", "half");
  {
    const Serving server(caching(folder.path));
    CHECK(cached_of(server.post("/v1/completions", asked("The river"))) >= 64);
    CHECK(metric(server, "chaski_cache_faults_total") == 0);
    CHECK(soon([&] { return metric(server, "chaski_cache_writes_total") == 1; }));
    CHECK(files_of(folder.path, ".tmp").empty());
  }
  for (const std::string& path : files_of(folder.path, ""))
    if (fs::is_regular_file(path)) damage(path);
  Serving server(caching(folder.path));
  for (const char* end : {"The dog", "The ball", "The river"})
    CHECK(text_of(server.post("/v1/completions", asked(end))) == alone(end));
  CHECK(metric(server, "chaski_cache_faults_total") == 4);
  CHECK(soon([&] { return metric(server, "chaski_cache_writes_total") >= 4; }));
  CHECK(text_of(server.post("/v1/completions", asked("The dog"))) == alone("The dog"));
  CHECK(metric(server, "chaski_cache_answer_hits_total") == 1);
  server.program().signal(SIGTERM);
  const Outcome outcome = server.program().wait();
  CHECK(lines_of(outcome.err).size() == 6);  // and the two lines about loading
  CHECK(contains(outcome.err, prefix + ": is damaged"));
  // A file that ends within its tokens is removed at the start.
  write_file(prefix, read_file(prefix).substr(0, 100));
  Serving after(caching(folder.path));
  CHECK(cached_of(after.post("/v1/completions", asked("The house"))) == 0);
  CHECK(!fs::exists(prefix));
  CHECK(metric(after, "chaski_cache_faults_total") == 1);
  after.program().signal(SIGTERM);
  CHECK(contains(after.program().wait().err, prefix + ": "));
}

TEST_CASE("serve/--cache: a folder that is removed while the server runs is filled again") {
  const TempFolder folder;
  const Serving server(caching(folder.path));
  fill(server);
  for (const auto& entry : fs::directory_iterator(folder.path)) fs::remove_all(entry.path());
  const double before = metric(server, "chaski_cache_writes_total");
  CHECK(text_of(server.post("/v1/completions", asked("The dog"))) == alone("The dog"));
  CHECK(soon([&] { return metric(server, "chaski_cache_writes_total") == before + 2; }));
  CHECK(files_of(folder.path, ".answer").size() == 1);
  CHECK(files_of(folder.path, ".prefix").size() == 1);
  CHECK(metric(server, "chaski_cache_faults_total") == 0);
  CHECK(metric(server, "chaski_cache_bytes") > 0);
}

TEST_CASE("serve/--cache: a folder that cannot be written, a full disk, a small limit") {
  const TempFolder folder;
  {
    Serving server(caching("/sys/chaski"));
    CHECK(text_of(server.post("/v1/completions", asked("The dog"))) == alone("The dog"));
    server.program().signal(SIGTERM);
    const Outcome outcome = server.program().wait();
    CHECK_MESSAGE(contains(outcome.err, ": no answer and no prefix is stored\n"), outcome.err);
    CHECK_MESSAGE(contains(outcome.err, "; /sys/chaski cannot be used: nothing is kept over a"),
                  outcome.err);
    CHECK_MESSAGE(!contains(outcome.err, "4.00 GB in "), outcome.err);
  }
  const Serving server(caching(folder.path, {"--cache-size", "3000"}));
  for (int seed = 0; seed < 20; ++seed) {
    json body = {{"prompt", "Once"}, {"max_tokens", 8}, {"seed", seed}};
    CHECK(server.post("/v1/completions", body).status == 200);
  }
  CHECK(soon([&] { return metric(server, "chaski_cache_writes_total") == 20; }));
  CHECK(metric(server, "chaski_cache_evictions_total") > 0);
  CHECK(metric(server, "chaski_cache_bytes") <= 3000);
  uint64_t bytes = 0;
  for (const std::string& path : files_of(folder.path, ".answer")) bytes += fs::file_size(path);
  CHECK(bytes <= 3000);
  // A prefix is larger than the folder may be.
  server.post("/v1/completions", asked("The dog"));
  server.post("/v1/completions", asked("The ball"));
  CHECK(soon([&] { return metric(server, "chaski_cache_writes_total") == 22; }));
  CHECK(files_of(folder.path, ".prefix").empty());
}

TEST_CASE("serve/--cache: chaski cache lists what the folder holds, and removes it") {
  const TempFolder folder;
  {
    const Serving server(caching(folder.path));
    fill(server);
  }
  write_file(folder / "notes.txt", "mine");
  const json shown = json::parse(chaski_run({"cache", folder.path, "--json"}).out);
  REQUIRE(shown["models"].size() == 1);
  const json& model = shown["models"][0];
  CHECK(model["answers"] == 2);
  CHECK(model["prefixes"] == 1);
  CHECK(model["bytes"] == shown["bytes"]);
  CHECK(model["model"] == fs::canonical(kStory).string());
  const Outcome table = chaski_run({"cache", folder.path});
  CHECK_MESSAGE(contains(table.out, "2 answers  1 prefix  used "), table.out);
  CHECK_MESSAGE(table.error_says("2 answers and 1 prefix of 1 model, "), table.err);
  const Outcome emptied = chaski_run({"cache", folder.path, "--empty"});
  CHECK_MESSAGE(emptied.error_says("removed 2 answers and 1 prefix of 1 model, "), emptied.err);
  const std::vector<std::string> left = files_of(folder.path, "");
  REQUIRE(left.size() == 1);
  CHECK(left[0] == folder / "notes.txt");
  check_one_line(chaski_run({"cache", folder / "none"}), 5, "none: is not a folder");
}

TEST_CASE("serve/--cache: two servers share a folder") {
  const TempFolder folder;
  const Serving one(caching(folder.path)), two(caching(folder.path));
  std::vector<std::thread> clients;
  std::vector<std::string> texts(8);
  for (size_t i = 0; i < texts.size(); ++i)
    clients.emplace_back([&, i] {
      const Serving& server = i % 2 == 0 ? one : two;
      texts[i] = text_of(server.post("/v1/completions", asked(i % 4 < 2 ? "The dog" : "The ball")));
    });
  for (std::thread& client : clients) client.join();
  const std::string dog = alone("The dog"), ball = alone("The ball");
  for (size_t i = 0; i < texts.size(); ++i) CHECK(texts[i] == (i % 4 < 2 ? dog : ball));
  for (const Serving* server : {&one, &two}) {
    CHECK(soon([&] { return files_of(folder.path, ".answer").size() == 2; }));
    CHECK(text_of(server->post("/v1/completions", asked("The dog"))) == dog);
    CHECK(metric(*server, "chaski_cache_faults_total") == 0);
  }
}

TEST_CASE("serve/--cache: a miss is counted for prompts of more than 64 tokens") {
  const TempFolder folder;
  const Serving server(caching(folder.path));
  const auto misses = [&](int tokens) {
    const json prompt = std::vector<int>(size_t(tokens), 300 + tokens);
    const HttpResponse response =
        server.post("/v1/completions", {{"prompt", prompt}, {"max_tokens", 1}});
    CHECK(response.json()["usage"]["prompt_tokens"] == tokens);
    return metric(server, "chaski_cache_prefix_misses_total");
  };
  CHECK(misses(64) == 0);
  CHECK(misses(65) == 1);
  CHECK(contains(server.get("/metrics").body, "Prompts of more than 64 tokens without a file"));
}
