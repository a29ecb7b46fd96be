#include "engine/generate.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "engine/stop_filter.h"
#include "engine/utf8.h"

namespace chaski {

const char* name_of(Finish finish) {
  constexpr const char* kNames[] = {"end", "stop", "length", "full", "interrupted"};
  return kNames[int(finish)];
}

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class Generation {
 public:
  Generation(Session& session, std::span<const TokenId> prompt, const GenerateOptions& o, const Sink& sink)
      : session_(session), o_(o), sink_(sink), sampler_(o.sampling), stops_(o.stop), history_(prompt.begin(), prompt.end()) {
    const Tokenizer& t = session.engine().tokenizer();
    opens_text_ = std::all_of(prompt.begin(), prompt.end(), [&](TokenId id) { return t.is_control(id); });
  }

  GenerateResult run() {
    result_.prompt_tokens = int(history_.size());
    const auto start = std::chrono::steady_clock::now();
    std::optional<Finish> finish = prompt();
    result_.prompt_seconds = seconds_since(start);
    if (!finish) finish = o_.max_tokens == 0 ? std::optional(Finish::length) : draw(logits_);
    result_.first_token_seconds = seconds_since(start);
    const auto decode_start = std::chrono::steady_clock::now();
    while (!finish) finish = pass();
    result_.decode_seconds = seconds_since(decode_start);
    result_.finish = *finish;
    if (*finish != Finish::stop) show(text_.flush(), true);
    return std::move(result_);
  }

 private:
  // The prompt in portions, so that an interrupt need not wait for all of it.
  std::optional<Finish> prompt() {
    constexpr size_t kPortion = 256;
    const std::span<const TokenId> all = history_;
    const int context = session_.position() + session_.room();
    if (int(all.size()) > context) fail(Exit::prompt_too_long, "the prompt has {} tokens, the context {}", all.size(), context);
    size_t end = 0;
    for (bool first = true; end < all.size(); first = false) {
      if (o_.interrupt && o_.interrupt->load()) return Finish::interrupted;
      end = first ? std::min(all.size(), session_.common_prefix(all) + kPortion) : std::min(all.size(), end + kPortion);
      const int reused = session_.sync(all.first(end), &logits_);
      if (first) result_.cached_tokens = reused;
    }
    return std::nullopt;
  }

  // One forward pass: the last drawn token, and guesses at what follows it.
  std::optional<Finish> pass() {
    if (o_.interrupt && o_.interrupt->load()) return Finish::interrupted;
    if (session_.room() == 0) return Finish::full;
    std::vector<TokenId> tokens = guesses();
    tokens.insert(tokens.begin(), history_.back());
    const int base = session_.position();
    const std::span<const float> logits = session_.extend(tokens, int(tokens.size()));
    const size_t vocab = logits.size() / tokens.size();
    result_.decode_bytes += session_.engine().weight_bytes() + uint64_t(base) * session_.engine().kv_bytes_per_token();
    ++result_.passes, result_.drafted += int(tokens.size()) - 1;

    // Row i holds the logits after tokens[0..i]: valid as long as every guess up to i was the draw.
    for (size_t i = 0; i < tokens.size(); ++i) {
      const std::optional<Finish> finish = draw(logits.subspan(i * vocab, vocab));
      const bool guessed = !finish && i + 1 < tokens.size() && tokens[i + 1] == history_.back();
      if (guessed) {
        ++result_.accepted;
        continue;
      }
      session_.rewind(base + int(i) + 1);
      return finish;
    }
    return std::nullopt;
  }

  std::vector<TokenId> guesses() {
    int k = std::min(o_.draft_length, session_.room() - 1);
    if (o_.max_tokens >= 0) k = std::min(k, o_.max_tokens - int(result_.tokens.size()) - 1);
    if (!o_.drafter || k <= 0) return {};
    return o_.drafter->propose(history_, k);
  }

  // The next token from its logits, and its text to the sink.
  std::optional<Finish> draw(std::span<const float> logits) {
    const Tokenizer& t = session_.engine().tokenizer();
    // Rows of the matrix past the tokenizer's last piece are padding.
    const TokenId token = sampler_.draw(logits.first(size_t(t.size())), history_);
    if (t.is_end(token) && !o_.ignore_end) return Finish::end;
    history_.push_back(token);
    result_.tokens.push_back(token);
    if (!t.is_control(token)) show(text_.push(opens_text_ ? t.decode({&token, 1}) : t.piece(token)), false);
    opens_text_ = false;
    if (stops_.stopped()) return Finish::stop;
    if (o_.max_tokens >= 0 && int(result_.tokens.size()) >= o_.max_tokens) return Finish::length;
    return std::nullopt;
  }

  void show(const std::string& whole, bool last) {
    std::string text = stops_.push(whole);
    if (last) text += stops_.flush();
    if (text.empty()) return;
    result_.text += text;
    sink_(text);
  }

  Session& session_;
  const GenerateOptions& o_;
  const Sink& sink_;
  Sampler sampler_;
  StopFilter stops_;
  Utf8Stream text_;
  std::vector<TokenId> history_;
  std::span<const float> logits_;  // after the prompt
  bool opens_text_;
  GenerateResult result_;
};

}  // namespace

GenerateResult generate(Session& session, std::span<const TokenId> prompt, const GenerateOptions& options, const Sink& sink) {
  CHECK(!prompt.empty(), "a model needs a token to start from");
  return Generation(session, prompt, options, sink).run();
}

}  // namespace chaski
