// Calls the functions of an API without a socket. A script takes the place of the model's passes:
// it receives the prompt and the options, and returns the text of the answer.
#pragma once
#include <nlohmann/json.hpp>

#include "main/api/routes.h"
#include "tests/kit/support.h"

namespace chaski::test {

using nlohmann::json;

// Shows every role, the tools and the calls, and may open a thought.
constexpr const char* kTestTemplate =
    "{% if tools %}[tools]{% for t in tools %}{{ t | tojson }}{% endfor %}"
    "<tool_call></tool_call>\n{% endif %}"
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}"
    "{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]"
    "{% if enable_thinking is defined and not enable_thinking %}(no thought){% endif %}{% endif %}";

struct TestReply : Reply {
  int status = 0;
  std::string type, body;  // of a stream: all parts
  bool ended = false;
  std::atomic<bool> is_gone = false;

  void whole(int s, const char* t, const std::string& b) override {
    CHECK(status == 0);
    status = s, type = t, body = b, ended = true;
  }
  void begin(const char* t) override {
    CHECK(status == 0);
    status = 200, type = t;
  }
  void part(const std::string& text) override {
    CHECK(!ended);
    body += text;
  }
  void end() override { ended = true; }
  const std::atomic<bool>& gone() const override { return is_gone; }
};

class TestApi {
 public:
  Api api;
  std::string answer = "Hello";  // what the model generates, up to a stop text
  std::string prompt;            // of the last request, as text
  GenerateOptions options;       // of the last request
  Finish finish = Finish::end;
  ModelWish wish;        // the last one
  std::string unloaded;  // the model that was unloaded last
  bool embeds = false;   // the model is one for embeddings
  bool late = false;     // the time of a request is over before its prompt is read
  std::optional<int64_t> expires_at;
  std::function<void()> fault = [] {};  // called after the text; may throw

  explicit TestApi(const char* chat_template = kTestTemplate) {
    auto served = std::make_shared<ServedModel>();
    served->name = "story";
    served->created = 1764000000;
    served->model = std::make_shared<LoadedModel>(engine());
    served->chat_template.text = chat_template, served->chat_template.origin = "the test";
    served->generate = [this](std::span<const TokenId> tokens, const GenerateOptions& o,
                              const Sink& sink) { return generate(tokens, o, sink); };
    served->embed = [this](std::span<const std::vector<TokenId>> texts, const std::atomic<bool>&) {
      std::vector<std::vector<float>> all;
      prompt = engine()->tokenizer().decode(texts.back());
      for (const auto& tokens : texts)
        if (!late) all.push_back({3, 0, tokens.size() < 100 ? 4.0f : 0.0f});
      return all;
    };
    served->score = [this](std::span<const TokenId> tokens, int most, const std::atomic<bool>&) {
      std::vector<LogProbabilities> scores;
      for (size_t i = 1; i < tokens.size() - size_t(late); ++i) scores.push_back({-double(i), {}});
      if (most > 0)
        for (LogProbabilities& one : scores) one.most = {{tokens[0], one.drawn}};
      return scores;
    };
    const auto find = [served](const std::string& name) -> std::shared_ptr<const ServedModel> {
      if (name.empty() || name == served->name || name == served->name + ":latest") return served;
      throw ApiError(404, "invalid_request_error", "model_not_found", "model is " + name, "model");
    };
    api.model = [this, find](const ModelWish& asked) {
      wish = asked;
      return find(asked.name);
    };
    api.models = [this, served] {
      ModelState state = state_of(*served);
      state.embeds = embeds, state.generates = !embeds, state.expires_at = expires_at;
      return std::vector{state};
    };
    api.header = [find](const std::string& name) { return header_of(find(name)); };
    api.unload = [this, find](const std::string& name) {
      unloaded = find(name)->name;
      return unloaded;
    };
  }

  // Answers a request; the body of a response that is not a stream is JSON.
  TestReply& call(const char* method, const std::string& path, const json& body) {
    reply = std::make_unique<TestReply>();
    bool other_method = false;
    const Endpoint* const route = find_route(method, path, &other_method);
    REQUIRE_MESSAGE(route, path);
    const std::string text = body.dump();
    answer_call(api, *route, {"", text}, *reply);
    CHECK(reply->ended);
    return *reply;
  }
  json post(const std::string& path, const json& body, int status = 200) {
    const TestReply& got = call("POST", path, body);
    CHECK_MESSAGE(got.status == status, got.body);
    return json::parse(got.body);
  }

  static const std::shared_ptr<Engine>& engine() {
    static const std::shared_ptr<Engine> one = Engine::open({});
    return one;
  }

 private:
  GenerateResult generate(std::span<const TokenId> tokens, const GenerateOptions& o,
                          const Sink& sink) {
    const Tokenizer& tokenizer = engine()->tokenizer();
    prompt = tokenizer.decode(tokens), options = o;
    const int cached = int(tokens.size()) / 2;
    if (o.on_read) o.on_read(cached, int(tokens.size()));
    GenerateResult result;
    result.prompt_tokens = int(tokens.size()), result.cached_tokens = cached;
    result.prompt_seconds = 0.5, result.decode_seconds = 0.25;
    result.text = o.max_tokens == 0 ? "" : answer;
    result.tokens = tokenizer.encode(result.text), result.finish = finish;
    if (o.scored) result.log_probabilities.assign(result.tokens.size(), {-0.5, {}});
    for (const std::string& stop : o.stop)
      if (const size_t at = result.text.find(stop); at != std::string::npos)
        result.text.resize(at), result.finish = Finish::stop;
    for (size_t i = 0; o.on_token && i < result.tokens.size(); ++i)
      o.on_token(result.tokens[i], o.scored ? &result.log_probabilities[i] : nullptr);
    for (size_t at = 0; at < result.text.size(); at += 7) sink(result.text.substr(at, 7));
    fault();
    return result;
  }

  std::unique_ptr<TestReply> reply;
};

}  // namespace chaski::test
