// chaski serve: its own endpoints, limits, keys, signals, and clients that come and go.
#include <atomic>
#include <tuple>

#include "tests/kit/client.h"
#include "tests/kit/memory_group.h"

using namespace chaski::test;
using nlohmann::json;

namespace {

// Answers of this request take until the context is full.
std::string long_request(bool stream, int seed = 1) {
  return request_text("POST", "/v1/completions",
                      json{{"prompt", "Once upon a time"},
                           {"seed", seed},
                           {"ignore_eos", true},
                           {"context_policy", "shift"},
                           {"max_tokens", 1'000'000},
                           {"stream", stream}}
                          .dump());
}

}  // namespace

TEST_CASE("serve/health, models, props, tokenize, detokenize, apply-template, slots, the page") {
  CHECK(story_server().get("/health").json() == json{{"status", "ok"}});
  const json models = story_server().get("/v1/models").json();
  CHECK(models["data"][0]["id"] == "story");
  CHECK(story_server().get("/v1/models/story").json() == models["data"][0]);
  CHECK(story_server().get("/v1/models/other").status == 404);
  const json props = story_server().get("/props").json();
  CHECK(props["default_generation_settings"]["n_ctx"] == 512);
  CHECK(props["default_generation_settings"]["params"]["temperature"] == 0.8);
  const json tokens =
      story_server().post("/tokenize", {{"content", "A cat sat."}}).json()["tokens"];
  CHECK(tokens.size() > 3);
  CHECK(story_server().post("/detokenize", {{"tokens", tokens}}).json()["content"] == "A cat sat.");
  CHECK(contains(
      story_server()
          .post("/apply-template", {{"messages", {{{"role", "user"}, {"content", "Hi."}}}}})
          .json()["prompt"]
          .get<std::string>(),
      "User: Hi."));
  CHECK(story_server().get("/slots").json() == json::array());
  CHECK(story_server().post("/infill", {{"input_prefix", "a"}}).status == 400);
  const HttpResponse page = story_server().get("/");
  CHECK(page.status == 200);
  CHECK(contains(page.head, "Content-Security-Policy: "));
  const size_t tag = page.head.find("ETag: ") + 6;
  const std::string etag = page.head.substr(tag, page.head.find('\r', tag) - tag);
  CHECK(story_server().get("/", "If-None-Match: " + etag + "\r\n").status == 304);
  const json done =
      story_server()
          .post("/completion", {{"prompt", "Once upon a time"}, {"n_predict", 6}, {"seed", 1}})
          .json();
  CHECK(done["content"] == chaski_run(run_story({"-n", "6", "--seed", "1", "-q"})).out);
  CHECK(done["stop_type"] == "limit");
  CHECK(done["tokens_predicted"] == 6);
}

TEST_CASE("serve/metrics say when the server started") {
  const HttpResponse metrics = story_server().get("/metrics");
  const size_t at = metrics.head.find("Process-Start-Time-Unix: ");
  REQUIRE(at != metrics.head.npos);
  const long started = std::stol(metrics.head.substr(at + 25));
  CHECK(started <= std::time(nullptr));
  CHECK(started > std::time(nullptr) - 3600);
}

TEST_CASE("serve/metrics count drafts, cached tokens and widths by llama-server's names") {
  const Serving server({"--no-log"});
  const std::string prompt =
      "Once upon a time there was a big red ball and a dog. They played in the park all day.";
  const json request = {{"prompt", prompt}, {"seed", 1}, {"max_tokens", 40}};
  int64_t read = 0, cached = 0;
  for (int i = 0; i < 2; ++i) {
    const json timings = server.post("/v1/completions", request).json()["timings"];
    read += timings["prompt_n"].get<int64_t>(), cached += timings["cache_n"].get<int64_t>();
  }
  CHECK(cached > 0);
  CHECK(metric(server, "llamacpp:prompt_tokens_total") == read);
  CHECK(metric(server, "llamacpp:prompt_tokens_cached_total") == cached);
  CHECK(metric(server, "llamacpp:n_tokens_max") > 40);
  CHECK(metric(server, "llamacpp:n_busy_slots_per_decode") == 1);
  const double drafts = metric(server, "llamacpp:spec_decode_num_drafts_total"),
               drafted = metric(server, "llamacpp:spec_decode_num_draft_tokens_total");
  CHECK(drafts <= drafted);
  CHECK(metric(server, "llamacpp:spec_decode_num_accepted_tokens_total") <= drafted);
}

TEST_CASE("serve/eight clients at once get the texts that each gets alone") {
  std::vector<std::string> expected;
  for (int i = 0; i < 8; ++i)
    expected.push_back(chaski_run(run_story({"-n", "16", "--seed", std::to_string(i), "-q"})).out);
  std::vector<std::string> texts(8);
  std::vector<std::thread> clients;
  for (size_t i = 0; i < texts.size(); ++i)
    clients.emplace_back([&, i] {
      const HttpResponse response =
          story_server().post("/v1/completions", {{"prompt", "Once upon a time"},
                                                  {"seed", i},
                                                  {"max_tokens", 16},
                                                  {"stream", i % 2 == 1}});
      if (i % 2 == 0)
        texts[i] = response.json()["choices"][0]["text"];
      else
        for (const json& event : response.events())
          texts[i] += event["choices"][0]["text"].get<std::string>();
    });
  for (std::thread& client : clients) client.join();
  CHECK(texts == expected);
}

TEST_CASE("serve/a client that goes frees its request, streamed or not") {
  for (const bool stream : {true, false}) {
    Client client(story_server().port());
    client.put(long_request(stream));
    if (stream) CHECK(client.read_until("\"text\":"));
    CHECK(soon([] { return metric(story_server(), "llamacpp:requests_processing") == 1; }));
    client.close();
    CHECK(soon([] { return metric(story_server(), "llamacpp:requests_processing") == 0; }));
  }
  // A connection serves several requests, and one that comes early waits for its turn.
  Client client(story_server().port());
  client.put(request_text("GET", "/health") + request_text("GET", "/v1/models"));
  CHECK(client.response().json()["status"] == "ok");
  CHECK(client.response().json()["object"] == "list");
  const json small = {{"prompt", "A"}, {"max_tokens", 3}, {"seed", 1}};
  const std::string text = request_text("POST", "/v1/completions", small.dump());
  client.put(text + text);
  const json first = client.response().json(), second = client.response().json();
  CHECK(first["choices"] == second["choices"]);
}

TEST_CASE("serve/a client that goes inside a long prompt frees its pages at once") {
  // A prompt of 150,000 tokens takes minutes; 2 s are room for a busy machine.
  const Serving server({"--no-log", "--rope-scaling", "linear:512", "--ctx", "200000"});
  std::string prompt;
  for (int i = 0; i < 15'000; ++i) prompt += "Once upon a time there was a cat. ";
  const auto pages = [&] { return metric(server, "chaski_pages_used"); };
  for (const bool stream : {false, true}) {
    Client client(server.port());
    client.put(
        request_text("POST", "/v1/completions",
                     json{{"prompt", prompt}, {"max_tokens", 1}, {"stream", stream}}.dump()));
    REQUIRE(soon([&] { return pages() > 0; }));
    const json slot = server.get("/slots").json()[0];
    CHECK(slot["n_prompt_tokens"] > 100'000);
    CHECK(slot["n_prompt_tokens_processed"] < 50'000);
    const auto start = std::chrono::steady_clock::now();
    client.close();
    CHECK(soon([&] { return pages() == 0; }));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
  }
}

TEST_CASE("serve/a request head of more than 64 KB is refused, and the next request is answered") {
  const auto with_head = [](size_t bytes) {
    return story_server().get("/health", "X-Long: " + std::string(bytes, 'a') + "\r\n");
  };
  CHECK(with_head(60'000).status == 200);
  for (const size_t bytes : {70'000, 1'000'000}) CHECK(with_head(bytes).status == 400);
  CHECK(story_server().get("/" + std::string(70'000, 'a')).status == 400);
  // The refusal closes its connection, so the rest of the head is no second request.
  Client client(story_server().port());
  client.put("GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + std::string(70'000, 'a'));
  const HttpResponse refused = client.response();
  CHECK(refused.status == 400);
  CHECK(contains(refused.head, "Connection: close\r\n"));
  client.put("\r\n\r\n" + request_text("GET", "/health"));
  CHECK(!client.read_until("status"));
  CHECK(story_server().get("/health").status == 200);
}

TEST_CASE("serve/--slowdown decides how many tokens others get while a prompt is read") {
  // A prompt that waits for one other answer. Returns how many parts of that answer come meanwhile.
  const auto parts_meanwhile = [](const Serving& server, int seed) {
    Client decoding(server.port());
    decoding.put(long_request(true, seed));
    REQUIRE(decoding.read_until("\"text\":"));
    const auto drawn = [&] {
      const json slots = server.get("/slots").json();  // empty until its first pass has ended
      return slots.empty() ? 0 : slots[0]["n_decoded"].get<int>();
    };
    std::string prompt = std::to_string(seed);  // a new beginning, so that no prefix is known
    for (int i = 0; i < 40; ++i) prompt += " There was a big red dog.";
    REQUIRE(soon([&] { return drawn() > 20; }));
    const int before = drawn();
    const HttpResponse read =
        server.post("/v1/completions", {{"prompt", prompt}, {"max_tokens", 1}});
    CHECK(read.json()["usage"]["prompt_tokens"] > 250);
    const int after = drawn();
    CHECK(after >= before);
    return after - before;
  };
  // With 1, a portion has four tokens. The time of a pass is that of the machine, so that several
  // tries are made.
  const Serving steady({"--no-log", "--slowdown", "1"}), fast({"--no-log", "--slowdown", "1000"});
  int most = 0, least = 1000;
  for (int seed = 1; seed <= 6; ++seed) {
    most = std::max(most, parts_meanwhile(steady, seed));
    least = std::min(least, parts_meanwhile(fast, seed));
  }
  CHECK(most >= 40);
  CHECK(least <= most / 2);
  for (const char* wrong : {"0.5", "1001"})
    check_one_line(chaski_run({"serve", "-m", kStory, "--slowdown", wrong}), 2,
                   std::string("--slowdown is ") + wrong + ", expected a number from 1 to 1000");
}

TEST_CASE("serve/hosts and origins of other sites are refused, and the message names the flag") {
  const auto from = [](const Serving& server, const std::string& host, const std::string& more) {
    return server.send("GET /health HTTP/1.1\r\nHost: " + host + "\r\n" + more + "\r\n");
  };
  CHECK(from(story_server(), "127.0.0.1:80", "").status == 200);
  CHECK(from(story_server(), "[::1]:80", "").status == 200);
  CHECK(from(story_server(), "localhost:1", "Origin: http://localhost:1\r\n").status == 200);
  const HttpResponse host = from(story_server(), "evil.example", ""),
                     origin = from(story_server(), "localhost", "Origin: https://evil.example\r\n");
  CHECK(host.status == 403);
  CHECK(contains(host.body, "--allow-host"));
  CHECK(origin.status == 403);
  CHECK(contains(origin.body, "--allow-origin"));
  CHECK(!contains(origin.head, "Access-Control-Allow-Origin"));
}

TEST_CASE("serve/keys, limits, the log and signals") {
  const TempFolder folder;
  const std::string keys =
      write_file(folder / "keys", "first name=me\nsec#ond requests=1\n# no\nfourth tokens=5 # a\n");
  Serving server({"--api-keys", keys, "--parallel", "1", "--queue", "1", "--max-body", "4000",
                  "--max-tokens", "1000000", "--allow-origin", "https://chat.example",
                  "--allow-host", "my.example"});
  const auto models = [&](const std::string& header) {
    return server.get("/v1/models", header).status;
  };
  CHECK(models("") == 401);
  CHECK(models("Authorization: Bearer firs\r\n") == 401);
  CHECK(models("Authorization: bearer first\r\n") == 200);
  CHECK(models("x-api-key: sec#ond\r\n") == 200);
  CHECK(models("x-api-key: sec#ond\r\n") == 429);
  CHECK(server.get("/metrics").status == 401);
  CHECK(server.get("/health").status == 200);
  const HttpResponse allowed = server.send(
      "OPTIONS /v1/models HTTP/1.1\r\nHost: My.Example\r\nOrigin: https://chat.example\r\n\r\n");
  CHECK(allowed.status == 204);
  CHECK(contains(allowed.head, "Access-Control-Allow-Origin: https://chat.example"));

  const std::string key = "Authorization: Bearer first\r\n";
  const auto post = [&](const json& body) { return server.post("/v1/completions", body, key); };
  CHECK(post({{"prompt", "a"}, {"max_tokens", 1'000'001}}).json()["error"]["param"] ==
        "max_tokens");
  CHECK(server.send(request_text("POST", "/v1/completions", std::string(5000, 'x'), key)).status ==
        413);
  const std::string five = "x-api-key: fourth\r\n";
  CHECK(server.post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 5}}, five).status == 200);
  CHECK(soon([&] { return models(five) == 429; }));
  // One request runs, one waits, and the third is refused at once.
  std::string text = long_request(true);
  text.insert(text.find("\r\n") + 2, key);
  Client running(server.port()), waiting(server.port());
  running.put(text);
  REQUIRE(running.read_until("\"text\":"));
  waiting.put(text);
  HttpResponse full;
  CHECK(soon([&] { return (full = post({{"prompt", "a"}})).status == 503; }));
  CHECK(contains(full.head, "Retry-After: "));
  CHECK(full.json()["error"]["code"] == "queue_full");
  // A client that goes makes room for another one.
  waiting.close();
  const auto queued = [&] {
    const std::string text = server.get("/metrics", key).body;
    return text.substr(text.find("\nchaski_queue ") + 14, 1);
  };
  CHECK(soon([&] { return queued() == "0"; }));
  CHECK(contains(server.get("/metrics", key).body, "\nchaski_gone_total 1\n"));
  CHECK(!contains(server.get("/metrics", key).body, "status=\"0\""));

  write_file(keys, "third\n");
  server.program().signal(SIGHUP);
  CHECK(soon([&] { return models("x-api-key: third\r\n") == 200; }));
  CHECK(models(key) == 401);

  // SIGTERM lets the running answer end, a second one does not.
  server.program().signal(SIGTERM);
  CHECK(soon([&] { return !Client(server.port()).connected(); }));
  CHECK(running.read_until("\"text\":"));
  server.program().signal(SIGTERM);
  const Outcome outcome = server.program().wait();
  CHECK(outcome.status == 128 + SIGTERM);
  CHECK_MESSAGE(contains(outcome.err, "\"path\":\"/v1/models\",\"status\":401"), outcome.err);
  CHECK(!contains(outcome.err, "Once upon a time"));
}

TEST_CASE("serve/--max-seconds ends an answer with the text so far, and a request that waits") {
  const Serving server({"--no-log", "--max-seconds", "1", "--parallel", "1"});
  const HttpResponse response = server.send(long_request(false));
  CHECK(response.status == 200);
  const json choice = response.json()["choices"][0];
  CHECK(choice["finish_reason"] == "length");
  CHECK(!choice["text"].get<std::string>().empty());
  // One thread for eight requests: when their time is over, most of them have none.
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 8; ++i)
    clients.emplace_back(std::make_unique<Client>(server.port()))->put(long_request(false));
  int late = 0;
  for (const auto& client : clients) {
    const HttpResponse one = client->response();
    CHECK((one.status == 200 || one.json()["error"]["code"] == "queue_full"));
    late += one.status == 503;
  }
  CHECK(late > 0);
}

TEST_CASE("serve/requests that are held have a limit together, and so have connections") {
  const Serving server({"--no-log", "--max-body", "4000", "--parallel", "1", "--queue", "0"});
  const std::string part = request_text("POST", "/v1/completions", std::string(3990, 'x'));
  std::vector<std::unique_ptr<Client>> clients;
  const auto health = [&] { return server.get("/health").status == 200; };
  for (int i = 0; i < 7; ++i) {
    clients.push_back(std::make_unique<Client>(server.port()));
    clients.back()->put(part.substr(0, part.size() - 1));
  }
  CHECK(soon(health));
  Client eighth(server.port());  // beyond eight times 4000 bytes
  eighth.put(part.substr(0, part.size() - 1));
  CHECK(!eighth.read_until("an answer"));
  clients[0]->put("x");
  CHECK(clients[0]->response().status == 400);
  clients.clear();
  CHECK(soon(health));
  // 501 connections are open, so the next one waits until one of them is closed.
  for (int i = 0; i < 501; ++i) clients.push_back(std::make_unique<Client>(server.port()));
  Client next(server.port());
  next.put(request_text("GET", "/health"));
  clients.pop_back();
  CHECK(next.response().status == 200);
}

TEST_CASE("serve/SIGTERM: the requests of clients that leave after it are freed") {
  // If one is not freed, AddressSanitizer (make asan) reports it and the status is 1.
  for (int round = 0; round < 3; ++round) {
    Serving server({"--no-log", "--parallel", "2"});
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(std::make_unique<Client>(server.port()));
      clients.back()->put(long_request(true));
    }
    REQUIRE(clients[0]->read_until("\"text\":"));
    server.program().signal(SIGTERM);
    CHECK(soon([&] { return !Client(server.port()).connected(); }));
    clients.clear();
    const Outcome outcome = server.program().wait();
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
  }
}

TEST_CASE("serve/SIGTERM finishes what runs; a Unix socket; wrong flags") {
  const TempFolder folder;
  Serving server({"--log-prompts", "--any-model"});
  Client client(server.port());
  client.put(request_text("POST", "/v1/completions",
                          json{{"model", "gpt-9"},
                               {"prompt", "Once upon a time"},
                               {"seed", 1},
                               {"max_tokens", 300},
                               {"ignore_eos", true},
                               {"stream", true}}
                              .dump()));
  REQUIRE(client.read_until("\"text\":"));
  server.program().signal(SIGTERM);
  const HttpResponse response = client.response();
  CHECK(response.body.ends_with("data: [DONE]\n\n"));
  const Outcome outcome = server.program().wait();
  CHECK_MESSAGE(outcome.status == 0, outcome.err);
  CHECK(contains(outcome.err, "Once upon a time"));
  CHECK_MESSAGE(outcome.err.starts_with("story is being loaded: requests wait for it, and /health "
                                        "has status 200 when it is ready\n"),
                outcome.err);
  CHECK(contains(outcome.err, R"("event":"stopping","requests":1,)"));
  CHECK(contains(outcome.err, R"("prompt_tokens":5,"cached_tokens":0,"answer_tokens":300,)"
                              R"("finish":["length"])"));

  const std::string path = folder / "socket";
  const Outcome checked =
      chaski_run({"serve", "-m", kStory, "--socket", path, "--check", "--no-log"});
  CHECK_MESSAGE(checked.status == 0, checked.err);
  CHECK(!contains(checked.err, "is being loaded"));
  CHECK(checked.out == "unix:" + path + "\n");
  CHECK(!std::filesystem::exists(path));
  check_one_line(chaski_run({"serve", "-m", kStory, "--regex", "a"}), 2,
                 "--regex constrains one text");
  check_one_line(chaski_run({"serve", "-m", kStory, "--host", "192.0.2.1"}), 5, "192.0.2.1");
  check_one_line(chaski_run({"serve", "-m", kStory, "--cache-size", "1G"}), 2,
                 "--cache-size is given without --cache DIR");
  check_one_line(chaski_run({"serve", "-m", kStory, "--store-size", "1G"}), 2,
                 "--store-size is given without --store DIR");
  write_file(folder / "keys", "a name=x\nb name=x\n");
  check_one_line(chaski_run({"serve", "-m", kStory, "--api-keys", folder / "keys"}), 3,
                 "line 2: the name x is taken");
  write_file(folder / "keys", "a b\n");
  check_one_line(chaski_run({"serve", "-m", kStory, "--api-keys", folder / "keys"}), 3, "line 1");
}

TEST_CASE("serve/--socket removes the file that this server has bound, and no other") {
  const TempFolder folder;
  const std::string path = write_file(folder / "mine", "text");
  const Arguments check = {"serve", "-m", kStory, "--socket", path, "--check", "--no-log"};
  check_one_line(chaski_run(check), 5, "exists and is not a socket");
  CHECK(read_file(path) == "text");
  std::filesystem::remove(path);
  Program first({"serve", "-m", kStory, "--socket", path, "--no-log"}, "");
  REQUIRE(soon([&] { return !first.out_so_far().empty(); }));
  check_one_line(chaski_run(check), 5, "another server listens there");
  CHECK(std::filesystem::is_socket(path));
  // What another program has put there since stays.
  std::filesystem::remove(path);
  write_file(path, "new");
  first.signal(SIGTERM);
  CHECK(first.wait().status == 0);
  CHECK(read_file(path) == "new");
}

TEST_CASE("serve/SIGHUP ends a server without keys; HTTP/1.0 gets a whole stream") {
  Serving server({"--no-log"});
  const std::string body = json{{"prompt", "A"}, {"max_tokens", 3}, {"stream", true}}.dump();
  Client client(server.port());
  client.put("POST /v1/completions HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: " +
             std::to_string(body.size()) + "\r\n\r\n" + body);
  const HttpResponse response = client.response();
  CHECK(response.status == 200);
  CHECK(!contains(response.head, "Content-Length"));
  CHECK(client.read_until("data: [DONE]\n\n"));
  CHECK(!client.read_until("nothing more comes"));
  server.program().signal(SIGHUP);
  CHECK(server.program().wait().status == 128 + SIGHUP);
}

TEST_CASE("serve/a stream on a used connection does not wait for acknowledgements") {
  using Clock = std::chrono::steady_clock;
  const Serving server({"--no-log"});
  const json body = {{"prompt", "Once upon a time"}, {"max_tokens", 24}, {"stream", true}};
  Client client(server.port());
  std::vector<Clock::duration> took;
  for (int i = 0; i < 15; ++i) {
    const auto start = Clock::now();
    client.put(request_text("POST", "/v1/completions", body.dump()));
    REQUIRE(client.response().status == 200);
    took.push_back(Clock::now() - start);
  }
  // A client acknowledges the first responses at once, and later ones after 40 ms.
  const auto first = *std::min_element(took.begin(), took.begin() + 5),
             last = *std::min_element(took.end() - 5, took.end());
  CHECK(last < first + std::chrono::milliseconds(30));
}

TEST_CASE("serve/405 names the methods of a path; openapi.json names the paths") {
  for (const auto& [method, path, allowed] :
       {std::tuple{"PUT", "/v1/models", "GET"}, std::tuple{"TRACE", "/tokenize", "POST"},
        std::tuple{"POST", "/v1/responses/x", "GET, DELETE"}, std::tuple{"PATCH", "/", "GET"},
        std::tuple{"POST", "/metrics", "GET"}}) {
    const HttpResponse response = story_server().send(request_text(method, path, "{}"));
    CHECK_MESSAGE(response.status == 405, path);
    CHECK_MESSAGE(contains(response.head, std::string("\r\nAllow: ") + allowed + "\r\n"), path);
    CHECK(response.json()["error"]["code"] == "method_not_allowed");
  }
  const json document = story_server().get("/openapi.json").json();
  CHECK(document["openapi"] == "3.1.0");
  for (const char* path : {"/v1/chat/completions", "/v1/messages", "/api/chat", "/metrics"})
    CHECK_MESSAGE(document["paths"].contains(path), path);
}

TEST_CASE("serve: within a limit of memory, context and prefixes are what fits there") {
  for (const char* sanitized : {"asan", "tsan"})  // they need terabytes of addresses
    if (chaski_binary().find(sanitized) != std::string::npos) return;
  const auto number_after = [](const std::string& text, const std::string& word) {
    const size_t at = text.find(word);
    REQUIRE_MESSAGE(at != text.npos, text);
    return std::stod(text.substr(at + word.size()));
  };
  const auto check = [&](const Outcome& ready, int own) {
    REQUIRE_MESSAGE(ready.status == 0, ready.err);
    const double context = number_after(ready.err, "is ready: a context of ");
    CHECK(context < own);
    CHECK(context >= 4096);
    CHECK(contains(ready.err, fmt::format("a context of {} tokens fits into", context)));
  };
  Arguments serve = {"serve",  "-m", kStory,    "--rope-scaling", "linear:1024",
                     "--port", "0",  "--check", "--no-log",       "--device",
                     "cpu",    "-t", "2"};
  Arguments limited = {"-c", "ulimit -v 1500000; exec \"$0\" \"$@\"", chaski_binary()};
  limited.insert(limited.end(), serve.begin(), serve.end());
  check(Program(limited, "", "", "/bin/sh").wait(), 1024 * 512);
  const MemoryGroup group(90'000'000);
  if (!group.made()) return;
  serve[4] = "linear:64";
  const Outcome ready = group.run(serve);
  check(ready, 64 * 512);
  CHECK(number_after(ready.err, "requests at once, ") < 90);
  CHECK(contains(ready.err, " MB for prefixes"));
  CHECK(contains(ready.err, ", in addition to weights of "));
  // The memory of a draft model is not for the context.
  const Arguments draft = {"--draft", kStory};
  serve.insert(serve.end(), draft.begin(), draft.end());
  const Outcome both = group.run(serve);
  REQUIRE_MESSAGE(both.status == 0, both.err);
  CHECK(contains(both.err, " with the draft model's "));
  CHECK(number_after(both.err, "is ready: a context of ") <
        number_after(ready.err, "is ready: a context of "));
}
