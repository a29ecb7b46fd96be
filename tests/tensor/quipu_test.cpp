// The .quipu file: a written model is read back; the bytes do not depend on the number of threads;
// and an existing file is never lost. quipu_damage_test.cpp tests damaged files.
#include <unistd.h>

#include <atomic>
#include <chrono>

#include "ggml-like-tensor/file/chunks.h"
#include "tests/kit/quipu_support.h"

namespace chaski {
namespace {

namespace fs = std::filesystem;
using namespace quipu_test;

void check_same_tensors(const Weights& weights, const ModelSource& source) {
  REQUIRE(weights.tensors.size() == source.tensors.size());
  for (const TensorSource& expected : source.tensors) {
    CAPTURE(expected.info.name);
    const Weight* weight = weights.find(expected.info.name);
    REQUIRE(weight);
    CHECK(weight->info.format == expected.info.format);
    CHECK(weight->info.rows == expected.info.rows);
    CHECK(weight->info.cols == expected.info.cols);
    CHECK(reinterpret_cast<uintptr_t>(weight->data) % 64 == 0);
    std::vector<std::byte> bytes(expected.info.bytes());
    expected.read(0, expected.info.tiled() ? (expected.info.rows + 15) / 16 : 1, bytes.data());
    CHECK(std::memcmp(weight->data, bytes.data(), bytes.size()) == 0);
  }
}

TEST_CASE("quipu: sizes of tensors") {
  CHECK(TensorInfo{"v", Format::f32, 1, 10}.bytes() == 40);
  CHECK(TensorInfo{"v", Format::q8, 1, 64}.bytes() == 2 * 34);
  CHECK(TensorInfo{"m", Format::f32, 2, 10}.bytes() == 16 * 40);  // padded to a whole strip
  CHECK(TensorInfo{"m", Format::q8, 17, 64}.bytes() == 2 * strip_bytes(Format::q8, 64));
  const TensorInfo huge{"big\n", Format::f32, int64_t{1} << 40, int64_t{1} << 40};
  CHECK(contains(error_of([&] { huge.bytes(); }).what(), "tensor big\\n has shape"));
}

TEST_CASE("quipu: every type of value and every tensor is read back") {
  const TempFolder tmp;
  const ModelSource source = tiny();
  const std::string file = written(tmp / "a.quipu", source);
  CHECK(file.starts_with(std::string_view("QUIPU\0\0\1", 8)));
  CHECK(is_quipu(tmp / "a.quipu"));
  const auto weights = open_quipu(tmp / "a.quipu");
  CHECK(weights->meta.all() == source.meta.all());
  CHECK(weights->meta.origin == tmp / "a.quipu");
  CHECK(weights->kind == "quipu v1");
  CHECK(weights->bytes() == 40 + 2 * strip_bytes(Format::q8, 32) + strip_bytes(Format::f16, 3));
  CHECK(!weights->find("none"));
  check_same_tensors(*weights, source);
  verify(*open_quipu(tmp / "a.quipu"), 2);
  CHECK(files_in(tmp.path) == 1);

  check_same_tensors(*load(source, 2), source);
  const Aligned linked(file);
  check_same_tensors(*open_quipu("linked", linked.span()), source);
}

TEST_CASE("quipu: the file is the same for any number of threads, and through source_of and load") {
  const TempFolder tmp;
  const ModelSource source = several_megabytes();
  const std::string one = written(tmp / "1", source, 1);
  for (int threads : {0, 2, 3, 7}) CHECK(written(tmp / "n", source, threads) == one);
  const auto mapped = open_quipu(tmp / "1");
  CHECK(written(tmp / "again", source_of(mapped), 2) == one);
  for (int threads : {1, 2, 3, 7}) {
    const auto loaded = load(source_of(mapped), threads);
    check_same_tensors(*loaded, source);
    CHECK(loaded->meta.all() == source.meta.all());
    CHECK(written(tmp / "again", source_of(loaded), 2) == one);
  }
}

TEST_CASE("quipu: progress counts up to all bytes") {
  const TempFolder tmp;
  const ModelSource source = several_megabytes();
  uint64_t all = 0, last = 0;
  for (const auto& tensor : source.tensors) all += tensor.info.bytes();
  std::vector<int> seen(source.tensors.size());
  write_quipu(tmp / "a", source, 3, [&](size_t tensor, uint64_t done, uint64_t total) {
    seen.at(tensor)++;
    CHECK(done > last);
    CHECK(total == all);
    last = done;
  });
  CHECK(last == all);
  for (int n : seen) CHECK(n > 0);
  CHECK(seen[0] > 3);  // in several pieces
}

TEST_CASE("quipu: opening reads only the header") {
  const TempFolder tmp;
  const TensorInfo info{"big", Format::f32, 1 << 14, 1 << 14};  // 1 GB, a hole in the file
  std::string header;
  const std::string preamble =
      encode_header({}, {{info, 4096, 0}}, [&](std::string_view piece) { header += piece; });
  write_file(tmp / "a", preamble + header);
  fs::resize_file(tmp / "a", 4096 + info.bytes());
  const auto start = std::chrono::steady_clock::now();
  CHECK(open_quipu(tmp / "a")->bytes() == uint64_t{1} << 30);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::milliseconds(200));
}

TEST_CASE("quipu: if source or progress throws, the caller gets the error and the old file stays") {
  const TempFolder tmp;
  write_file(tmp / "a", "old");
  for (int threads : {1, 2, 7}) {
    CAPTURE(threads);
    ModelSource source = several_megabytes();
    const ReadStrips good = source.tensors[0].read;
    source.tensors[0].read = [&](int64_t first, int64_t last, std::byte* dst) {
      if (first > 0) fail(Exit::io, "strip {} is unreadable", first);
      good(first, last, dst);
    };
    const Error error = error_of([&] { write_quipu(tmp / "a", source, threads); });
    CHECK(error.code == Exit::io);
    // the first error, whichever thread was first
    CHECK(std::string(error.what()) == "strip 32 is unreadable");
    CHECK(error_of([&] { load(source, threads); }).code == Exit::io);

    struct Stop {};
    int calls = 0;
    const auto stop = [&](size_t, uint64_t, uint64_t) {
      if (++calls == 2) throw Stop();
    };
    CHECK_THROWS_AS(write_quipu(tmp / "a", several_megabytes(), threads, stop), Stop);
    CHECK(read_file(tmp / "a") == "old");
    CHECK(files_in(tmp.path) == 1);
  }
}

TEST_CASE("quipu: a model is not written over itself") {
  const TempFolder tmp;
  const std::string file = written(tmp / "a", tiny());
  fs::create_hard_link(tmp / "a", tmp / "b");
  const ModelSource source = source_of(open_quipu(tmp / "a"));
  for (const char* name : {"a", "b"})
    CHECK(error_of([&] { write_quipu(tmp / name, source, 1); }).code == Exit::usage);
  CHECK(read_file(tmp / "a") == file);
}

TEST_CASE("quipu: weights that do not fit in memory are refused with numbers") {
  ModelSource source{
      "big.gguf", "test", {}, {tensor("token_embd", Format::f32, 1 << 30, 1 << 20)}, nullptr};
  const Error error = error_of([&] { load(source, 2); });
  CHECK(contains(error.what(), "big.gguf: the weights need 4.5e+06 GB of memory, "));
  CHECK(contains(error.what(), " GB are available"));
  // The size of the machine's whole memory, which cannot be free, although the system would give
  // the addresses.
  const int64_t all = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE);
  source.tensors = {tensor("token_embd", Format::f32, all >> 16, 1 << 14)};
  source.tensors[0].read = [](int64_t, int64_t, std::byte*) {
    fail(Exit::io, "should not be reached");
  };
  for (const auto& e : {error, error_of([&] { load(source, 2); })}) CHECK(e.code == Exit::memory);
}

TEST_CASE("quipu: a model without tensors is a file like any other") {
  const TempFolder tmp;
  write_quipu(tmp / "a", {"", "test", {}, {}, nullptr}, 2);
  const auto weights = open_quipu(tmp / "a");
  CHECK(weights->tensors.empty());
  CHECK(load(source_of(weights), 2)->tensors.empty());
}

TEST_CASE("quipu: every job is done once, and the lowest error is reported") {
  for (int threads : {1, 2, 5}) {
    std::vector<std::atomic<int>> done(1000);
    for_each_job(done.size(), threads, [&](size_t job) { done[job]++; });
    for (const auto& n : done) REQUIRE(n == 1);
    const Error error = error_of([&] {
      for_each_job(1000, threads, [&](size_t job) {
        if (job >= 300) fail(Exit::io, "job {}", job);
      });
    });
    CHECK(std::string(error.what()) == "job 300");
  }
  for_each_job(0, 3, [](size_t) { FAIL("no jobs, no call"); });
}

}  // namespace
}  // namespace chaski
