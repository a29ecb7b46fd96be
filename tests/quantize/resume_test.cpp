// Runs of chaski quantize that were killed and are resumed, and progress. Also the plots of its
// JSON.
#include <nlohmann/json.hpp>

#include "engine/quantize/quantize.h"
#include "tests/kit/program.h"
#include "tests/quantize/made_model.h"

using namespace chaski;
using namespace chaski::test;

namespace {

// Runs quantize_model() and stops it when it has written this share of the file.
void interrupt(const std::string& in, const std::string& out, QuantizeOptions options,
               double share) {
  options.resume = true;
  const auto stop = [&](const FileProgress& progress) {
    if (double(progress.done) >= share * double(progress.total)) fail(Exit::io, "interrupted");
  };
  CHECK(error_of([&] { quantize_model(in, out, options, stop); }).code == Exit::io);
}

// The temporary file in a folder; there is at most one.
std::string part_in(const std::string& folder) {
  std::string found;
  for (const auto& file : std::filesystem::directory_iterator(folder))
    if (file.path().extension() == ".tmp") {
      CHECK(found.empty());
      found = file.path();
    }
  return found;
}

// Runs `chaski quantize` of the bundled model to folder/out, with faults.
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
  // Resumes. Returns how many tensors were finished already.
  int64_t resume(const std::string& whole) const {
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
  // Tensors that an earlier run finished are counted too.
  options.type = Format::q4_0;
  interrupt(folder / "in.quipu", folder / "out.quipu", options, 0.4);
  std::vector<uint64_t> seen;
  options.resume = true;
  CHECK(quantize_model(folder / "in.quipu", folder / "out.quipu", options, [&](const auto& p) {
          seen.push_back(p.encoded);
        }).kept == 2);
  CHECK(seen == std::vector<uint64_t>{3 * 64 * 64, 4 * 64 * 64});
}

TEST_CASE("cli/quantize --resume: killed at any write, it continues and writes the same bytes") {
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
  CHECK(quantize.resume(whole) == 0);  // there is nothing to resume
  // Writes are: the table's foot, the data and the line of each tensor, and finally the header.
  for (int at : {1, 2, 3, 4, 5, n, n + 1, 2 * n - 1, 2 * n, 2 * n + 1, 2 * n + 2}) {
    CAPTURE(at);
    // Runs that began with and without --resume.
    const Outcome killed = quantize.run("FAULT_KILL=pwrite:" + std::to_string(at), at % 2);
    CHECK(killed.status == 128 + 9);
    CHECK(!part_in(folder.path).empty());
    CHECK(!std::filesystem::exists(quantize.out()));
    CHECK(quantize.resume(whole) == std::max(0, (at - 2) / 2));
  }
  for (const auto& [fault, kept] :
       {std::pair{"fallocate:1", 0}, {"fsync:1", n}, {"fsync:2", 0}, {"rename:1", 0}}) {
    CAPTURE(fault);
    CHECK(quantize.run("FAULT_KILL=" + std::string(fault), true).status == 128 + 9);
    CHECK(quantize.resume(whole) == kept);
  }
  // Killed twice. Ctrl-C keeps finished tensors only with --resume.
  CHECK(quantize.run("FAULT_KILL=pwrite:12", true).status == 128 + 9);
  const Outcome stopped = quantize.run("FAULT_SIGNAL=pwrite:9:2", true);
  CHECK(stopped.status == 130);
  CHECK_MESSAGE(
      stopped.error_says("chaski: note: interrupted: finished tensors are kept in a hidden "
                         "file next to " +
                         quantize.out() + ", and the same command continues with them\n"),
      stopped.err);
  CHECK(quantize.resume(whole) == 9);
  const Outcome dropped = quantize.run("FAULT_SIGNAL=pwrite:9:2", false);
  CHECK(dropped.status == 130);
  CHECK_MESSAGE(dropped.error_says("note: interrupted: no tensor is kept; with --resume, finished "
                                   "tensors are kept, and the same command continues with them\n"),
                dropped.err);
  CHECK(files_in(folder.path) == 0);
  // A disk that is temporarily full.
  check_one_line(quantize.run("FAULT_CALL=pwrite:12:28", true), 5, "no space left");
  CHECK(quantize.resume(whole) == 5);
}

TEST_CASE("cli/quantize: Ctrl-C says what is kept of the measurements") {
  if (!can_preload()) return;
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 100; ++i) text += "Once upon a time there was a dog. ";
  const std::string file = write_file(folder / "text", text), stats = folder / "a.stats";
  const auto stopped = [&](const std::string& signal, const std::string& more = "") {
    std::filesystem::remove(stats);
    const std::string line = "export LD_PRELOAD=" + faults_shim() + " FAULT_SIGNAL=" + signal +
                             "; exec " + chaski_binary() + " quantize " + kStory + " " +
                             folder / "out" + " --calibrate " + file + " --stats " + stats +
                             " --chunks 1 -t 2" + more;
    const Outcome outcome = Program({"-c", line}, "", "", "/bin/sh").wait();
    CHECK(outcome.status == 130);
    return outcome.err;
  };
  // When the first thread starts, the text is about to be read.
  const std::string early = stopped("pthread_create:1:2");
  CHECK_MESSAGE(early == "chaski: note: interrupted while --calibrate measured: nothing is kept\n",
                early);
  // The first file that gets its name has the measurements, the second one is OUT.
  const std::string late = stopped("rename:2:2");
  CHECK_MESSAGE(
      contains(late, "note: interrupted: no tensor is kept, but the measurements are, in " + stats +
                         ": the same command with --resume continues"),
      late);
  CHECK(stopped("rename:2:2", " -q").empty());
}

TEST_CASE("cli/quantize --resume: damaged tensors are made again") {
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
    return quantize.resume(whole);
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
  const std::string damaged =
      "out: the temporary file of an earlier run is damaged: everything starts again\n";
  CHECK(!contains(said_of(part), "earlier run"));
  CHECK(contains(said_of(flipped(lines / 2)), "note: " + quantize.out() + ": 1 of " +
                                                  std::to_string(n) +
                                                  " tensors of an earlier run are damaged"));
  CHECK(contains(said_of(flipped(foot)), damaged));
  CHECK(contains(said_of(part.substr(0, lines)), damaged));
  for (const size_t size : {part.size(), size_t(1), size_t(20)})  // an empty file
    CHECK(!contains(said_of(std::string(size, '\0')), "earlier run"));
  CHECK(contains(said_of("CHASKI"), "of an earlier run is too short: everything starts again"));
  CHECK(kept_of(part) == n);
  CHECK(kept_of(flipped(lines / 2)) == n - 1);
  CHECK(kept_of(flipped(lines - 1)) >= n - 1);  // the byte may be between two tensors
  for (const size_t at : {0, 8, 31, 55, 63})    // its checksum, its notes, and their checksum
    CHECK(kept_of(flipped(lines + 2 * 64 + at)) == n - 1);
  for (size_t at = foot; at < part.size(); at += 5) CHECK(kept_of(flipped(at)) == 0);
  for (const size_t size : {size_t(0), size_t(1), size_t(100), lines, foot, part.size() - 1})
    CHECK(kept_of(part.substr(0, size)) == 0);
  CHECK(kept_of(part + "x") == 0);
  CHECK(kept_of(part.substr(0, lines) + part.substr(foot)) == 0);
  CHECK(kept_of(whole) == 0);
}

TEST_CASE("cli/quantize --resume: without file locks it says that everything starts again") {
  if (!can_preload()) return;
  const TempFolder folder;
  const Resumed quantize{folder};
  REQUIRE(quantize.run("FAULT_KILL=pwrite:12", true).status == 128 + 9);
  const std::string part = part_in(folder.path);
  const Outcome outcome = quantize.run("FAULT_CALL=flock:1:95 FAULT_FOR_EVER=1", true);
  CHECK_MESSAGE(outcome.status == 0, outcome.err);
  CHECK_MESSAGE(outcome.error_says("note: " + part +
                                   ": its file system has no locks (operation not "
                                   "supported), so another run may still write it; "
                                   "everything starts again\n"),
                outcome.err);
  CHECK(nlohmann::json::parse(outcome.out)["kept_tensors"] == 0);
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
  // One more vector; one changed weight of a finished tensor.
  auto more = kModel;
  more.push_back({"layer.0.ffn_norm", 1, 64});
  make_model(in, more);
  refused(options, "another input");
  make_model(in, kModel, [](const std::string& name, std::vector<float>& v) {
    if (name == "token_embd") v[3] += 0.125f;
  });
  refused(options, "tensor token_embd has changed since an earlier run quantized it for ");
  make_model(in, kModel);
  const QuantizeReport resumed = quantize_model(in, out, options, {});
  CHECK(resumed.kept > 0);
  CHECK(resumed.kept < resumed.tensors.size());
  CHECK((read_file(out) == whole));
  for (size_t t = 0; t < resumed.tensors.size(); ++t)
    CHECK(resumed.tensors[t].error == undisturbed.tensors[t].error);
  CHECK(part_in(folder.path).empty());
  // Without --resume nothing is kept.
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
  // Output errors were not measured.
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
