// engine/quantize/calibration.h and the encoders that use it, compared with slow versions.
#include "engine/quantize/calibration.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/quantize/quantize.h"
#include "engine/session/engine.h"
#include "engine/session/session.h"
#include "models/import/gguf/gguf_names.h"
#include "quant/encode/encode.h"
#include "quant/formats.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/op_support.h"
#include "tests/kit/program.h"
#include "tests/kit/scratch_model.h"

using namespace chaski;
using namespace chaski::test;

namespace {

// Rows and factors that differ from column to column by a few powers of two.
struct Weighed {
  int64_t cols = 512;
  std::vector<float> x, factors;
  Weighed() {
    for (int64_t i = 0; i < 16 * cols; ++i)
      x.push_back(noise(uint32_t(i)) + noise(uint32_t(i + 77777)) * noise(uint32_t(3 * i)));
    for (int64_t c = 0; c < cols; ++c)
      factors.push_back(std::exp2(4 * noise(uint32_t(c + 123456))));
  }
  std::vector<std::byte> encoded(Format f, const float* with) const {
    std::vector<std::byte> strip(strip_bytes(f, cols));
    encode_strip(f, x.data(), cols, 16, cols, strip.data(), with);
    return strip;
  }
  // sum of factor * (x - x')^2 over one block.
  template <class At>
  double lost(const float* row, int64_t from, int n, At at) const {
    double sum = 0;
    for (int i = 0; i < n; ++i)
      sum += double(factors[size_t(from + i)]) * std::pow(double(row[from + i]) - at(i), 2);
    return sum;
  }
  double lost(Format f, const std::vector<std::byte>& strip) const {
    std::vector<float> y(static_cast<size_t>(cols));
    double sum = 0;
    for (int r = 0; r < 16; ++r) {
      decode_row(f, strip.data(), r, cols, y.data());
      sum += lost(&x[size_t(r * cols)], 0, int(cols), [&](int i) { return double(y[size_t(i)]); });
    }
    return sum;
  }
};

// The least error that q4 (spans of 32) or q4h (of 16) can reach: all scale bytes are tried, each
// with the best code of every weight.
double least_of_nibbles(const Weighed& w, int span) {
  double sum = 0;
  for (int r = 0; r < 16; ++r) {
    const float* row = &w.x[size_t(r * w.cols)];
    const double unit = f32_of_bf16(Q4::header_of(row, w.cols));
    for (int64_t from = 0; from < w.cols; from += span) {
      double best = std::numeric_limits<double>::infinity();
      for (int byte = 0; byte < 256; ++byte) {
        const Q4::Block block{{}, {uint8_t(byte)}};
        const double d = unit * (byte & 31) * (byte & 128 ? -1 : 1), centre = Q4::centre(block);
        best = std::min(best, w.lost(row, from, span, [&](int i) {
          double nearest = d * (Q4::kCodebook[0] - centre);
          for (const uint8_t code : Q4::kCodebook)
            if (const double v = d * (code - centre);
                std::fabs(v - row[from + i]) < std::fabs(nearest - row[from + i]))
              nearest = v;
          return nearest;
        }));
      }
      sum += best;
    }
  }
  return sum;
}

// The same for q4_0, over scales in steps of 1/500.
double least_of_q4_0(const Weighed& w) {
  double sum = 0;
  for (int r = 0; r < 16; ++r) {
    const float* row = &w.x[size_t(r * w.cols)];
    for (int64_t from = 0; from < w.cols; from += 32) {
      double most = 0, best = std::numeric_limits<double>::infinity();
      for (int i = 0; i < 32; ++i) most = std::max(most, std::fabs(double(row[from + i])));
      for (int step = 200; step <= 1000; ++step)
        for (const double d : {most / 4000 * step, -most / 4000 * step})
          best = std::min(best, w.lost(row, from, 32, [&](int i) {
            return d * std::clamp(std::nearbyint(row[from + i] / d), -8.0, 7.0);
          }));
      sum += best;
    }
  }
  return sum;
}

std::string text_for_calibration() { return read_file(kCalibrationText); }

}  // namespace

TEST_CASE("calibration/weighted searches are as good as trying everything") {
  const Weighed w;
  for (const auto& [format, least] : {std::pair(Format::q4, least_of_nibbles(w, 32)),
                                      {Format::q4h, least_of_nibbles(w, 16)},
                                      {Format::q4_0, least_of_q4_0(w)}}) {
    CAPTURE(info(format).name);
    const double weighed = w.lost(format, w.encoded(format, w.factors.data())),
                 plain = w.lost(format, w.encoded(format, nullptr));
    MESSAGE(std::string(info(format).name)
            << ": weighed " << weighed / least << ", plain " << plain / least);
    CHECK(weighed < 1.1 * least);
    CHECK(weighed < 0.95 * plain);
  }
  for (const Format f : {Format::q2_k, Format::q3_k, Format::q4_k, Format::q5_k, Format::q6_k,
                         Format::iq4_nl, Format::iq4_xs, Format::q4_1, Format::q5_1}) {
    CAPTURE(info(f).name);
    CHECK(w.lost(f, w.encoded(f, w.factors.data())) < 0.95 * w.lost(f, w.encoded(f, nullptr)));
  }
}

TEST_CASE("calibration/factors that are all the same change no bit") {
  const Weighed w;
  for (const Format f : encodable_formats()) {
    CAPTURE(info(f).name);
    const std::vector<float> same(static_cast<size_t>(w.cols), 0.25f);
    CHECK(w.encoded(f, nullptr) == w.encoded(f, same.data()));
    if (!weighs_columns(f)) CHECK(w.encoded(f, nullptr) == w.encoded(f, w.factors.data()));
  }
}

TEST_CASE("calibration/inputs of every matmul, separate for experts, on any number of threads") {
  const TempFolder folder;
  // With float weights the engine keeps float inputs; with blocks it has quantized ones only.
  for (const Format format : {Format::f32, Format::q8}) {
    CAPTURE(info(format).name);
    const std::string path = write_scratch_model(folder / std::string(info(format).name), format);
    EngineOptions o;
    o.model = path, o.device = "cpu", o.context = kCalibrationWindow, o.threads = 3;
    const auto engine = Engine::open(o);
    const std::vector<TokenId> tokens = tokens_for(*engine, 2 * kCalibrationWindow);
    int told = 0;
    const auto found = measure_inputs(*engine, tokens, 2, [&](int read) { told = read; });
    CHECK(told == 2);
    o.threads = 1;
    const auto again = measure_inputs(*Engine::open(o), tokens, 2, [](int) {});
    // Every matmul except the head.
    const auto* model = static_cast<const ScratchModel*>(&engine->model());
    CHECK(found.count("layer.0.attn_q") == 1);
    CHECK(found.count("token_embd") == 0);
    for (const auto& [name, in] : found) {
      CAPTURE(name);
      REQUIRE(again.count(name) == 1);
      CHECK(in.sums == again.at(name).sums);
      CHECK(in.tokens == again.at(name).tokens);
      const Weight* weight = engine->weights()->find(name);
      CHECK(in.fit(weight->info));
      const int64_t seen = std::accumulate(in.tokens.begin(), in.tokens.end(), int64_t(0));
      const bool expert = in.experts() > 1;
      CHECK(seen == 2 * kCalibrationWindow * (expert ? model->chosen : 1));
    }
    // q, k and v read the same values.
    CHECK(found.at("layer.0.attn_q").sums == found.at("layer.0.attn_k").sums);
    // An expert's sums come from the tokens that chose it, so their total is that of the router.
    const InputSquares &gate = found.at("layer.1.gate"), &router = found.at("layer.1.router");
    REQUIRE(gate.experts() == 4);
    for (int64_t c = 0; c < gate.cols; ++c) {
      double sum = 0;
      for (int64_t e = 0; e < 4; ++e) sum += double(gate.sums[size_t(e * gate.cols + c)]);
      CHECK(sum == doctest::Approx(model->chosen * double(router.sums[size_t(c)])).epsilon(1e-5));
    }
  }
}

TEST_CASE("calibration/an expert that saw too few tokens falls back") {
  InputSquares in;
  in.cols = 4, in.tokens = {kFewestTokens, kFewestTokens - 1, 100, 100};
  in.sums = {1, 2, 3, 2, 1, 2, 3, 2, 0, 0, 0, 0, 8, 0, 0, 0};
  const auto factors = in.factors();
  CHECK(factors[0] == std::vector<float>{0.5f, 1, 1.5f, 1});
  CHECK(factors[1].empty());
  CHECK(factors[2].empty());  // all its inputs were zero
  CHECK(factors[3] == std::vector<float>{4, 1e-4f, 1e-4f, 1e-4f});
  CHECK(in.too_few() == std::vector<int64_t>{1, 2});
  CHECK(in.fit({"", Format::f32, 4 * 32, 4}));
  CHECK(!in.fit({"", Format::f32, 4 * 24, 4}));  // each expert needs whole strips
  CHECK(!in.fit({"", Format::f32, 4 * 32, 8}));
}

TEST_CASE("calibration/saved and read again it is the same, and damage is reported") {
  const TempFolder folder;
  Calibration c{"book.txt", "0123456789abcdef", 1024, {}};
  c.inputs["layer.0.attn_q"] = {3, {1, 2.5f, 1e-9f}, {1024}};
  c.inputs["layer.1.ffn_gate_exps"] = {2, {1, 2, 3, 4, 5, 6}, {7, 0, 1017}};
  c.kl["layer.0.attn_q"] = 0.25;
  save_calibration(folder / "x.gguf", c, "");
  const Calibration read = load_calibration(folder / "x.gguf");
  CHECK(read.text == c.text);
  CHECK(read.hash == c.hash);
  CHECK(read.tokens == c.tokens);
  CHECK(read.kl == c.kl);
  REQUIRE(read.inputs.size() == 2);
  for (const auto& [name, in] : c.inputs) {
    CHECK(read.inputs.at(name).cols == in.cols);
    CHECK(read.inputs.at(name).sums == in.sums);
    CHECK(read.inputs.at(name).tokens == in.tokens);
  }
  const auto line = [&](Calibration bad) {
    save_calibration(folder / "bad.gguf", bad, "");
    return std::string(error_of([&] { load_calibration(folder / "bad.gguf"); }).what());
  };
  Calibration bad = c;
  bad.inputs["layer.0.attn_q"].sums[1] = -1;
  CHECK_MESSAGE(
      contains(line(bad), "bad.gguf: tensor blk.0.attn_q.weight.in_sum2 has the value -1"),
      line(bad));
  CHECK(error_of([&] { save_calibration(folder / "x.gguf", c, folder / "x.gguf"); }).code ==
        Exit::usage);
  bad.inputs.clear();
  CHECK_MESSAGE(contains(line(bad), "no tensor name ends in .in_sum2"), line(bad));
}

namespace {

// An imatrix.dat in llama.cpp's format from before 2025.
struct OldImatrixFile {
  std::string bytes;
  template <class T>
  OldImatrixFile& add(T number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
    return *this;
  }
  OldImatrixFile& add_text(const std::string& text) {
    add(int32_t(text.size()));
    bytes += text;
    return *this;
  }
  OldImatrixFile& add_tensor(const std::string& name, int calls, const std::vector<float>& sums) {
    add_text(name).add(int32_t(calls)).add(int32_t(sums.size()));
    for (const float x : sums) add(x);
    return *this;
  }
};

}  // namespace

TEST_CASE("calibration/llama.cpp's older imatrix is read, and damage is reported") {
  const TempFolder folder;
  const std::string path = folder / "imatrix.dat";
  OldImatrixFile whole;
  whole.add(int32_t(2));
  whole.add_tensor("blk.0.attn_q.weight", 3, {1, 2.5f, 0});
  whole.add_tensor("blk.1.ffn_down.weight", 3, {4, 3});
  const auto read = [&](const std::string& bytes) {
    write_file(path, bytes);
    return load_calibration(path);
  };
  // Both endings: of the oldest versions and of later ones.
  for (const bool with_text : {false, true}) {
    OldImatrixFile file = whole;
    if (with_text) file.add(int32_t(3)).add_text("texts/wiki.train.raw");
    const Calibration found = read(file.bytes);
    CHECK(found.text == (with_text ? "wiki.train.raw" : "imatrix.dat"));
    CHECK(found.hash.size() == 16);
    CHECK(found.tokens == 0);
    REQUIRE(found.inputs.size() == 2);
    const InputSquares& q = found.inputs.at("layer.0.attn_q");
    CHECK(q.cols == 3);
    CHECK(q.sums == std::vector<float>{1, 2.5f, 0});
    CHECK(q.experts() == 1);
    CHECK(q.too_few().empty());
    CHECK(found.inputs.at("layer.1.ffn_down").sums == std::vector<float>{4, 3});
  }
  const auto line = [&](const std::string& bytes) {
    const Error error = error_of([&] { read(bytes); });
    CHECK(error.code == Exit::bad_file);
    const std::string what = error.what();
    CHECK(what.starts_with(path + ": "));
    CHECK(what.find('\n') == what.npos);
    return what;
  };
  // Cut off anywhere: one error line, and no more memory than the file's size.
  OldImatrixFile ended = whole;
  ended.add(int32_t(3)).add_text("text");
  for (size_t size = 1; size < ended.bytes.size(); ++size)
    if (size != whole.bytes.size() && size != whole.bytes.size() + 4)
      line(ended.bytes.substr(0, size));
  CHECK_MESSAGE(contains(line(ended.bytes + "x"), "1 bytes remain"), line(ended.bytes + "x"));
  const auto with = [&](size_t at, int32_t number) {
    std::string bytes = ended.bytes;
    std::memcpy(bytes.data() + at, &number, 4);
    return line(bytes);
  };
  const size_t calls = 4 + 4 + 19;
  CHECK(contains(with(0, 0), "expected \"GGUF\" or the number of tensors of an older"));
  CHECK(contains(with(0, 1 << 20), "number of tensors is 1048576, but only "));
  CHECK(contains(with(4, -5), "tensor 0, name, length is -5, expected 1 or more"));
  CHECK(contains(with(4, 1 << 30), "tensor 0, name, length is 1073741824, but only "));
  CHECK(contains(with(calls, -1), "tensor blk.0.attn_q.weight, calls is -1, expected 0 or more"));
  CHECK(contains(with(calls + 4, 0), "columns is 0, expected 1 or more"));
  CHECK(contains(with(calls + 4, INT32_MAX), "columns is 2147483647, but only "));
  CHECK(contains(with(calls + 8, 0x7fc00000), "has the value nan, expected sums of squares"));
  CHECK(contains(with(whole.bytes.size() + 4, -1), "name of the text, length is -1"));
  OldImatrixFile twice;
  twice.add(int32_t(2)).add_tensor("a", 1, {1}).add_tensor("a", 1, {1});
  CHECK(contains(line(twice.bytes), "tensor a occurs twice"));
  // Neither format.
  CHECK(
      contains(line("Once upon a time there was"), "begins with \"Once\", expected \"GGUF\" or "));
}

TEST_CASE("cli/quantize --stats reads an older imatrix as it reads a new one") {
  const TempFolder folder;
  const std::string text = write_file(folder / "text.txt", text_for_calibration());
  const auto quantized = [&](const std::string& name, std::vector<std::string> flags) {
    std::vector<std::string> all{"quantize", kStory, folder / name, "--type", "q4_0"};
    all.insert(all.end(), flags.begin(), flags.end());
    const Outcome outcome = chaski_run(all);
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    return outcome.out;
  };
  quantized("new",
            {"--calibrate", text, "--chunks", "1", "--method", "search", "--stats", folder / "s"});
  OldImatrixFile old;
  const Calibration measured = load_calibration(folder / "s");
  old.add(int32_t(measured.inputs.size()));
  for (const auto& [name, squares] : measured.inputs)
    old.add_tensor(gguf_tensor_name(name), 1, squares.sums);
  old.add(int32_t(1)).add_text("text.txt");
  write_file(folder / "imatrix.dat", old.bytes);
  const std::string report = quantized("old", {"--stats", folder / "imatrix.dat"});
  CHECK_MESSAGE(contains(report, " tensors weighted by text.txt (xxh3 "), report);
  const auto a = open_quipu(folder / "new"), b = open_quipu(folder / "old");
  CHECK(a->sums == b->sums);
}

TEST_CASE("cli/quantize --calibrate: same bytes for any threads, saved or measured, and shown") {
  const TempFolder folder;
  const std::string base = "models/bundled/story.quipu",
                    text = write_file(folder / "text.txt", text_for_calibration());
  const auto quantized = [&](const std::string& name, std::vector<std::string> flags) {
    std::vector<std::string> all{"quantize", base, folder / name, "--type", "q4_0"};
    all.insert(all.end(), flags.begin(), flags.end());
    const Outcome outcome = chaski_run(all);
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    return outcome.out;
  };
  const std::string report = quantized("one", {"--calibrate", text, "--chunks", "2", "--method",
                                               "search", "-t", "1", "--stats", folder / "s"});
  CHECK_MESSAGE(contains(report, " tensors weighted by text.txt (xxh3 "), report);
  CHECK_MESSAGE(contains(report, "), 1024 tokens\n"), report);
  quantized("three", {"--calibrate", text, "--chunks", "2", "--method", "search", "-t", "3"});
  quantized("reused", {"--stats", folder / "s"});
  quantized("plain", {});
  CHECK(read_file(folder / "one") == read_file(folder / "three"));
  CHECK(read_file(folder / "one") == read_file(folder / "reused"));
  CHECK(read_file(folder / "one") != read_file(folder / "plain"));
  const Outcome shown = chaski_run({"inspect", folder / "one"});
  CHECK_MESSAGE(contains(shown.out, "quantize.calibration.text"), shown.out);
  CHECK_MESSAGE(contains(shown.out, "text.txt"), shown.out);
  // The result is nearer to the base on another text.
  const auto kl = [&](const std::string& name) {
    const Outcome outcome = chaski_run({"eval", "-m", folder / name, "--kl", base, "-c", "128",
                                        "--chunks", "4", "-f", kEvaluationText, "--json"});
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    return nlohmann::json::parse(outcome.out)["kl"].get<double>();
  };
  CHECK(kl("one") < kl("plain"));
}

TEST_CASE("cli/quantize --stats names what does not match") {
  const TempFolder folder;
  const std::string base = "models/bundled/story.quipu";
  Calibration c;
  c.inputs["layer.0.attn_q"] = {3, {1, 2, 3}, {100}};
  c.inputs["layer.99.attn_q"] = {3, {1, 2, 3}, {100}};
  save_calibration(folder / "s", c, base);
  const Outcome refused = chaski_run({"quantize", base, folder / "out", "--stats", folder / "s"});
  CHECK(refused.status == 3);
  CHECK_MESSAGE(contains(refused.err, "tensor layer.0.attn_q has 192 columns"), refused.err);
  c.inputs.erase("layer.0.attn_q");
  save_calibration(folder / "s", c, base);
  const Outcome noted = chaski_run({"quantize", base, folder / "out", "--stats", folder / "s"});
  REQUIRE_MESSAGE(noted.status == 0, noted.err);
  CHECK_MESSAGE(noted.error_says("not in the model: layer.99.attn_q"), noted.err);
  CHECK_MESSAGE(contains(noted.out, "not in the calibration"), noted.out);
  const Outcome missing = chaski_run({"quantize", base, folder / "out", "--stats", folder / "no"});
  CHECK(missing.status == 5);
}

TEST_CASE("cli/quantize --calibrate: no input file is overwritten, and refusals come at once") {
  const TempFolder folder;
  const std::string model = folder / "m.quipu", text = folder / "text.txt", out = folder / "o";
  std::filesystem::copy_file(kStory, model);
  const std::string words = read_file(kCalibrationText), whole = read_file(model);
  write_file(text, words);
  const auto refused = [&](Arguments arguments, int status, const std::string& said) {
    arguments.insert(arguments.begin(), {"quantize", model});
    check_one_line(chaski_run(arguments), status, said);
    CHECK(read_file(text) == words);
    CHECK(read_file(model) == whole);
    CHECK(files_in(folder.path) == 2);
  };
  refused({out, "--calibrate", text, "--stats", text}, 2, "is the input");
  refused({out, "--calibrate", text, "--stats", model}, 2, "is the input");
  refused({out, "--calibrate", text, "--stats", out}, 2, "are the same file, expected two files");
  refused({text, "--calibrate", text}, 2, "is the input");
  refused({text, "--stats", text}, 2, "is the input");
  refused({out, "--calibrate", text, "--stats", folder / "none/s"}, 5, "none");
}

TEST_CASE("calibration/a model with a short context has short windows") {
  const auto engine = open_on_cpu(golden("models/gpt2"), Format::f32);
  const int length = window_of(*engine);
  REQUIRE(length < kCalibrationWindow);
  int read = 0;
  const auto inputs = measure_inputs(*engine, tokens_for(*engine, 2 * length), 2,
                                     [&](int windows) { read = windows; });
  CHECK(read == 2);
  for (const auto& [name, in] : inputs) CHECK(in.tokens == std::vector<int64_t>{2 * length});
}

TEST_CASE("cli/quantize: a calibration without effect is reported before the text is read") {
  const TempFolder folder;
  const std::string text = write_file(folder / "text", text_for_calibration());
  const auto said = [&](Arguments more) {
    more.insert(more.begin(),
                {"quantize", kStory, folder / "out", "--calibrate", text, "--chunks", "1"});
    const Outcome outcome = chaski_run(more);
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    return outcome.err;
  };
  CHECK(contains(said({"--type", "f16"}),
                 "note: --calibrate has no effect on weights: f16 has one way to round them\n"));
  CHECK(
      contains(said({"--type", "q8f", "--method", "search"}), "note: --calibrate, --method have"));
  CHECK(!contains(said({"--type", "q4_0"}), "no effect"));
}

TEST_CASE("quantize/a calibration of another model is refused with a remedy") {
  const TempFolder folder;
  const std::string path = write_scratch_model(folder / "model.quipu", Format::f32);
  Calibration calibration{"wiki", "0", 0, {}, {}};
  for (const TensorSlot& slot : tensors_of(*model_of(open_model(path).source.meta)))
    if (slot.name.ends_with(".up")) {
      InputSquares& in = calibration.inputs[slot.gguf];
      for (const TensorSource& t : open_model(path).source.tensors)
        if (t.info.name == slot.name) in.cols = 4 * t.info.cols;
      in.sums.assign(size_t(in.cols), 1), in.tokens = {512};
    }
  REQUIRE(!calibration.inputs.empty());
  QuantizeOptions options;
  options.calibration = &calibration, options.threads = 1;
  const Error error = error_of([&] { quantize_model(path, folder / "out", options, {}); });
  CHECK(error.code == Exit::bad_file);
  CHECK_MESSAGE(contains(error.what(),
                         " numbers for it: it was measured on another model. "
                         "Expected a calibration of this model, or --calibrate TEXT"),
                error.what());
}
