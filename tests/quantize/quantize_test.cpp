// engine/quantize/quantize.h on files made here: the recipe, the errors it reports, and that
// threads leave no trace in the bytes.
#include "engine/quantize/quantize.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "quant/encode/encode.h"
#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;

namespace {

// Numbers around 0 with a few large ones, a different row for every row.
float weight(int64_t row, int64_t col) {
  const uint32_t h = uint32_t(row * 2654435761u) ^ uint32_t(col * 40503u + 12345u) * 2246822519u;
  const float x = float(int32_t(h ^ h >> 15)) / 2147483648.0f;
  return h % 97 == 0 ? 4 * x : x * x * x;
}

using ValuesByName = std::map<std::string, std::vector<float>>;  // what the file holds, row by row

struct MadeTensor {
  std::string name;
  int64_t rows, cols;
  Format format = Format::f32;
  float scale = 1;
};

// A .quipu file whose tensors are weight(), with `edit` having the last word on every value.
ValuesByName make_model(
    const std::string& path, const std::vector<MadeTensor>& tensors,
    const std::function<void(const std::string&, std::vector<float>&)>& edit = {}) {
  ModelSource source;
  // Of GPT-2, which has a position table; what else is needed for a list of its tensors.
  source.meta.set_str("general.architecture", "gpt2");
  for (auto [key, n] : {std::pair{"context_length", 32},
                        {"embedding_length", 64},
                        {"block_count", 1},
                        {"head_count", 4},
                        {"feed_forward_length", 700},
                        {"vocab_size", 100}})
    source.meta.set_int(std::string("model.") + key, n);
  source.meta.set_float("model.norm_epsilon", 1e-5);
  auto values = std::make_shared<ValuesByName>();
  for (const MadeTensor& t : tensors) {
    std::vector<float>& v = (*values)[t.name];
    for (int64_t r = 0; r < t.rows; ++r)
      for (int64_t c = 0; c < t.cols; ++c) v.push_back(t.scale * weight(r, c));
    if (edit) edit(t.name, v);
    source.tensors.push_back(
        {{t.name, t.format, t.rows, t.cols}, [=](int64_t first, int64_t last, std::byte* dst) {
           const float* x = values->at(t.name).data();
           if (t.rows == 1) return void(std::memcpy(dst, x, t.cols * 4));
           for (int64_t s = first; s < last; ++s, dst += strip_bytes(t.format, t.cols)) {
             const int rows = int(std::min<int64_t>(16, t.rows - s * 16));
             encode_strip(t.format, x + s * 16 * t.cols, t.cols, rows, t.cols, dst);
           }
         }});
  }
  write_quipu(path, source, 1);
  return *values;
}

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

std::string line_of(const std::function<void()>& work, Exit code) {
  try {
    work();
  } catch (const Error& error) {
    CHECK_MESSAGE(int(error.code) == int(code), error.what());
    return error.what();
  }
  FAIL("nothing was thrown");
  return {};
}

const std::vector<MadeTensor> kModel = {
    {"token_embd", 100, 64},       {"position_embd", 32, 64},  {"layer.0.attn_norm", 1, 64},
    {"layer.0.attn_q", 64, 64},    {"layer.0.attn_k", 24, 64}, {"layer.0.ffn_up", 700, 64},
    {"layer.0.ffn_down", 64, 172}, {"output", 100, 64},
};

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

TEST_CASE("quantize/GGUF's blocks of 256: what does not fill them gets blocks of 32") {
  const TempFolder folder;
  std::vector<MadeTensor> model = kModel;
  for (MadeTensor& t : model)
    if (t.name == "layer.0.ffn_up" || t.name == "output") t.cols = 256;
  make_model(folder / "in.quipu", model);
  for (const auto& [type, other] : {std::pair(Format::q2_k, Format::iq4_nl),
                                    {Format::q3_k, Format::iq4_nl},
                                    {Format::iq4_xs, Format::iq4_nl},
                                    {Format::q4_k, Format::q5_0},
                                    {Format::q5_k, Format::q8},
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

TEST_CASE("quantize/without a search: nearly as near, and the same bytes for any threads") {
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

TEST_CASE("quantize/what has the format already keeps its bits") {
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

TEST_CASE("quantize/who asks for 2 or 3 bits gets them, and 4 where a tensor would break") {
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
    CHECK(row_of(usual, "output").to == Format::q6);  // decides every token
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
  CHECK(refused("x.quipu", Format::q4_1, 0.02).find("q4_1") != std::string::npos);
  CHECK(refused("x.quipu", Format::q4, NAN).find("keep-above") != std::string::npos);
  CHECK(read_file(folder / "in.quipu") == before);
  CHECK(!std::filesystem::exists(folder / "x.quipu"));
}

namespace {

// Of a run that was told to stop when it had written so much of it.
void interrupt(const std::string& in, const std::string& out, QuantizeOptions options,
               double share) {
  options.resume = true;
  const auto stop = [&](const FileProgress& progress) {
    if (double(progress.done) >= share * double(progress.total)) fail(Exit::io, "interrupted");
  };
  CHECK(error_of([&] { quantize_model(in, out, options, stop); }).code == Exit::io);
}

// The only hidden file of a folder.
std::string part_in(const std::string& folder) {
  std::string found;
  for (const auto& file : std::filesystem::directory_iterator(folder))
    if (file.path().extension() == ".tmp") {
      CHECK(found.empty());
      found = file.path();
    }
  return found;
}

// `chaski quantize` of the bundled model to folder/out, in trouble.
struct Resumed {
  const TempFolder& folder;
  std::string flags = " --type q4_0 --fast -t 1 --json";
  std::string out() const { return folder / "out"; }

  Outcome run(const std::string& fault, bool resume) const {
    const std::string trouble =
        fault.empty() ? "" : "export LD_PRELOAD=" + faults_shim() + " " + fault + "; ";
    return Program({"-c", trouble + "exec " + chaski_binary() + " quantize " + kStory + " " +
                              out() + flags + (resume ? " --resume" : "")},
                   "", "", "/bin/sh")
        .wait();
  }
  // Goes on, and says how many tensors were there already.
  int64_t go_on(const std::string& whole) const {
    const Outcome outcome = run("", true);
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    CHECK((read_file(out()) == whole));
    CHECK(part_in(folder.path).empty());
    std::filesystem::remove(out());
    return nlohmann::json::parse(outcome.out)["kept_tensors"].get<int64_t>();
  }
};

}  // namespace

TEST_CASE("quantize/progress counts what is encoded, not what is copied") {
  const TempFolder folder;
  make_model(folder / "in.quipu", {{"layer.0.attn_q", 64, 64, Format::q8},
                                   {"layer.0.attn_k", 64, 64},
                                   {"layer.0.attn_v", 64, 64, Format::q8},
                                   {"layer.0.ffn_up", 64, 64}});
  QuantizeOptions options;
  options.type = Format::q8, options.threads = 1;
  uint64_t encoded = 0;
  size_t calls = 0;
  const QuantizeReport report =
      quantize_model(folder / "in.quipu", folder / "out.quipu", options, [&](const auto& p) {
        const bool copied = p.tensor == "layer.0.attn_q" || p.tensor == "layer.0.attn_v";
        CHECK(p.encoded - encoded == (copied ? 0 : 64 * 64));
        CHECK(p.to_encode == 2 * 64 * 64);
        encoded = p.encoded, ++calls;
      });
  CHECK(calls == 4);
  CHECK(encoded == report.weights);
  // Of what was finished before, that too.
  options.type = Format::q4_0;
  interrupt(folder / "in.quipu", folder / "out.quipu", options, 0.4);
  std::vector<uint64_t> seen;
  options.resume = true;
  CHECK(quantize_model(folder / "in.quipu", folder / "out.quipu", options, [&](const auto& p) {
          seen.push_back(p.encoded);
        }).kept == 2);
  CHECK(seen == std::vector<uint64_t>{3 * 64 * 64, 4 * 64 * 64});
}

TEST_CASE("cli/quantize --resume: killed at any write, it goes on and writes the same bytes") {
  if (!can_preload()) return;
  const TempFolder folder;
  const Resumed quantize{folder};
  const Outcome undisturbed = quantize.run("", false);
  REQUIRE_MESSAGE(undisturbed.status == 0, undisturbed.err);
  const std::string whole = read_file(quantize.out());
  const auto json = nlohmann::json::parse(undisturbed.out);
  CHECK(json["kept_tensors"] == 0);
  const int n = int(json["tensors"].size());
  std::filesystem::remove(quantize.out());
  CHECK(quantize.go_on(whole) == 0);  // where there is nothing to go on with
  // The table's foot, of each tensor the data and its line, and at the end the header.
  for (int at : {1, 2, 3, 4, 5, n, n + 1, 2 * n - 1, 2 * n, 2 * n + 1, 2 * n + 2}) {
    CAPTURE(at);
    // Whether it was begun with --resume or not.
    const Outcome killed = quantize.run("FAULT_KILL=pwrite:" + std::to_string(at), at % 2);
    CHECK(killed.status == 128 + 9);
    CHECK(!part_in(folder.path).empty());
    CHECK(!std::filesystem::exists(quantize.out()));
    CHECK(quantize.go_on(whole) == std::max(0, (at - 2) / 2));
  }
  for (const auto& [fault, kept] :
       {std::pair{"fallocate:1", 0}, {"fsync:1", n}, {"fsync:2", 0}, {"rename:1", 0}}) {
    CAPTURE(fault);
    CHECK(quantize.run("FAULT_KILL=" + std::string(fault), true).status == 128 + 9);
    CHECK(quantize.go_on(whole) == kept);
  }
  // Killed twice, and Ctrl-C, which leaves what is finished to --resume alone.
  CHECK(quantize.run("FAULT_KILL=pwrite:12", true).status == 128 + 9);
  CHECK(quantize.run("FAULT_SIGNAL=pwrite:9:2", true).status == 130);
  CHECK(quantize.go_on(whole) == 9);
  CHECK(quantize.run("FAULT_SIGNAL=pwrite:9:2", false).status == 130);
  CHECK(files_in(folder.path) == 0);
  // A disk that is full for a while.
  check_one_line(quantize.run("FAULT_CALL=pwrite:12:28", true), 5, "no space left");
  CHECK(quantize.go_on(whole) == 5);
}

TEST_CASE("cli/quantize --resume: what is damaged is made again") {
  if (!can_preload()) return;
  const TempFolder folder;
  const Resumed quantize{folder};
  const Outcome undisturbed = quantize.run("", false);
  REQUIRE_MESSAGE(undisturbed.status == 0, undisturbed.err);
  const std::string whole = read_file(quantize.out());
  const int n = int(nlohmann::json::parse(undisturbed.out)["tensors"].size());
  std::filesystem::remove(quantize.out());
  REQUIRE(quantize.run("FAULT_KILL=fsync:1", true).status == 128 + 9);
  const std::string path = part_in(folder.path), part = read_file(path);
  const size_t foot = part.size() - 7 * 8, lines = foot - size_t(n) * 64;
  const auto kept_of = [&](std::string bytes) {
    write_file(path, bytes);
    return quantize.go_on(whole);
  };
  const auto flipped = [&](size_t at) {
    std::string bytes = part;
    bytes[at] = char(bytes[at] ^ 4);
    return bytes;
  };
  const auto said_of = [&](const std::string& bytes) {
    write_file(path, bytes);
    const Outcome outcome = quantize.run("", true);
    std::filesystem::remove(quantize.out());
    return outcome.err;
  };
  const std::string anew =
      "out: the temporary file of an earlier run is damaged: everything is made anew\n";
  CHECK(!contains(said_of(part), "earlier run"));
  CHECK(contains(said_of(flipped(lines / 2)), "note: " + quantize.out() + ": 1 of " +
                                                  std::to_string(n) +
                                                  " tensors of an earlier run are damaged"));
  CHECK(contains(said_of(flipped(foot)), anew));
  CHECK(contains(said_of(part.substr(0, lines)), anew));
  for (const size_t size : {part.size(), size_t(1), size_t(20)})  // nothing was begun
    CHECK(!contains(said_of(std::string(size, '\0')), "earlier run"));
  CHECK(contains(said_of("CHASKI"), "of an earlier run is too short: everything is made anew"));
  CHECK(kept_of(part) == n);
  CHECK(kept_of(flipped(lines / 2)) == n - 1);
  CHECK(kept_of(flipped(lines - 1)) >= n - 1);  // or between the tensors
  for (const size_t at : {0, 8, 31, 55, 63})    // its sum, what is said of it, and theirs
    CHECK(kept_of(flipped(lines + 2 * 64 + at)) == n - 1);
  for (size_t at = foot; at < part.size(); at += 5) CHECK(kept_of(flipped(at)) == 0);
  for (const size_t size : {size_t(0), size_t(1), size_t(100), lines, foot, part.size() - 1})
    CHECK(kept_of(part.substr(0, size)) == 0);
  CHECK(kept_of(part + "x") == 0);
  CHECK(kept_of(part.substr(0, lines) + part.substr(foot)) == 0);
  CHECK(kept_of(whole) == 0);
}

TEST_CASE("cli/quantize --resume: where files cannot be locked it says that all is made anew") {
  if (!can_preload()) return;
  const TempFolder folder;
  const Resumed quantize{folder};
  REQUIRE(quantize.run("FAULT_KILL=pwrite:12", true).status == 128 + 9);
  const std::string part = part_in(folder.path);
  const Outcome anew = quantize.run("FAULT_CALL=flock:1:95 FAULT_FOR_EVER=1", true);
  CHECK_MESSAGE(anew.status == 0, anew.err);
  CHECK_MESSAGE(anew.error_says("note: " + part +
                                ": its file system has no locks (operation not "
                                "supported), so another run may still write it; "
                                "everything is made anew\n"),
                anew.err);
  CHECK(nlohmann::json::parse(anew.out)["kept_tensors"] == 0);
  CHECK(have(part));
}

TEST_CASE("quantize/resume: another input, other settings or calibration are refused") {
  const TempFolder folder;
  const std::string in = folder / "in.quipu", out = folder / "out.quipu";
  make_model(in, kModel);
  QuantizeOptions options;
  options.type = Format::q4_0, options.threads = 1, options.resume = true;
  const QuantizeReport undisturbed = quantize_model(in, folder / "whole.quipu", options, {});
  const std::string whole = read_file(folder / "whole.quipu");
  interrupt(in, out, options, 0.6);
  const std::string part = part_in(folder.path), bytes = read_file(part);
  const auto refused = [&](const QuantizeOptions& with, const std::string& says) {
    const std::string line = line_of([&] { quantize_model(in, out, with, {}); }, Exit::usage);
    CHECK_MESSAGE(contains(line, says), line);
    CHECK((read_file(part) == bytes));
  };
  QuantizeOptions other = options;
  other.type = Format::q4h;
  refused(other, "out.quipu: the finished part of it was made with other settings, expected");
  other = options, other.keep_above = 0.03;
  refused(other, "other settings");
  other = options, other.recipe["layer.0.attn_q"] = Format::q8;
  refused(other, "other settings");
  Calibration calibration;
  calibration.text = "a", calibration.hash = "b";
  other = options, other.calibration = &calibration;
  refused(other, "another calibration");
  // A vector more, and one weight of a tensor that is finished.
  auto more = kModel;
  more.push_back({"layer.0.ffn_norm", 1, 64});
  make_model(in, more);
  refused(options, "another input");
  make_model(in, kModel, [](const std::string& name, std::vector<float>& v) {
    if (name == "token_embd") v[3] += 0.125f;
  });
  refused(options, "tensor token_embd has changed since it was quantized for ");
  make_model(in, kModel);
  const QuantizeReport resumed = quantize_model(in, out, options, {});
  CHECK(resumed.kept > 0);
  CHECK(resumed.kept < resumed.tensors.size());
  CHECK((read_file(out) == whole));
  for (size_t t = 0; t < resumed.tensors.size(); ++t)
    CHECK(resumed.tensors[t].error == undisturbed.tensors[t].error);
  CHECK(part_in(folder.path).empty());
  // Without it nothing is kept.
  interrupt(in, out, options, 0.6);
  options.resume = false;
  CHECK(quantize_model(in, out, options, {}).kept == 0);
  CHECK((read_file(out) == whole));
  CHECK(part_in(folder.path).empty());
}

TEST_CASE("cli/scripts/plot_quantize.py draws what quantize --json prints") {
  if (std::system("python3 --version > /dev/null 2>&1") != 0) return;
  const TempFolder folder;
  const Outcome outcome =
      chaski_run({"quantize", kStory, folder / "out", "--type", "q4_0", "--fast", "--json"});
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  write_file(folder / "a.json", outcome.out);
  const std::string draw = "python3 scripts/plot/plot_quantize.py " + (folder / "a.json") + " -o " +
                           (folder / "a.svg") + " 2> " + (folder / "err");
  REQUIRE(std::system(draw.c_str()) == 0);
  const std::string svg = read_file(folder / "a.svg");
  CHECK(svg.starts_with("<svg "));
  CHECK_MESSAGE(contains(svg, "<title>layer.3.ffn_down: "), svg);
  CHECK_MESSAGE(contains(svg, ", q4_0</title>"), svg);
  // Outputs were not measured.
  CHECK(std::system((draw + " --outputs").c_str()) != 0);
  CHECK_MESSAGE(contains(read_file(folder / "err"), "has no such figures"), folder.path);

  std::string text;
  while (text.size() < 2000) text += "Tim saw a big dog. The dog had a red ball, and it was sad. ";
  const Outcome compared = chaski_run({"compare", kStory, folder / "out", "-f",
                                       write_file(folder / "text", text), "-c", "64", "--json"});
  REQUIRE_MESSAGE(compared.status == 0, compared.err);
  write_file(folder / "places.json", compared.out);
  std::string lines;
  for (int i = 1; i <= 7; ++i) lines += fmt::format(" line{}={}", i, folder / "places.json");
  REQUIRE(std::system(("python3 scripts/plot/plot_quantize.py --places" + lines + " -o " +
                       (folder / "places.svg"))
                          .c_str()) == 0);
  const std::string places = read_file(folder / "places.svg");
  for (int i = 1; i <= 7; ++i) CHECK_MESSAGE(contains(places, fmt::format(">line{}<", i)), places);
  CHECK_MESSAGE(contains(places, " windows of 64 tokens<"), places);
}
