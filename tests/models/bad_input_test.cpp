// Malformed GGUF and llama2.c files, each written here with one defect. Each must be refused with
// one Error that names the file, before memory is allocated for its content. bad_folder_test.cpp
// has the folders.
#include <cmath>
#include <functional>

#include "tests/kit/import_support.h"

namespace chaski::test {
namespace {

void check_gguf(const std::string& part, const std::function<void(Gguf&)>& damage) {
  TempFolder temp;
  Gguf g = tiny_llama();
  damage(g);
  check_refused(write_file(temp / "bad.gguf", g.build()), "bad.gguf", part);
}

std::string u32_payload(uint32_t type, uint32_t n) {
  std::string out;
  append(out, type), append(out, n);
  return out;
}

TEST_CASE("bad/gguf cut short anywhere") {
  TempFolder temp;
  const std::string whole = tiny_llama().build();
  const std::string path = temp / "cut.gguf";
  for (size_t n = 4; n < whole.size() - 8; ++n) {  // padding follows the last tensor
    write_file(path, whole.substr(0, n));
    CAPTURE(n);
    check_refused(path, "cut.gguf", "");
  }
}

TEST_CASE("bad/gguf with any byte of the header replaced is read or refused, never worse") {
  TempFolder temp;
  const std::string whole = tiny_llama().build(), path = temp / "damaged.gguf";
  size_t refused = 0;
  for (size_t at = 4; at < 1600; at += 3) {
    for (char byte : {'\xff', '\x80'}) {
      std::string damaged = whole;
      damaged[at] = byte;
      write_file(path, damaged);
      try {
        for (auto& t : import_model(path).tensors) bytes_of(t);
      } catch (const Error& error) {
        CHECK(std::string(error.what()).find("damaged.gguf") != std::string::npos);
        ++refused;
      }
    }
  }
  CHECK(refused > 100);
}

TEST_CASE("bad/gguf header") {
  check_gguf("version is 1", [](Gguf& g) { g.version = 1; });
  check_gguf("version is 99", [](Gguf& g) { g.version = 99; });
  check_gguf("version is 0", [](Gguf& g) { g.version = 0; });
  check_gguf("big-endian", [](Gguf& g) { g.version = 0x03000000; });
  check_gguf("key count", [](Gguf& g) { g.n_values_extra = uint64_t{1} << 60; });
  check_gguf("key count", [](Gguf& g) { g.n_values_extra = UINT64_MAX / 2; });
  check_gguf("tensor count", [](Gguf& g) { g.n_tensors_extra = uint64_t{1} << 60; });
  check_gguf("", [](Gguf& g) { g.n_tensors_extra = 1; });
}

TEST_CASE("bad/gguf keys and values") {
  std::string huge_string;
  append<uint32_t>(huge_string, 8), append<uint64_t>(huge_string, uint64_t{1} << 62);
  check_gguf("a.long.string", [&](Gguf& g) { g.raw("a.long.string", huge_string); });
  check_gguf("x.type", [](Gguf& g) { g.raw("x.type", u32_payload(13, 0)); });
  check_gguf("x.flag", [](Gguf& g) { g.raw("x.flag", std::string("\x07\0\0\0\x07", 5)); });
  check_gguf("x.nested",
             [](Gguf& g) { g.raw("x.nested", array_payload(9, 1, array_payload(4, 0))); });
  check_gguf("x.array", [](Gguf& g) { g.raw("x.array", array_payload(77, 1)); });
  check_gguf("x.array", [](Gguf& g) { g.raw("x.array", array_payload(10, uint64_t{1} << 61)); });
  check_gguf("UTF-8", [](Gguf& g) { g.u32("bad\xff\x1b[31mkey", 1); });
  check_gguf("UTF-8", [](Gguf& g) { g.u32("", 1); });
  check_gguf("UTF-8", [](Gguf& g) { g.u32(std::string(70000, 'k'), 1); });
  check_gguf("\\x1b[31m.key appears twice",
             [](Gguf& g) { g.u32("\x1b[31m.key", 1).u32("\x1b[31m.key", 1); });
  check_gguf("general.architecture is missing", [](Gguf& g) { g.drop("general.architecture"); });
  check_gguf("general.architecture is u32",
             [](Gguf& g) { g.drop("general.architecture").u32("general.architecture", 1); });
}

TEST_CASE("bad/gguf alignment") {
  for (int64_t alignment : {0, 3, 48, 1 << 30})
    check_gguf("general.alignment", [&](Gguf& g) { g.u32("general.alignment", alignment); });
  check_gguf("general.alignment is str", [](Gguf& g) { g.str("general.alignment", "32"); });
}

TEST_CASE("bad/gguf tensors") {
  const std::string four = floats(4);
  const uint64_t side = uint64_t{1} << 32;
  check_gguf("0 dimensions", [&](Gguf& g) { g.tensor("x", {}, 0, four); });
  check_gguf("5 dimensions", [&](Gguf& g) { g.tensor("x", {1, 1, 1, 1, 1}, 0, four); });
  check_gguf("100 dimensions",
             [&](Gguf& g) { g.tensor("x", std::vector<uint64_t>(100, 1), 0, four); });
  check_gguf("more than a file can hold", [&](Gguf& g) {
    g.tensor("x", {1, side, side, side}, 0, four);
  });
  check_gguf("a dimension of 0", [&](Gguf& g) { g.tensor("x", {4, 0}, 0, four); });
  check_gguf("a dimension of 0", [&](Gguf& g) { g.tensor("x", {0}, 0, four); });
  check_gguf("tensor x has shape", [&](Gguf& g) { g.tensor("x", {side, side}, 0, four); });
  check_gguf("tensor x has shape", [&](Gguf& g) { g.tensor("x", {side / 4, side}, 0, four); });
  check_gguf("tensor x has", [&](Gguf& g) { g.tensor("x", {UINT64_MAX, 1}, 0, four); });
  check_gguf("the file is cut short: 12% of it is there, 2336 of 18304 bytes", [&](Gguf& g) {
    g.tensor("x", {4, 1000}, 0, four);
  });
  check_gguf("the file is cut short: ", [&](Gguf& g) { g.tensor("x", {4, 40}, 0, four); });
  check_gguf("multiple of 32", [&](Gguf& g) { g.tensor("x", {4, 4}, 2, four); });
  check_gguf("cut short", [&](Gguf& g) { g.tensor("x", {4}, 0, four, 1 << 20); });
  check_gguf("", [&](Gguf& g) { g.tensor("x", {4}, 0, four, UINT64_MAX - 31); });
  check_gguf("multiple of 32", [&](Gguf& g) { g.tensor("x", {4}, 0, four, 4); });
  check_gguf("overlap", [&](Gguf& g) { g.tensor("x", {4}, 0, four, 32); });
  check_gguf("tensor x appears twice",
             [&](Gguf& g) { g.tensor("x", {4}, 0, four).tensor("x", {4}, 0, four); });
  check_gguf("type Q8_1", [&](Gguf& g) { g.tensor("x", {4}, 9, four); });
  check_gguf("type Q8_K", [&](Gguf& g) { g.tensor("x", {4}, 15, four); });
  check_gguf("type Q1_0", [&](Gguf& g) { g.tensor("x", {4}, 41, four); });
  check_gguf("type number 4, expected F32, F16, BF16, Q8_0, Q4_0",
             [&](Gguf& g) { g.tensor("x", {4}, 4, four); });
  check_gguf("type number 4294967295", [&](Gguf& g) { g.tensor("x", {4}, UINT32_MAX, four); });
  check_gguf("name of tensor", [&](Gguf& g) { g.tensor("", {4}, 0, four); });
  check_gguf("name of tensor", [&](Gguf& g) { g.tensor(std::string(5000, 'n'), {4}, 0, four); });
}

TEST_CASE("bad/gguf hyperparameters") {
  for (auto key : {"llama.context_length", "llama.embedding_length", "llama.block_count",
                   "llama.feed_forward_length", "llama.attention.head_count",
                   "llama.attention.layer_norm_rms_epsilon"})
    check_gguf(std::string(key) + " is missing", [&](Gguf& g) { g.drop(key); });
  auto replaced = [](const std::string& key, int64_t n) {
    return [=](Gguf& g) { g.drop(key).u32(key, n); };
  };
  check_gguf("head_count is 0", replaced("llama.attention.head_count", 0));
  check_gguf("head_count is 3", replaced("llama.attention.head_count", 3));
  check_gguf("head_count_kv is 0", replaced("llama.attention.head_count_kv", 0));
  check_gguf("head_count_kv is 3", replaced("llama.attention.head_count_kv", 3));
  check_gguf("block_count is 4294967295", replaced("llama.block_count", 0xffffffff));
  check_gguf("the model has 4096 layers, but the file has only 11 tensors",
             replaced("llama.block_count", 4096));
  check_gguf("rope_dim is 3", replaced("llama.rope.dimension_count", 3));
  check_gguf("rope_dim is 64", replaced("llama.rope.dimension_count", 64));
  check_gguf("block_count is str",
             [](Gguf& g) { g.drop("llama.block_count").str("llama.block_count", "1"); });
  check_gguf("rope_scaling is xpos", [](Gguf& g) { g.str("llama.rope.scaling.type", "xpos"); });
  check_gguf("llama.rope.scaling.original_context_length is missing, expected an integer",
             [](Gguf& g) { g.str("llama.rope.scaling.type", "longrope"); });
  check_gguf("rope_short_factors has 2 entries, expected 1", [](Gguf& g) {
    g.u32("llama.rope.scaling.original_context_length", 8);
    g.tensor("rope_factors_short.weight", {2}, 0, floats(2, 1));
  });
  check_gguf("llama.rope.scaling.factor is missing, expected a number",
             [](Gguf& g) { g.str("llama.rope.scaling.type", "linear"); });
  check_gguf("rope_factor is nan", [](Gguf& g) {
    g.str("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", NAN);
  });
  check_gguf("rope_theta is 0", [](Gguf& g) { g.f32("llama.rope.freq_base", 0); });
}

TEST_CASE("bad/gguf tokenizer") {
  auto without = [](const std::string& key, std::function<void(Gguf&)> then) {
    return [=](Gguf& g) { g.drop(key), then(g); };
  };
  const std::string tokens = "tokenizer.ggml.tokens", scores = "tokenizer.ggml.scores",
                    types = "tokenizer.ggml.token_type";
  check_gguf("tokens is array of i32", without(tokens, [&](Gguf& g) {
               g.i32s(tokens, {1, 2, 3, 4, 5});
             }));
  check_gguf("tokens is str", without(tokens, [&](Gguf& g) { g.str(tokens, "abc"); }));
  check_gguf("tokens is empty", without(tokens, [&](Gguf& g) { g.strs(tokens, {}); }));
  check_gguf("tokens is empty", without(tokens, [](Gguf&) {}));
  check_gguf("scores is array of i32", without(scores, [&](Gguf& g) {
               g.i32s(scores, {0, 0, 0, 1, 2});
             }));
  check_gguf("scores has 2 entries", without(scores, [&](Gguf& g) { g.f32s(scores, {0, 0}); }));
  check_gguf("types has 6 entries", without(types, [&](Gguf& g) {
               g.i32s(types, {1, 1, 1, 1, 1, 1});
             }));
  check_gguf("at most model.vocab_size 5", without(tokens, [&](Gguf& g) {
               g.strs(tokens, std::vector<std::string>(6, "a")).drop(scores).drop(types);
             }));
  check_gguf("bos_token_id is str", [](Gguf& g) {
    g.drop("tokenizer.ggml.bos_token_id").str("tokenizer.ggml.bos_token_id", "1");
  });
  check_gguf("add_bos_token is u32", [](Gguf& g) { g.u32("tokenizer.ggml.add_bos_token", 1); });
  check_gguf("eos_ids has 9", [](Gguf& g) { g.i32s("chaski.tokenizer.eos_ids", {9}); });
}

// A version 0 file with a tokenizer in the same folder and the given header fields.
void check_llama2c(const std::string& part, std::vector<int32_t> header, int cut = 0,
                   const std::string& tokenizer = "") {
  TempFolder temp;
  std::string file;
  for (int32_t n : header) append(file, n);
  file += floats(3 * 4 + 3 * 4 + 2 * 16 + 2 * 8 + 3 * 24 + 16 * 2);
  if (cut > 0) file.resize(file.size() - cut);
  if (!tokenizer.empty()) write_file(temp / "tok3.bin", tokenizer);
  const bool about_tokenizer = !tokenizer.empty();
  check_refused(write_file(temp / "bad.bin", file), about_tokenizer ? "tok3.bin" : "bad.bin", part);
}

std::string tokenizer_bin(int pieces, int32_t length = 1) {
  std::string out;
  append<int32_t>(out, 4);
  for (int i = 0; i < pieces; ++i) append(out, 0.0f), append<int32_t>(out, length), out += 'a';
  return out;
}

TEST_CASE("bad/llama2.c") {
  const std::vector<int32_t> good{4, 6, 1, 2, 1, 3, 16};
  check_llama2c(" of 732 bytes: download the rest", good, 1);
  check_llama2c("the file is cut short: 31% of it is there", good, 500);
  auto with = [&](size_t field, int32_t n) {
    auto header = good;
    header[field] = n;
    return header;
  };
  check_llama2c("content is not a known model format", with(0, -4));
  check_llama2c("content is not a known model format", with(3, 0));
  check_llama2c("n_heads is 3", with(3, 3));
  check_llama2c("n_heads is 4", with(3, 4));  // heads of one channel cannot be rotated
  check_llama2c("n_kv_heads is 3", with(4, 3));
  check_llama2c("the file is cut short", with(5, -3));
  check_llama2c("dim is 16000000", with(0, 16'000'000));
  check_llama2c("piece 2", good, 0, tokenizer_bin(2) + "123456789");
  check_llama2c("vocab_size", good, 0, tokenizer_bin(1));
  check_llama2c("length of piece 0 is -1", good, 0, tokenizer_bin(3, -1));
  check_llama2c("piece 0", good, 0, tokenizer_bin(3, 1 << 30));
  check_llama2c("bytes follow", good, 0, tokenizer_bin(4));
}

TEST_CASE("bad/llama2.c without magic in the importer itself") {
  TempFolder temp;
  for (int field = 0; field < 7; ++field) {
    if (field == 5) continue;  // a negative vocab_size is valid
    for (int32_t n : {0, -1, INT32_MIN, INT32_MAX}) {
      std::string file;
      for (int i = 0; i < 7; ++i) append<int32_t>(file, i == field ? n : 2);
      CHECK_THROWS_AS(import_llama2c(write_file(temp / "x.bin", file), ""), Error);
    }
  }
}

TEST_CASE("bad/llama2.c versions 1 and 2") {
  auto check = [](const std::string& part, std::vector<int32_t> header, int32_t group) {
    TempFolder temp;
    std::string file = "24ka";
    for (int32_t n : header) append(file, n);
    file += '\1';
    append(file, group);
    check_refused(write_file(temp / "bad.bin", file + std::string(400, '\0')), "bad.bin", part);
  };
  check("version is 3", {3, 64, 64, 1, 2, 2, 3, 16}, 64);
  check("group_size is 0", {2, 64, 64, 1, 2, 2, 3, 16}, 0);
  check("group_size is 48", {2, 96, 96, 1, 2, 2, 3, 16}, 48);
  check("group_size is 64", {2, 96, 96, 1, 2, 2, 3, 16}, 64);
  check("the file is cut short", {2, 64, 64, 1, 2, 2, 3, 16}, 32);
  check("the file is cut short", {1, 64, 64, 1, 2, 2, 3, 16}, 0);
}

TEST_CASE("bad/llama2.c without a tokenizer names the files it tried") {
  TempFolder temp;
  std::string file;
  for (int32_t n : {4, 6, 1, 2, 1, 3, 16}) append(file, n);
  file += floats(3 * 4 + 3 * 4 + 2 * 16 + 2 * 8 + 3 * 24 + 16 * 2);
  const std::string path = write_file(temp / "story.bin", file);
  check_refused(path, "story.bin", "tok3.bin", Exit::io);
  check_refused(path, "story.bin", "tokenizer.bin", Exit::io);
  check_refused(path, "story.bin", "--tokenizer", Exit::io);
}

TEST_CASE("bad/gguf with more items than any model has") {
  TempFolder temp;
  std::string payload = array_payload(0, (1 << 22) + 1, std::string((1 << 22) + 1, 'x'));
  const std::string path =
      write_file(temp / "long.gguf", tiny_llama().raw("x.list", payload).build());
  check_refused(path, "long.gguf", "x.list has 4194305 items, expected at most 4194304");
}

TEST_CASE("bad/files that are no model") {
  TempFolder temp;
  check_refused(temp / "missing.gguf", "missing.gguf", "cannot be opened", Exit::io);
  check_refused(temp.path, temp.path, "no config.json");
  check_refused(write_file(temp / "text.txt", "Once upon a time there was a file of text."),
                "text.txt", "not a known model format");
  check_refused(write_file(temp / "empty", ""), "empty",
                "file is empty, expected a .quipu or GGUF file");
  check_refused(write_file(temp / "one", "G"), "one", "not a known model format");
  check_refused(write_file(temp / "w.safetensors", safetensors("{}", "")), "w.safetensors",
                "the path of its folder");
  check_refused(write_file(temp / "noise", "\x8a\x13\xc4\x5e\x91\x07\xee\x32{\x9d\x44 and so on"),
                "noise", "not a known model format");
  check_refused(write_file(temp / "zeros.bin", std::string(4096, '\0')), "zeros.bin",
                "not a known model format");
}

}  // namespace
}  // namespace chaski::test
