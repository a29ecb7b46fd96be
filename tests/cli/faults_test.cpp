// The program on a failing machine: no memory, limits, files that change or fail while they are
// read, killed writers. A short version of `make faults`, which tries every place.
#include <sys/file.h>
#include <sys/stat.h>

#include <cmath>

#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/base/memory.h"
#include "ggml-like-tensor/cores.h"
#include "tests/kit/import_support.h"
#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;
namespace fs = std::filesystem;

namespace {

// Runs `before` in a shell, then replaces the shell with chaski.
Outcome after(const std::string& before, const std::string& arguments) {
  return Program({"-c", before + "; exec " + chaski_binary() + " " + arguments}, "", "", "/bin/sh")
      .wait();
}
Outcome with_fault(const std::string& fault, const std::string& arguments) {
  return after("export LD_PRELOAD=" + faults_shim() + " " + fault, arguments);
}

// Succeeded, or failed with one error line at the end and at most notices before it.
void check_refusal(const Outcome& outcome) {
  CHECK_MESSAGE((outcome.status == 0 || outcome.status == 4 || outcome.status == 5), outcome.status,
                " ", outcome.err);
  if (outcome.status == 0) return;
  CHECK(outcome.err.find("terminate called") == std::string::npos);
  const size_t end = outcome.err.size() - 1;
  const size_t last = end > 0 ? outcome.err.rfind('\n', end - 1) + 1 : 0;
  CHECK_MESSAGE(outcome.err.substr(last).starts_with("chaski: "), outcome.err);
}

}  // namespace

TEST_CASE("faults/a failed allocation anywhere is exit 4 and one line") {
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

// Eight more tokens in an existing page need no allocation: not in the pass, the sampler or the
// text.
TEST_CASE("faults/a decode step allocates no memory") {
  if (!can_preload()) return;
  const TempFolder tmp;
  const auto allocations = [&](const std::string& temperature, int tokens) {
    const std::string count = tmp / "count";
    REQUIRE(with_fault("FAULT_COUNT=" + count,
                       fmt::format(
                           "run -q -t 2 --draft none --ignore-eos --seed 1 --temp {} -n {} -p Once",
                           temperature, tokens))
                .status == 0);
    const std::string said = read_file(count);
    return said.substr(0, said.find('\n'));
  };
  for (const std::string temperature : {"0", "0.8"})
    CHECK(allocations(temperature, 69) == allocations(temperature, 77));
}

TEST_CASE("faults/ulimit -v: exit 4 and one line, whatever the size") {
  if (has_address_sanitizer()) return;
  const TempFolder tmp;
  const std::string gguf = tmp / "story.gguf";
  REQUIRE(chaski_run({"convert", kStory, gguf}).status == 0);
  int refused = 0;
  for (int kib = 18 << 10; kib < 26 << 10; kib += 256) {
    const std::string limit = "ulimit -v " + std::to_string(kib);
    if (after(limit, "--version").status != 0) continue;  // too small for the loader itself
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

TEST_CASE("faults/a limit of address space counts as memory, and the message says what is left") {
  if (has_address_sanitizer()) return;
  const std::string command = "bench --shape smollm-135m:f16 -p 1 -n 1 -t 1 -r 1";
  const Outcome refused = after("ulimit -v 250000", command);
  CHECK_MESSAGE(refused.status == 4, refused.err);
  CHECK_MESSAGE(refused.error_says("the weights need 269.1 MB of memory, 2"), refused.err);
  // Reserving address space for the KV cache of sixteen contexts may fail without an error.
  const Outcome enough = after("ulimit -v 500000", command);
  CHECK_MESSAGE(enough.status == 0, enough.err);
}

// A folder with a large vocabulary (pieces of one to four letters) and few weights.
void put_hf_vocabulary(const std::string& folder) {
  const std::string letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  std::string vocab, merges;
  std::vector<std::string> last = {""};
  int pieces = 0;
  for (int length = 1; length <= 4; ++length) {
    std::vector<std::string> longer;
    for (const std::string& piece : last)
      for (const char letter : letters.substr(0, length < 4 ? letters.size() : 2)) {
        longer.push_back(piece + letter);
        vocab += (pieces > 0 ? ",\"" : "\"") + longer.back() + "\":" + std::to_string(pieces);
        ++pieces;
        if (length > 1) merges += (merges.empty() ? "\"" : ",\"") + piece + " " + letter + "\"";
      }
    last = longer;
  }
  write_file(folder + "/tokenizer.json",
             R"({"pre_tokenizer":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{)" + vocab +
                 R"(},"merges":[)" + merges + "]}}");
  write_file(folder + "/config.json",
             R"({"architectures":["LlamaForCausalLM"],"hidden_size":8,"intermediate_size":8,)"
             R"("num_hidden_layers":1,"num_attention_heads":1,"rms_norm_eps":1e-5,)"
             R"("max_position_embeddings":64,"tie_word_embeddings":true,"vocab_size":)" +
                 std::to_string(pieces) + "}");
  std::string header = "{";
  uint64_t at = 0;
  const auto add = [&](const std::string& name, int rows) {
    const uint64_t bytes = 2 * 8 * std::max(rows, 1);
    header += (at > 0 ? ",\"" : "\"") + name + R"(.weight":{"dtype":"F16","shape":[)" +
              (rows > 0 ? std::to_string(rows) + "," : "") + R"(8],"data_offsets":[)" +
              std::to_string(at) + "," + std::to_string(at + bytes) + "]}";
    at += bytes;
  };
  add("model.embed_tokens", pieces), add("model.norm", 0);
  for (const char* name : {"input_layernorm", "post_attention_layernorm"})
    add(std::string("model.layers.0.") + name, 0);
  for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                           "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"})
    add(std::string("model.layers.0.") + name, 8);
  write_file(folder + "/model.safetensors", safetensors(header + "}", ""));
  fs::resize_file(folder + "/model.safetensors", 8 + header.size() + 1 + at);
}

TEST_CASE("faults/a file's header needs at most four times the file and 64 MB of memory") {
  if (has_address_sanitizer()) return;
  const TempFolder tmp;
  const auto fits = [](const std::string& model, uint64_t file, uint64_t mapped = 0) {
    const uint64_t limit = 4 * file + 64'000'000 + mapped;
    const Outcome outcome = after("ulimit -v " + std::to_string(limit / 1024),
                                  "tokenize -m " + model + " -p abc --ids");
    CHECK_MESSAGE(outcome.status == 0, model, ": ", outcome.err);
  };
  const auto gguf = [&](const std::string& name, auto fill) {
    Gguf g;
    g.str("general.architecture", "llama").str("tokenizer.ggml.model", "gpt2");
    fill(g);
    write_file(tmp / name, g.build());
    fits(tmp / name, fs::file_size(tmp / name));
  };
  const std::string tokens = "tokenizer.ggml.tokens";
  gguf("empty.gguf",
       [&](Gguf& g) { g.raw(tokens, array_payload(8, 1'000'000, std::string(8'000'000, '\0'))); });
  gguf("words.gguf", [&](Gguf& g) {
    std::vector<std::string> words;
    for (int i = 0; i < 1'000'000; ++i) words.push_back(std::to_string(i));
    g.strs(tokens, words);
  });
  gguf("bytes.gguf", [&](Gguf& g) {
    g.strs(tokens, {"a"});
    for (const char* key : {"x.a", "x.b", "x.c", "x.d", "x.e", "x.f"})
      g.raw(key, array_payload(0, 4'000'000, std::string(4'000'000, '\1')));
  });
  put_hf_vocabulary(tmp / "hf");
  fits(tmp / "hf", fs::file_size(tmp / "hf/tokenizer.json"),
       fs::file_size(tmp / "hf/model.safetensors"));
}

TEST_CASE("faults/control groups: the smallest limit on the path counts, the page cache does not") {
  const TempFolder tmp;
  const std::string& root = tmp.path;
  write_file(tmp / "proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable:    8000000 kB\n");
  CHECK(available_pages(root) == 8000000ull * 1024);

  const std::string v2 = tmp / "sys/fs/cgroup";
  write_file(tmp / "proc/self/cgroup", "0::/user/app\n");
  write_file(v2 + "/memory.stat", "anon 5\n");  // the root group has no limit
  write_file(v2 + "/user/memory.max", "400000000\n");
  write_file(v2 + "/user/memory.current", "300000000\n");
  write_file(v2 + "/user/app/memory.max", "max\n");
  write_file(v2 + "/user/app/memory.current", "200000000\n");
  CHECK(available_pages(root) == 100000000);
  CHECK(available_memory(root) <= 100000000);
  write_file(
      v2 + "/user/memory.stat",
      "anon 100\nfile 70000000\nunevictable 3\ninactive_file 50000000\nactive_file 20000000\n");
  CHECK(available_pages(root) == 170000000);
  write_file(v2 + "/user/app/memory.max", "190000000\n");  // less than in use
  CHECK(available_pages(root) == 0);

  write_file(tmp / "proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/0123\n0::/\n");
  CHECK(available_pages(root) == 8000000ull * 1024);
  const std::string v1 = v2 + "/memory";  // in a container the group is the root of the mount
  write_file(v1 + "/memory.limit_in_bytes", "64000000\n");
  write_file(v1 + "/memory.usage_in_bytes", "60000000\n");
  write_file(v1 + "/memory.stat",
             "inactive_file 1\nactive_file 1\ntotal_inactive_file 7\ntotal_active_file 3\n");
  CHECK(available_pages(root) == 4000010);
}

TEST_CASE("faults/control groups: the smallest CPU quota on the path counts") {
  const TempFolder tmp;
  const std::string &root = tmp.path, v2 = tmp / "sys/fs/cgroup";
  CHECK(std::isinf(quota_cores(root)));
  write_file(tmp / "proc/self/cgroup", "0::/user/app\n");
  write_file(v2 + "/cpu.max", "max 100000\n");
  write_file(v2 + "/user/app/cpu.max", "max 100000\n");
  CHECK(std::isinf(quota_cores(root)));
  write_file(v2 + "/user/cpu.max", "250000 100000\n");
  CHECK(quota_cores(root) == 2.5);
  write_file(v2 + "/user/app/cpu.max", "50000 100000\n");
  CHECK(quota_cores(root) == 0.5);

  write_file(tmp / "proc/self/cgroup", "4:cpu,cpuacct:/docker/0123\n0::/\n");
  write_file(v2 + "/cpu/cpu.cfs_quota_us", "-1\n");
  write_file(v2 + "/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(std::isinf(quota_cores(root)));
  write_file(v2 + "/cpu/docker/0123/cpu.cfs_quota_us", "150000\n");
  write_file(v2 + "/cpu/docker/0123/cpu.cfs_period_us", "50000\n");
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

TEST_CASE("faults/threads that do not start: fewer threads or exit 4, and no endless wait") {
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
  // Send the question after the file is mapped and truncated.
  const std::string ask = "exec 3>" + fifo +
                          "; until grep -q model.quipu /proc/$$/maps; do sleep 0.1; kill -0 $$ || "
                          "exit; done; truncate -s 4096 " +
                          model + "; echo Once upon a time >&3";
  const std::string chat = chaski_binary() + " chat --lines -m " + model + " <" + fifo;
  const Outcome outcome = Program({"-c", "(" + ask + ") & exec " + chat}, "", "", "/bin/sh").wait();
  CHECK_MESSAGE(outcome.status == 5, outcome.err);
  CHECK_MESSAGE(outcome.error_says("chaski: error: " + model + ": cannot be read any more"),
                outcome.err);
}

TEST_CASE("faults/ulimit -f is exit 5, the old file is unchanged and no other file is left") {
  for (const char* name : {"out.quipu", "out.gguf"}) {
    const TempFolder tmp;
    fs::copy_file(kStory, tmp / name);
    const Outcome outcome = after("ulimit -f 1000", "convert " + kStory + " " + tmp / name);
    CHECK(outcome.status == 5);
    check_refusal(outcome);
    CHECK_MESSAGE(outcome.error_says("file too large"), outcome.err);
    CHECK(read_file(tmp / name) == read_file(kStory));
    CHECK(files_in(tmp.path) == 1);
  }
}

TEST_CASE("faults/files of a killed writer are removed, those of a running one are not") {
  const TempFolder tmp;
  write_file(tmp / ".a.0123456789abcdef.tmp", "left by a killed writer");
  write_file(tmp / ".a.backup.tmp", "somebody's own");
  write_file(tmp / ".ab.0123456789abcdef.tmp", "of another file");
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
