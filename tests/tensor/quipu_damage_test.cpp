// Damaged and forged .quipu files. Each is refused with one line that names what is wrong; no wrong
// value is used.
#include <xxhash.h>

#include <random>

#include "ggml-like-tensor/file/chunks.h"
#include "tests/kit/quipu_support.h"

namespace chaski {
namespace {

namespace fs = std::filesystem;
using namespace quipu_test;

Error open_error(std::string_view file) {
  const Aligned bytes(file);
  return error_of([&] { open_quipu("x.quipu", bytes.span()); });
}

uint64_t header_end(const std::string& file) {
  uint64_t size;
  std::memcpy(&size, file.data() + 8, 8);
  return kQuipuPreamble + size;
}

std::vector<TableRow> table_of(const std::string& file) {
  return decode_header("x", std::as_bytes(std::span(file)), file.size()).table;
}

// Makes the header's checksum right again after a change.
std::string summed(std::string file) {
  const uint64_t sum = XXH3_64bits(file.data() + kQuipuPreamble, header_end(file) - kQuipuPreamble);
  std::memcpy(file.data() + 16, &sum, 8);
  return file;
}

// The file with the bytes of `value` at `offset` after the first occurrence of `anchor`.
template <class T>
std::string forged(std::string file, std::string_view anchor, size_t offset, T value) {
  std::memcpy(file.data() + file.find(anchor) + anchor.size() + offset, &value, sizeof(T));
  return summed(file);
}

TEST_CASE("quipu: a file cut short anywhere is refused") {
  const TempFolder tmp;
  const std::string file = written(tmp / "a", tiny());
  for (size_t size = 0; size < file.size(); size++) {
    CAPTURE(size);
    const Error error = open_error(file.substr(0, size));
    REQUIRE(error.code == Exit::bad_file);
    REQUIRE(contains(error.what(), "x.quipu: "));
  }
  for (size_t size :
       {size_t{0}, size_t{1}, size_t{20}, size_t{24}, file.size() / 2, file.size() - 1}) {
    write_file(tmp / "cut", file.substr(0, size));
    CHECK(error_of([&] { open_quipu(tmp / "cut"); }).code == Exit::bad_file);
    CHECK(error_of([&] { verify(*open_quipu(tmp / "cut"), 2); }).code == Exit::bad_file);
  }
  CHECK(error_of([&] { open_quipu(tmp / "none"); }).code == Exit::io);
}

TEST_CASE("quipu: a flipped bit is found, in the header at once, in a tensor by verify") {
  const TempFolder tmp;
  const std::string file = written(tmp / "a", tiny());
  for (size_t at = 0; at < header_end(file); at++)
    for (char bit : {'\x01', '\x80'}) {
      std::string flipped = file;
      flipped[at] ^= bit;
      CAPTURE(at);
      REQUIRE(open_error(flipped).code == Exit::bad_file);
    }
  for (const TableRow& row : table_of(file))
    for (uint64_t at : {uint64_t{0}, row.info.bytes() / 2, row.info.bytes() - 1}) {
      std::string flipped = file;
      flipped[row.offset + at] ^= 4;
      write_file(tmp / "b", flipped);
      open_quipu(tmp / "b");
      const Error error = error_of([&] { verify(*open_quipu(tmp / "b"), 2); });
      CHECK(error.code == Exit::bad_file);
      CHECK(contains(error.what(),
                     fmt::format("/b: the file is damaged: tensor {} has sum ", row.info.name)));
    }
}

TEST_CASE("quipu: not a .quipu file, or one of another version") {
  const TempFolder tmp;
  std::string file = written(tmp / "a", tiny());
  file[7] = 9;
  CHECK(open_error(file).what() ==
        std::string("x.quipu: is .quipu version 9, this chaski reads 1"));
  write_file(tmp / "later", file);
  CHECK(is_quipu(tmp / "later"));  // so that the error names the version
  file.replace(0, 4, "GG\x1b\n");
  CHECK(open_error(file).what() ==
        std::string(
            "x.quipu: magic is \"GG\\x1b\\nU\\x00\\x00\\x09\", expected \"QUIPU\\x00\\x00\""));
  write_file(tmp / "other", file);
  CHECK(!is_quipu(tmp / "other"));
  CHECK(!is_quipu(tmp / "none"));
  CHECK(!is_quipu(tmp.path));
}

TEST_CASE("quipu: a forged header with a right checksum is refused by the field that is wrong") {
  const TempFolder tmp;
  const std::string file = written(tmp / "a", tiny());
  // After a tensor's name: format 0, layout 4, rows 8, cols 16, offset 24, bytes 32, checksum 40.
  const std::string_view norm = "norm", q = "layer.0.attn_q";
  const uint64_t q_offset = table_of(file)[1].offset, q_bytes = 2 * strip_bytes(Format::q8, 32);
  const uint64_t end = header_end(file);
  const auto refused = [&](const std::string& bad, const std::string& line) {
    const Error error = open_error(bad);
    CHECK(error.code == Exit::bad_file);
    CHECK(std::string(error.what()) == "x.quipu: " + line);
  };
  const std::string tensor = "tensor layer.0.attn_q: ";
  refused(forged(file, q, 0, uint32_t{99}),
          tensor + "format is 99, expected 0 to " + std::to_string(kFormatCount - 1));
  refused(forged(file, q, 4, uint32_t{0}), tensor + "layout is 0, expected 1 for 20 rows");
  refused(forged(file, norm, 4, uint32_t{1}), "tensor norm: layout is 1, expected 0 for 1 rows");
  refused(forged(file, q, 8, uint64_t{0}), tensor + "rows is 0, expected 1 to 2^40 - 1");
  refused(forged(file, q, 8, uint64_t{1} << 40),
          tensor + "rows is 1099511627776, expected 1 to 2^40 - 1");
  refused(forged(file, q, 8, ~uint64_t{0}),
          tensor + "rows is 18446744073709551615, expected 1 to 2^40 - 1");
  refused(forged(file, q, 16, uint64_t{0}), tensor + "cols is 0, expected 1 to 2^40 - 1");
  refused(forged(file, q, 16, uint64_t{33}), tensor + "cols is 33, expected a multiple of 32 (q8)");
  refused(forged(forged(file, q, 8, (uint64_t{1} << 40) - 16), q, 16, uint64_t{1} << 39),
          tensor + "shape is (1099511627760, 549755813888), expected at most 2^50 weights");
  const std::string sizes = tensor + "bytes is {}, expected {} for ({}, 32)";
  refused(forged(file, q, 32, q_bytes - 1),
          fmt::format(fmt::runtime(sizes), q_bytes - 1, q_bytes, 20));
  refused(forged(file, q, 8, uint64_t{33}),
          fmt::format(fmt::runtime(sizes), q_bytes, q_bytes / 2 * 3, 33));
  refused(forged(file, q, 24, q_offset + 1),
          tensor + fmt::format("offset is {}, expected a multiple of 64", q_offset + 1));
  for (uint64_t far : {aligned(file.size()), uint64_t{1} << 62, ~uint64_t{63}})
    refused(forged(file, q, 24, far),
            tensor + fmt::format("offset is {} and bytes {}, but the file has {}", far, q_bytes,
                                 file.size()));
  refused(forged(file, q, 24, uint64_t{0}),
          tensor + fmt::format("offset is 0, expected at least {}, where the header ends", end));
  refused(
      forged(file, "output", 24, q_offset + 64),
      fmt::format("tensor output: offset is {}, expected at least {}, where layer.0.attn_q ends",
                  q_offset + 64, q_offset + q_bytes));
}

TEST_CASE("quipu: forged names, counts and values") {
  const TempFolder tmp;
  ModelSource source{"",
                     "test",
                     {},
                     {tensor("aaaa", Format::f32, 1, 4), tensor("bbbb", Format::f32, 1, 4)},
                     nullptr};
  source.meta.set_bool("flag", true);
  source.meta.set_ints("list", {1, 2, 3});
  source.meta.set_str("text", "words");
  const std::string file = written(tmp / "a", source);
  const auto line = [](const std::string& bad) { return std::string(open_error(bad).what()); };
  const auto n_tensors = file.find("aaaa") - 16;

  std::string twice = file;
  twice.replace(file.find("bbbb"), 4, "aaaa");
  CHECK(line(summed(twice)) == "x.quipu: tensor aaaa occurs twice, expected once");
  twice = file;
  twice.replace(file.find("text"), 4, "flag");
  CHECK(line(summed(twice)) == "x.quipu: key flag occurs twice, expected once");

  std::string many = file;
  many[n_tensors + 7] = 0x7f;
  CHECK(contains(line(summed(many)), "number of tensors is 9151314442816847874, but only "));
  many = file;
  many[kQuipuPreamble + 6] = 1;
  CHECK(contains(line(summed(many)), "number of values is 281474976710659, but only "));
  CHECK(contains(line(forged(file, "list", 8, uint64_t{1} << 61)),
                 "list has 2305843009213693952 entries, but only "));
  CHECK(contains(line(forged(file, "text", 4, ~uint64_t{0})),
                 "text: 18446744073709551615 bytes wanted at offset "));
  CHECK(line(forged(file, "flag", 0, uint32_t{13})) ==
        "x.quipu: flag has value type 13, expected 0 to 12");
  CHECK(line(forged(file, "flag", 4, uint8_t{2})) == "x.quipu: flag is 2, expected 0 or 1");
  CHECK(line(forged(file, "list", 4, uint32_t{9})) ==
        "x.quipu: list is an array of arrays, expected an array of scalars or strings");

  // A header that claims one byte too many: the byte after the table becomes part of it.
  std::string longer = file;
  longer[8]++;
  CHECK(contains(line(summed(longer)), "x.quipu: header bytes is "));
  longer = file;
  longer[15] = 0x7f;
  CHECK(contains(line(longer), "header: 91513144428168"));
}

TEST_CASE("quipu: random damage with a right checksum never passes the checks") {
  const TempFolder tmp;
  const std::string file = written(tmp / "a", tiny());
  const uint64_t end = header_end(file);
  std::mt19937 random(7);
  int accepted = 0;
  for (int i = 0; i < 3000; i++) {
    std::string bad = file;
    for (int n = 1 + random() % 3; n > 0; n--) {
      const size_t at = kQuipuPreamble + random() % (end - kQuipuPreamble);
      bad[at] = static_cast<char>(random() % 3 == 0 ? 0xff : random());
    }
    const Aligned bytes(summed(bad));
    try {
      const auto weights = open_quipu("x", bytes.span());
      accepted++;  // cannot be found here, but tensors must be inside the file
      for (const Weight& weight : weights->tensors)
        REQUIRE(static_cast<uint64_t>(weight.data - bytes.data) + weight.info.bytes() <=
                bytes.size);
    } catch (const Error& error) {
      REQUIRE(error.code == Exit::bad_file);
    }
  }
  CHECK(accepted > 0);
  CHECK(accepted < 2000);
}

TEST_CASE("quipu: the writer refuses what the reader would refuse, before a byte is written") {
  const TempFolder tmp;
  const auto line = [&](auto change) {
    ModelSource source = tiny();
    change(source);
    const Error error = error_of([&] { write_quipu(tmp / "a", source, 2); });
    CHECK(error.code == Exit::bad_file);
    CHECK(files_in(tmp.path) == 0);
    return std::string(error.what());
  };
  CHECK(contains(line([](auto& s) { s.tensors[1].info.name = "norm"; }),
                 "/a: tensor norm occurs twice"));
  CHECK(contains(line([](auto& s) { s.tensors[1].info.name = ""; }),
                 "/a: name of tensor 1 is empty"));
  CHECK(contains(line([](auto& s) { s.tensors[1].info.cols = 40; }),
                 "/a: tensor layer.0.attn_q: cols is 40, expected a"));
  CHECK(contains(line([](auto& s) { s.tensors[1].info.rows = 0; }),
                 "/a: tensor layer.0.attn_q: rows is 0"));
  CHECK(line([](auto& s) {
          s.meta.set_ints("ids", {1, int64_t{1} << 31});
        }) == "test: ids is 2147483648, expected an integer of 32 bits");
  CHECK(line([](auto& s) {
          s.meta.set("n", {ValueType::u32, ValueType::i64, int64_t{-1}});
        }) == "test: n is -1, expected an integer of 32 bits");
  const Value nested{ValueType::array, ValueType::array, int64_t{0}};
  CHECK(contains(line([&](auto& s) { s.meta.set("n", nested); }), "test: n is an array of arrays"));
}

TEST_CASE("quipu: bytes that do not read back as written are found") {
  const TempFolder tmp;
  write_file(tmp / "a", "old");
  const ModelSource source = tiny();
  const Error error = error_of([&] {
    write_quipu(tmp / "a", source, 1, [&](size_t, uint64_t done, uint64_t total) {
      if (done < total) return;
      for (const auto& entry : fs::directory_iterator(tmp.path)) {
        if (entry.path().filename() == "a") continue;
        std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(-1, std::ios::end);
        const char byte = static_cast<char>(file.get() ^ 1);
        file.seekp(-1, std::ios::end);
        file.put(byte);
      }
    });
  });
  CHECK(error.code == Exit::io);
  CHECK(contains(error.what(), "/a: tensor output does not read back as it was written"));
  CHECK(read_file(tmp / "a") == "old");
  CHECK(files_in(tmp.path) == 1);
}

}  // namespace
}  // namespace chaski
