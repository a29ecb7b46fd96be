// chaski serve with several models: loading when asked, unloading, and the same bytes as alone.
#include <atomic>
#include <cmath>
#include <filesystem>

#include "engine/session/engine.h"
#include "engine/session/session.h"
#include "engine/session/watched_reading.h"
#include "tests/kit/client.h"

using namespace chaski;
using namespace chaski::test;
using nlohmann::json;

namespace {

template <class Condition>
bool eventually(Condition holds) {
  for (int i = 0; i < 1000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

// The bundled model, and a smaller one with other answers.
const std::string& small_model() {
  static const TempFolder folder;
  static const std::string path = [] {
    const std::string to = folder / "small.quipu";
    REQUIRE(chaski_run({"quantize", kStory, to, "--type", "q4", "-q"}).status == 0);
    return to;
  }();
  return path;
}

Arguments small_flags() { return {"--model", "small=" + small_model()}; }

Arguments with(Arguments all, const Arguments& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::string alone(const std::string& model, int seed, int tokens) {
  return chaski_run({"run", "-m", model, "-p", "Once upon a time", "-q", "-n",
                     std::to_string(tokens), "--seed", std::to_string(seed)})
      .out;
}

json request(const std::string& model, int seed, int tokens, bool stream = false) {
  return {{"model", model},
          {"prompt", "Once upon a time"},
          {"seed", seed},
          {"max_tokens", tokens},
          {"stream", stream}};
}

json endless(const std::string& model) {
  json all = request(model, 1, 1'000'000, true);
  all["ignore_eos"] = true, all["context_policy"] = "shift";
  return all;
}

std::string text_of(const HttpResponse& response, bool stream) {
  if (!stream) return response.json()["choices"][0].value("text", response.body);
  std::string text;
  for (const json& event : response.events()) text += event["choices"][0].value("text", "");
  return text;
}

std::string state_of(const Serving& server, const std::string& name) {
  return server.get("/v1/models/" + name).json()["status"]["value"];
}

double figure(const Serving& server, const std::string& name, const std::string& model) {
  const std::string line = "\n" + name + "{model=\"" + model + "\"} ";
  const std::string text = server.get("/metrics").body;
  const size_t at = text.find(line);
  REQUIRE_MESSAGE(at != std::string::npos, name);
  return std::stod(text.substr(at + line.size()));
}

// A limit for which both models are too large together: 1.5 times the larger one.
std::string limit_for_one() {
  static const std::string limit = [] {
    const Serving server(with({"--no-log", "--models-memory", "8G"}, small_flags()),
                         "story=" + kStory);
    server.post("/api/generate", {{"model", "story"}});
    const uint64_t bytes = server.get("/api/ps").json()["models"][0]["size"];
    return std::to_string(bytes * 3 / 2);
  }();
  return limit;
}

}  // namespace

TEST_CASE("serve/models: they are listed, loaded when asked, kept and unloaded as requests say") {
  const Serving server(with({"--no-log"}, small_flags()), "story=" + kStory);
  const json listed = server.get("/v1/models").json()["data"];
  REQUIRE(listed.size() == 2);
  CHECK(listed[0]["id"] == "story");
  CHECK(listed[1]["id"] == "small");
  for (const json& one : listed) {
    CHECK(one["status"]["value"] == "unloaded");
    CHECK(one["meta"]["n_ctx"] == 512);
    CHECK(one["meta"]["n_vocab"].get<int>() > 1000);
  }
  CHECK(listed[0]["meta"]["size"].get<int64_t>() > listed[1]["meta"]["size"].get<int64_t>());
  CHECK(server.get("/health").json()["models"][1] ==
        json{{"name", "small"}, {"state", "unloaded"}, {"progress", 0}});
  // These load nothing.
  CHECK(server.post("/api/show", {{"model", "small"}}).json()["details"]["quantization_level"] ==
        "Q4");
  CHECK(server.get("/props?model=small").json()["model_alias"] == "small");
  CHECK(server.get("/props?model=sm%61ll").json()["model_alias"] == "small");
  CHECK(server.get("/props").json()["model_alias"] == "story");
  CHECK(server.get("/props?model=other").status == 404);
  CHECK(server.get("/api/tags").json()["models"].size() == 2);
  CHECK(server.get("/api/ps").json()["models"].empty());
  CHECK(state_of(server, "small") == "unloaded");

  CHECK(text_of(server.post("/v1/completions", request("small", 3, 16)), false) ==
        alone(small_model(), 3, 16));
  CHECK(state_of(server, "small") == "loaded");
  CHECK(state_of(server, "story") == "unloaded");
  CHECK(text_of(server.post("/v1/completions", request("", 3, 16)), false) == alone(kStory, 3, 16));
  CHECK(server.get("/api/ps").json()["models"].size() == 2);
  CHECK(server.post("/v1/completions", request("other", 3, 16)).status == 404);

  // ollama's keep_alive: 0 unloads at once, a time is shown.
  json got = server.post("/api/generate", {{"model", "small"}, {"keep_alive", 0}}).json();
  CHECK(got["done_reason"] == "unload");
  CHECK(eventually([&] { return state_of(server, "small") == "unloaded"; }));
  got = server.post("/api/chat", {{"model", "small:latest"}, {"keep_alive", "1h"}}).json();
  CHECK(got["done_reason"] == "load");
  const json running = server.get("/api/ps").json()["models"];
  REQUIRE(running.size() == 2);
  CHECK(running[0]["expires_at"].get<std::string>().starts_with("9999"));
  CHECK(!running[1]["expires_at"].get<std::string>().starts_with("9999"));
  CHECK(running[1]["size"].get<int64_t>() >= listed[1]["meta"]["size"].get<int64_t>());
  json once = request("story", 1, 4);
  once["ttl"] = 0;
  CHECK(text_of(server.post("/v1/completions", once), false) == alone(kStory, 1, 4));
  CHECK(eventually([&] { return state_of(server, "story") == "unloaded"; }));
  CHECK(figure(server, "chaski_model_loads_total", "small") == 2);
  CHECK(figure(server, "chaski_model_unloads_total", "small") == 1);
  CHECK(figure(server, "chaski_model_loaded", "small") == 1);
  CHECK(figure(server, "chaski_model_bytes", "story") == 0);
}

TEST_CASE("serve/models: answers equal those alone while models evict each other") {
  const Serving server(
      with({"--no-log", "--models-memory", limit_for_one(), "--parallel", "8"}, small_flags()),
      "story=" + kStory);
  constexpr int kSeeds = 3, kTokens = 12;
  std::vector<std::string> expected;
  for (const std::string& model : {kStory, small_model()})
    for (int seed = 0; seed < kSeeds; ++seed) expected.push_back(alone(model, seed, kTokens));
  REQUIRE(expected[0] != expected[kSeeds]);
  std::atomic<int> different = 0;
  std::vector<std::thread> clients;
  for (int client = 0; client < 8; ++client)
    clients.emplace_back([&, client] {
      for (int i = 0; i < 5; ++i) {
        const int which = (client + i) % 2, seed = (client * 5 + i) % kSeeds;
        const bool stream = i % 2 == 1;
        if (i == 2) {  // goes while it waits or reads
          Client gone(server.port());
          gone.put(request_text("POST", "/v1/completions",
                                endless(which == 0 ? "story" : "small").dump()));
          if (client % 2 == 0) gone.read_until("\"text\":");
          continue;
        }
        const auto got = server.post(
            "/v1/completions", request(which == 0 ? "story" : "small", seed, kTokens, stream));
        different += text_of(got, stream) != expected[size_t(which * kSeeds + seed)];
      }
    });
  for (std::thread& client : clients) client.join();
  CHECK(different == 0);
  CHECK(figure(server, "chaski_model_unloads_total", "story") >= 1);
  CHECK(figure(server, "chaski_model_unloads_total", "small") >= 1);
  CHECK(eventually([&] { return server.get("/slots").json().empty(); }));
  CHECK(figure(server, "chaski_model_loaded", "story") +
            figure(server, "chaski_model_loaded", "small") ==
        1);
}

TEST_CASE("serve/models: a request waits for a model that is used, and its stream says so") {
  const Serving server(
      with({"--no-log", "--models-memory", limit_for_one(), "--parallel", "2"}, small_flags()),
      "story=" + kStory);
  const auto put = [](Client& client, const json& body) {
    client.put(request_text("POST", "/v1/completions", body.dump()));
  };
  Client running(server.port()), waiting(server.port()), gone(server.port()), again(server.port());
  put(running, endless("story"));
  REQUIRE(running.read_until("\"text\":"));
  // There are two places for requests. Those that wait for a model leave theirs to others.
  put(waiting, request("small", 1, 8, true));
  CHECK(eventually([&] { return state_of(server, "small") == "loading"; }));
  put(gone, request("small", 1, 8));
  put(again, request("story", 2, 8, true));
  REQUIRE(waiting.read_until(": loading the model, 0%\n\n"));
  REQUIRE(again.read_until(": loading the model, 0%\n\n"));
  CHECK(running.read_until("\"text\":"));
  gone.close();
  CHECK(
      eventually([&] { return contains(server.get("/metrics").body, "\nchaski_gone_total 1\n"); }));
  running.close();
  CHECK(text_of(waiting.response(), true) == alone(small_model(), 1, 8));
  CHECK(text_of(again.response(), true) == alone(kStory, 2, 8));
  CHECK(figure(server, "chaski_model_loads_total", "story") == 2);
}

TEST_CASE("serve/models: requests that wait for a model never hold the places of others") {
  const Serving server(
      with({"--no-log", "--models-memory", limit_for_one(), "--parallel", "2", "--queue", "1"},
           small_flags()),
      "story=" + kStory);
  const auto put = [](Client& client, const json& body) {
    client.put(request_text("POST", "/v1/completions", body.dump()));
  };
  Client running(server.port()), small(server.port()), story(server.port()), full(server.port());
  put(running, endless("story"));
  REQUIRE(running.read_until("\"text\":"));
  put(small, request("small", 1, 8, true));
  REQUIRE(small.read_until(": loading the model, 0%\n\n"));
  put(story, request("story", 2, 8, true));
  REQUIRE(story.read_until(": loading the model, 0%\n\n"));
  // Those that wait for a model count as waiting.
  put(full, request("story", 3, 8));
  const HttpResponse refused = full.response();
  CHECK(refused.status == 503);
  CHECK(contains(refused.body, "2 requests run and 1 wait"));
  running.close();
  std::string text;
  CHECK(eventually([&] {
    const HttpResponse got = server.post("/v1/completions", request("story", 3, 8));
    if (got.status == 200) text = text_of(got, false);
    return got.status != 503;
  }));
  CHECK(text_of(small.response(), true) == alone(small_model(), 1, 8));
  CHECK(text_of(story.response(), true) == alone(kStory, 2, 8));
  CHECK(text == alone(kStory, 3, 8));
}

TEST_CASE("serve/models: a model that need not make room any more serves again") {
  const Serving server(
      with({"--no-log", "--models-memory", limit_for_one(), "--parallel", "2"}, small_flags()),
      "story=" + kStory);
  const auto put = [](Client& client, const json& body) {
    client.put(request_text("POST", "/v1/completions", body.dump()));
  };
  Client running(server.port()), gone(server.port()), waiting(server.port());
  put(running, endless("story"));
  REQUIRE(running.read_until("\"text\":"));
  put(gone, request("small", 1, 8, true));
  REQUIRE(gone.read_until(": loading the model, 0%\n\n"));
  put(waiting, request("story", 2, 8, true));
  REQUIRE(waiting.read_until(": loading the model, 0%\n\n"));
  gone.close();
  CHECK(text_of(waiting.response(), true) == alone(kStory, 2, 8));
  CHECK(text_of(server.post("/v1/completions", request("story", 3, 8)), false) ==
        alone(kStory, 3, 8));
  CHECK(figure(server, "chaski_model_loads_total", "story") == 1);
  CHECK(figure(server, "chaski_model_unloads_total", "story") == 0);
}

TEST_CASE("serve/models: a model that cannot be loaded ends its request and nothing else") {
  const TempFolder folder;
  const std::string path = folder / "later.quipu", whole = read_file(small_model());
  write_file(path, whole);
  const Serving server({"--no-log", "--model", "later=" + path, "--models-memory", "8G"},
                       "story=" + kStory);
  write_file(path, "nothing");
  const HttpResponse failed = server.post("/v1/completions", request("later", 1, 4));
  CHECK(failed.status == 500);
  CHECK(failed.json()["error"]["code"] == "model_load_failed");
  CHECK(contains(failed.body, path));
  CHECK(contains(server.get("/v1/models/story").body, "unloaded"));
  CHECK(server.get("/v1/models").json()["data"][1]["status"].contains("error"));
  CHECK(figure(server, "chaski_model_load_failures_total", "later") == 1);
  std::filesystem::remove(path);
  for (const HttpResponse& gone :
       {server.post("/v1/completions", request("later", 1, 4)), server.get("/props?model=later"),
        server.post("/api/show", {{"model", "later"}})}) {
    CHECK(gone.status == 503);
    CHECK_MESSAGE(
        contains(gone.body, "the model later cannot be loaded: " + path + " is not there any more"),
        gone.body);
  }
  write_file(path, whole);
  CHECK(text_of(server.post("/v1/completions", request("later", 1, 4)), false) ==
        alone(small_model(), 1, 4));
  CHECK(!server.get("/v1/models").json()["data"][1]["status"].contains("error"));

  const Serving tiny(with({"--no-log", "--models-memory", "1M"}, small_flags()), "story=" + kStory);
  const HttpResponse large = tiny.post("/v1/completions", request("small", 1, 4));
  CHECK(large.status == 400);
  CHECK(large.json()["error"]["code"] == "model_too_large");
  CHECK(contains(large.body, "may have 1.0 MB together (--models-memory)"));
}

TEST_CASE("serve/models: flags, and errors before the address is printed") {
  const TempFolder folder;
  const auto checked = [](const Arguments& more) {
    return chaski_run(with({"serve", "--port", "0", "--no-log", "--check"}, more));
  };
  check_one_line(checked({"-m", folder / "none.gguf"}), 5, "none.gguf");
  check_one_line(checked({"-m", kStory, "--model", "b=" + (folder / "none.gguf")}), 5, "none.gguf");
  check_one_line(checked({"-m", kStory, "--model", "story=" + small_model()}), 2,
                 "two models have the name story");
  check_one_line(checked({"-m", kStory, "--keep-alive", "soon"}), 2, "--keep-alive is \"soon\"");
  check_one_line(checked({"-m", kStory, "--models-memory", "much"}), 2, "--models-memory");
  const Outcome both = checked(with({"-m", kStory}, small_flags()));
  CHECK_MESSAGE(both.status == 0, both.err);
  CHECK(contains(both.err, "2 models can be opened"));
  const Outcome tight =
      checked(with({"-m", kStory, "--models-memory", limit_for_one()}, small_flags()));
  CHECK_MESSAGE(tight.status == 0, tight.err);

  std::filesystem::copy(small_model(), folder / "tale.quipu");
  const OwnVariable models("CHASKI_MODELS", folder.path), home("HOME", folder / "home"),
      cache("XDG_CACHE_HOME", folder / "cache"), hub("HF_HOME", folder / "hub"),
      ollama("OLLAMA_MODELS", folder / "ollama");
  const Serving all({"--no-log", "--all-models"});
  const json listed = all.get("/v1/models").json()["data"];
  REQUIRE(listed.size() == 2);
  CHECK(listed[0]["status"]["value"] == "loaded");
  CHECK(listed[1]["id"] == "tale");
  CHECK(text_of(all.post("/v1/completions", request("tale", 2, 4)), false) ==
        alone(small_model(), 2, 4));
}

TEST_CASE("serve/models: embeddings are the pooled hidden states, whatever else runs") {
  const Serving server({"--no-log", "--embedding-model", "vectors=" + small_model()});
  const json listed = server.get("/v1/models").json()["data"];
  CHECK(listed[0]["capabilities"] == json::array({"completion"}));
  CHECK(listed[1]["capabilities"] == json::array({"embedding"}));
  Client busy(server.port());
  busy.put(request_text("POST", "/v1/completions", endless("story").dump()));
  REQUIRE(busy.read_until("\"text\":"));
  CHECK(server.post("/v1/embeddings", {{"model", "story"}, {"input", "a"}}).status == 400);
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The cat sat on the mat. ";
  const json got = server.post("/v1/embeddings", {{"input", {text, "A dog."}}}).json();
  CHECK(got["model"] == "vectors");
  EngineOptions options;
  options.model = small_model();
  const auto engine = Engine::open(options);
  const auto tokens = engine->tokenizer().encode_whole(text);
  CHECK(got["usage"]["prompt_tokens"].get<size_t>() > tokens.size());
  const std::vector<float> pooled = engine->session()->pooled(tokens);
  double sum = 0;
  for (const float value : pooled) sum += double(value) * value;
  std::vector<float> unit;
  for (const float value : pooled) unit.push_back(float(value / std::sqrt(sum)));
  CHECK(got["data"][0]["embedding"].get<std::vector<float>>() == unit);
  CHECK(contains(server.get("/metrics").body,
                 "\nchaski_aside_tokens_total " + got["usage"]["prompt_tokens"].dump() + "\n"));
}

TEST_CASE("serve/models: --max-seconds also ends embeddings and the scores of an echoed prompt") {
  const Serving server(
      {"--no-log", "--max-seconds", "1", "--embedding-model", "vectors=" + small_model()});
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The cat sat on the mat. ";
  json texts = json::array();  // they take several seconds
  for (int i = 0; i < 256; ++i) texts.push_back(std::to_string(i) + text);
  const std::pair<const char*, json> requests[] = {
      {"/v1/embeddings", {{"input", texts}}},
      {"/v1/completions", {{"prompt", texts}, {"echo", true}, {"logprobs", 0}, {"max_tokens", 1}}}};
  REQUIRE(soon([&] {  // the model is loaded
    return server.post("/v1/embeddings", {{"input", "A cat."}}).status == 200;
  }));
  for (const auto& [path, body] : requests) {
    const auto start = std::chrono::steady_clock::now();
    const HttpResponse got = server.post(path, body);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    CHECK_MESSAGE(got.status == 503, path);
    CHECK_MESSAGE(contains(got.body, "--max-seconds"), got.body.substr(0, 200));
    CHECK_MESSAGE(took.count() < 5, path);
  }
  CHECK(soon([&] {  // nothing of them is left
    return contains(server.get("/metrics").body, "\nchaski_pages_used 0\n");
  }));
}

TEST_CASE("serve/models: reading the weights of a file can be watched and stopped") {
  const TempFolder folder;
  EngineOptions options;
  options.model = folder / "story.gguf", options.threads = 2;
  REQUIRE(chaski_run({"convert", kStory, options.model, "-q"}).status == 0);
  std::atomic<uint64_t> most = 0, all = 0;
  {
    const WatchedReading reading([&](uint64_t done, uint64_t whole) {
      all = whole;
      for (uint64_t before = most; before < done && !most.compare_exchange_weak(before, done);) {
      }
    });
    Engine::open(options);
  }
  CHECK(all > 0);
  CHECK(most == all);
  const WatchedReading reading([](uint64_t, uint64_t) { throw std::runtime_error("stop"); });
  CHECK_THROWS_WITH(Engine::open(options), "stop");
}
