// The quantizer over layers that remember in a fixed space.
#include <nlohmann/json.hpp>

#include "engine/shelf/model_file.h"
#include "tests/kit/import_support.h"
#include "tests/kit/program.h"

namespace chaski::test {
namespace {

// A text of the words of write_with_words().
std::string words_of(const std::string& word, uint32_t seed, int n) {
  std::string text;
  for (int i = 0; i < n; ++i) {
    seed = seed * 1664525u + 1013904223u;
    text += word + std::to_string(3 + (seed >> 8) % 90) + " ";
  }
  return text;
}

// The parts of a recurrent layer that a token multiplies by, by the beginnings of their names.
bool is_of_mixer(const std::string& name) {
  const std::string part = name.substr(name.find('.', name.find('.') + 1) + 1);
  for (const char* begin : {"ssm_", "time_mix_", "shortconv_", "recall_", "conv_", "attn_"})
    if (part.starts_with(begin)) return true;
  return false;
}

}  // namespace

TEST_CASE("cli/quantize --method gptq: matrices of recurrent layers, nearer to the base") {
  const TempFolder folder;
  const std::string word = "word";
  const std::string text = write_file(folder / "text.txt", words_of(word, 1, 4000)),
                    other = write_file(folder / "other.txt", words_of(word, 2, 1500));
  for (const char* name :
       {"mamba", "mamba2", "lfm2", "qwen35", "kimi_linear", "rwkv7", "plamo2", "based"}) {
    CAPTURE(name);
    const std::string base =
        write_with_words(folder / "base.quipu", golden("models/") + name, word);
    const auto quantized = [&](const std::string& method) {
      const Outcome outcome =
          chaski_run({"quantize", base, folder / method, "--type", "q4_0", "--calibrate", text,
                      "--chunks", "6", "--method", method, "--json"});
      REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
      return nlohmann::json::parse(outcome.out);
    };
    const auto kl = [&](const std::string& method) {
      const Outcome outcome = chaski_run({"eval", "-m", folder / method, "--kl", base, "-c", "128",
                                          "--chunks", "8", "-f", other, "--json"});
      REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
      return nlohmann::json::parse(outcome.out)["kl"].get<double>();
    };
    quantized("search");
    const auto report = quantized("gptq");
    int fed_back = 0;
    for (const auto& tensor : report["tensors"]) {
      if (!tensor.contains("outputs")) continue;
      const auto& outputs = tensor["outputs"];
      CHECK(outputs["relative_squared_error"].get<double>() <= outputs["by_search"].get<double>());
      fed_back += is_of_mixer(tensor["name"].get<std::string>()) && outputs["method"] == "gptq";
    }
    CHECK(fed_back >= 2);
    MESSAGE(name << ": " << fed_back << " matrices, divergence " << kl("search") << " -> "
                 << kl("gptq"));
    CHECK(kl("gptq") < kl("search"));
    // Numbers that shape a state have 32 bits.
    for (const TensorSource& t : open_model(folder / "gptq").source.tensors)
      if (t.info.rows == 1) CHECK_MESSAGE(t.info.format == Format::f32, t.info.name);
  }
}

}  // namespace chaski::test
