// Errors, checked sizes, the cursor, mapping, and files that are complete or not there.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <csignal>
#include <set>
#include <thread>
#include <vector>

#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/base/checked.h"
#include "ggml-like-tensor/base/checksum.h"
#include "ggml-like-tensor/base/cursor.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/mapping.h"
#include "ggml-like-tensor/base/split_name.h"
#include "tests/kit/support.h"

namespace chaski {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::files_in;
using test::read_file;
using test::TempFolder;
using test::write_file;

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

using test::error_of;

// Runs `action` in a child process whose stderr goes to `log`. Returns the child's wait status.
template <class F>
int in_child(const std::string& log, F action) {
  const pid_t child = fork();
  if (child == 0) {
    const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(fd, 2);
    signal(SIGABRT, SIG_DFL);  // removes the test program's handler
    action();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST_CASE("base/an error line stays readable, whatever name a file contains") {
  std::string name;
  for (int i = 0; i < 100'000; ++i) name += "\u00e9";
  const std::string line = Error(Exit::bad_file, "a.gguf: tensor x" + name + " has 3 rows").what();
  CHECK(line.size() <= 1000);
  CHECK(line.starts_with("a.gguf: tensor x\u00e9"));
  CHECK(line.ends_with("\u00e9 has 3 rows"));
  CHECK(escaped(line) == line);
  CHECK(std::string(Error(Exit::io, "short").what()) == "short");
}

TEST_CASE("base/error: escaped keeps text and makes the rest safe") {
  CHECK(escaped("plain, ñandú, 日本, 🦙") == "plain, ñandú, 日本, 🦙");
  CHECK(escaped("a\nb\tc\x1b[31m\x7f") == "a\\nb\\x09c\\x1b[31m\\x7f");
  CHECK(escaped(std::string_view("\0", 1)) == "\\x00");
  // C1: an escape sequence in one character
  CHECK(escaped("\xc2\x9b\xc2\x9f") == "\\xc2\\x9b\\xc2\\x9f");
  CHECK(escaped("\xc2\xa0") == "\xc2\xa0");  // the first character after C1
  CHECK(escaped("x\xff\xc3(\xe6\x97") == "x\\xff\\xc3(\\xe6\\x97");
  // overlong newline, surrogate, beyond U+10FFFF
  CHECK(escaped("\xc0\x8a\xed\xa0\x80\xf5\x80\x80\x80") ==
        "\\xc0\\x8a\\xed\\xa0\\x80\\xf5\\x80\\x80\\x80");
  CHECK(escaped(escaped("\x1b\xff")) == escaped("\x1b\xff"));
}

TEST_CASE("base/error: a failed check is one line on stderr and an abort") {
  const TempFolder tmp;
  const int status =
      in_child(tmp / "log", [] { check_failed("cpu/x.cpp", 7, "a < b", "rows are sorted"); });
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
  CHECK(read_file(tmp / "log") ==
        "chaski: bug: cpu/x.cpp:7: a < b does not hold: rows are sorted\n");
}

TEST_CASE("base/checked: an overflow anywhere in a formula is recorded") {
  constexpr uint64_t kMax = ~uint64_t{0};
  CHECK((Checked(3) * 5 + 1).get() == 16);
  CHECK((Checked(kMax) + 0).get() == kMax);
  CHECK(!(Checked(kMax) + 1).get());
  CHECK(!(Checked(kMax) * 2 * 0).get());  // a later zero does not hide it
  CHECK(!(Checked(1) + Checked(kMax) * 2).get());
  CHECK((Checked(4) * 4).at_most(16));
  CHECK(!(Checked(4) * 4).at_most(15));
  CHECK(!(Checked(kMax) + 1).at_most(kMax));
}

TEST_CASE("base/cursor: reads within its bytes and reports its position") {
  const std::string file("\x2a\0\0\0\x03\0\0\0\0\0\0\0abcd", 16);
  Cursor in("x.bin", bytes(file));
  CHECK(in.take<uint32_t>("a") == 42);
  CHECK(in.text("name") == "abc");
  CHECK(in.remaining() == 1);
  const Error error = error_of([&] { in.take<uint16_t>("tail"); });
  CHECK(error.code == Exit::bad_file);
  CHECK(std::string(error.what()) ==
        "x.bin: tail: 2 bytes wanted at offset 15, file has 16: it is cut short or damaged");
  CHECK(error_of([&] { in.raw(~uint64_t{0}, "all"); }).code == Exit::bad_file);
  CHECK(error_of([&] { in.seek(17, "data"); }).code == Exit::bad_file);
  CHECK(error_of([&] { in.count(2, 1, "n"); }).code == Exit::bad_file);
  CHECK(in.count(1, 1, "n") == 1);
  in.seek(16, "end");
  CHECK(in.remaining() == 0);
}

TEST_CASE("base/mapping: maps a file, refuses anything else") {
  const TempFolder tmp;
  write_file(tmp / "a", "twelve bytes");
  const auto mapping = Mapping::open(tmp / "a");
  CHECK(mapping->bytes().size() == 12);
  CHECK(std::memcmp(mapping->bytes().data(), "twelve bytes", 12) == 0);

  write_file(tmp / "empty", "");
  REQUIRE(mkfifo((tmp / "pipe").c_str(), 0600) == 0);
  CHECK(error_of([&] { Mapping::open(tmp / "empty"); }).what() == tmp / "empty: is empty");
  CHECK(error_of([&] { Mapping::open(tmp / "empty"); }).code == Exit::bad_file);
  CHECK(error_of([&] { Mapping::open(tmp.path); }).code == Exit::bad_file);
  // and it does not wait for a writer
  CHECK(error_of([&] { Mapping::open(tmp / "pipe"); }).code == Exit::bad_file);
  const Error missing = error_of([&] { Mapping::open(tmp / "none"); });
  CHECK(missing.code == Exit::io);
  CHECK(missing.what() == tmp / "none: cannot be opened: No such file or directory");
}

TEST_CASE("base/atomic_file: nothing under the name before commit, everything after") {
  const TempFolder tmp;
  {
    AtomicFile file(tmp / "a");
    file.write(bytes("head"));
    file.pad_to(10);
    file.write(bytes("tail"));
    file.write_at(4, bytes("mid"));
    CHECK(file.size() == 14);
    CHECK(!fs::exists(tmp / "a"));
    CHECK(fs::path(file.temporary()).parent_path() == tmp.path);
    file.commit();
  }
  CHECK(read_file(tmp / "a") == std::string("headmid\0\0\0tail", 14));
  CHECK(files_in(tmp.path) == 1);
}

TEST_CASE("base/mapping: the system is asked for huge pages of a part of a file") {
  if (!test::have("/sys/kernel/mm/transparent_hugepage")) return;
  const TempFolder tmp;
  write_file(tmp / "a", std::string(16384, 'a'));
  const auto mapping = Mapping::open(tmp / "a");
  const std::span<const std::byte> all = mapping->bytes();
  mapping->prefer_huge_pages(all.subspan(5000, 100));
  CHECK(!test::asked_for_huge_pages(&all[0]));
  CHECK(test::asked_for_huge_pages(&all[5000]));
  CHECK(!test::asked_for_huge_pages(&all[8192]));
}

TEST_CASE("base/atomic_file: synced bytes can be removed from the system's cache") {
  const TempFolder tmp;
  AtomicFile file(tmp / "a");
  file.write(bytes("head"));
  file.sync();
  const auto cached = [&] {
    const auto mapping = Mapping::open(file.temporary());
    unsigned char pages[1] = {};
    void* const data = const_cast<std::byte*>(mapping->bytes().data());
    REQUIRE(::mincore(data, mapping->bytes().size(), pages) == 0);
    return (pages[0] & 1) != 0;
  };
  struct statfs system;
  REQUIRE(::statfs(tmp.path.c_str(), &system) == 0);
  if (!std::set<long>{EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC}.contains(system.f_type))
    return (void)std::fprintf(stderr, "SKIPPED: %s is not on ext4, xfs or btrfs\n",
                              tmp.path.c_str());
  CHECK(cached());
  file.drop_cached();
  CHECK(!cached());
  CHECK(read_file(file.temporary()) == "head");
}

TEST_CASE("base/atomic_file: without commit the old file stays") {
  const TempFolder tmp;
  write_file(tmp / "a", "old");
  {
    AtomicFile file(tmp / "a");
    file.write(bytes("new and longer"));
  }
  CHECK(read_file(tmp / "a") == "old");
  CHECK(files_in(tmp.path) == 1);
}

TEST_CASE("base/atomic_file: permissions come from the umask or the old file") {
  const TempFolder tmp;
  const auto mode_after = [&](const char* name) {
    AtomicFile file(tmp / name);
    file.commit();
    return static_cast<unsigned>(fs::status(tmp / name).permissions());
  };
  const mode_t before = umask(027);
  write_file(tmp / "old", "x");
  chmod((tmp / "old").c_str(), 0604);
  CHECK(mode_after("new") == 0640u);
  CHECK(mode_after("old") == 0604u);
  for (const char* name : {"private", "old"}) {
    AtomicFile file(tmp / name, Permissions::owner_only);
    CHECK(static_cast<unsigned>(fs::status(file.temporary()).permissions()) == 0600u);
    file.commit();
    CHECK(static_cast<unsigned>(fs::status(tmp / name).permissions()) == 0600u);
  }
  umask(before);
}

TEST_CASE("base/atomic_file: writes through symbolic links and keeps them") {
  const TempFolder tmp;
  fs::create_directory(tmp / "store");
  write_file(tmp / "store/real", "old");
  fs::create_symlink("store/real", tmp / "link");
  fs::create_symlink("link", tmp / "chain");
  fs::create_symlink(tmp / "store/later", tmp / "dangling");
  fs::create_symlink("loop", tmp / "loop");
  for (const char* name : {"chain", "dangling"}) {
    AtomicFile file(tmp / name);
    CHECK(fs::path(file.temporary()).parent_path() == tmp / "store");
    file.write(bytes(name));
    file.commit();
    CHECK(fs::is_symlink(tmp / name));
  }
  CHECK(read_file(tmp / "store/real") == "chain");
  CHECK(read_file(tmp / "store/later") == "dangling");
  CHECK(fs::is_symlink(tmp / "link"));
  CHECK(error_of([&] { AtomicFile file(tmp / "loop"); }).code == Exit::io);
}

TEST_CASE("base/atomic_file: refuses what cannot be replaced by a rename") {
  const TempFolder tmp;
  REQUIRE(mkfifo((tmp / "pipe").c_str(), 0600) == 0);
  const std::vector<std::string> paths = {"/dev/null", "/dev/stdout", "/dev/fd/1", "/",
                                          "",          tmp.path,      tmp / "",    tmp / "pipe"};
  for (const std::string& path : paths) {
    CAPTURE(path);
    CHECK(error_of([&] { AtomicFile file(path); }).code == Exit::usage);
  }
  const Error nowhere = error_of([&] { AtomicFile file(tmp / "none/a"); });
  CHECK(nowhere.code == Exit::io);
  CHECK(contains(nowhere.what(), "none: no such file or directory"));
}

TEST_CASE("base/atomic_file: a disk that is full is an error with numbers, and leaves nothing") {
  const TempFolder tmp;
  write_file(tmp / "a", "old");
  rlimit limit;
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small = {64 << 10, limit.rlim_max};
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::vector<std::byte> much(100 << 10);
  const Error written = error_of([&] { AtomicFile(tmp / "a").write(much); });
  const Error padded = error_of([&] { AtomicFile(tmp / "a").pad_to(100 << 10); });
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, handler);
  CHECK(written.code == Exit::io);
  CHECK(written.what() == tmp / "a: file too large (wrote 65536 bytes)");
  CHECK(padded.what() == tmp / "a: file too large (wrote 0 bytes)");
  CHECK(read_file(tmp / "a") == "old");
  CHECK(files_in(tmp.path) == 1);
}

TEST_CASE("base/atomic_file: several threads write their own parts") {
  const TempFolder tmp;
  AtomicFile file(tmp / "a");
  file.pad_to(4000);
  {
    std::vector<std::jthread> crew;
    for (int t = 0; t < 4; t++)
      crew.emplace_back([&file, t] {
        for (int i = t; i < 1000; i += 4) file.write_at(4 * i, bytes(fmt::format("{:04}", i)));
      });
  }
  file.commit();
  std::string expected;
  for (int i = 0; i < 1000; i++) expected += fmt::format("{:04}", i);
  CHECK(read_file(tmp / "a") == expected);
}

TEST_CASE("base/atomic_file: a signal handler can remove open temporary files") {
  const TempFolder tmp;
  write_file(tmp / "a", "old");
  const int status = in_child(tmp / "log", [&] {
    signal(SIGINT, [](int) {
      remove_temporaries_now();
      _exit(130);
    });
    AtomicFile done(tmp / "done");
    done.commit();
    AtomicFile one(tmp / "a"), two(tmp / "b");
    one.write(bytes("half"));
    raise(SIGINT);
  });
  CHECK(WEXITSTATUS(status) == 130);
  CHECK(read_file(tmp / "a") == "old");
  CHECK(files_in(tmp.path) == 3);  // a, done, log
}

TEST_CASE("base/atomic_file: a new folder is removed with its files, an old one stays") {
  const TempFolder tmp;
  const auto there = [&](const char* name) { return std::filesystem::exists(tmp / name); };
  std::filesystem::create_directory(tmp / "old");
  const int status = in_child(tmp / "log", [&] {
    signal(SIGINT, [](int) {
      remove_temporaries_now();
      _exit(130);
    });
    const AtomicFolder fresh(tmp / "fresh"), old(tmp / "old");
    AtomicFile one(tmp / "fresh/a"), two(tmp / "old/a");
    raise(SIGINT);
  });
  CHECK(WEXITSTATUS(status) == 130);
  CHECK_FALSE(there("fresh"));
  CHECK(there("old"));
  {
    const AtomicFolder fresh(tmp / "fresh");
    AtomicFile one(tmp / "fresh/a");
    CHECK(there("fresh"));
  }
  CHECK_FALSE(there("fresh"));
  {
    AtomicFolder fresh(tmp / "fresh");
    AtomicFile one(tmp / "fresh/a");
    one.commit();
    fresh.keep();
  }
  CHECK(there("fresh/a"));
  CHECK(error_of([&] { AtomicFolder(tmp / "none/fresh"); }).code == Exit::io);
}

TEST_CASE("base/atomic_file: slots for the signal handler are released") {
  const TempFolder tmp;
  for (int i = 0; i < 100; i++) {
    AtomicFile file(tmp / "a");
    if (i % 2) file.commit();
  }
  CHECK(files_in(tmp.path) == 1);
}

TEST_CASE("base/atomic_file: any number of files are written at once") {
  const TempFolder tmp;
  std::vector<std::unique_ptr<AtomicFile>> all;
  for (int i = 0; i < 100; i++)
    all.push_back(std::make_unique<AtomicFile>(tmp / fmt::format("{}", i)));
  for (int i = 0; i < 50; i++) all[size_t(i)]->commit();
  all.clear();
  CHECK(files_in(tmp.path) == 50);
}

TEST_CASE("base/checksum: XXH3-64, with any instruction set") {
  std::string text;
  for (uint32_t i = 0; i < 300'000; ++i) text += char(i * i + i / 7);
  for (const size_t size : {0, 1, 15, 200, 240, 241, 1024, 5000, 65536, 299'999}) {
    const uint64_t expected = XXH3_64bits(text.data() + 1, size);
    CHECK(checksum(text.data() + 1, size) == expected);
    // the value of the library's author for an empty text
    if (size == 0) CHECK(expected == 0x2d06800538d394c2);
  }
}

TEST_CASE("base/refuse_same_file: the input is not an output, under any name") {
  const TempFolder tmp;
  write_file(tmp / "in", "x");
  write_file(tmp / "other", "x");
  fs::create_symlink("in", tmp / "soft");
  fs::create_hard_link(tmp / "in", tmp / "hard");
  const auto code = [](const std::string& in, const std::string& out) {
    return error_of([&] { refuse_same_file(in, out); }).code;
  };
  const std::string here = fs::path(tmp.path).filename().string();
  const std::vector<std::string> names = {"in", "./in", "../" + here + "/in", "soft", "hard"};
  for (const std::string& name : names) {
    const std::string path = tmp / name;
    CAPTURE(path);
    CHECK(code(tmp / "in", path) == Exit::usage);
    CHECK(code(path, tmp / "in") == Exit::usage);
  }
  CHECK(code(tmp / "none", tmp / "./none") == Exit::usage);
  CHECK(code(tmp / "in", tmp / "other") == Exit::done);
  CHECK(code(tmp / "in", tmp / "new") == Exit::done);
  const Error error = error_of([&] { refuse_same_file(tmp / "in", tmp / "hard"); });
  CHECK(std::string(error.what()) == tmp / "hard: is the same file as the input " +
                                         tmp / "in, expected another name for the output");
}

TEST_CASE("base/refuse_same_file: a part of an input in parts is not an output") {
  const TempFolder tmp;
  for (const char* name :
       {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "m-00001-of-00003.gguf"})
    write_file(tmp / name, "x");
  const auto code = [&](const std::string& out) {
    return error_of([&] { refuse_same_file(tmp / "m-00001-of-00002.gguf", tmp / out); }).code;
  };
  CHECK(code("m-00002-of-00002.gguf") == Exit::usage);
  CHECK(code("m-00001-of-00003.gguf") == Exit::done);
  CHECK(names_of_parts("a-1-of-3.gguf").size() == 1);
  CHECK(names_of_parts("-00001-of-00003.gguf").size() == 3);
  CHECK(names_of_parts("a/b-00003-of-00012.gguf")[11] == "a/b-00012-of-00012.gguf");
  for (const char* name : {"", "-of-", "00001-of-00003.gguf", "a-00001-of-00003",
                           "a-00001-of-00000.x", "a-00001-of-99999.gguf", "a-0000x-of-00003.gguf"})
    CHECK(names_of_parts(name) == std::vector<std::string>{name});
}

TEST_CASE("base/refuse_same_file: a file of the input folder is not an output") {
  const TempFolder tmp;
  fs::create_directories(tmp / "model/sub");
  write_file(tmp / "model/config.json", "{}");
  write_file(tmp / "model/sub/a", "x");
  write_file(tmp / "blob", "x");
  write_file(tmp / "model2", "x");
  fs::create_symlink("../blob", tmp / "model/model.safetensors");
  const auto code = [&](const std::string& out) {
    return error_of([&] { refuse_same_file(tmp / "model", out); }).code;
  };
  CHECK(code(tmp / "model/config.json") == Exit::usage);
  CHECK(code(tmp / "model/sub/a") == Exit::usage);
  CHECK(code(tmp / "blob") == Exit::usage);  // the target of a link in the folder
  CHECK(code(tmp / "model") == Exit::usage);
  CHECK(code(tmp / "model/new.quipu") == Exit::done);
  CHECK(code(tmp / "model2") == Exit::done);  // a longer name, not inside the folder
}

}  // namespace
}  // namespace chaski
