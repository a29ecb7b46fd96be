// Writes a .quipu file in bounded memory. Names and shapes determine the places of all tensors, so
// several threads produce the data in pieces and write each piece to its place. Then the file is
// read back, compared and summed, and the header is written.
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/base/checksum.h"
#include "ggml-like-tensor/base/mapping.h"
#include "ggml-like-tensor/file/part_table.h"
#include "ggml-like-tensor/file/quipu.h"
#include "ggml-like-tensor/file/value_io.h"

namespace chaski {

namespace {

template <class T>
void append(std::string& out, T number) {
  // little-endian, like every machine that chaski runs on
  out.append(reinterpret_cast<const char*>(&number), sizeof(T));
}

void append(std::string& out, std::string_view text) {
  append<uint64_t>(out, text.size());
  out += text;
}

template <class T, class Given>
void append_one(std::string& out, const Given& held, const std::string& field) {
  if constexpr (std::is_same_v<T, std::string>) {
    append(out, std::string_view(held));
  } else {
    const T stored = static_cast<T>(held);
    if constexpr (std::is_integral_v<T>)
      if (static_cast<int64_t>(stored) != held)
        fail(Exit::bad_file, "{} is {}, expected an integer of {} bits", field, held,
             std::is_same_v<T, bool> ? 1 : 8 * sizeof(T));
    append(out, stored);
  }
}

template <class V>
const V& held(const Value& value) {
  ENSURE(std::holds_alternative<V>(value.data), "the data of a Value must match its type");
  return std::get<V>(value.data);
}

void append_row(std::string& out, const TableRow& row) {
  append(out, std::string_view(row.info.name));
  append(out, static_cast<uint32_t>(row.info.format));
  append(out, layout_of(row.info));
  append(out, static_cast<uint64_t>(row.info.rows));
  append(out, static_cast<uint64_t>(row.info.cols));
  append(out, row.offset);
  append(out, row.info.bytes());
  append(out, row.sum);
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// The tensors' places in the file, without checksums. Sets header_end and file_bytes, the ends of
// the header and of the last tensor.
std::vector<TableRow> plan(const ModelSource& source, const Metadata& meta, uint64_t& header_end,
                           uint64_t& file_bytes) {
  std::vector<TableRow> table;
  for (const TensorSource& tensor : source.tensors) table.push_back({tensor.info});
  file_bytes = header_end = header_bytes(meta, table);
  for (TableRow& row : table) {
    row.offset = aligned(file_bytes);
    file_bytes = row.offset + row.info.bytes();
  }
  return table;
}

// Writes the data of all tensors that are not finished. Stores the checksum of each chunk as it
// came from the source.
void write_data(AtomicFile& file, const ModelSource& source, const std::vector<TableRow>& rows,
                const std::vector<Chunk>& chunks, int threads, const Progress& progress,
                PartTable* table, std::vector<uint64_t>& sums) {
  uint64_t done = 0, total = 0;
  const auto finished = [&](const Chunk& chunk) { return table && table->finished(chunk.tensor); };
  for (const Chunk& chunk : chunks) {
    total += chunk.bytes;
    if (finished(chunk)) done += chunk.bytes;
  }
  std::mutex reporting;
  for_each_job(chunks.size(), threads, [&](size_t job) {
    const Chunk& chunk = chunks[job];
    if (finished(chunk)) return;
    std::vector<std::byte> data(chunk.bytes);
    source.tensors[chunk.tensor].read(chunk.first, chunk.last, data.data());
    sums[job] = checksum(data.data(), data.size());
    file.write_at(rows[chunk.tensor].offset + chunk.offset, data);
    if (table) table->written(job, sums);
    const std::lock_guard lock(reporting);
    done += chunk.bytes;
    if (progress) progress(chunk.tensor, done, total);
  });
}

// Reads back what was written, compares it with the data of the source, and fills in the tensors'
// checksums. The bytes come from the disk if the file system dropped its copy. Pages are dropped
// from this process as soon as they are read, so it uses the memory of some chunks. Linux caches
// what this reads in huge pages, but not what was written in pieces of 1 MB.
void read_back(const std::string& path, const AtomicFile& file, const std::vector<Chunk>& chunks,
               const std::vector<uint64_t>& sums, int threads, std::vector<TableRow>& rows) {
  const auto mapping = Mapping::open(file.temporary());
  mapping->prefer_huge_pages(mapping->bytes());
  const std::byte* data = mapping->bytes().data();
  for_each_job(rows.size(), threads, [&](size_t t) {
    TableRow& row = rows[t];
    const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> whole(XXH3_createState(),
                                                                         XXH3_freeState);
    if (!whole || XXH3_64bits_reset(whole.get()) != XXH_OK) throw std::bad_alloc();
    for (auto chunk = std::ranges::lower_bound(chunks, t, {}, &Chunk::tensor);
         chunk != chunks.end() && chunk->tensor == t; ++chunk) {
      const std::byte* begin = data + row.offset + chunk->offset;
      if (checksum(begin, chunk->bytes) != sums[size_t(chunk - chunks.begin())])
        fail(Exit::io,
             "{}: tensor {} does not read back as it was written: the disk is failing, or another "
             "program writes {}",
             path, escaped(row.info.name), file.temporary());
      XXH3_64bits_update(whole.get(), begin, chunk->bytes);
      mapping->drop_pages();
    }
    row.sum = XXH3_64bits_digest(whole.get());
  });
}

// Encodes preamble and header; `take` gets each piece with its place in the file.
void encode_in_place(const Metadata& meta, const std::vector<TableRow>& rows,
                     const std::function<void(uint64_t, std::string_view)>& take) {
  uint64_t at = kQuipuPreamble;
  const std::string preamble = encode_header(meta, rows, [&](std::string_view piece) {
    take(at, piece);
    at += piece.size();
  });
  take(0, preamble);
}

void write_header(AtomicFile& file, const Metadata& meta, const std::vector<TableRow>& rows,
                  uint64_t header_end) {
  ENSURE(header_bytes(meta, rows) == header_end, "the header must not change its size");
  encode_in_place(meta, rows,
                  [&](uint64_t at, std::string_view piece) { file.write_at(at, bytes_of(piece)); });
}

void read_back_header(const std::string& path, const AtomicFile& file, const Metadata& meta,
                      const std::vector<TableRow>& rows) {
  const auto mapping = Mapping::open(file.temporary());
  encode_in_place(meta, rows, [&](uint64_t at, std::string_view piece) {
    const auto found = mapping->bytes();
    if (found.size() < at + piece.size() ||
        std::memcmp(found.data() + at, piece.data(), piece.size()) != 0)
      fail(Exit::io,
           "{}: the header does not read back as it was written: the disk is failing, or another "
           "program writes {}",
           path, file.temporary());
    mapping->drop_pages();
  });
}

}  // namespace

void append_value(std::string& out, const Value& value, const std::string& field,
                  const std::function<void()>& item_added) {
  append(out, static_cast<uint32_t>(value.type));
  if (value.type != ValueType::array)
    return as_stored(value.type, field,
                     [&]<class T>(T) { append_one<T>(out, held<Held<T>>(value), field); });
  append(out, static_cast<uint32_t>(value.element));
  as_stored(value.element, field, [&]<class T>(T) {
    const auto& all = held<HeldList<T>>(value);
    expect_list_size(all.size(), field);
    append<uint64_t>(out, all.size());
    for (const auto one : all) {
      append_one<T>(out, one, field);
      if (item_added) item_added();
    }
  });
}

std::string encode_header(const Metadata& meta, const std::vector<TableRow>& table,
                          const TakePiece& take) {
  constexpr size_t kPiece = 256 << 10;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> sum(XXH3_createState(),
                                                                     XXH3_freeState);
  if (!sum || XXH3_64bits_reset(sum.get()) != XXH_OK) throw std::bad_alloc();
  uint64_t bytes = 0;
  std::string out;
  const auto pass_on = [&] {
    XXH3_64bits_update(sum.get(), out.data(), out.size());
    bytes += out.size();
    take(out);
    out.clear();
  };
  const auto added = [&] {
    if (out.size() >= kPiece) pass_on();
  };
  append<uint64_t>(out, meta.all().size());
  for (const auto& [key, value] : meta.all()) {
    append(out, std::string_view(key));
    append_value(out, value, fmt::format("{}: {}", meta.origin, escaped(key)), added);
    added();
  }
  append<uint64_t>(out, table.size());
  for (const TableRow& row : table) append_row(out, row), added();
  pass_on();

  std::string preamble(kQuipuMagic);
  append(preamble, kQuipuVersion);
  append(preamble, bytes);
  append<uint64_t>(preamble, XXH3_64bits_digest(sum.get()));
  return preamble;
}

uint64_t header_bytes(const Metadata& meta, const std::vector<TableRow>& table) {
  uint64_t bytes = kQuipuPreamble;
  encode_header(meta, table, [&](std::string_view piece) { bytes += piece.size(); });
  return bytes;
}

namespace {

// Anything that the reader would refuse is refused before a byte is written. encode_header() has
// checked the metadata, so this reads a header that has the table alone.
void expect_readable(const std::string& path, const std::vector<TableRow>& rows,
                     uint64_t file_bytes) {
  std::string table;
  const std::string preamble =
      encode_header({}, rows, [&](std::string_view piece) { table += piece; });
  decode_header(path, bytes_of(preamble + table), file_bytes);
}

void write(const std::string& path, const ModelSource& source, const Metadata& meta, int threads,
           const Parts* parts, const Progress& progress,
           const std::function<void(Metadata&)>& finish) {
  // A linked-in model has a name but no file.
  std::error_code ignored;
  if (std::filesystem::exists(source.path, ignored)) refuse_same_file(source.path, path);
  uint64_t header_end = 0, file_bytes = 0;
  std::vector<TableRow> rows = plan(source, meta, header_end, file_bytes);
  expect_readable(path, rows, file_bytes);

  const auto chunks = chunks_of(source);
  std::vector<uint64_t> sums(chunks.size());
  AtomicFile file(path, parts && parts->resume ? Leftover::adopt : Leftover::remove);
  std::optional<PartTable> table;
  if (parts && parts->note && !file.not_adopted().empty())
    parts->note(file.not_adopted() + "; everything starts again");
  if (parts) {
    const std::string preamble = encode_header(meta, rows, [](std::string_view) {});
    table.emplace(path, file, *parts, checksum(preamble.data(), preamble.size()), rows, chunks,
                  file_bytes);
    table->begin(sums, threads);
  } else {
    file.pad_to(file_bytes);
  }
  write_data(file, source, rows, chunks, threads, progress, table ? &*table : nullptr, sums);
  file.sync();
  file.drop_cached();
  read_back(path, file, chunks, sums, threads, rows);
  std::optional<Metadata> finished;
  if (finish) finish(finished.emplace(meta));
  const Metadata& last = finished ? *finished : meta;
  write_header(file, last, rows, header_end);
  if (table) table->remove();
  read_back_header(path, file, last, rows);
  file.commit();
}

}  // namespace

void write_quipu(const std::string& path, const ModelSource& source, int threads,
                 const Progress& progress, const std::function<void(Metadata&)>& finish) {
  write(path, source, source.meta, threads, nullptr, progress, finish);
}

void write_quipu(const std::string& path, const std::shared_ptr<const Weights>& weights,
                 int threads) {
  write(path, tensors_of(weights), weights->meta, threads, nullptr, {}, {});
}

void write_quipu_in_parts(const std::string& path, const ModelSource& source, int threads,
                          const Parts& parts, const Progress& progress,
                          const std::function<void(Metadata&)>& finish) {
  write(path, source, source.meta, threads, &parts, progress, finish);
}

}  // namespace chaski
