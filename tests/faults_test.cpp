// The program in a machine that is in trouble: memory that ends, limits, files that change or fail
// under it, writers that were killed. A short version of `make faults`, which tries every place.
#include <sys/file.h>
#include <sys/stat.h>

#include <cmath>

#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/base/memory.h"
#include "ggml-like-tensor/cores.h"
#include "tests/program.h"

using namespace chaski;
using namespace chaski::test;
namespace fs = std::filesystem;

namespace {

const std::string kStory = "models/bundled/story.quipu";

// `before` in a shell, then chaski in its place.
Outcome after(const std::string& before, const std::string& arguments) {
  return Program({"-c", before + "; exec " + chaski_binary() + " " + arguments}, "", "", "/bin/sh")
      .wait();
}
Outcome with_fault(const std::string& fault, const std::string& arguments) {
  return after("export LD_PRELOAD=" + faults_shim() + " " + fault, arguments);
}

// As usual, or refused: the last line says why, and there is no other but a notice.
void check_refusal(const Outcome& outcome) {
  CHECK_MESSAGE((outcome.status == 0 || outcome.status == 4 || outcome.status == 5), outcome.status,
                " ", outcome.err);
  if (outcome.status == 0) return;
  CHECK(outcome.err.find("terminate called") == std::string::npos);
  const size_t end = outcome.err.size() - 1;
  const size_t last = end > 0 ? outcome.err.rfind('\n', end - 1) + 1 : 0;
  CHECK_MESSAGE(outcome.err.substr(last).starts_with("chaski: "), outcome.err);
}

void put_file(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

size_t files_in(const std::string& folder) {
  return size_t(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("faults/memory that ends anywhere is exit 4 and one line") {
  if (!can_preload()) return;
  const TempFolder tmp;
  const std::string to_gguf = "convert " + kStory + " " + tmp / "out.gguf";
  for (const char* how : {"FAULT_FOR_EVER=1", "FAULT_FOR_EVER=0", "FAULT_FOR_EVER=1 FAULT_UNWIND=1",
                          "FAULT_FOR_EVER=0 FAULT_UNWIND=1"})
    for (int n : {1, 2, 50, 300, 700, 1000, 1500, 2000, 2500, 3000, 3500, 4000, 4500, 5000}) {
      CAPTURE(how);
      CAPTURE(n);
      check_refusal(with_fault("FAULT_ALLOC=" + std::to_string(n) + " " + how, to_gguf));
      for (const auto& file : fs::directory_iterator(tmp.path))
        CHECK(file.path().extension() != ".tmp");
    }
}

TEST_CASE("faults/ulimit -v: exit 4 and one line, whatever the size") {
  if (chaski_binary().find("asan") != std::string::npos) return;
  const TempFolder tmp;
  const std::string gguf = tmp / "story.gguf";
  REQUIRE(chaski_run({"convert", kStory, gguf}).status == 0);
  int refused = 0;
  for (int kib = 18 << 10; kib < 26 << 10; kib += 256) {
    const std::string limit = "ulimit -v " + std::to_string(kib);
    if (after(limit, "--version").status != 0) continue;  // the loader's own memory
    CAPTURE(kib);
    for (const std::string& command :
         {"run -m " + gguf + " -p The -n 2", "convert " + kStory + " " + tmp / "again.gguf"}) {
      const Outcome outcome = after(limit, command);
      check_refusal(outcome);
      CHECK(outcome.status != 5);
      refused += outcome.status == 4;
    }
  }
  CHECK(refused > 0);
}

TEST_CASE("faults/a limit of addresses counts as memory, and the message says what it leaves") {
  if (chaski_binary().find("asan") != std::string::npos) return;
  const std::string command = "bench --shape smollm-135m:f16 -p 1 -n 1 -t 1 -r 1";
  const Outcome refused = after("ulimit -v 250000", command);
  CHECK_MESSAGE(refused.status == 4, refused.err);
  CHECK_MESSAGE(refused.error_says("the weights need 0.269 GB of memory, 0.2"), refused.err);
  // Addresses for keys and values of sixteen contexts are not insisted on.
  const Outcome enough = after("ulimit -v 500000", command);
  CHECK_MESSAGE(enough.status == 0, enough.err);
}

TEST_CASE("faults/control groups: the tightest limit on the way up, files read do not count") {
  const TempFolder tmp;
  const std::string& root = tmp.path;
  put_file(tmp / "proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable:    8000000 kB\n");
  CHECK(available_pages(root) == 8000000ull * 1024);

  const std::string v2 = tmp / "sys/fs/cgroup";
  put_file(tmp / "proc/self/cgroup", "0::/user/app\n");
  put_file(v2 + "/memory.stat", "anon 5\n");  // the root group has no limit
  put_file(v2 + "/user/memory.max", "400000000\n");
  put_file(v2 + "/user/memory.current", "300000000\n");
  put_file(v2 + "/user/app/memory.max", "max\n");
  put_file(v2 + "/user/app/memory.current", "200000000\n");
  CHECK(available_pages(root) == 100000000);
  CHECK(available_memory(root) <= 100000000);
  put_file(
      v2 + "/user/memory.stat",
      "anon 100\nfile 70000000\nunevictable 3\ninactive_file 50000000\nactive_file 20000000\n");
  CHECK(available_pages(root) == 170000000);
  put_file(v2 + "/user/app/memory.max", "190000000\n");  // less than it uses
  CHECK(available_pages(root) == 0);

  put_file(tmp / "proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/0123\n0::/\n");
  CHECK(available_pages(root) == 8000000ull * 1024);
  const std::string v1 = v2 + "/memory";  // in a container: the group is where the mount begins
  put_file(v1 + "/memory.limit_in_bytes", "64000000\n");
  put_file(v1 + "/memory.usage_in_bytes", "60000000\n");
  put_file(v1 + "/memory.stat",
           "inactive_file 1\nactive_file 1\ntotal_inactive_file 7\ntotal_active_file 3\n");
  CHECK(available_pages(root) == 4000010);
}

TEST_CASE("faults/control groups: the least quota of CPU time on the way up") {
  const TempFolder tmp;
  const std::string &root = tmp.path, v2 = tmp / "sys/fs/cgroup";
  CHECK(std::isinf(quota_cores(root)));
  put_file(tmp / "proc/self/cgroup", "0::/user/app\n");
  put_file(v2 + "/cpu.max", "max 100000\n");
  put_file(v2 + "/user/app/cpu.max", "max 100000\n");
  CHECK(std::isinf(quota_cores(root)));
  put_file(v2 + "/user/cpu.max", "250000 100000\n");
  CHECK(quota_cores(root) == 2.5);
  put_file(v2 + "/user/app/cpu.max", "50000 100000\n");
  CHECK(quota_cores(root) == 0.5);

  put_file(tmp / "proc/self/cgroup", "4:cpu,cpuacct:/docker/0123\n0::/\n");
  put_file(v2 + "/cpu/cpu.cfs_quota_us", "-1\n");
  put_file(v2 + "/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(std::isinf(quota_cores(root)));
  put_file(v2 + "/cpu/docker/0123/cpu.cfs_quota_us", "150000\n");
  put_file(v2 + "/cpu/docker/0123/cpu.cfs_period_us", "50000\n");
  CHECK(quota_cores(root) == 3);
}

TEST_CASE("faults/errors of the system: ENOMEM from mmap is 4, EIO from read is 5") {
  if (!can_preload()) return;
  const TempFolder tmp;
  const std::string gguf = tmp / "story.gguf";
  REQUIRE(chaski_run({"convert", kStory, gguf}).status == 0);
  const Outcome unmapped = with_fault("FAULT_CALL=mmap:1:12", "inspect " + kStory);
  check_one_line(unmapped, 4, kStory + ": ");
  const Outcome unread = with_fault("FAULT_CALL=read:1:5", "inspect " + gguf);
  check_one_line(unread, 5, gguf + ": cannot be read: Input/output error");
}

TEST_CASE("faults/threads that do not start: fewer, or exit 4, and nobody waits for them") {
  if (!can_preload()) return;
  for (const char* which : {"1:11 FAULT_FOR_EVER=1", "2:11", "3:11", "4:11"}) {
    const std::string fault = std::string("FAULT_CALL=pthread_create:") + which;
    CAPTURE(which);
    const std::string bench = " bench -m " + kStory + " -p 1 -n 1 -r 1 -t 3";
    const Outcome outcome =
        Program({"-c", "export LD_PRELOAD=" + faults_shim() + " " + fault +
                           "; exec timeout -s KILL 60 " + chaski_binary() + bench},
                "", "", "/bin/sh")
            .wait();
    check_refusal(outcome);
    CHECK(outcome.status != 5);
  }
}

TEST_CASE("faults/a model shortened while it is mapped is exit 5 and one line") {
  const TempFolder tmp;
  const std::string model = tmp / "model.quipu", fifo = tmp / "question";
  fs::copy_file(kStory, model);
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  // The question comes when the file is mapped and has been shortened.
  const std::string ask = "exec 3>" + fifo +
                          "; until grep -q model.quipu /proc/$$/maps; do sleep " +
                          "0.1; done; truncate -s 4096 " + model + "; echo Once upon a time >&3";
  const Outcome outcome =
      Program({"-c", "(" + ask + ") & exec " + chaski_binary() + " chat -m " + model + " <" + fifo},
              "", "", "/bin/sh")
          .wait();
  CHECK_MESSAGE(outcome.status == 5, outcome.err);
  CHECK_MESSAGE(outcome.error_says("chaski: " + model + ": cannot be read any more"), outcome.err);
}

TEST_CASE("faults/ulimit -f is exit 5, the old file is whole and nothing is left") {
  for (const char* name : {"out.quipu", "out.gguf"}) {
    const TempFolder tmp;
    put_file(tmp / name, "old");
    const Outcome outcome = after("ulimit -f 1000", "convert " + kStory + " " + tmp / name);
    CHECK(outcome.status == 5);
    check_refusal(outcome);
    CHECK_MESSAGE(outcome.error_says("file too large"), outcome.err);
    CHECK(read_file(tmp / name) == "old");
    CHECK(files_in(tmp.path) == 1);
  }
}

TEST_CASE("faults/what a killed writer left blocks nobody and is removed; a living one's is not") {
  const TempFolder tmp;
  put_file(tmp / ".a.0123456789abcdef.tmp", "left by a killed writer");
  put_file(tmp / ".a.backup.tmp", "somebody's own");
  put_file(tmp / ".ab.0123456789abcdef.tmp", "of another file");
  {
    AtomicFile first(tmp / "a"), second(tmp / "a");
    CHECK(first.temporary() != second.temporary());
    CHECK(fs::exists(first.temporary()));
    CHECK(!fs::exists(tmp / ".a.0123456789abcdef.tmp"));
    first.write(std::as_bytes(std::span("one", 3)));
    second.write(std::as_bytes(std::span("two", 3)));
    first.commit();
    CHECK(read_file(tmp / "a") == "one");
    second.commit();
  }
  CHECK(read_file(tmp / "a") == "two");
  CHECK(files_in(tmp.path) == 3);
}
