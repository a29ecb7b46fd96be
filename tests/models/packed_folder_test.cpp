// Writing folders packed like GPTQ and AWQ: weights keep their values, or are refused by name.
#include <cstring>

#include "models/import/hf/write_packed.h"
#include "tests/kit/import_support.h"

namespace chaski::test {
namespace {

// A golden model with random blocks of `format` in each matmul weight.
ModelSource in_format(const std::string& folder, Format format) {
  ModelSource source = import_model(golden("models/" + folder));
  for (TensorSource& t : source.tensors) {
    if (!t.info.tiled() || t.info.name == "token_embd" || t.info.name == "output") continue;
    t.info.format = format;
    const int64_t rows = t.info.rows, cols = t.info.cols;
    t.read = [=](int64_t first, int64_t last, std::byte* dst) {
      const size_t stride = row_bytes(format, cols);
      std::vector<std::byte> row(16 * stride);
      for (int64_t s = first; s < last; ++s, dst += strip_bytes(format, cols)) {
        const int n = int(std::min<int64_t>(16, rows - 16 * s));
        for (size_t i = 0; i < row.size(); ++i)  // scales of about 2^-9, any codes
          row[i] = std::byte((i * 2654435761u + size_t(s) * 40503u + i / 7) >> 5);
        for (int r = 0; r < n; ++r)
          for (size_t b = 0; b < stride; b += info(format).row_block_bytes) {
            const uint16_t d = uint16_t(0x1800 + (b + 64 * size_t(r)) % 1000);
            std::memcpy(row.data() + size_t(r) * stride + b, &d, 2);
          }
        pack_strip(format, row.data(), stride, n, cols, dst);
      }
    };
  }
  return source;
}

TEST_CASE("import/packed folders go out and come back with the same weights") {
  for (const char* name :
       {"llama_gqa_untied", "llama_mqa_tied", "llama_rope_llama3", "llama_rope_yarn",
        "llama_rope_linear", "llama_biases", "mistral_window", "qwen2", "qwen3"})
    for (const auto& [layout, format] : {std::pair(PackedLayout::gptq, Format::q4_0),
                                         {PackedLayout::gptq, Format::q8},
                                         {PackedLayout::gptq, Format::q5_0},
                                         {PackedLayout::awq, Format::q4_0}}) {
      CAPTURE(name);
      CAPTURE(info(format).name);
      const TempFolder temp;
      ModelSource source = in_format(name, format);
      if (std::any_of(source.tensors.begin(), source.tensors.end(),
                      [&](auto& t) { return t.info.cols % info(t.info.format).block != 0; }))
        continue;
      const PackedFolder made = write_packed(temp / "out", source, layout, {});
      CHECK(made.bits == (format == Format::q4_0 ? 4 : 8));
      CHECK(made.packed > 0);
      const ModelSource back = import_model(temp / "out");
      REQUIRE(back.tensors.size() == source.tensors.size());
      for (const TensorSource& t : source.tensors) {
        CAPTURE(t.info.name);
        CHECK(values_of(tensor(back, t.info.name)) == values_of(t));
        if (format != Format::q5_0) CHECK(tensor(back, t.info.name).info.format == t.info.format);
      }
      for (const auto& [key, value] : source.meta.all()) {
        if (!key.starts_with("model.")) continue;
        CAPTURE(key);
        REQUIRE(back.meta.has(key));
        CHECK(back.meta.find(key)->data == value.data);
      }
    }
}

TEST_CASE("import/folders packed by other programs are packed again with the same weights") {
  for (const char* name : {"gptq4", "gptq4_order", "gptq4_mixed", "gptq8", "awq"}) {
    CAPTURE(name);
    const TempFolder temp;
    const ModelSource source = import_model(golden(std::string("packed/") + name));
    write_packed(temp / "out", source, PackedLayout::gptq, {});
    const ModelSource back = import_model(temp / "out");
    REQUIRE(back.tensors.size() == source.tensors.size());
    for (const TensorSource& t : source.tensors) {
      CAPTURE(t.info.name);
      CHECK(values_of(tensor(back, t.info.name)) == values_of(t));
    }
  }
}

TEST_CASE("import/weights that a packed folder cannot represent are refused by name") {
  const TempFolder temp;
  const auto says = [&](const ModelSource& source, PackedLayout layout) {
    const Error error = error_of([&] { write_packed(temp / "out", source, layout, {}); });
    CHECK(error.code == Exit::bad_file);
    CHECK(!std::filesystem::exists(temp / "out/config.json"));
    return std::string(error.what());
  };
  CHECK(contains(
      says(in_format("llama_gqa_untied", Format::iq4_nl), PackedLayout::gptq),
      "is iq4_nl, which GPTQ cannot store: 'chaski quantize IN OUT --type q4_0 --keep-above 1'"));
  CHECK(contains(says(in_format("llama_gqa_untied", Format::q4_1), PackedLayout::gptq),
                 "is q4_1 with a minimum that is not a multiple of its scale"));
  CHECK(contains(says(in_format("llama_gqa_untied", Format::q8), PackedLayout::awq),
                 "is q8, whose codes need 8 bits, but AWQ has 4"));
  CHECK(contains(says(import_model(golden("models/llama_gqa_untied")), PackedLayout::gptq),
                 "no weight has a format that GPTQ can store"));
  CHECK(contains(says(import_model(golden("packed/gptq4_mixed")), PackedLayout::awq),
                 ".order orders columns, which AWQ cannot store"));
  CHECK(contains(says(import_model(golden("models/gpt2")), PackedLayout::gptq),
                 "general.architecture is gpt2, expected llama, qwen2 or qwen3"));
}

}  // namespace
}  // namespace chaski::test
