#include "engine/measure/perplexity.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

// The tokens of a pass whose logits are computed: enough for a fast pass, and few enough that their
// rows fit into memory with any vocabulary (EngineOptions::outputs).
constexpr int kPortion = 64;

class WindowReader {
 public:
  WindowReader(std::span<Session* const> sessions, const OnScoredToken& on_token,
               const OnRead& on_read)
      : sessions_(sessions),
        tokenizer_(sessions[0]->engine().tokenizer()),
        on_token_(on_token),
        on_read_(on_read),
        logits_(sessions.size()),
        rows_(sessions.size()) {}

  void read(std::vector<TokenId> window) {
    const std::span<const TokenId> text = window;
    const size_t middle = text.size() / 2;
    if (tokenizer_.adds_bos()) window[0] = tokenizer_.bos();
    for (Session* session : sessions_) session->rewind(0);
    for (size_t at = 0; at < text.size();) {
      const size_t end = at < middle ? middle : text.size();
      const size_t n = std::min(size_t(kPortion), end - at);
      const bool wanted = at >= middle;
      for (size_t s = 0; s < sessions_.size(); ++s)
        logits_[s] = sessions_[s]->extend(text.subspan(at, n), wanted ? int(n) : 0);
      // The prediction of the window's last token is not used: its next token is not in the window.
      if (wanted) score(n, text.subspan(at + 1));
      at += n, read_ += n;
      on_read_(read_);
    }
  }

 private:
  void score(size_t rows, std::span<const TokenId> next) {
    for (size_t i = 0; i < std::min(rows, next.size()); ++i) {
      for (size_t s = 0; s < sessions_.size(); ++s) {
        const size_t vocab = logits_[s].size() / rows;
        rows_[s] = logits_[s].subspan(i * vocab, vocab);
      }
      on_token_(rows_, next[i]);
    }
  }

  std::span<Session* const> sessions_;
  const Tokenizer& tokenizer_;
  const OnScoredToken& on_token_;
  const OnRead& on_read_;
  std::vector<std::span<const float>> logits_, rows_;  // by session: for a portion, for a token
  uint64_t read_ = 0;
};

}  // namespace

double Average::standard_error() const {
  return count > 1 ? std::sqrt(squares / double(count) / double(count - 1)) : 0;
}

double Perplexity::perplexity() const { return std::exp(surprise.mean); }

double Perplexity::standard_error() const { return perplexity() * surprise.standard_error(); }

double Perplexity::bits_per_byte() const {
  return bytes > 0 ? surprise.mean * double(scored()) / std::log(2.0) / double(bytes) : 0;
}

double log_of_sum(std::span<const float> logits) {
  const float most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return std::log(sum) + double(most);
}

void read_windows(std::span<Session* const> sessions, std::span<const TokenId> tokens, int window,
                  int windows, const OnScoredToken& on_token, const OnRead& on_read) {
  ENSURE(window >= kLeastWindow && windows <= windows_of(tokens.size(), window), "whole windows");
  WindowReader reader(sessions, on_token, on_read);
  for (int i = 0; i < windows; ++i) {
    const auto part = tokens.subspan(size_t(i) * size_t(window), size_t(window));
    reader.read({part.begin(), part.end()});
  }
}

Perplexity perplexity(Session& session, std::span<const TokenId> tokens, int window, int windows,
                      const OnScored& on_scored) {
  const Tokenizer& tokenizer = session.engine().tokenizer();
  Perplexity result;
  result.windows = windows;
  Session* const sessions[] = {&session};
  read_windows(
      sessions, tokens, window, windows,
      [&](auto logits, TokenId token) {
        result.add(log_of_sum(logits[0]) - double(logits[0][size_t(token)]),
                   tokenizer.piece(token));
      },
      [&](uint64_t read) { on_scored(result, read); });
  return result;
}

}  // namespace chaski
