// Model files of other programs, made by hand. Builders write what they are given, right or wrong;
// readers read it back.
#pragma once
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/split_name.h"
#include "ggml-like-tensor/file/model_source.h"
#include "ggml-like-tensor/file/quipu.h"
#include "ggml-like-tensor/file/value_io.h"
#include "models/import/gguf/gguf.h"
#include "models/import/import.h"
#include "tests/kit/support.h"

namespace chaski::test {

template <class T>
void append(std::string& out, T number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

inline void append_text(std::string& out, std::string_view text) {
  append<uint64_t>(out, text.size());
  out += text;
}

inline std::string floats(size_t n, float first = 0) {
  std::string out;
  for (size_t i = 0; i < n; ++i) append(out, first + static_cast<float>(i));
  return out;
}

// Builds a GGUF file. Every number can be made wrong before build().
struct Gguf {
  struct Tensor {
    std::string name;
    std::vector<uint64_t> ne;
    uint32_t type;
    std::string data;
    uint64_t offset = UINT64_MAX;  // UINT64_MAX: the correct offset
  };
  uint32_t version = 3;
  uint64_t alignment = 32, n_values_extra = 0, n_tensors_extra = 0;
  std::vector<std::pair<std::string, std::string>> values;  // key, type and payload
  std::vector<Tensor> tensors;

  Gguf& raw(const std::string& key, std::string payload) {
    values.emplace_back(key, std::move(payload));
    return *this;
  }
  Gguf& value(const std::string& key, const Value& value) {
    std::string payload;
    append_value(payload, value, key);
    return raw(key, payload);
  }
  Gguf& u32(const std::string& key, int64_t n) {
    return value(key, {ValueType::u32, ValueType::i64, n});
  }
  Gguf& f32(const std::string& key, float x) {
    return value(key, {ValueType::f32, ValueType::i64, double{x}});
  }
  Gguf& flag(const std::string& key, bool b) {
    return value(key, {ValueType::boolean, ValueType::i64, int64_t{b}});
  }
  Gguf& str(const std::string& key, const std::string& s) {
    return value(key, {ValueType::str, ValueType::i64, s});
  }
  Gguf& strs(const std::string& key, std::vector<std::string> s) {
    return value(key, {ValueType::array, ValueType::str, std::move(s)});
  }
  Gguf& i32s(const std::string& key, std::vector<int64_t> n) {
    return value(key, {ValueType::array, ValueType::i32, std::move(n)});
  }
  Gguf& f32s(const std::string& key, std::vector<double> x) {
    return value(key, {ValueType::array, ValueType::f32, std::move(x)});
  }
  Gguf& tensor(const std::string& name, std::vector<uint64_t> ne, uint32_t type, std::string data,
               uint64_t offset = UINT64_MAX) {
    tensors.push_back({name, std::move(ne), type, std::move(data), offset});
    return *this;
  }
  Gguf& drop(const std::string& key) {
    std::erase_if(values, [&](auto& pair) { return pair.first == key; });
    return *this;
  }

  std::string build() const {
    std::string out = "GGUF", data;
    append(out, version);
    append<uint64_t>(out, tensors.size() + n_tensors_extra);
    append<uint64_t>(out, values.size() + n_values_extra);
    for (auto& [key, payload] : values) append_text(out, key), out += payload;
    for (auto& t : tensors) {
      append_text(out, t.name);
      append<uint32_t>(out, static_cast<uint32_t>(t.ne.size()));
      for (uint64_t n : t.ne) append(out, n);
      append(out, t.type);
      append<uint64_t>(out, t.offset == UINT64_MAX ? data.size() : t.offset);
      data += t.data;
      data.resize((data.size() + alignment - 1) / alignment * alignment);
    }
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data;
  }
};

// Writes the GGUF file `model` in `count` files, STEM-00001-of-00003.gguf and so on. The first one
// has all keys and, if `bare`, no tensors. Returns their names.
inline std::vector<std::string> write_parts(const std::string& model, const std::string& stem,
                                            size_t count, bool bare) {
  const GgufFile whole = read_gguf(model);
  const size_t n = whole.tensors.size(), sharing = count - bare;
  const auto names = names_of_parts(stem + fmt::format("-00001-of-{:05}.gguf", count));
  for (size_t i = 0; i < count; ++i) {
    Gguf part;
    if (i == 0)
      for (const auto& [key, value] : whole.values) part.value(key, value);
    part.value("split.no", {ValueType::u16, ValueType::i64, int64_t(i)});
    part.value("split.count", {ValueType::u16, ValueType::i64, int64_t(count)});
    part.value("split.tensors.count", {ValueType::i32, ValueType::i64, int64_t(n)});
    const size_t place = i - (bare && i > 0);
    for (size_t t = n * place / sharing; t < n * (place + 1) / sharing && !(bare && i == 0); ++t) {
      const GgufTensor& x = whole.tensors[t];
      std::vector<uint64_t> ne = {uint64_t(x.cols)};
      if (x.rows > 1) ne.push_back(uint64_t(x.rows));
      part.tensor(x.name, ne, uint32_t(info(x.format).gguf_type),
                  {reinterpret_cast<const char*>(whole.data(x)), x.bytes});
    }
    write_file(names[i], part.build());
  }
  return names;
}

// The payload of an array for Gguf::raw.
inline std::string array_payload(uint32_t element, uint64_t n, const std::string& data = "") {
  std::string out;
  append<uint32_t>(out, 9), append(out, element), append(out, n);
  return out + data;
}

// A complete llama of one layer: width 4, two heads, vocabulary of 5. Every f32 tensor counts up
// from its own start value.
inline Gguf tiny_llama() {
  Gguf g;
  g.str("general.architecture", "llama").str("general.name", "tiny");
  g.u32("llama.context_length", 16).u32("llama.embedding_length", 4).u32("llama.block_count", 1);
  g.u32("llama.feed_forward_length", 6)
      .u32("llama.attention.head_count", 2)
      .u32("llama.rope.dimension_count", 2);
  g.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  g.str("tokenizer.ggml.model", "llama")
      .strs("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a", "b"});
  g.f32s("tokenizer.ggml.scores", {0, 0, 0, -1, -2})
      .i32s("tokenizer.ggml.token_type", {2, 3, 3, 1, 1});
  g.u32("tokenizer.ggml.bos_token_id", 1)
      .u32("tokenizer.ggml.eos_token_id", 2)
      .u32("tokenizer.ggml.padding_token_id", 0xffffffff);
  g.value("tokenizer.ggml.eot_token_id", {ValueType::i32, ValueType::i64, int64_t{-1}});
  g.f32("x.unheard_of", 0.25f);
  g.tensor("token_embd.weight", {4, 5}, 0, floats(20))
      .tensor("output_norm.weight", {4}, 0, floats(4, 100));
  g.tensor("blk.0.attn_norm.weight", {4}, 0, floats(4, 200))
      .tensor("blk.0.ffn_norm.weight", {4}, 0, floats(4, 300));
  for (auto name : {"attn_q", "attn_k", "attn_v", "attn_output"})
    g.tensor(std::string("blk.0.") + name + ".weight", {4, 4}, 0, floats(16, 400));
  g.tensor("blk.0.ffn_gate.weight", {4, 6}, 0, floats(24, 500))
      .tensor("blk.0.ffn_up.weight", {4, 6}, 0, floats(24, 600));
  g.tensor("blk.0.ffn_down.weight", {6, 4}, 0, floats(24, 700));
  return g;
}

// A safetensors file made from the given header and buffer.
inline std::string safetensors(const std::string& header, const std::string& buffer) {
  std::string out;
  append<uint64_t>(out, header.size());
  return out + header + buffer;
}

// A tensor's bytes in memory.
inline std::string bytes_of(const TensorSource& t) {
  std::string out(t.info.bytes(), '\x5a');
  std::vector<std::byte> buffer(out.size());
  t.read(0, t.info.tiled() ? (t.info.rows + kStrip - 1) / kStrip : 1, buffer.data());
  std::memcpy(out.data(), buffer.data(), buffer.size());
  return out;
}

// A tensor's values, row after row.
inline std::vector<float> values_of(const TensorSource& t) {
  const std::string bytes = bytes_of(t);
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  std::vector<float> values(t.info.rows * t.info.cols);
  if (!t.info.tiled()) decode_plain_row(t.info.format, data, t.info.cols, values.data());
  for (int64_t r = 0; t.info.tiled() && r < t.info.rows; ++r)
    decode_row(t.info.format, data + r / kStrip * strip_bytes(t.info.format, t.info.cols),
               static_cast<int>(r % kStrip), t.info.cols, values.data() + r * t.info.cols);
  return values;
}

inline const TensorSource& tensor(const ModelSource& source, const std::string& name) {
  const TensorSource* found = source.find(name);
  REQUIRE_MESSAGE(found, name);
  return *found;
}

inline void check_shape(const ModelSource& source, const std::string& name, Format format,
                        int64_t rows, int64_t cols) {
  CAPTURE(name);
  const TensorInfo& found = tensor(source, name).info;
  CHECK(found.format == format);
  CHECK(found.rows == rows);
  CHECK(found.cols == cols);
}

// Compares the bits of tensors, and values as far as GGUF can hold them: f64 becomes f32.
inline void check_same_model(const ModelSource& a, const ModelSource& b) {
  REQUIRE(a.tensors.size() == b.tensors.size());
  for (auto& t : a.tensors) {
    CAPTURE(t.info.name);
    const TensorSource& other = tensor(b, t.info.name);
    CHECK(other.info.format == t.info.format);
    CHECK(bytes_of(other) == bytes_of(t));
  }
  for (auto& [key, value] : a.meta.all()) {
    CAPTURE(key);
    if (key.starts_with("source.")) continue;
    REQUIRE(b.meta.has(key));
    if (value.type == ValueType::f64)
      CHECK(static_cast<float>(b.meta.number(key)) == static_cast<float>(a.meta.number(key)));
    else
      CHECK(b.meta.find(key)->data == value.data);
  }
}

// Imports `path`, which must fail. The error must start with `named`, contain `part`, and be safe
// for a terminal.
inline void check_refused(const std::string& path, const std::string& named,
                          const std::string& part, Exit code = Exit::bad_file) {
  CAPTURE(part);
  try {
    import_model(path);
    FAIL_CHECK("was not refused");
  } catch (const Error& error) {
    const std::string line = error.what();
    CAPTURE(line);
    CHECK(error.code == code);
    CHECK(line.find(named) != std::string::npos);
    CHECK(line.find(part) != std::string::npos);
    CHECK(line.size() < 1500);
    for (unsigned char c : line) CHECK((c >= 0x20 && c != 0x7f));
  }
}

// A folder of golden heads in which one thing is changed to be wrong.
struct DamagedHeads {
  std::string whole, weights;  // the folder; its weights file next to config.json
  std::function<void(const std::string& folder)> open;

  // Returns the error message.
  std::string refusal(const std::function<void(const std::string& folder)>& damage,
                      Exit code = Exit::bad_file) const {
    const TempFolder temp;
    for (const std::string& name : {std::string("/config.json"), weights})
      write_file(temp.path + name, read_file(whole + name));
    damage(temp.path);
    const Error error = error_of([&] { open(temp.path); });
    CHECK(error.code == code);
    CHECK(!contains(error.what(), "\n"));
    return error.what();
  }
  // Replaces `from` in a file by `to`; the error must name the file.
  void refused(const std::string& says, const std::string& file, const std::string& from,
               const std::string& to) const {
    CAPTURE(from);
    const std::string error = refusal([&](const std::string& folder) {
      std::string text = read_file(folder + file);
      const size_t at = text.find(from);
      REQUIRE(at != text.npos);
      write_file(folder + file, text.replace(at, from.size(), to));
    });
    CHECK_MESSAGE(contains(error, says), error);
    CHECK_MESSAGE(contains(error, file), error);
  }
};

// A model's folder as a .quipu file in which each token is a word: `word` and a number.
inline std::string write_with_words(const std::string& path, const std::string& model,
                                    const std::string& word) {
  ModelSource source = import_model(model, {});
  std::vector<std::string> words = {"<unk>", "<s>", "</s>"};
  while (int64_t(words.size()) < source.meta.integer("model.vocab_size"))
    words.push_back(word + std::to_string(words.size()));
  source.meta.set_str("tokenizer.kind", "spm");
  source.meta.set_floats("tokenizer.scores", std::vector<double>(words.size()));
  source.meta.set_strs("tokenizer.tokens", words);
  source.meta.set_int("tokenizer.unk_id", 0);
  write_quipu(path, source, 1);
  return path;
}

}  // namespace chaski::test
