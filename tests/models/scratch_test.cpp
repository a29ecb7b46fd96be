// The declarations of an architecture are enough to read it from foreign files: scratch_model.h's
// is read from a GGUF file and a Hugging Face folder written here.
#include <map>

#include "engine/session/engine.h"
#include "engine/session/session.h"
#include "models/architecture.h"
#include "tests/kit/import_support.h"
#include "tests/kit/scratch_model.h"

namespace chaski::test {
namespace {

struct Matrix {
  int64_t rows = 0, cols = 0;
  std::vector<float> values;

  Matrix(const ModelSource& source, const std::string& name)
      : rows(tensor(source, name).info.rows),
        cols(tensor(source, name).info.cols),
        values(values_of(tensor(source, name))) {}
  Matrix transposed() const {
    Matrix m = *this;
    std::swap(m.rows, m.cols);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        m.values[size_t(c * rows + r)] = values[size_t(r * cols + c)];
    return m;
  }
  // In each head of `head` rows, the first 16 are eight pairs of neighbours. Returns the first rows
  // of the pairs, then the second ones. The rows of a vector are its elements.
  Matrix halves(int64_t head) const {
    Matrix m = *this;
    const int64_t n = rows == 1 ? cols : rows, item = rows == 1 ? 1 : cols;
    for (int64_t r = 0; r < n; ++r) {
      const int64_t in = r % head, to = in >= 16 ? r : r - in + in % 2 * 8 + in / 2;
      std::copy_n(values.begin() + r * item, item, m.values.begin() + to * item);
    }
    return m;
  }
  Matrix above(const Matrix& other) const {
    Matrix m = *this;
    m.rows += other.rows;
    m.values.insert(m.values.end(), other.values.begin(), other.values.end());
    return m;
  }
  std::string bytes() const {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  }
};

void write_gguf(const std::string& path, const ModelSource& source) {
  Gguf g;
  g.str("general.architecture", "scratch").str("general.name", "scratch");
  g.u32("scratch.context_length", 2600).u32("scratch.vocab_size", 300);
  g.u32("scratch.block_count", 4).u32("scratch.embedding_length", 64);
  g.u32("scratch.feed_forward_length", 96).u32("scratch.taps", 3);
  g.i32s("scratch.heads", {4, 0, 2, 0}).i32s("scratch.kv_heads", {2, 0, 1, 0});
  g.i32s("scratch.key_lengths", {16, 0, 48, 0}).i32s("scratch.value_lengths", {16, 0, 32, 0});
  g.i32s("scratch.windows", {20, 0, 0, 0}).i32s("scratch.experts", {0, 4, 0, 2});
  g.f32("scratch.theta.near", 1e4f);
  const auto put = [&](const std::string& name, const Matrix& m) {
    std::vector<uint64_t> ne{uint64_t(m.cols)};
    if (m.rows > 1) ne.push_back(uint64_t(m.rows));
    g.tensor(name, ne, 0, m.bytes());
  };
  for (const TensorSource& t : source.tensors) {
    std::string name = t.info.name;
    const Matrix m(source, name);
    if (name.starts_with("layer.")) name.replace(0, 6, "blk.");
    if (name.ends_with("attn_v")) continue;
    if (name.ends_with("attn_k"))
      put(name.substr(0, name.size() - 6) + "attn_kv.weight",
          m.above(Matrix(source, t.info.name.substr(0, 8) + "attn_v")));
    else
      put(name + ".weight", m);
  }
  write_file(path, g.build());
}

const std::string kScratchConfig = R"({"architectures": ["ScratchForCausalLM"], "reach": 2600,
  "pieces": 300, "depth": 4, "width": 64, "mlp": {"width": 96, "experts": [0, 4, 0, 2]},
  "heads": [4, 0, 2, 0], "kv_heads": [2, 0, 1, 0],
  "head": {"keys": [16, 0, 48, 0], "values": [16, 0, 32, 0]}, "windows": [20, 0, 0, 0],
  "taps": 3, "theta": {"near": 10000.0}, "act": "silu"})";

void write_folder(const std::string& folder, const ModelSource& source) {
  std::string header, buffer;
  const auto put = [&](const std::string& name, const Matrix& m) {
    header += fmt::format(R"({}"net.{}.weight":{{"dtype":"F32","shape":[{}{}],)",
                          header.empty() ? "{" : ",", name,
                          m.rows > 1 ? fmt::format("{},", m.rows) : "", m.cols);
    header +=
        fmt::format(R"("data_offsets":[{},{}]}})", buffer.size(), buffer.size() + m.bytes().size());
    buffer += m.bytes();
  };
  put("pieces", Matrix(source, "token_embd")), put("last_norm", Matrix(source, "output_norm"));
  for (int i = 0; i < ScratchModel::kLayers; ++i) {
    const auto ours = [&](const char* name) {
      return Matrix(source, fmt::format("layer.{}.{}", i, name));
    };
    const std::string block = fmt::format("blocks.{}.", i);
    put(block + "first_norm", ours("attn_norm")), put(block + "second_norm", ours("ffn_norm"));
    put(block + "gate_up", ours("gate").above(ours("up"))), put(block + "down", ours("down"));
    if (i % 2 == 0) {
      const int64_t head = i == 0 ? 16 : 48;
      put(block + "q", ours("attn_q").halves(head)), put(block + "k", ours("attn_k").halves(head));
      put(block + "q_norm", ours("q_norm").halves(head));
      put(block + "k_norm", ours("k_norm").halves(head));
      put(block + "v", ours("attn_v")), put(block + "out", ours("attn_output"));
    } else {
      put(block + "conv.in", ours("conv_in").transposed());
      put(block + "conv.taps", ours("conv")), put(block + "conv.out", ours("conv_out"));
      put(block + "router", ours("router"));
    }
  }
  std::filesystem::create_directory(folder);
  write_file(folder + "/config.json", kScratchConfig);
  write_file(folder + "/model.safetensors", safetensors(header + "}", buffer));
}

std::vector<float> logits_of(const std::string& model) {
  EngineOptions o;
  o.model = model, o.device = "cpu", o.kv = Format::f32;
  const auto engine = Engine::open(o);
  const auto session = engine->session();
  std::vector<TokenId> t;
  for (int i = 0; i < 60; ++i) t.push_back((i * i * 7 + 3 * i) % ScratchModel::kVocab);
  const auto logits = session->extend(t, 60);
  return {logits.begin(), logits.end()};
}

// Checks that the message names the file and contains `part`.
void check_scratch_config(const TempFolder& temp, const std::string& from, const std::string& to,
                          const std::string& part) {
  std::string config = kScratchConfig;
  REQUIRE(config.find(from) != std::string::npos);
  write_file(temp / "folder/config.json", config.replace(config.find(from), from.size(), to));
  check_refused(temp / "folder", "config.json", part);
}

}  // namespace

TEST_CASE("scratch: from a GGUF file, a Hugging Face folder and an export the same model") {
  const TempFolder temp;
  const std::string own = write_scratch_model(temp / "own.quipu", Format::f32);
  const ModelSource source = source_of(open_quipu(own));
  write_gguf(temp / "theirs.gguf", source);
  write_folder(temp / "folder", source);
  export_gguf(temp / "export.gguf", source);
  const std::vector<float> want = logits_of(own);
  for (const char* name : {"theirs.gguf", "folder", "export.gguf"}) {
    CAPTURE(name);
    const ModelSource theirs = import_model(temp / name);
    CHECK(theirs.tensors.size() == source.tensors.size());
    for (const TensorSource& t : source.tensors) {
      CAPTURE(t.info.name);
      CHECK(values_of(tensor(theirs, t.info.name)) == values_of(t));
    }
    for (const auto& [key, value] : source.meta.all()) {
      if (!key.starts_with("model.")) continue;
      CAPTURE(key);
      REQUIRE(theirs.meta.has(key));
      if (value.type == ValueType::f64)
        CHECK(float(theirs.meta.number(key)) == float(source.meta.number(key)));
      else
        CHECK(theirs.meta.find(key)->data == value.data);
    }
    CHECK(logits_of(temp / name) == want);
  }
}

TEST_CASE("scratch: a declared key or tensor that a file does not have is refused by name") {
  const TempFolder temp;
  register_scratch_model();
  write_folder(temp / "folder",
               source_of(open_quipu(write_scratch_model(temp / "own.quipu", Format::f32))));
  check_scratch_config(temp, "[20, 0, 0, 0]", "[20, 0, 0]",
                       "model.windows has 3 entries, expected 4");
  check_scratch_config(temp, "[20, 0, 0, 0]", "[20, 0, -1, 0]",
                       "model.windows[2] is -1, expected 0 to ");
  check_scratch_config(temp, "[20, 0, 0, 0]", "20", "windows");
  check_scratch_config(temp, "\"taps\": 3, ", "", "taps is missing, expected an integer");
  check_scratch_config(temp, "[0, 4, 0, 2]", "[0, 4, 0, 1]",
                       "model.experts[3] is 1, expected at least experts_chosen 2");
  check_scratch_config(temp, "silu", "gelu", "act");
  check_scratch_config(temp, "10000.0", "-1.0",
                       "model.theta.near is -1, expected a number above 0");
}

}  // namespace chaski::test
