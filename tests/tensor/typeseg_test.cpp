// A trained Mamba (the package typeseg) on chaski's ops. It gives each character of a text the
// language that it is in. It reads a text in both directions, so its layers are run by hand here.
// scripts/golden/golden_typeseg.py wrote the classes with the package's own numpy code.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "ggml-like-tensor/backend.h"
#include "tests/kit/op_support.h"

using namespace chaski;
using namespace chaski::test;
using nlohmann::json;

namespace {

using Row = std::vector<float>;

// Rows of a text, one for each character.
struct Matrix {
  int64_t rows = 0, cols = 0;
  Row x;
  Matrix(int64_t n, int64_t width) : rows(n), cols(width), x(size_t(n * width)) {}
  float* row(int64_t r) { return x.data() + r * cols; }
  Matrix columns(int64_t first, int64_t n) {
    Matrix part(rows, n);
    for (int64_t r = 0; r < rows; ++r) std::copy_n(row(r) + first, n, part.row(r));
    return part;
  }
  Matrix reversed() {
    Matrix back(rows, cols);
    for (int64_t r = 0; r < rows; ++r) std::copy_n(row(r), cols, back.row(rows - 1 - r));
    return back;
  }
};

class Typeseg {
 public:
  explicit Typeseg(std::string file) : file_(std::move(file)) {}

  Matrix logits(const std::string& text) {
    const Row table = weight("Embed_0__embedding");
    Matrix h(int64_t(text.size()), kWidth);
    for (int64_t t = 0; t < h.rows; ++t)
      std::copy_n(table.data() + int64_t(text[size_t(t)]) * kWidth, kWidth, h.row(t));
    for (int i = 0; i < kLayers; ++i)
      h = layer("CheckpointMambaBlock1D_" + std::to_string(i) + "__", h);
    return dense("Dense_0", norm("", h));
  }

 private:
  static constexpr int kLayers = 6, kWidth = 256, kStates = 16, kRank = 16, kTaps = 4;

  // The floats of an array; its header has 128 bytes.
  Row weight(const std::string& name) const {
    const std::string command = "unzip -p '" + file_ + "' " + name + ".npy";
    FILE* const pipe = popen(command.c_str(), "r");
    REQUIRE(pipe);
    std::string bytes;
    char buffer[4096];
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) bytes.append(buffer, n);
    REQUIRE(pclose(pipe) == 0);
    constexpr size_t kHeader = 128;
    REQUIRE(bytes.size() > kHeader);
    Row floats((bytes.size() - kHeader) / sizeof(float));
    std::memcpy(floats.data(), bytes.data() + kHeader, floats.size() * sizeof(float));
    return floats;
  }

  template <class Op>
  Matrix run(const Op& op, Batch& batch, std::vector<Operand> in) {
    OpArgs a;
    for (const Operand& operand : in) a.in[a.n_in++] = operand;
    PassContext where;
    std::vector<std::byte> pages;
    std::vector<int32_t> table{0};
    if constexpr (requires { op.kept(); }) {
      where.states = StateLayout(std::vector<State>{op.kept()}, Format::f32, false);
      pages.resize(where.states.page_bytes());
      where.states.place({{pages.data()}});
      batch.tables = {{table.data()}};
    }
    a.batch = &batch, a.where = &where;
    const Shape shape = output_shapes(op, a)[0];
    Matrix y(shape.rows, shape.cols);
    a.out[0] = {shape, Format::f32, y.x.data()};
    const AnyOp any = op;
    const KernelEntry& k = cpu_backend().table[any.index()];
    Buffer scratch(k.scratch(any, a));
    k.run(any, a, 0, k.units(any, a), {.own = scratch.data()});
    return y;
  }
  static Batch text_of(int64_t tokens) {
    Batch b;
    for (int64_t t = 0; t < tokens; ++t)
      b.tokens.push_back(0), b.cells.push_back(int32_t(t)), b.sequences.push_back(0);
    return b;
  }
  static Operand rows(Matrix& m) { return {{m.rows, m.cols}, Format::f32, m.x.data()}; }
  static Operand vector(Row& x) { return {{1, int64_t(x.size())}, Format::f32, x.data(), true}; }

  // The package's matrices are (in, out).
  Matrix dense(const std::string& name, Matrix x) {
    Row kernel = weight(name + "__kernel"), bias = weight(name + "__bias");
    const auto outputs = int64_t(bias.size());
    std::vector<float> by_output(kernel.size());
    for (int64_t o = 0; o < outputs; ++o)
      for (int64_t i = 0; i < x.cols; ++i)
        by_output[size_t(o * x.cols + i)] = kernel[size_t(i * outputs + o)];
    Buffer strips(TensorInfo{"", Format::f32, outputs, x.cols}.bytes());
    const size_t stride = size_t(x.cols) * sizeof(float);
    for (int64_t s = 0; s * kStrip < outputs; ++s)
      pack_strip(Format::f32,
                 reinterpret_cast<const std::byte*>(by_output.data()) + size_t(s * kStrip) * stride,
                 stride, int(std::min<int64_t>(kStrip, outputs - s * kStrip)), x.cols,
                 strips.data() + size_t(s) * strip_bytes(Format::f32, x.cols));
    Batch b = text_of(x.rows);
    return run(MatMul{1, true}, b,
               {rows(x), {{outputs, x.cols}, Format::f32, strips.data(), true}, vector(bias)});
  }
  Matrix norm(const std::string& layer, Matrix x) {
    Row scale = weight(layer + "LayerNorm_0__scale"), bias = weight(layer + "LayerNorm_0__bias");
    Batch b = text_of(x.rows);
    return run(Norm{Norm::Kind::layer, 1e-6f}, b, {rows(x), vector(scale), vector(bias)});
  }
  Matrix unary(Activation kind, Matrix x) {
    Batch b = text_of(x.rows);
    return run(Unary{kind}, b, {rows(x)});
  }

  // Its convolution sees one character before and two after: a causal one, two characters later.
  Matrix convolution(const std::string& p, Matrix& x) {
    Row taps = weight(p + "Conv_0__kernel"), bias = weight(p + "Conv_0__bias");
    constexpr int64_t kAfter = 2;
    Matrix longer(x.rows + kAfter, x.cols);
    std::copy(x.x.begin(), x.x.end(), longer.x.begin());
    Batch b = text_of(longer.rows);
    const ShortConv op{0, kTaps, int(x.cols), true, true};
    Matrix y = run(op, b, {rows(longer), vector(taps), vector(bias)});
    y.x.erase(y.x.begin(), y.x.begin() + kAfter * x.cols), y.rows = x.rows;
    return y;
  }
  Matrix scan(const std::string& p, Matrix u, Matrix dt, Matrix b, Matrix c) {
    Row log = weight(p + "A_log"), direct = weight(p + "D");
    Row decays(log.size());
    for (int64_t i = 0; i < u.cols; ++i)
      for (int64_t n = 0; n < kStates; ++n)
        decays[size_t(n * u.cols + i)] = -std::exp(log[size_t(i * kStates + n)]);
    Batch batch = text_of(u.rows);
    return run(SelectiveScan{0, int(u.cols), kStates}, batch,
               {rows(u), rows(dt), rows(b), rows(c), vector(decays), vector(direct)});
  }

  Matrix layer(const std::string& p, Matrix& h) {
    Matrix xz = dense(p + "Dense_0", norm(p, h));
    const int64_t inner = xz.cols / 2;
    Matrix in = xz.columns(0, inner), gate = unary(Activation::silu, xz.columns(inner, inner));
    Matrix u = convolution(p, in), low = dense(p + "Dense_1", u);
    Matrix b = low.columns(kRank, kStates), c = low.columns(kRank + kStates, kStates);
    Matrix dt = unary(Activation::softplus, dense(p + "Dense_2", low.columns(0, kRank)));
    for (float& x : dt.x) x += 1e-4f;
    Matrix y = scan(p, u, dt, b, c);
    Matrix back = scan(p, u.reversed(), dt.reversed(), b.reversed(), c.reversed()).reversed();
    for (size_t i = 0; i < y.x.size(); ++i) y.x[i] = (y.x[i] + back.x[i]) * gate.x[i];
    Matrix out = dense(p + "Dense_3", y);
    for (size_t i = 0; i < out.x.size(); ++i) out.x[i] += h.x[i];
    return out;
  }

  std::string file_;
};

}  // namespace

TEST_CASE(
    "real/mamba: a trained Mamba on chaski's ops gives every character its own code's class") {
  const char* folder = std::getenv("CHASKI_REAL_MODELS");
  const std::string file =
      std::string(folder ? folder : "CHASKI_REAL_MODELS") + "/typeseg-mamba/mamba_al.npz";
  if (!have(file)) return;
  Typeseg model(file);
  for (const json& one : json::parse(read_file(golden("typeseg.json")))) {
    const auto text = one.at("text").get<std::string>();
    CAPTURE(text);
    Matrix logits = model.logits(text);
    std::vector<int> classes;
    for (int64_t t = 0; t < logits.rows; ++t) {
      const float* row = logits.row(t);
      classes.push_back(int(std::max_element(row, row + logits.cols) - row));
    }
    CHECK(classes == one.at("classes").get<std::vector<int>>());
    const auto last = one.at("last").get<Row>();
    for (size_t i = 0; i < last.size(); ++i)
      CHECK(logits.row(logits.rows - 1)[i] == doctest::Approx(last[i]).epsilon(1e-4).scale(10));
  }
}
