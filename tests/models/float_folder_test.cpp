// Writing folders of bf16 and fp8: weights are those of the source, rounded as the layout says.
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "models/import/hf/safetensors.h"
#include "models/import/hf/write_floats.h"
#include "quant/half.h"
#include "tests/kit/import_support.h"

namespace chaski::test {
namespace {

using nlohmann::json;

const auto kAll = [](const std::string&) { return true; };

float bf16(float x) { return f32_of_bf16(bf16_of_f32(x)); }

// The tensors of a folder as floats, by name.
std::map<std::string, std::vector<float>> floats_in(const std::string& folder) {
  const SafetensorsFolder all = read_safetensors_folder(folder, kAll);
  std::map<std::string, std::vector<float>> out;
  for (const SafeTensor& t : all.tensors) {
    if (!t.format) continue;
    int64_t n = 1;
    for (const int64_t d : t.shape) n *= d;
    out[t.name].resize(size_t(n));
    decode_plain_row(*t.format, t.data, n, out[t.name].data());
  }
  return out;
}

std::map<std::string, std::string> dtypes_in(const std::string& folder) {
  const SafetensorsFolder all = read_safetensors_folder(folder, kAll);
  std::map<std::string, std::string> out;
  for (const SafeTensor& t : all.tensors) out[t.name] = t.dtype;
  return out;
}

bool has_folder(const std::string& name) {
  return std::filesystem::exists(golden("models/" + name + "/config.json"));
}

TEST_CASE("import/bf16 folders of every architecture keep names, config and rounded values") {
  for (const auto& entry : std::filesystem::directory_iterator(golden("models"))) {
    const std::string name = entry.path().filename().string();
    if (!has_folder(name)) continue;
    CAPTURE(name);
    const TempFolder temp;
    const std::string from = golden("models/" + name);
    FloatFolder made;
    try {
      made = write_floats(temp / "out", import_model(from), FloatLayout::bf16, {});
    } catch (const Error& error) {
      // its weights mean other numbers than they are
      CHECK_MESSAGE(contains(error.what(), "quant_method is bitnet"), error.what());
      CHECK_FALSE(std::filesystem::exists(temp / "out"));
      continue;
    }
    const auto before = floats_in(from), after = floats_in(temp / "out");
    const auto dtypes = dtypes_in(temp / "out");
    for (const SafeTensor& t : read_safetensors_folder(temp / "out", kAll).tensors)
      // only vectors may stay f32; a few architectures have vectors of several rows
      if (t.dtype == "F32" && t.shape.size() > 1)
        CHECK_MESSAGE(!(t.name.ends_with("_proj.weight") || contains(t.name, "embed_tokens")),
                      t.name);
    REQUIRE(before.size() == after.size());
    int64_t rounded = 0;
    for (const auto& [tensor, values] : before) {
      CAPTURE(tensor);
      REQUIRE(after.at(tensor).size() == values.size());
      int64_t wrong = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const float want = dtypes.at(tensor) == "F32" ? values[i] : bf16(values[i]);
        wrong += after.at(tensor)[i] != want;
        rounded += want != values[i];
      }
      CHECK(wrong == 0);
    }
    CHECK(made.rounded == rounded);
    json config = json::parse(read_file(from + "/config.json")),
         written = json::parse(read_file(temp / "out/config.json"));
    CHECK(written.value("dtype", written.value("torch_dtype", "")) == "bfloat16");
    for (const auto& [key, value] : config.items())
      if (key != "torch_dtype" && key != "dtype" && !value.is_object())
        CHECK_MESSAGE(written[key] == value, key);
    CHECK(import_model(temp / "out").tensors.size() == import_model(from).tensors.size());
  }
}

TEST_CASE("import/bf16 and fp8 folders of models that were no folder are read back") {
  int fp8_folders = 0;
  for (const char* name : {"llama_gqa_untied", "llama_mqa_tied", "llama_rope_yarn",
                           "llama_rope_linear", "llama_biases", "mistral_window", "qwen2", "qwen3"})
    for (const FloatLayout layout : {FloatLayout::bf16, FloatLayout::fp8}) {
      CAPTURE(name);
      CAPTURE(int(layout));
      const TempFolder temp;
      ModelSource source = import_model(golden(std::string("models/") + name));
      source.path = temp / "model.quipu";  // not a folder
      FloatFolder made;
      try {
        made = write_floats(temp / "out", source, layout, {});
      } catch (const Error& error) {
        CHECK_MESSAGE(contains(error.what(), "expected one for fp8"), error.what());
        continue;
      }
      const ModelSource back = import_model(temp / "out");
      REQUIRE(back.tensors.size() == source.tensors.size());
      double worst = 0;
      for (const TensorSource& t : source.tensors) {
        CAPTURE(t.info.name);
        const std::vector<float> want = values_of(t), found = values_of(tensor(back, t.info.name));
        REQUIRE(want.size() == found.size());
        const bool eight = tensor(back, t.info.name).info.format == Format::f8s;
        double squares = 0, lost = 0;
        int64_t wrong = 0;
        for (size_t i = 0; i < want.size(); ++i) {
          squares += double(want[i]) * want[i];
          lost += std::pow(double(want[i]) - found[i], 2);
          wrong += found[i] != (t.info.tiled() ? bf16(want[i]) : want[i]);
        }
        if (!eight) CHECK(wrong == 0);
        if (eight) worst = std::max(worst, lost / squares);
      }
      if (layout == FloatLayout::fp8) {
        ++fp8_folders;
        CHECK(made.matrices > 0);
        CHECK(made.worst_error == doctest::Approx(worst));
        CHECK(worst < 1e-3);  // half a step of 3 bits, uniform: 7e-4
      }
      for (const auto& [key, value] : source.meta.all()) {
        if (!key.starts_with("model.")) continue;
        CAPTURE(key);
        REQUIRE(back.meta.has(key));
        CHECK(back.meta.find(key)->data == value.data);
      }
    }
  CHECK(fp8_folders >= 2);  // the other models are too small
}

TEST_CASE("import/packed folders become bf16 and fp8 folders with the values of their codes") {
  for (const char* name : {"gptq4", "gptq4_order", "gptq4_mixed", "gptq8", "awq", "fp8", "bnb4",
                           "bnb8", "nvfp4", "words"}) {
    CAPTURE(name);
    const TempFolder temp;
    const ModelSource source = import_model(golden(std::string("packed/") + name));
    write_floats(temp / "out", source, FloatLayout::bf16, {});
    const ModelSource back = import_model(temp / "out");
    CHECK_FALSE(json::parse(read_file(temp / "out/config.json")).contains("quantization_config"));
    for (const TensorSource& t : source.tensors) {
      if (t.info.name.ends_with(".order")) continue;
      CAPTURE(t.info.name);
      std::vector<float> want = values_of(t);
      if (const TensorSource* order = source.find(t.info.name + ".order")) {
        const std::vector<float> theirs = values_of(*order), ours = want;
        const size_t cols = theirs.size();
        for (size_t i = 0; i < want.size(); ++i)
          want[i / cols * cols + size_t(theirs[i % cols])] = ours[i];
      }
      for (float& x : want) x = t.info.tiled() ? bf16(x) : x;
      CHECK(values_of(tensor(back, t.info.name)) == want);
    }
    const FloatFolder made = write_floats(temp / "eight", source, FloatLayout::fp8, {});
    CHECK(made.worst_error < 1e-3);
  }
  // codes under one scale a row are kept; written once more, no value changes
  const TempFolder temp;
  write_floats(temp / "a", import_model(golden("packed/fp8")), FloatLayout::fp8, {});
  const ModelSource first = import_model(temp / "a");
  const FloatFolder again = write_floats(temp / "b", first, FloatLayout::fp8, {});
  CHECK(again.exact == again.matrices);
  const ModelSource second = import_model(temp / "b"),
                    original = import_model(golden("packed/fp8"));
  for (const TensorSource& t : first.tensors) {
    CAPTURE(t.info.name);
    CHECK(values_of(tensor(second, t.info.name)) == values_of(t));
    if (t.info.name.ends_with("attn_q") || t.info.name.ends_with("attn_v"))
      CHECK(values_of(tensor(original, t.info.name)) == values_of(t));
  }
}

TEST_CASE("import/the config of an fp8 folder names every matrix that is not fp8") {
  const TempFolder temp;
  const FloatFolder made =
      write_floats(temp / "out", import_model(golden("models/qwen3moe")), FloatLayout::fp8, {});
  CHECK(made.matrices > 0);
  const json config = json::parse(read_file(temp / "out/config.json"))["quantization_config"];
  CHECK(config["quant_method"] == "compressed-tensors");
  CHECK(config["format"] == "float-quantized");
  const std::vector<std::string> plain = config["ignore"];
  for (const auto& [name, dtype] : dtypes_in(temp / "out")) {
    CAPTURE(name);
    if (!name.ends_with(".weight")) continue;
    const bool listed =
        std::find(plain.begin(), plain.end(), name.substr(0, name.size() - 7)) != plain.end();
    const bool vector = name.find("norm") != name.npos;
    CHECK(listed == (dtype != "F8_E4M3" && !vector));
  }
  CHECK(std::find(plain.begin(), plain.end(), "lm_head") != plain.end());
}

TEST_CASE("import/a large folder is written in shards, scales next to their weights") {
  for (const FloatLayout layout : {FloatLayout::bf16, FloatLayout::fp8}) {
    const TempFolder temp;
    const ModelSource source = import_model(golden("models/llama_gqa_untied"));
    const FloatFolder whole = write_floats(temp / "one", source, layout, {});
    write_floats(temp / "many", source, layout, {}, {}, whole.bytes / 4);
    CHECK_FALSE(std::filesystem::exists(temp / "many/model.safetensors"));
    const json index = json::parse(read_file(temp / "many/model.safetensors.index.json"));
    CHECK(index["metadata"]["total_size"] == whole.bytes);
    for (const auto& [name, file] : index["weight_map"].items())
      if (name.ends_with("_scale"))
        CHECK(file == index["weight_map"][name.substr(0, name.size() - 6)]);
    std::map<std::string, std::vector<uint64_t>> sizes;  // of tensors, by file
    for (const SafeTensor& t : read_safetensors_folder(temp / "many", kAll).tensors)
      sizes[t.file].push_back(t.size);
    CHECK(sizes.size() > 3);
    for (const auto& [file, parts] : sizes) {
      CAPTURE(file);
      const uint64_t all = std::accumulate(parts.begin(), parts.end(), uint64_t{0});
      const bool alone = parts.size() == 1 || (layout == FloatLayout::fp8 && parts.size() == 2);
      CHECK((alone || all <= whole.bytes / 4));
    }
    const ModelSource one = import_model(temp / "one"), many = import_model(temp / "many");
    for (const TensorSource& t : one.tensors)
      CHECK(values_of(tensor(many, t.info.name)) == values_of(t));
  }
}

TEST_CASE("import/a folder with old weights is refused, whether new ones are in shards or not") {
  const ModelSource source = import_model(golden("models/llama_gqa_untied"));
  for (const std::string name :
       {"model.safetensors", "model.safetensors.index.json", "model-00001-of-00002.safetensors"})
    for (const uint64_t shard_bytes : {uint64_t{20'000}, kShardBytes}) {
      CAPTURE(name);
      const TempFolder temp;
      std::filesystem::create_directory(temp / "out");
      write_file(temp / "out/" + name, "old");
      const Error error = error_of(
          [&] { write_floats(temp / "out", source, FloatLayout::bf16, {}, {}, shard_bytes); });
      CHECK(error.code == Exit::usage);
      CHECK_MESSAGE(contains(error.what(), "folder holds other files (" + name + ")"),
                    error.what());
      CHECK(read_file(temp / "out/" + name) == "old");
      CHECK_FALSE(std::filesystem::exists(temp / "out/config.json"));
    }
}

// A folder with these files, as a model of qwen2moe.
ModelSource source_of_folder(const TempFolder& temp, const std::string& config,
                             const std::string& header, const std::string& buffer) {
  ModelSource source = import_model(golden("models/qwen2moe"));
  std::filesystem::create_directory(temp / "in");
  write_file(temp / "in/config.json", config);
  write_file(temp / "in/model.safetensors", safetensors(header, buffer));
  source.path = temp / "in";
  return source;
}

TEST_CASE("import/a gate of one output is bf16 in an fp8 folder, and its config says so") {
  const TempFolder temp;
  const ModelSource source =
      source_of_folder(temp, read_file(golden("models/qwen2moe/config.json")),
                       R"({"model.layers.0.mlp.shared_expert_gate.weight":
          {"dtype": "F32", "shape": [1, 64], "data_offsets": [0, 256]},
          "model.layers.0.self_attn.q_proj.weight":
          {"dtype": "F32", "shape": [16, 64], "data_offsets": [256, 4352]}})",
                       floats(17 * 64));
  CHECK(write_floats(temp / "out", source, FloatLayout::fp8, {}).matrices == 1);
  const auto dtypes = dtypes_in(temp / "out");
  CHECK(dtypes.at("model.layers.0.mlp.shared_expert_gate.weight") == "BF16");
  CHECK(dtypes.at("model.layers.0.self_attn.q_proj.weight") == "F8_E4M3");
  const json config = json::parse(read_file(temp / "out/config.json"));
  CHECK(config["quantization_config"]["ignore"] ==
        json::array({"lm_head", "model.layers.0.mlp.shared_expert_gate"}));
}

TEST_CASE("import/Infinity in config.json is copied, in weights it is refused") {
  const TempFolder temp;
  std::string config = read_file(golden("models/qwen2moe/config.json"));
  config.replace(config.rfind('}'), 1,
                 R"(, "limit": [-Infinity, Infinity], "text": "a \"Infinity"})");
  const std::string header = R"({"model.norm.weight":
      {"dtype": "F32", "shape": [32], "data_offsets": [0, 128]}})";
  std::string numbers = floats(32, 0.1f);
  const ModelSource source = source_of_folder(temp, config, header, numbers);
  write_floats(temp / "out", source, FloatLayout::bf16, {});
  CHECK(dtypes_in(temp / "out").at("model.norm.weight") == "F32");
  const std::string copied = read_file(temp / "out/config.json");
  CHECK_MESSAGE(contains(copied, "-Infinity,\n    Infinity\n"), copied);
  CHECK_MESSAGE(contains(copied, R"("a \"Infinity")"), copied);
  for (const float bad : {INFINITY, std::nanf(""), std::bit_cast<float>(0x7f800001)}) {
    std::memcpy(numbers.data() + 20, &bad, sizeof bad);
    write_file(temp / "in/model.safetensors", safetensors(header, numbers));
    const Error error =
        error_of([&] { write_floats(temp / "bad", source, FloatLayout::bf16, {}); });
    CHECK(error.code == Exit::bad_file);
    CHECK_MESSAGE(contains(error.what(), "tensor model.norm.weight has a number in row 0 that"),
                  error.what());
    CHECK_FALSE(std::filesystem::exists(temp / "bad"));
  }
}

TEST_CASE("import/models that a bf16 or fp8 folder cannot represent are refused by name") {
  const TempFolder temp;
  const auto says = [&](const ModelSource& source, FloatLayout layout) {
    const Error error = error_of([&] { write_floats(temp / "out", source, layout, {}); });
    CHECK(error.code == Exit::bad_file);
    CHECK_FALSE(std::filesystem::exists(temp / "out"));
    return std::string(error.what());
  };
  ModelSource gemma = import_model(golden("models/gemma2"));
  gemma.path = temp / "gemma.gguf";
  CHECK(contains(says(gemma, FloatLayout::bf16),
                 "general.architecture is gemma2, expected llama, qwen2 or qwen3"));
  CHECK(contains(says(import_model(golden("models/gpt2")), FloatLayout::fp8),
                 "no weight is a matrix of outputs x inputs with a multiple of 64 inputs"));
  CHECK(contains(says(import_model(golden("packed/mxfp4")), FloatLayout::bf16),
                 "quantization_config.quant_method is mxfp4, which chaski does not write as bf16"));
  ModelSource broken = import_model(golden("models/llama_gqa_untied"));
  broken.path = temp / "broken.quipu";
  for (TensorSource& t : broken.tensors)
    if (t.info.name == "layer.0.ffn_up")
      t.read = [read = t.read, bytes = strip_bytes(t.info.format, t.info.cols)](
                   int64_t first, int64_t last, std::byte* dst) {
        read(first, last, dst);
        if (first > 0) return;
        const float nan = std::nanf("");
        std::memcpy(dst + 4 * 5, &nan, sizeof nan);
      };
  for (const FloatLayout layout : {FloatLayout::bf16, FloatLayout::fp8})
    CHECK(contains(says(broken, layout), "tensor model.layers.0.mlp.up_proj.weight has a number"));
}

}  // namespace
}  // namespace chaski::test
