// engine/quantize/quantize.h on files made here: the formats it chooses, the errors it reports, and
// that the bytes do not depend on threads.
#include "engine/quantize/quantize.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "quant/encode/encode.h"
#include "tests/kit/program.h"
#include "tests/quantize/made_model.h"

using namespace chaski;
using namespace chaski::test;

namespace {

std::vector<float> values_in(const std::string& path, const std::string& name) {
  const auto weights = open_quipu(path);
  const Weight* w = weights->find(name);
  REQUIRE(w);
  std::vector<float> out(w->info.rows * w->info.cols);
  if (!w->info.tiled()) decode_plain_row(w->info.format, w->data, w->info.cols, out.data());
  const int64_t cols = w->info.cols;
  for (int64_t r = 0; w->info.tiled() && r < w->info.rows; ++r)
    decode_row(w->info.format, w->data + r / 16 * strip_bytes(w->info.format, cols), int(r % 16),
               cols, out.data() + r * cols);
  return out;
}

double relative_error(const std::vector<float>& x, const std::vector<float>& y) {
  double lost = 0, all = 0;
  for (size_t i = 0; i < x.size(); ++i)
    lost += (double(x[i]) - y[i]) * (double(x[i]) - y[i]), all += double(x[i]) * x[i];
  return lost / all;
}

QuantizeReport quantize(const std::string& in, const std::string& out, Format type, int threads = 1,
                        double keep_above = 0.02) {
  QuantizeOptions options;
  options.type = type, options.threads = threads, options.keep_above = keep_above;
  return quantize_model(in, out, options, {});
}

const QuantizedTensor& row_of(const QuantizeReport& report, const std::string& name) {
  for (const QuantizedTensor& t : report.tensors)
    if (t.name == name) return t;
  FAIL("no tensor ", name);
  std::abort();
}

}  // namespace

TEST_CASE("quantize/the recipe by name and shape") {
  const TempFolder folder;
  make_model(folder / "in.quipu", kModel);
  const QuantizeReport report = quantize(folder / "in.quipu", folder / "out.quipu", Format::q4);
  const auto to = [&](const char* name) { return row_of(report, name).to; };
  CHECK(to("layer.0.attn_q") == Format::q4);
  CHECK(to("layer.0.attn_k") == Format::q4);
  CHECK(to("token_embd") == Format::q6);
  CHECK(to("output") == Format::q6);
  CHECK(to("position_embd") == Format::f32);
  CHECK(to("layer.0.attn_norm") == Format::f32);
  CHECK(to("layer.0.ffn_down") == Format::f16);  // 172 columns
  CHECK(row_of(report, "layer.0.attn_q").reason.empty());
  for (const QuantizedTensor& t : report.tensors)
    if (t.to != Format::q4) CHECK_MESSAGE(!t.reason.empty(), t.name);
  CHECK(row_of(report, "layer.0.ffn_down").reason.find("172 columns") != std::string::npos);
  const auto out = open_quipu(folder / "out.quipu");
  CHECK(report.bytes_after == out->bytes());
  CHECK(report.bytes_before == open_quipu(folder / "in.quipu")->bytes());
  CHECK(out->meta.str("general.architecture") == "gpt2");
  verify(*open_quipu(folder / "out.quipu"), 2);
}

TEST_CASE("quantize/GGUF's blocks of 256: other columns get blocks of 32") {
  const TempFolder folder;
  std::vector<MadeTensor> model = kModel;
  for (MadeTensor& t : model)
    if (t.name == "layer.0.ffn_up" || t.name == "output") t.cols = 256;
  make_model(folder / "in.quipu", model);
  for (const auto& [type, other] : {std::pair(Format::q2_k, Format::iq4_nl),
                                    {Format::q3_k, Format::iq4_nl},
                                    {Format::iq4_xs, Format::iq4_nl},
                                    {Format::q4_k, Format::q5_0},
                                    {Format::q5_k, Format::q5_1},
                                    {Format::q6_k, Format::q8}}) {
    CAPTURE(info(type).name);
    QuantizeOptions options;
    options.type = type, options.threads = 1, options.keep_above = 1;
    const QuantizeReport report =
        quantize_model(folder / "in.quipu", folder / "out.quipu", options, {});
    CHECK(row_of(report, "layer.0.ffn_up").to == type);
    CHECK(row_of(report, "output").to == Format::q6_k);
    CHECK(row_of(report, "token_embd").to == Format::q8);
    CHECK(row_of(report, "layer.0.attn_q").to == other);
    CHECK(contains(row_of(report, "layer.0.attn_q").reason, "not a multiple of 256"));
    CHECK(row_of(report, "layer.0.ffn_down").to == Format::f16);  // 172 columns
  }
}

TEST_CASE("quantize/the reported error is the error") {
  const TempFolder folder;
  const ValuesByName values = make_model(folder / "in.quipu", kModel);
  for (const Format type : {Format::q2, Format::q3, Format::q4, Format::q6, Format::q8, Format::q8f,
                            Format::f16, Format::bf16}) {
    const QuantizeReport report = quantize(folder / "in.quipu", folder / "out.quipu", type);
    for (const QuantizedTensor& t : report.tensors) {
      const double expected =
          relative_error(values.at(t.name), values_in(folder / "out.quipu", t.name));
      CHECK_MESSAGE(std::fabs(t.error - expected) <= 1e-9 * expected, t.name, " ", info(type).name,
                    " ", t.error, " ", expected);
      CHECK((t.error == 0) == (t.from == t.to));
    }
  }
}

TEST_CASE("quantize/bytes and report do not depend on threads") {
  const TempFolder folder;
  make_model(folder / "in.quipu", {{"layer.0.ffn_up", 3000, 256},
                                   {"layer.0.ffn_norm", 1, 256},
                                   {"layer.0.ffn_down", 250, 1024}});
  for (const Format type : {Format::q4, Format::q4_0, Format::q8, Format::q2, Format::q3}) {
    const QuantizeReport one = quantize(folder / "in.quipu", folder / "one.quipu", type, 1);
    for (const int threads : {2, 3, 7}) {
      const QuantizeReport many =
          quantize(folder / "in.quipu", folder / "many.quipu", type, threads);
      CHECK(read_file(folder / "one.quipu") == read_file(folder / "many.quipu"));
      for (size_t i = 0; i < one.tensors.size(); ++i)
        CHECK(one.tensors[i].error == many.tensors[i].error);
    }
  }
}

TEST_CASE("quantize/without a search: nearly as exact, and the same bytes for any threads") {
  const TempFolder folder;
  make_model(folder / "in.quipu", {{"layer.0.ffn_up", 500, 256}, {"layer.0.ffn_down", 256, 512}});
  for (const Format type : {Format::q4, Format::q4h, Format::q4_0, Format::q5_0, Format::mxfp4,
                            Format::q2, Format::q3, Format::q6, Format::q4t, Format::q5}) {
    CAPTURE(info(type).name);
    QuantizeOptions options;
    options.type = type, options.keep_above = 1, options.threads = 1;
    const QuantizeReport searched =
        quantize_model(folder / "in.quipu", folder / "searched.quipu", options, {});
    options.method = RoundingMethod::fast;
    const QuantizeReport fast =
        quantize_model(folder / "in.quipu", folder / "fast.quipu", options, {});
    options.threads = 3;
    quantize_model(folder / "in.quipu", folder / "many.quipu", options, {});
    CHECK(read_file(folder / "fast.quipu") == read_file(folder / "many.quipu"));
    for (size_t i = 0; i < fast.tensors.size(); ++i) {
      MESSAGE(searched.tensors[i].error, " by search, ", fast.tensors[i].error, " without");
      CHECK(fast.tensors[i].error >= searched.tensors[i].error);
      CHECK(fast.tensors[i].error < 1.8 * searched.tensors[i].error);
    }
    const bool searches = type != Format::mxfp4;
    CHECK((read_file(folder / "fast.quipu") == read_file(folder / "searched.quipu")) != searches);
  }
  check_one_line(
      chaski_run({"quantize", folder / "in.quipu", folder / "x.quipu", "--fast", "--stats", "x"}),
      2, "expected one of them");
}

TEST_CASE("quantize/a tensor that suffers keeps more bits, and the reason says so") {
  const TempFolder folder;
  make_model(folder / "in.quipu", kModel);
  const double q4 =
      row_of(quantize(folder / "in.quipu", folder / "out.quipu", Format::q4), "layer.0.ffn_up")
          .error;
  const QuantizeReport strict =
      quantize(folder / "in.quipu", folder / "out.quipu", Format::q4, 1, q4 / 4);
  CHECK(row_of(strict, "layer.0.ffn_up").to == Format::q8);
  CHECK(row_of(strict, "layer.0.ffn_up").reason.find("q4 would lose") == 0);
  CHECK(row_of(strict, "layer.0.ffn_up").error < q4 / 4);
  const QuantizeReport nothing_lost =
      quantize(folder / "in.quipu", folder / "out.quipu", Format::q4, 1, 0);
  for (const QuantizedTensor& t : nothing_lost.tensors) CHECK_MESSAGE(t.to == Format::f32, t.name);
}

TEST_CASE("quantize/values beyond f16 go to f32 and not to infinity") {
  const TempFolder folder;
  const ValuesByName values =
      make_model(folder / "in.quipu", {{"layer.0.ffn_up", 32, 64, Format::f32, 1e9f}});
  for (const Format type : {Format::q4_0, Format::q8, Format::f16}) {
    const QuantizeReport report = quantize(folder / "in.quipu", folder / "out.quipu", type);
    CHECK(row_of(report, "layer.0.ffn_up").to == Format::f32);
    CHECK(values_in(folder / "out.quipu", "layer.0.ffn_up") == values.at("layer.0.ffn_up"));
  }
}

TEST_CASE(
    "quantize/one value beyond f16 that the sample misses is refused, not stored as infinity") {
  const TempFolder folder;
  const auto large = [](const std::string&, std::vector<float>& v) {
    v[(16 * 1 + 3) * 32 + 5] = 1e6f;
  };
  make_model(folder / "in.quipu", {{"layer.0.ffn_up", 16 * 40, 32}}, large);
  const std::string line = line_of(
      [&] { quantize(folder / "in.quipu", folder / "out.quipu", Format::f16); }, Exit::bad_file);
  CHECK(line.find("layer.0.ffn_up: weight (19, 5) is inf") != std::string::npos);
  CHECK(!std::filesystem::exists(folder / "out.quipu"));
}

TEST_CASE("quantize/a weight that is not finite is refused by name and place") {
  const TempFolder folder;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity})
    for (const Format type : {Format::q4, Format::f32}) {
      make_model(folder / "in.quipu", kModel, [&](const std::string& name, std::vector<float>& v) {
        if (name == "layer.0.ffn_up") v[699 * 64 + 63] = bad;
      });
      const std::string line = line_of(
          [&] { quantize(folder / "in.quipu", folder / "out.quipu", type, 2); }, Exit::bad_file);
      CHECK_MESSAGE(
          line.find("in.quipu: tensor layer.0.ffn_up: weight (699, 63) is ") != std::string::npos,
          line);
    }
}

TEST_CASE("quantize/a tensor that has the format already keeps its bits") {
  const TempFolder folder;
  make_model(folder / "in.quipu", kModel);
  quantize(folder / "in.quipu", folder / "q4.quipu", Format::q4);
  const QuantizeReport again = quantize(folder / "q4.quipu", folder / "again.quipu", Format::q4);
  CHECK(read_file(folder / "q4.quipu") == read_file(folder / "again.quipu"));
  for (const QuantizedTensor& t : again.tensors)
    CHECK_MESSAGE((t.from == t.to && t.error == 0), t.name);
}

TEST_CASE("quantize/raising stops at the tensor's own format") {
  const TempFolder folder;
  make_model(folder / "in.quipu",
             {{"layer.0.ffn_up", 64, 64, Format::bf16}, {"output", 32, 48, Format::bf16}});
  const QuantizeReport report =
      quantize(folder / "in.quipu", folder / "out.quipu", Format::q4, 1, 0);
  CHECK(row_of(report, "layer.0.ffn_up").to == Format::bf16);
  CHECK(row_of(report, "output").to == Format::bf16);
  CHECK(row_of(report, "layer.0.ffn_up").error == 0);
}

TEST_CASE("quantize/2 and 3 bits are kept, except for tensors that lose too much") {
  const TempFolder folder;
  make_model(folder / "in.quipu", kModel);
  for (const Format type : {Format::q2, Format::q3}) {
    CAPTURE(info(type).name);
    QuantizeOptions options;
    options.type = type, options.threads = 1;
    const QuantizeReport usual =
        quantize_model(folder / "in.quipu", folder / "usual.quipu", options, {});
    CHECK(row_of(usual, "layer.0.attn_q").to == type);
    CHECK(row_of(usual, "layer.0.attn_q").error > 0.01);
    CHECK(row_of(usual, "layer.0.ffn_up").to == type);
    CHECK(row_of(usual, "output").to == Format::q6);  // the head decides every token
    const QuantizeReport strict = quantize(folder / "in.quipu", folder / "strict.quipu", type, 1,
                                           row_of(usual, "layer.0.ffn_up").error / 2);
    CHECK(row_of(strict, "layer.0.ffn_up").to == Format::q4);
    CHECK(contains(row_of(strict, "layer.0.ffn_up").reason, " would lose "));
    std::string damaged = read_file(folder / "usual.quipu");
    damaged[damaged.size() / 2] ^= 4;
    write_file(folder / "damaged.quipu", damaged);
    const std::string line = line_of(
        [&] { quantize(folder / "damaged.quipu", folder / "x.quipu", type); }, Exit::bad_file);
    CHECK_MESSAGE(contains(line, "the file is damaged: tensor "), line);
  }
  CHECK(usual_keep_above(Format::tq2_0) == 0.02);
  const auto types_of = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"quantize", folder / "in.quipu", folder / "out.quipu", "q3"});
    const Outcome outcome = chaski_run(flags);
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    return outcome.out;
  };
  CHECK(contains(types_of({}), "-> q3"));
  CHECK(!contains(types_of({"--keep-above", "0.01"}), "-> q3"));
}

TEST_CASE("quantize/usage errors come before a byte is written") {
  const TempFolder folder;
  make_model(folder / "in.quipu", kModel);
  const std::string before = read_file(folder / "in.quipu");
  std::filesystem::create_symlink("in.quipu", folder / "link.quipu");
  std::filesystem::create_hard_link(folder / "in.quipu", folder / "hard.quipu");
  for (const char* out : {"in.quipu", "link.quipu", "hard.quipu", "./in.quipu"})
    line_of([&] { quantize(folder / "in.quipu", folder / out, Format::q4); }, Exit::usage);
  const auto refused = [&](const char* out, Format type, double keep_above) {
    return line_of([&] { quantize(folder / "in.quipu", folder / out, type, 1, keep_above); },
                   Exit::usage);
  };
  CHECK(refused("x.gguf", Format::q4, 0.02).find("x.gguf") != std::string::npos);
  CHECK(refused("x.quipu", Format::iq3_s, 0.02).find("iq3_s") != std::string::npos);
  CHECK(refused("x.quipu", Format::q4, NAN).find("keep-above") != std::string::npos);
  CHECK(read_file(folder / "in.quipu") == before);
  CHECK(!std::filesystem::exists(folder / "x.quipu"));
}
