// The quantizer over layers that remember in a fixed space.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

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

// "blk.7." of the name of a tensor.
std::string layer_of(const std::string& name) {
  return name.substr(0, name.find('.', name.find('.') + 1) + 1);
}
// Whether a tensor is a part of a mixer, by the beginning of its name, and whether only recurrent
// layers have it.
bool begins_with_one(const std::string& name, std::initializer_list<const char*> begins) {
  const std::string part = name.substr(layer_of(name).size());
  return std::ranges::any_of(begins, [&](const char* begin) { return part.starts_with(begin); });
}
bool is_recurrent(const std::string& name) {
  return begins_with_one(name, {"ssm_", "time_mix_", "shortconv_", "recall_", "conv_"});
}
bool is_of_mixer(const std::string& name) {
  return is_recurrent(name) || begins_with_one(name, {"attn_"});
}

}  // namespace

TEST_CASE("cli/quantize --method gptq: matrices of recurrent layers, nearer to the base") {
  const TempFolder folder;
  const std::string word = "word";
  const std::string text = write_file(folder / "text.txt", words_of(word, 1, 4000)),
                    other = write_file(folder / "other.txt", words_of(word, 2, 1500));
  for (const std::string name :
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
    std::set<std::string> recurrent;
    for (const TensorSource& t : open_model(folder / "gptq").source.tensors)
      if (is_recurrent(t.info.name)) recurrent.insert(layer_of(t.info.name));
    int fed_back = 0;
    for (const auto& tensor : report["tensors"]) {
      if (!tensor.contains("outputs")) continue;
      const auto& outputs = tensor["outputs"];
      CHECK(outputs["relative_squared_error"].get<double>() <= outputs["by_search"].get<double>());
      const std::string of = tensor["name"];
      fed_back +=
          is_of_mixer(of) && recurrent.contains(layer_of(of)) && outputs["method"] == "gptq";
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
