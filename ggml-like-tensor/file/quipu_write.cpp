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

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// Makes the header with every tensor's place in the file but without checksums. Sets file_bytes to
// the end of the last tensor.
QuipuHeader plan(const ModelSource& source, Metadata&& meta, uint64_t& file_bytes) {
  QuipuHeader header{std::move(meta), {}};
  for (const TensorSource& tensor : source.tensors) header.table.push_back({tensor.info});
  file_bytes = encode_header(header).size();
  for (TableRow& row : header.table) {
    row.offset = aligned(file_bytes);
    file_bytes = row.offset + row.info.bytes();
  }
  return header;
}

// Writes the data of all tensors that are not finished. Stores the checksum of each chunk as it
// came from the source.
void write_data(AtomicFile& file, const ModelSource& source, const QuipuHeader& header,
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
    file.write_at(header.table[chunk.tensor].offset + chunk.offset, data);
    if (table) table->written(job, sums);
    const std::lock_guard lock(reporting);
    done += chunk.bytes;
    if (progress) progress(chunk.tensor, done, total);
  });
}

// Reads back what was written, compares it with the data of the source, and fills in the tensors'
// checksums. Pages are dropped as soon as they are read, so the memory used is that of some chunks.
void read_back(const std::string& path, const AtomicFile& file, const std::vector<Chunk>& chunks,
               const std::vector<uint64_t>& sums, int threads, QuipuHeader& header) {
  const auto mapping = Mapping::open(file.temporary());
  const std::byte* data = mapping->bytes().data();
  for_each_job(header.table.size(), threads, [&](size_t t) {
    TableRow& row = header.table[t];
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

// Compares the header with the file, some pages at a time: a vocabulary has megabytes.
void read_back_header(const std::string& path, const AtomicFile& file, std::string_view header) {
  constexpr size_t kAtOnce = 256 << 10;
  const auto mapping = Mapping::open(file.temporary());
  const bool whole = mapping->bytes().size() >= header.size();
  for (size_t at = 0; at < header.size(); at += kAtOnce) {
    const std::string_view piece = header.substr(at, kAtOnce);
    if (!whole || std::memcmp(mapping->bytes().data() + at, piece.data(), piece.size()) != 0)
      fail(Exit::io,
           "{}: the header does not read back as it was written: the disk is failing, or another "
           "program writes {}",
           path, file.temporary());
    mapping->drop_pages();
  }
}

}  // namespace

void append_value(std::string& out, const Value& value, const std::string& field) {
  append(out, static_cast<uint32_t>(value.type));
  if (value.type != ValueType::array)
    return as_stored(value.type, field,
                     [&]<class T>(T) { append_one<T>(out, held<Held<T>>(value), field); });
  append(out, static_cast<uint32_t>(value.element));
  as_stored(value.element, field, [&]<class T>(T) {
    const auto& all = held<HeldList<T>>(value);
    append<uint64_t>(out, all.size());
    for (const auto one : all) append_one<T>(out, one, field);
  });
}

namespace {

// At least the bytes of all lists of texts and their lengths: a string that grows would need twice
// the memory for a moment.
size_t bytes_of_texts(const Metadata& meta) {
  size_t bytes = 0;
  for (const auto& [key, value] : meta.all())
    if (const Texts* texts = std::get_if<Texts>(&value.data))
      for (const std::string_view text : *texts) bytes += sizeof(uint64_t) + text.size();
  return bytes;
}

}  // namespace

std::string encode_header(const QuipuHeader& header) {
  constexpr size_t kOthers = 2 << 20;
  std::string out;
  out.reserve(bytes_of_texts(header.meta) + kOthers);
  out = kQuipuMagic;
  append(out, kQuipuVersion);
  const size_t sizes = out.size(), begin = sizes + 2 * sizeof(uint64_t);
  out.resize(begin);
  append<uint64_t>(out, header.meta.all().size());
  for (const auto& [key, value] : header.meta.all()) {
    append(out, std::string_view(key));
    append_value(out, value, fmt::format("{}: {}", header.meta.origin, escaped(key)));
  }
  append<uint64_t>(out, header.table.size());
  for (const TableRow& row : header.table) append_row(out, row);

  const uint64_t bytes = out.size() - begin, sum = checksum(out.data() + begin, bytes);
  std::memcpy(out.data() + sizes, &bytes, sizeof(bytes));
  std::memcpy(out.data() + sizes + sizeof(bytes), &sum, sizeof(sum));
  return out;
}

namespace {

void write(const std::string& path, const ModelSource& source, Metadata meta, int threads,
           const Parts* parts, const Progress& progress,
           const std::function<void(Metadata&)>& finish) {
  // A linked-in model has a name but no file.
  std::error_code ignored;
  if (std::filesystem::exists(source.path, ignored)) refuse_same_file(source.path, path);
  uint64_t file_bytes = 0;
  QuipuHeader header = plan(source, std::move(meta), file_bytes);
  // Anything that the reader would refuse is refused before a byte is written.
  size_t planned = 0;
  {
    const std::string encoded = encode_header(header);
    planned = encoded.size();
    decode_header(path, bytes_of(encoded), file_bytes);
  }

  const auto chunks = chunks_of(source);
  std::vector<uint64_t> sums(chunks.size());
  AtomicFile file(path, parts && parts->resume ? Leftover::adopt : Leftover::remove);
  std::optional<PartTable> table;
  if (parts && parts->note && !file.not_adopted().empty())
    parts->note(file.not_adopted() + "; everything starts again");
  if (parts) {
    table.emplace(path, file, *parts, header, chunks, file_bytes);
    table->begin(sums, threads);
  } else {
    file.pad_to(file_bytes);
  }
  write_data(file, source, header, chunks, threads, progress, table ? &*table : nullptr, sums);
  file.sync();
  read_back(path, file, chunks, sums, threads, header);
  if (finish) finish(header.meta);
  {
    const std::string finished = encode_header(header);
    ENSURE(finished.size() == planned, "the header must not change its size");
    file.write_at(0, bytes_of(finished));
    if (table) table->remove();
    read_back_header(path, file, finished);
  }
  file.commit();
}

}  // namespace

void write_quipu(const std::string& path, const ModelSource& source, int threads,
                 const Progress& progress, const std::function<void(Metadata&)>& finish) {
  write(path, source, source.meta, threads, nullptr, progress, finish);
}

void write_quipu(const std::string& path, ModelSource&& source, int threads) {
  write(path, source, std::move(source.meta), threads, nullptr, {}, {});
}

void write_quipu_in_parts(const std::string& path, const ModelSource& source, int threads,
                          const Parts& parts, const Progress& progress,
                          const std::function<void(Metadata&)>& finish) {
  write(path, source, source.meta, threads, &parts, progress, finish);
}

}  // namespace chaski
