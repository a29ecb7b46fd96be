// Non-finite numbers are detected (exit 8), wherever they occur in a model and whatever the KV
// format: no operation turns one into a finite number.
#include <cstring>

#include "engine/session/session.h"
#include "engine/shelf/model_file.h"
#include "ggml-like-tensor/backend.h"
#include "models/import/import.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/op_support.h"
#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;

namespace {

// A model of f32 weights in which 16 values of one tensor are `bad`: the first column of 16 rows,
// or the first 16 values of a vector.
void write_with(const std::string& path, const std::string& tensor, float bad,
                ModelSource source = import_model(golden("models/llama_gqa_untied"), {})) {
  for (TensorSource& t : source.tensors)
    if (t.info.name == tensor)
      t.read = [read = t.read, bad](int64_t first, int64_t last, std::byte* dst) {
        read(first, last, dst);
        if (first != 0) return;
        for (int i = 0; i < 16; ++i) std::memcpy(dst + i * sizeof bad, &bad, sizeof bad);
      };
  REQUIRE(source.find(tensor));
  write_quipu(path, source, 1);
}

const std::vector<TokenId> kTokens = {1, 2, 3, 4, 5, 6, 7, 8, 9};

}  // namespace

TEST_CASE("non-finite: non-finite keys and values are detected with every --kv") {
  TempFolder folder;
  for (const char* tensor : {"layer.0.attn_v", "layer.0.attn_k"})
    for (const float bad : {float(NAN), float(INFINITY), -float(INFINITY)}) {
      write_with(folder / "bad.quipu", tensor, bad);
      for (const KvType& kv : kKvTypes) {
        CAPTURE(tensor);
        CAPTURE(bad);
        CAPTURE(kv.name);
        const auto engine = open_on_cpu(folder / "bad.quipu", kv.format);
        CHECK(error_of([&] { engine->session()->extend(kTokens); }).code == Exit::non_finite);
      }
    }
}

TEST_CASE("non-finite: embeddings whose squares overflow are detected") {
  TempFolder folder;
  write_with(folder / "large.quipu", "token_embd", 1e20f);
  const auto engine = open_on_cpu(folder / "large.quipu", Format::f16);
  CHECK(error_of([&] { engine->session()->extend(kTokens); }).code == Exit::non_finite);
}

TEST_CASE("non-finite: the norm of a row whose squares overflow is NaN on every instruction set") {
  for (const Norm::Kind kind : {Norm::Kind::rms, Norm::Kind::layer})
    for (const float large : {1e20f, float(INFINITY), float(NAN)}) {
      const Norm op{kind, 1e-5f, false};
      std::vector<float> x(64, 1), weight(64, 1), bias(64, 0);
      x[37] = large;
      const auto all_nan = [&](auto compute) {
        std::vector<float> y(64, 0);
        OpArgs a;
        a.in[0] = {{1, 64}, Format::f32, x.data()};
        a.in[1] = {{1, 64}, Format::f32, weight.data(), true};
        a.in[2] = {{1, 64}, Format::f32, bias.data(), true};
        a.out[0] = {{1, 64}, Format::f32, y.data()};
        compute(a);
        return std::all_of(y.begin(), y.end(), [](float v) { return std::isnan(v); });
      };
      CAPTURE(large);
      CHECK(all_nan([&](const OpArgs& a) { op.reference(a); }));
      for (const Backend* backend : cpu_backends()) {
        CAPTURE(backend->name);
        CHECK(all_nan([&](const OpArgs& a) {
          const AnyOp any = op;
          const KernelEntry& k = backend->table[any.index()];
          Buffer scratch(k.scratch(any, a));
          k.run(any, a, 0, 1, {.own = scratch.data()});
        }));
      }
    }
}

TEST_CASE(
    "non-finite: a block of activations with a non-finite value is NaN on every instruction set") {
  alignas(64) float x[32] = {};
  for (int i = 0; i < 32; ++i) x[i] = float(i);
  for (float bad : {float(NAN), float(INFINITY), -float(INFINITY)})
    for (int at : {0, 7, 16, 31}) {
      std::vector<float> row(x, x + 32);
      row[size_t(at)] = bad;
      Act want;
      QuantizeActs::block(row.data(), want);
      CHECK(std::isnan(want.d));
      for (const Backend* backend : cpu_backends()) {
        Act got;
        OpArgs a;
        a.in[0] = {{1, 32}, Format::f32, row.data()};
        a.acts = {&got, 1, 1};
        const AnyOp op = QuantizeActs{};
        backend->table[op.index()].run(op, a, 0, 1, {});
        CHECK(std::isnan(got.d));
        CHECK(std::isnan(got.ds));
      }
    }
}

// Damages the scale of a block, or the value itself for floats.
TEST_CASE("non-finite: a damaged weight of every format is detected on every instruction set") {
  const int64_t cols = 256, rows = 20, damaged = 17;
  std::vector<float> x(size_t(cols), 0);
  for (int64_t i = 0; i < cols; ++i) x[size_t(i)] = noise(uint32_t(i));
  Formats::each([&]<class F>(F) {
    CAPTURE(F::kName);
    std::vector<std::byte> row(row_bytes(F::kFormat, cols));
    Buffer weight = random_weight(F::kFormat, {rows, cols});
    std::byte* strip = weight.data() + damaged / kStrip * strip_bytes(F::kFormat, cols);
    unpack_row(F::kFormat, strip, damaged % kStrip, cols, row.data());
    auto* block = reinterpret_cast<typename F::Block*>(row.data() + kHeaderBytes<F>);
    if constexpr (kHasHeader<F>)
      std::memset(row.data(), 0xFF, kHeaderBytes<F>);
    else if constexpr (F::kBlock == 1)
      *block = F::of(NAN);
    else if constexpr (requires { F::set_scale(*block, NAN); })
      F::set_scale(*block, NAN);
    else
      std::memset(&block->d, 0xFF, sizeof block->d);
    std::vector<std::byte> packed(16 * row.size());
    for (int r = 0; r < 16; ++r)
      unpack_row(F::kFormat, strip, r, cols, packed.data() + size_t(r) * row.size());
    std::copy(row.begin(), row.end(), packed.begin() + damaged % kStrip * long(row.size()));
    pack_strip(F::kFormat, packed.data(), row.size(), int(rows % kStrip), cols, strip);

    std::vector<float> y(size_t(rows), 0);
    std::vector<Act> acts;
    OpArgs a;
    a.in[0] = {{1, cols}, Format::f32, x.data()};
    a.in[1] = {{rows, cols}, F::kFormat, weight.data(), true};
    a.out[0] = {{1, rows}, Format::f32, y.data()};
    if (reads_acts(F::kFormat)) quantize_input(a, acts);
    for (const Backend* backend : cpu_backends()) {
      CAPTURE(backend->name);
      const AnyOp op = MatMul{};
      const KernelEntry& k = backend->table[op.index()];
      Buffer scratch(k.scratch(op, a));
      k.run(op, a, 0, k.units(op, a), {.own = scratch.data()});
      for (int64_t r = 0; r < rows; ++r) CHECK(!std::isfinite(y[size_t(r)]) == (r == damaged));
    }
  });
}

TEST_CASE("non-finite: the program ends with 8 and one line") {
  TempFolder folder;
  write_with(folder / "bad.quipu", "layer.1.ffn_norm", NAN, open_model("").source);
  const Outcome o = chaski_run({"run", "-m", folder / "bad.quipu", "-p", "a", "--device", "cpu"});
  CHECK_MESSAGE(o.status == 8, o.err);
  CHECK_MESSAGE(o.one_error_line(), o.err);
}
