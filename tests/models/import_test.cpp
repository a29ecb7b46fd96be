// Import and export of GGUF, import of llama2.c: values arrive exactly, under chaski's names, and
// are exported again. import_hf_test.cpp has folders; bad_input_test.cpp has the files that must be
// refused.
#include <cmath>
#include <functional>

#include "engine/text/tokenizer/tokenizer.h"
#include "ggml-like-tensor/file/quipu.h"
#include "models/import/gguf/gguf.h"
#include "models/import/tokenizer/tokenizer_defaults.h"
#include "tests/kit/import_support.h"
#include "tests/kit/program.h"

namespace chaski::test {
namespace {

using Numbers = std::vector<int64_t>;
using Floats = std::vector<float>;
using Tokens = std::vector<TokenId>;

// True for keys that an import computes and an export then writes.
bool is_a_default(const std::string& key) {
  for (auto end :
       {"attention.head_count_kv", "attention.key_length", ".vocab_size", "rope.freq_base",
        "rope.scaling.type", "rope.dimension_count", "tokenizer.ggml.add_bos_token",
        "tokenizer.ggml.add_eos_token", "tokenizer.ggml.add_space_prefix",
        "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.scores", "tokenizer.ggml.token_type",
        "general.quantization_version"})
    if (key.ends_with(end)) return true;
  return false;
}

// Checks that every value and byte of `before` is in `after`, and that all additions are defaults.
void check_same_gguf(const std::string& before_path, const std::string& after_path) {
  const GgufFile before = read_gguf(before_path), after = read_gguf(after_path);
  for (auto& [key, value] : before.values) {
    CAPTURE(key);
    REQUIRE(after.values.count(key) == 1);
    CHECK(after.values.at(key) == value);
  }
  for (auto& [key, value] : after.values)
    if (!before.values.count(key)) CHECK_MESSAGE(is_a_default(key), key);
  REQUIRE(before.tensors.size() == after.tensors.size());
  for (size_t i = 0; i < before.tensors.size(); ++i) {
    const GgufTensor &b = before.tensors[i], &a = after.tensors[i];
    CAPTURE(b.name);
    CHECK(a.name == b.name);
    CHECK(a.rows == b.rows);
    CHECK(a.cols == b.cols);
    if (b.rows > 1) CHECK(a.format == b.format);  // a vector becomes f32 on import
    if (a.format == b.format) CHECK(std::memcmp(after.data(a), before.data(b), b.bytes) == 0);
  }
}

void check_back_and_forth(const std::string& path) {
  TempFolder temp;
  const ModelSource source = import_model(path);
  export_gguf(temp / "direct.gguf", source);
  check_same_gguf(path, temp / "direct.gguf");
  write_quipu(temp / "model.quipu", source, 2);
  export_gguf(temp / "stored.gguf", source_of(open_quipu(temp / "model.quipu")));
  check_same_gguf(path, temp / "stored.gguf");
}

TEST_CASE("import/gguf tiny llama: names, values, defaults") {
  TempFolder temp;
  const ModelSource source = import_model(write_file(temp / "tiny.gguf", tiny_llama().build()));
  CHECK(source.kind == "GGUF v3");
  CHECK(source.tensors.size() == 11);
  check_shape(source, "token_embd", Format::f32, 5, 4);
  check_shape(source, "layer.0.ffn_down", Format::f32, 4, 6);
  check_shape(source, "output_norm", Format::f32, 1, 4);
  CHECK(values_of(tensor(source, "layer.0.attn_norm")) == Floats{200, 201, 202, 203});
  CHECK(values_of(tensor(source, "layer.0.ffn_down"))[23] == 723);
  const Metadata& meta = source.meta;
  CHECK(meta.integer("model.context_length") == 16);
  CHECK(meta.integer("model.head_count_kv") == 2);
  CHECK(meta.integer("model.head_dim") == 2);
  CHECK(meta.integer("model.vocab_size") == 5);
  CHECK(meta.number("model.rope_theta") == 10000);
  CHECK(meta.str("model.rope_scaling") == "none");
  CHECK(meta.str("tokenizer.kind") == "spm");
  CHECK(meta.ints("tokenizer.eos_ids") == Numbers{2});
  CHECK(meta.boolean("tokenizer.add_bos", false));
  CHECK(meta.boolean("tokenizer.add_space_prefix", false));
  CHECK(meta.integer("tokenizer.unk_id") == 0);  // found by its spelling
  CHECK_FALSE(meta.has("tokenizer.pad_id"));     // 2^32 - 1 means none
  CHECK_FALSE(meta.has("tokenizer.eot_id"));     // -1 means none
  CHECK(meta.number("gguf.x.unheard_of") == 0.25);
  CHECK(meta.str("source.file") == "tiny.gguf");
}

TEST_CASE("import/gguf round trip keeps every value and bit") {
  TempFolder temp;
  Gguf g = tiny_llama();
  g.value("odd.u64", {ValueType::u64, ValueType::i64, int64_t{-1}})
      .value("odd.i8", {ValueType::i8, ValueType::i64, int64_t{-5}});
  g.value("odd.flags", {ValueType::array, ValueType::boolean, Numbers{1, 0, 1}})
      .strs("odd.none", {});
  g.u32("general.alignment", 128).alignment = 128;
  g.tensor("strange", {4}, 0, floats(4)).tensor("rope_freqs.weight", {1}, 0, floats(1, 1));
  g.tensor("blk.0.attn_q.bias", {4}, 1, std::string("\x00\x3c\x00\xc0\xff\x7b\x01\x00", 8));
  check_back_and_forth(write_file(temp / "odd.gguf", g.build()));
  const ModelSource source = import_model(temp / "odd.gguf");
  CHECK(values_of(tensor(source, "layer.0.attn_q.bias")) == Floats{1, -2, 65504, 0x1p-24f});
  CHECK(source.find("gguf.strange"));
  CHECK(source.find("rope_freqs"));
}

TEST_CASE("import/gguf in several files: the same model as in one file, one message about a part") {
  TempFolder temp;
  const std::string whole = write_file(temp / "whole.gguf", tiny_llama().build());
  for (const bool bare : {false, true}) {
    const auto names = write_parts(whole, temp / (bare ? "bare" : "tiny"), 3, bare);
    const ModelSource source = import_model(names[0]);
    CHECK(source.kind == "GGUF v3 in 3 files");
    check_same_model(import_model(whole), source);
    CHECK(!source.meta.has("gguf.split.count"));
    export_gguf(temp / "again.gguf", source);
    check_same_gguf(whole, temp / "again.gguf");
    source.drop_pages();
  }
  const auto names = write_parts(whole, temp / "x.y", 3, false);
  check_refused(names[1], names[1],
                "file is part 2 of 3 of a model, expected the first: " + names[0]);
  const auto with = [&](size_t i, const std::function<void(Gguf&)>& change) {
    Gguf part;
    part.value("split.no", {ValueType::u16, ValueType::i64, int64_t(i)});
    part.value("split.count", {ValueType::u16, ValueType::i64, int64_t{3}});
    change(part);
    const std::string before = read_file(names[i]);
    write_file(names[i], part.build());
    return before;
  };
  std::string before = with(2, [](Gguf& g) {
    g.tensor("token_embd.weight", {4, 5}, 0, floats(20));
  });
  check_refused(names[0], names[2], "tensor token_embd.weight is also in an earlier part");
  with(2, [](Gguf&) {});
  check_refused(names[0], names[0], "split.tensors.count is 11, but the 3 parts have ");
  with(2, [](Gguf& g) { g.drop("split.no"); });
  check_refused(names[0], names[2], "file is part 1 of 3, expected part 3 of 3 as in its name");
  with(2, [](Gguf& g) { g.drop("split.count").str("split.count", "3"); });
  check_refused(names[0], names[2], "split.count is str, expected 0 to 65535");
  std::filesystem::remove(names[2]);
  check_refused(names[0], names[2], "file is missing, expected part 3 of 3 next to " + names[0],
                Exit::io);
  write_file(names[2], before);
  CHECK(import_model(names[0]).tensors.size() == 11);
  std::filesystem::rename(names[0], temp / "x.gguf");
  check_refused(temp / "x.gguf", "x.gguf",
                "file is the first of 3 parts, expected a name that ends in -00001-of-00003.gguf");
  // A part without split keys is an ordinary model.
  Gguf alone = tiny_llama();
  alone.value("split.count", {ValueType::u16, ValueType::i64, int64_t{1}});
  check_same_gguf(write_file(temp / "one.gguf", alone.build()), temp / "one.gguf");
  CHECK(import_model(temp / "one.gguf").kind == "GGUF v3");
}

TEST_CASE("cli/a GGUF model in several files is given by the first") {
  const TempFolder folder;
  CHECK(chaski_run({"convert", kStory, folder / "whole.gguf"}).status == 0);
  const std::vector<std::string> names =
      write_parts(folder / "whole.gguf", folder / "parts", 3, true);
  const auto story = [](const std::string& model) {
    return chaski_run({"run", "-m", model, "-p", "Once upon a time", "--seed", "5", "-n", "40"});
  };
  const Outcome parts = story(names[0]);
  CHECK_MESSAGE(parts.status == 0, parts.err);
  CHECK(parts.out == story(folder / "whole.gguf").out);
  check_one_line(story(names[2]), 3, "is part 3 of 3 of a model, expected the first: " + names[0]);
  const Outcome over = chaski_run({"convert", names[0], names[1]});
  CHECK(over.status == 2);
  CHECK_MESSAGE(over.error_says("is a part of the input"), over.err);
  std::filesystem::remove(names[1]);
  check_one_line(story(names[0]), 5,
                 names[1] + ": file is missing, expected part 2 of 3 next to " + names[0]);
  check_one_line(chaski_run({"inspect", names[0]}), 5, "expected part 2 of 3");
}

TEST_CASE("import/gguf version 2, missing scores and types, bpe defaults") {
  TempFolder temp;
  Gguf g = tiny_llama();
  g.version = 2;
  g.drop("tokenizer.ggml.scores").drop("tokenizer.ggml.token_type");
  const ModelSource spm = import_gguf(write_file(temp / "v2.gguf", g.build()));
  CHECK(spm.kind == "GGUF v2");
  CHECK(spm.meta.floats("tokenizer.scores") == std::vector<double>{0, -1, -2, -3, -4});
  CHECK(spm.meta.ints("tokenizer.types") == Numbers{1, 1, 1, 1, 1});

  g.drop("tokenizer.ggml.model")
      .str("tokenizer.ggml.model", "gpt2")
      .str("tokenizer.ggml.pre", "gpt-2");
  const Metadata bpe = import_gguf(write_file(temp / "bpe.gguf", g.build())).meta;
  CHECK_FALSE(Tokenizer::make(bpe)->adds_bos());
}

// Regression: the importer knew three of these names and overwrote the tokenizer's table with "no"
// for all others.
TEST_CASE("import/gguf the tokenizer decides the settings of a named pre-tokenizer") {
  TempFolder temp;
  struct Case {
    const char* pre;
    bool whole_words;  // looked up before any merge, and BOS before a prompt
  };
  for (const Case& c : {Case{"llama-bpe", true}, Case{"falcon3", true}, Case{"pixtral", true},
                        Case{"lfm2", true}, Case{"tekken", true}, Case{"qwen2", false}}) {
    CAPTURE(c.pre);
    Gguf g = tiny_llama();
    for (const char* key : {"model", "tokens", "scores", "token_type", "eos_token_id"})
      g.drop(std::string("tokenizer.ggml.") + key);
    g.str("tokenizer.ggml.model", "gpt2").str("tokenizer.ggml.pre", c.pre);
    g.strs("tokenizer.ggml.tokens", {"a", "<s>", "b", "ab", "abb"});
    g.i32s("tokenizer.ggml.token_type", {1, 3, 1, 1, 1}).strs("tokenizer.ggml.merges", {"a b"});
    const ModelSource source = import_gguf(write_file(temp / "bpe.gguf", g.build()));
    CHECK_FALSE(source.meta.boolean("tokenizer.add_space_prefix", true));
    export_gguf(temp / "out.gguf", source);
    const Metadata back = import_gguf(temp / "out.gguf").meta;
    for (const Metadata* meta : {&source.meta, &back}) {
      const auto tokenizer = Tokenizer::make(*meta);
      CHECK(tokenizer->encode("abb") == (c.whole_words ? Tokens{4} : Tokens{3, 2}));
      CHECK(tokenizer->encode_prompt("b") == (c.whole_words ? Tokens{1, 2} : Tokens{2}));
    }
    g.flag("tokenizer.ggml.add_bos_token", !c.whole_words);  // the file has priority
    CHECK(Tokenizer::make(import_gguf(write_file(temp / "bpe.gguf", g.build())).meta)->adds_bos() !=
          c.whole_words);
  }
}

TEST_CASE("import/gguf rope: linear in its old spelling, yarn and its attention factor") {
  TempFolder temp;
  const ModelSource linear = import_gguf(
      write_file(temp / "l.gguf", tiny_llama().f32("llama.rope.scale_linear", 4).build()));
  CHECK(linear.meta.str("model.rope_scaling") == "linear");
  CHECK(linear.meta.number("model.rope_factor") == 4);
  Gguf g = tiny_llama();
  g.str("llama.rope.scaling.type", "yarn")
      .f32("llama.rope.scaling.factor", 4)
      .f32("llama.rope.scaling.attn_factor", 0.5f);
  const ModelSource yarn = import_gguf(write_file(temp / "y.gguf", g.build()));
  CHECK(yarn.meta.integer("model.rope_original_context") == 16);
  CHECK(yarn.meta.number("model.rope_attention_factor") ==
        doctest::Approx(0.5 * (1 + 0.1 * std::log(4.0))));
}

TEST_CASE("import/gguf control pieces spelled like an end end an answer") {
  TempFolder temp;
  Gguf g = tiny_llama();
  g.drop("tokenizer.ggml.tokens")
      .strs("tokenizer.ggml.tokens", {"<unk>", "<|eot_id|>", "</s>", "<|im_end|>", "b"});
  // 3 is a normal piece
  CHECK(import_gguf(write_file(temp / "e.gguf", g.build())).meta.ints("tokenizer.eos_ids") ==
        Numbers{1, 2});
  // gpt-oss's <|end|> ends a message of its answer.
  g.drop("tokenizer.ggml.tokens")
      .strs("tokenizer.ggml.tokens", {"<unk>", "<|end|>", "<|return|>", "<|channel|>", "b"});
  CHECK(import_gguf(write_file(temp / "e.gguf", g.build())).meta.ints("tokenizer.eos_ids") ==
        Numbers{2});
  // Some of its files name it as the end of a turn.
  g.drop("tokenizer.ggml.eot_token_id").u32("tokenizer.ggml.eot_token_id", 1);
  const Metadata named = import_gguf(write_file(temp / "e.gguf", g.build())).meta;
  CHECK(named.ints("tokenizer.eos_ids") == Numbers{2});
  CHECK(!Tokenizer::make(named)->is_end(1));
}

TEST_CASE("import/gguf vocabularies") {
  struct Expected {
    std::string file, architecture, kind;
    size_t pieces, merges;
  };
  for (auto& e : {Expected{"deepseek-coder", "llama", "bpe", 32256, 31757},
                  Expected{"gpt-2", "gpt2", "bpe", 50257, 50000},
                  Expected{"gpt-neox", "gptneox", "bpe", 50432, 50009},
                  Expected{"llama-spm", "llama", "spm", 32000, 0},
                  Expected{"phi-3", "phi3", "spm", 32064, 0}}) {
    const std::string path = data("vocab/ggml-vocab-" + e.file + ".gguf");
    if (!have(path)) continue;
    CAPTURE(path);
    const ModelSource source = import_model(path);
    CHECK(source.meta.str("general.architecture") == e.architecture);
    CHECK(source.meta.str("tokenizer.kind") == e.kind);
    CHECK(source.meta.strs("tokenizer.tokens").size() == e.pieces);
    CHECK(source.meta.ints("tokenizer.types").size() == e.pieces);
    CHECK(source.meta.strs("tokenizer.merges").size() == e.merges);
    CHECK(source.tensors.empty());
    check_back_and_forth(path);
  }
}

TEST_CASE("import/gguf llama-2-tiny-random") {
  const std::string path = data("models/llama-2-tiny-random.gguf");
  if (!have(path)) return;
  const ModelSource source = import_model(path);
  CHECK(source.tensors.size() == 12);
  check_shape(source, "token_embd", Format::f16, 32000, 8);
  check_shape(source, "layer.0.ffn_down", Format::f16, 8, 32);
  check_shape(source, "output", Format::f16, 32000, 8);
  check_shape(source, "layer.0.attn_norm", Format::f32, 1, 8);
  CHECK(source.meta.integer("model.head_dim") == 4);
  check_back_and_forth(path);
}

TEST_CASE("import/golden gguf") {
  for (auto name : {"tiny_llama_mixed", "tiny_llama_floats", "tiny_llama_grids", "tiny_llama_q4_0",
                    "tiny_llama_q8_0"}) {
    const std::string path = golden("gguf/" + std::string(name) + ".gguf");
    if (have(path)) check_back_and_forth(path);
  }
}

void check_llama2c_tokenizer(const Metadata& meta, size_t pieces) {
  CHECK(meta.strs("tokenizer.tokens").size() == pieces);
  CHECK(meta.strs("tokenizer.tokens")[1] == "<s>");
  CHECK(meta.strs("tokenizer.tokens")[3] == "<0x00>");
  CHECK(meta.ints("tokenizer.types")[258] == kByte);
  CHECK(meta.ints("tokenizer.types")[259] == kNormal);
  CHECK(meta.ints("tokenizer.eos_ids") == Numbers{1, 2});
  for (auto piece : meta.strs("tokenizer.tokens")) CHECK(piece.find(' ') == std::string::npos);
}

TEST_CASE("import/llama2.c stories260K") {
  const std::string path = data("models/stories260K.bin");
  if (!have(path)) return;
  const ModelSource source = import_model(path);
  CHECK(source.kind == "llama2.c v0");
  CHECK(source.tensors.size() == 1 + 5 * 9 + 1);
  check_shape(source, "token_embd", Format::f32, 512, 64);
  check_shape(source, "layer.4.attn_k", Format::f32, 32, 64);
  check_shape(source, "layer.4.ffn_down", Format::f32, 64, 172);
  CHECK(source.meta.number("model.norm_epsilon") == 1e-5);
  CHECK(source.meta.integer("model.head_count_kv") == 4);
  const std::string file = read_file(path);
  Floats first(512 * 64);
  std::memcpy(first.data(), file.data() + 28, first.size() * sizeof(float));
  CHECK(values_of(tensor(source, "token_embd")) == first);
  Floats norm(64);  // the last one before the rope tables: 512 positions x 8 values
  std::memcpy(norm.data(), file.data() + file.size() - 512 * 8 * sizeof(float) - 64 * sizeof(float),
              64 * sizeof(float));
  CHECK(values_of(tensor(source, "output_norm")) == norm);
  check_llama2c_tokenizer(source.meta, 512);

  TempFolder temp;
  export_gguf(temp / "out.gguf", source);
  const ModelSource back = import_model(temp / "out.gguf");
  check_same_model(source, back);
}

TEST_CASE("import/llama2.c stories3M in 8 bits") {
  const std::string path = data("models/stories3M-q80.bin");
  if (!have(path)) return;
  const ModelSource source = import_model(path);
  CHECK(source.kind == "llama2.c v2");
  check_shape(source, "token_embd", Format::q8f, 4096, 192);
  check_shape(source, "layer.5.attn_v", Format::q8f, 64, 192);
  check_llama2c_tokenizer(source.meta, 4096);
  // The header, 13 norms, then the embedding: 4096 x 192 bytes with a scale for each 64 of them.
  const std::string file = read_file(path);
  const size_t values = 256 + 13 * 192 * sizeof(float), scales = values + 4096 * 192;
  const Floats found = values_of(tensor(source, "token_embd"));
  for (size_t i : {0, 31, 32, 63, 64, 191, 192, 4096 * 192 - 1}) {
    float scale;
    std::memcpy(&scale, file.data() + scales + i / 64 * sizeof(float), sizeof scale);
    CHECK(found[i] == scale * static_cast<int8_t>(file[values + i]));
  }
  TempFolder temp;
  const Error lacks = error_of([&] { export_gguf(temp / "out.gguf", source); });
  CHECK(std::string(lacks.what()).find("token_embd is q8f, which GGUF cannot store") !=
        std::string::npos);
}

TEST_CASE("import/llama2.c version 1") {
  TempFolder temp;
  std::string file = "24ka", tokenizer;
  for (int32_t n : {1, 4, 6, 1, 2, 1, 3, 16}) append(file, n);
  file += '\0';
  file.resize(256);
  const int norms = 3 * 4, weights = 3 * 4 + 2 * 16 + 2 * 8 + 3 * 24 + 3 * 4;
  file += floats(norms + weights);
  append<int32_t>(tokenizer, 9);
  for (std::string piece : {"<unk>", "\n<s>\n", "\n</s>\n"})
    append(tokenizer, 0.5f), append<int32_t>(tokenizer, static_cast<int32_t>(piece.size())),
        tokenizer += piece;
  write_file(temp / "tokenizer.bin", tokenizer);
  const ModelSource source = import_model(write_file(temp / "v1.bin", file));
  CHECK(source.kind == "llama2.c v1");
  CHECK(values_of(tensor(source, "layer.0.ffn_norm"))[0] == 4);
  CHECK(values_of(tensor(source, "token_embd"))[0] == 12);
  CHECK(values_of(tensor(source, "layer.0.ffn_gate"))[0] == 12 + 12 + 48);
  CHECK(values_of(tensor(source, "layer.0.ffn_down"))[0] == 12 + 12 + 48 + 24);
  CHECK(values_of(tensor(source, "output"))[11] == norms + weights - 1);
  CHECK(source.meta.strs("tokenizer.tokens") == std::vector<std::string>{"<unk>", "<s>", "</s>"});
}

}  // namespace
}  // namespace chaski::test
