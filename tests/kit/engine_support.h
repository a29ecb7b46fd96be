// What tests of engines and sessions share.
#pragma once
#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/requests/generate.h"
#include "engine/session/engine.h"
#include "engine/session/pass.h"

namespace chaski::test {

// n tokens of the model's vocabulary; always the same ones.
inline std::vector<TokenId> tokens_for(const Engine& e, int n) {
  std::vector<TokenId> t;
  for (int i = 0; i < n; ++i) t.push_back(TokenId((i * i * 7 + 3 * i + 1) % e.vocab_size()));
  return t;
}

// Compares bit for bit.
inline bool same(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

inline std::shared_ptr<Engine> open_on_cpu(const std::string& model, Format kv) {
  EngineOptions o;
  o.model = model, o.kv = kv, o.device = "cpu";
  return Engine::open(o);
}

// The rows of all wanted tokens, in order, valid until the engine's next pass.
inline std::span<const float> extend_all(std::span<const Extension> extensions) {
  Pass pass(extensions);
  pass.run();
  return pass.rows();
}
inline std::vector<Draws> draw_all(std::span<const Extension> extensions) {
  std::vector<Draws> draws;
  Pass(extensions).draw(draws);
  return draws;
}

// Options for a text of exactly `tokens` tokens; end tokens are ignored.
inline GenerateOptions drawn(double temperature, uint64_t seed, int tokens) {
  GenerateOptions o;
  o.sampling.temperature = temperature, o.sampling.seed = seed, o.max_tokens = tokens;
  o.ignore_end = true;
  return o;
}
constexpr auto kUnheard = [](std::string_view) {};

// A prompt for request `i`: one of four texts, once to three times.
inline std::vector<TokenId> prompt_for(const Engine& e, int i) {
  const char* const kTexts[] = {"Once upon a time", "Tim had a red ball. Tim had a red ball. Tim",
                                "The cat", "Lily and her mom went to the park. They saw a dog. "};
  std::string text;
  for (int k = 0; k <= i % 3; ++k) text += kTexts[i % 4];
  return e.tokenizer().encode_prompt(text);
}

}  // namespace chaski::test
