// Models in other formats are converted once: later starts map the file in the cache folder.
#include "engine/shelf/converted.h"

#include <nlohmann/json.hpp>

#include "tests/kit/program.h"

using namespace chaski::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

struct Converted {
  TempFolder tmp;
  OwnVariable cache{"XDG_CACHE_HOME", tmp / "cache"};
  std::string folder = tmp / "cache/chaski/converted", model = tmp / "story.gguf";
  Converted() { REQUIRE(chaski_run({"convert", kStory, model, "-q"}).status == 0); }

  Outcome run(const Arguments& more = {"--keep-converted", "1G"}) const { return run(model, more); }
  static Outcome run(const std::string& of, const Arguments& more) {
    Arguments all = {"run", "-m", of, "-p", "Once", "-n", "12", "--seed", "1"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = chaski_run(all);
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    return outcome;
  }
  std::vector<std::string> kept() const {  // names of the kept files
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& file : fs::directory_iterator(folder, none))
      if (file.path().extension() == ".weights") names.push_back(file.path());
    return names;
  }
};

bool converts(const Outcome& outcome) {
  return outcome.error_says("GGUF v3, converted once; the next starts use the copy in ");
}

}  // namespace

TEST_CASE("cli/converted: the second start maps the kept file and gives the same bytes") {
  const Converted c;
  const Outcome plain = c.run({"--keep-converted", "no"});
  CHECK_MESSAGE(plain.error_says("converted in memory ('chaski convert' keeps the result)"),
                plain.err);
  CHECK(!fs::exists(c.folder));
  const Outcome first = c.run(), second = c.run(), always = c.run({"--verify", "always"});
  CHECK_MESSAGE(converts(first), first.err);
  CHECK_MESSAGE(first.error_says("in " + c.folder), first.err);
  CHECK_MESSAGE(!second.error_says("convert"), second.err);
  for (const Outcome* one : {&first, &second, &always}) CHECK(one->out == plain.out);
  CHECK(c.run({"--load", "copy", "--keep-converted", "1G"}).out == plain.out);

  // It is the file that convert writes, and its checksums are known to be right.
  REQUIRE(c.kept().size() == 1);
  REQUIRE(chaski_run({"convert", c.model, c.tmp / "own.quipu", "-q"}).status == 0);
  CHECK(read_file(c.kept()[0]) == read_file(c.tmp / "own.quipu"));
  CHECK(fs::status(c.folder).permissions() == fs::perms::owner_all);
  // A small model is kept only if --keep-converted or the config file ask for it.
  const Outcome by_default = c.run({});
  CHECK_MESSAGE(by_default.error_says("GGUF v3, converted in memory"), by_default.err);
  CHECK_MESSAGE(!converts(by_default), by_default.err);

  const Outcome plan = chaski_run({"plan", c.model, "--keep-converted", "1G"});
  CHECK_MESSAGE(contains(plan.out, "stay in the mapped file"), plan.out);
  CHECK_MESSAGE(contains(plan.out, "story.gguf: GGUF v3, converted, "), plan.out);
  // The kept file is no model of chaski list.
  CHECK(!contains(chaski_run({"list"}).out, "weights"));
}

TEST_CASE("cli/converted: the first start takes hardly more memory than a copy of the kept file") {
  if (!can_preload()) return;
  const Converted c;
  const std::string large = c.tmp / "large.gguf", peak = c.tmp / "peak";
  REQUIRE(chaski_run({"quantize", kStory, large, "--type", "f32", "-q"}).status == 0);
  const auto megabytes = [&](const std::string& flags) {
    const Outcome outcome =
        Program({"-c", "export LD_PRELOAD=" + faults_shim() + " FAULT_PEAK=" + peak + "; exec " +
                           chaski_binary() + " run -m " + large +
                           " -p Once -n 12 --seed 1 -t 1 --keep-converted 1G " + flags},
                "", "", "/bin/sh")
            .wait();
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    return std::stod(read_file(peak)) / 1024;
  };
  const double first = megabytes(""), copied = megabytes("--load copy");
  MESSAGE("first start: " << first << " MiB, a copy of the kept file: " << copied);
  // What the import frees goes back to the system, and the kept file is written in small pieces.
  CHECK(c.kept().size() == 1);
  CHECK(first <= copied + 4);
}

TEST_CASE("cli/converted: the model is found by its state, then by its sum") {
  const Converted c;
  CHECK(converts(c.run()));
  // Another time or another place: the sum is the same.
  fs::last_write_time(c.model, fs::file_time_type::clock::now() + std::chrono::hours(1));
  CHECK(!converts(c.run()));
  fs::rename(c.model, c.tmp / "moved.gguf");
  CHECK(!converts(c.run(c.tmp / "moved.gguf", {"--keep-converted", "1G"})));
  fs::copy_file(c.tmp / "moved.gguf", c.model);
  CHECK(!converts(c.run()));
  CHECK(c.kept().size() == 1);

  // Other bytes of the same size, even with the old time: the last byte of the file is a weight.
  const auto time = fs::last_write_time(c.model);
  std::string bytes = read_file(c.model);
  bytes.back() = char(bytes.back() ^ 1);
  write_file(c.model, bytes);
  fs::last_write_time(c.model, time);
  CHECK(converts(c.run()));
  CHECK(c.kept().size() == 2);  // moved.gguf still is the first one
}

TEST_CASE("cli/converted: a file of a model's folder that has another name is another model") {
  const Converted c;
  const std::string model = c.tmp / "folder";
  fs::copy(golden("models/qwen2"), model);
  write_file(model + "/generation_config.json", R"({"temperature": 0.5})");
  const auto run = [&] {  // the model is opened, then refused because it has no tokenizer
    const Outcome outcome = chaski_run({"run", "-m", model, "-p", "x", "--keep-converted", "1G"});
    CHECK_MESSAGE(outcome.error_says("the model has no tokenizer"), outcome.err);
    return outcome;
  };
  CHECK(run().error_says("converted once"));
  CHECK(!run().error_says("convert"));
  fs::rename(model + "/generation_config.json", model + "/generation_config_old.json");
  CHECK(run().error_says("converted once"));
  CHECK(!run().error_says("convert"));
}

TEST_CASE("cli/converted: a process that keeps the lock is waited for only some seconds") {
  const Converted c;
  const auto none = [](const std::string&) {};
  chaski::ConvertedModel holder(c.model, 1000000000);
  CHECK(!holder.find_or_lock(chaski::Verify::always, 1, none, [] {}));
  REQUIRE(holder.will_keep());
  const Outcome late = c.run();
  CHECK_MESSAGE(late.error_says("GGUF v3, converted in memory"), late.err);
  CHECK_MESSAGE(
      late.error_says("the converted model is not kept: another process is converting it"),
      late.err);
  CHECK(c.kept().empty());
  CHECK(late.out == c.run({"--keep-converted", "no"}).out);
}

TEST_CASE("cli/converted: the copy of a replaced model is removed, symbolic links share one") {
  const Converted c;
  CHECK(converts(c.run()));
  fs::create_symlink(c.model, c.tmp / "link.gguf");
  CHECK(!converts(c.run(c.tmp / "link.gguf", {"--keep-converted", "1G"})));
  std::string bytes = read_file(c.model);
  bytes.back() = char(bytes.back() ^ 1);
  write_file(c.tmp / "new", bytes);
  fs::rename(c.tmp / "new", c.model);
  const std::vector<std::string> before = c.kept();
  REQUIRE(before.size() == 1);
  const Outcome replaced = c.run();
  CHECK(converts(replaced));
  REQUIRE(c.kept().size() == 1);
  CHECK(c.kept() != before);
  CHECK(c.run().out == replaced.out);
  CHECK(replaced.out == c.run({"--keep-converted", "no"}).out);
}

TEST_CASE("cli/converted: a flag that the model does not take is refused by later starts, too") {
  const Converted c;
  CHECK(converts(c.run()));
  check_one_line(chaski_run({"run", "-m", c.model, "-p", "x", "--tokenizer", c.model,
                             "--keep-converted", "1G"}),
                 2, "has its own tokenizer");
}

TEST_CASE("cli/converted: kill -9 while the file is written leaves nothing for ever") {
  if (!can_preload()) return;
  const Converted c;
  const std::string out = c.run({"--keep-converted", "no"}).out;
  const Outcome killed =
      Program({"-c", "export LD_PRELOAD=" + faults_shim() + " FAULT_KILL=pwrite:3; exec " +
                         chaski_binary() + " run -m " + c.model +
                         " -p Once -n 12 --seed 1 --keep-converted 1G"},
              "", "", "/bin/sh")
          .wait();
  CHECK(killed.status == 128 + SIGKILL);
  CHECK(c.kept().empty());
  CHECK(files_in(c.folder) == 2);  // the lock and the part of the file
  const Outcome next = c.run();
  CHECK(converts(next));
  CHECK(next.out == out);
  CHECK(c.kept().size() == 1);
  CHECK(files_in(c.folder) == 2);  // the file and its record
}

TEST_CASE("cli/converted: a damaged file is made again, with one note") {
  const Converted c;
  const std::string out = c.run().out;
  REQUIRE(c.kept().size() == 1);
  const std::string file = c.kept()[0], whole = read_file(file);
  const auto damaged = [&](const std::string& bytes) {
    CAPTURE(bytes.size());
    write_file(file, bytes);
    const Outcome again = c.run();
    CHECK(again.out == out);
    CHECK_MESSAGE(again.error_says("story.gguf: the converted file in the cache is damaged, so the "
                                   "model is converted again\n"),
                  again.err);
    CHECK(converts(again));
    CHECK(read_file(file) == whole);
    CHECK(!c.run().error_says("convert"));
  };
  std::string bytes = whole;
  bytes[bytes.size() - 100] = char(bytes[bytes.size() - 100] ^ 4);
  damaged(bytes);
  damaged(whole.substr(0, whole.size() / 2));
  damaged("");
  // It is removed even if no other takes its place.
  write_file(file, whole.substr(0, whole.size() / 2));
  CHECK(c.run({"--keep-converted", "100k"}).out == out);
  CHECK(c.kept().empty());
}

TEST_CASE("cli/converted: several processes convert a model once") {
  const Converted c;
  std::vector<std::unique_ptr<Program>> all;
  for (int i = 0; i < 4; ++i)
    all.push_back(
        std::make_unique<Program>(Arguments{"run", "-m", c.model, "-p", "Once", "-n", "12",
                                            "--seed", "1", "-t", "1", "--keep-converted", "1G"},
                                  ""));
  int converted = 0;
  std::string out;
  for (const auto& program : all) {
    const Outcome outcome = program->wait();
    CHECK_MESSAGE(outcome.status == 0, outcome.err);
    CHECK((out.empty() || outcome.out == out));
    out = outcome.out, converted += converts(outcome);
  }
  CHECK(converted == 1);
  CHECK(c.kept().size() == 1);
  for (const auto& file : fs::directory_iterator(c.folder))
    CHECK(file.path().extension() != ".lock");
}

TEST_CASE("cli/converted: a process that opens the model twice does not wait for itself") {
  const Converted c;
  const Outcome drafted = c.run({"--draft", c.model, "--keep-converted", "1G"});
  CHECK_MESSAGE(converts(drafted), drafted.err);
  CHECK(drafted.out == c.run().out);
  CHECK(c.kept().size() == 1);
}

TEST_CASE("cli/converted: the limit, the config file, and chaski cache") {
  const Converted c;
  const std::string other = c.tmp / "other.gguf";
  REQUIRE(chaski_run({"quantize", kStory, c.tmp / "q8.quipu", "--type", "q4_0", "-q"}).status == 0);
  REQUIRE(chaski_run({"convert", c.tmp / "q8.quipu", other, "-q"}).status == 0);
  const OwnVariable config("CHASKI_CONFIG",
                           write_file(c.tmp / "c.toml", "keep_converted = '1G'\n"));
  CHECK(converts(c.run({})));
  CHECK(converts(c.run(other, {})));
  CHECK(!converts(c.run({})));  // now used later than the other one
  CHECK(c.kept().size() == 2);

  json shown = json::parse(chaski_run({"cache", "--json"}).out);
  REQUIRE(shown["models"].size() == 2);
  CHECK(shown["models"][0]["model"] == fs::canonical(c.model).string());
  CHECK(shown["limit"] == 1000000000);
  CHECK(shown["folder"] == c.folder);
  const std::string table = chaski_run({"cache"}).out;
  CHECK_MESSAGE(contains(table, other), table);

  // The least recently used one makes room for another version of a model.
  const uint64_t first = fs::file_size(c.model), second = fs::file_size(other);
  std::string bytes = read_file(c.model);
  bytes.back() = char(bytes.back() ^ 1);
  const std::string changed = write_file(c.tmp / "changed.gguf", bytes);
  const std::string limit = std::to_string(2 * first + second / 2);
  CHECK(converts(c.run(changed, {"--keep-converted", limit})));
  shown = json::parse(chaski_run({"cache", "--json"}).out);
  REQUIRE(shown["models"].size() == 2);
  CHECK(shown["models"][0]["model"] == fs::canonical(changed).string());
  CHECK(shown["models"][1]["model"] == fs::canonical(c.model).string());

  const Outcome large = c.run(other, {"--keep-converted", "100k"});
  CHECK_MESSAGE(large.error_says("the converted model is not kept: "), large.err);
  CHECK_MESSAGE(large.error_says(" MB, but the limit of " + c.folder +
                                 " is 0.1 MB (--keep-converted SIZE sets a higher one)"),
                large.err);

  write_file(c.folder + "/.x.weights.0123456789abcdef.tmp", "of a killed writer");
  const Outcome emptied = chaski_run({"cache", "--empty"});
  CHECK_MESSAGE(emptied.error_says("removed 2 converted models"), emptied.err);
  CHECK(files_in(c.folder) == 0);
  CHECK(converts(c.run({})));
  check_one_line(chaski_run({"run", "-m", c.model, "--keep-converted", "some", "-p", "x"}), 2,
                 "--keep-converted is some, expected");
}

TEST_CASE("cli/cache DIR: a folder that is not the cache of a server is refused") {
  const TempFolder folder;
  const Outcome empty =
      chaski_run({"cache", folder.path});  // of a server that has not answered yet
  CHECK(empty.status == 0);
  CHECK(empty.error_says("0 answers and 0 prefixes of 0 models"));
  const std::string notes = write_file(folder / "notes.txt", "precious");
  for (const Arguments& more : {Arguments{}, Arguments{"--empty"}, Arguments{"--json"}}) {
    Arguments all = {"cache", folder.path};
    all.insert(all.end(), more.begin(), more.end());
    check_one_line(chaski_run(all), 5,
                   folder.path +
                       ": holds no cache of chaski serve --cache, which has a folder for "
                       "each model, named by 32 hexadecimal digits");
  }
  CHECK(read_file(notes) == "precious");
}

TEST_CASE("cli/converted: a full disk is named with its free bytes, and each reason once") {
  const Converted c;
  const std::string why = "the converted model is not kept: it needs ";
  const auto count = [](const Outcome& outcome, const std::string& text) {
    size_t n = 0;
    for (size_t at = 0; (at = outcome.err.find(text, at)) != std::string::npos; ++at) ++n;
    return n;
  };
  const std::string other = c.tmp / "other.gguf";
  fs::copy_file(c.model, other);
  const Outcome limit = c.run({"--draft", other, "--keep-converted", "100k"});
  CHECK_MESSAGE(count(limit, why) == 1, limit.err);
  CHECK_MESSAGE(count(limit, "--keep-converted") == 1, limit.err);
  if (!can_preload()) return;
  const auto with_disk = [&](const char* bytes, const std::string& flags) {
    return Program({"-c", "export LD_PRELOAD=" + faults_shim() + " FAULT_DISK=" + bytes +
                              "; exec " + chaski_binary() + " run -m " + c.model +
                              " -p Once -n 2 --seed 1 " + flags},
                   "", "", "/bin/sh")
        .wait();
  };
  const Outcome full = with_disk("1000000", "--keep-converted 1G --draft " + other);
  CHECK(full.status == 0);
  CHECK_MESSAGE(full.error_says(", but only 1.0 MB are free on the disk of " + c.folder + "\n"),
                full.err);
  CHECK(count(full, "free on the disk") == 1);
  CHECK(count(full, "--keep-converted") == 0);
  CHECK(c.kept().empty());
  CHECK_FALSE(with_disk("1000000000", "--keep-converted 1G").error_says("free on the disk"));
}

TEST_CASE("cli/converted: a cache that cannot be written costs no answer") {
  const Converted c;
  const std::string out = c.run({"--keep-converted", "no"}).out;
  write_file(c.folder, "a file where the folder should be");
  const Outcome refused = c.run();
  CHECK(refused.out == out);
  CHECK_MESSAGE(refused.error_says("story.gguf: the converted model is not kept: "), refused.err);
  fs::remove(c.folder);
  if (::access("/sys", W_OK) != 0 && errno == EROFS) {
    const OwnVariable cache("XDG_CACHE_HOME", "/sys/x");
    const Outcome fixed = c.run();
    CHECK(fixed.out == out);
    CHECK_MESSAGE(fixed.error_says("/converted: Read-only file system"), fixed.err);
  }
  if (!can_preload()) return;
  const auto with_fault = [&](const std::string& fault) {
    return Program({"-c", "export LD_PRELOAD=" + faults_shim() + " FAULT_CALL=" + fault +
                              "; exec " + chaski_binary() + " run -m " + c.model +
                              " -p Once -n 12 --seed 1 --keep-converted 1G"},
                   "", "", "/bin/sh")
        .wait();
  };
  for (const char* fault : {"fallocate:1:28", "pwrite:3:28", "rename:1:28"}) {
    CAPTURE(fault);
    const Outcome full = with_fault(fault);
    CHECK(full.status == 0);
    CHECK(full.out == out);
    CHECK_MESSAGE(full.error_says("story.gguf: the converted model is not kept: "), full.err);
    CHECK_MESSAGE(full.error_says("o space left on device"), full.err);
    CHECK(c.kept().empty());
  }
}

TEST_CASE("cli/cache: without a home there is no folder of converted models") {
  const OwnVariable home{"HOME", ""}, cache{"XDG_CACHE_HOME", ""};
  for (const Arguments& words : {Arguments{"cache"}, Arguments{"cache", "--empty"}}) {
    const Outcome o = chaski_run(words);
    CHECK(o.status == 0);
    CHECK_MESSAGE((o.out + o.err)
                          .find("there is no folder for converted models: set HOME or "
                                "XDG_CACHE_HOME\n") != std::string::npos,
                  o.out, o.err);
  }
}
