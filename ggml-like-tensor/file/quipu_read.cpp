// Opens a .quipu file. The header is untrusted until every field has been checked. Tensors are not
// read, so a file of many gigabytes opens at once.
#include <algorithm>
#include <filesystem>
#include <unordered_set>

#include "ggml-like-tensor/base/checked.h"
#include "ggml-like-tensor/base/checksum.h"
#include "ggml-like-tensor/base/mapping.h"
#include "ggml-like-tensor/file/chunks.h"
#include "ggml-like-tensor/file/quipu.h"
#include "ggml-like-tensor/file/value_io.h"

namespace chaski {

namespace {

template <class T>
Held<T> take_one(Cursor& in, const std::string& field) {
  if constexpr (std::is_same_v<T, std::string>) {
    return in.text(field);
  } else if constexpr (std::is_same_v<T, bool>) {
    const auto byte = in.take<uint8_t>(field);
    if (byte > 1) fail(Exit::bad_file, "{}: {} is {}, expected 0 or 1", in.file(), field, byte);
    return byte;
  } else {
    return static_cast<Held<T>>(in.take<T>(field));
  }
}

// Reads the preamble and checks the header's checksum. Returns where the header ends.
uint64_t take_preamble(Cursor& in) {
  const auto magic = in.raw(8, "magic");
  const std::string_view found(reinterpret_cast<const char*>(magic.data()), 8);
  if (!found.starts_with(kQuipuMagic))
    fail(Exit::bad_file, "{}: magic is \"{}\", expected \"{}\"", in.file(), escaped(found),
         escaped(kQuipuMagic));
  if (const auto version = static_cast<uint8_t>(found.back()); version != kQuipuVersion)
    fail(Exit::bad_file, "{}: is .quipu version {}, this chaski reads {}", in.file(), version,
         kQuipuVersion);
  const auto size = in.take<uint64_t>("header bytes");
  const auto wanted = in.take<uint64_t>("header sum");
  const auto header = in.raw(size, "header");
  if (const uint64_t sum = checksum(header.data(), header.size()); sum != wanted)
    fail(Exit::bad_file, "{}: the file is damaged: header sum is {:016x}, expected {:016x}",
         in.file(), sum, wanted);
  return in.at();
}

template <class T>
HeldList<T> take_list(Cursor& in, uint64_t n, const std::string& field) {
  if constexpr (std::is_same_v<T, std::string>) {
    Texts all;
    Cursor ahead = in;
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < n; ++i) bytes += ahead.view(field).size();
    all.reserve(n, bytes);
    for (uint64_t i = 0; i < n; ++i) all.push_back(in.view(field));
    return all;
  } else if constexpr (std::is_same_v<T, bool>) {
    const auto all = take_list<uint8_t>(in, n, field);
    for (const int64_t byte : all)
      if (byte > 1) fail(Exit::bad_file, "{}: {} is {}, expected 0 or 1", in.file(), field, byte);
    return all;
  } else {
    return HeldList<T>::template of<T>(in.raw(n * sizeof(T), field));
  }
}

void take_metadata(Cursor& in, Metadata& meta) {
  constexpr uint64_t kMinValue = 8 + 4 + 1;  // an empty key, a type, a byte
  const uint64_t n = in.count(in.take<uint64_t>("number of values"), kMinValue, "number of values");
  for (uint64_t i = 0; i < n; i++) {
    const std::string key = in.text(fmt::format("key {}", i));
    if (meta.has(key))
      fail(Exit::bad_file, "{}: key {} occurs twice, expected once", in.file(), escaped(key));
    meta.set(key, take_value(in, escaped(key)));
  }
}

// Reads and checks one line of the tensor table, except the tensor's place in the file.
TableRow take_row(Cursor& in, uint64_t index) {
  constexpr uint64_t kMaxSide = uint64_t{1} << 40;
  TableRow row;
  row.info.name = in.text(fmt::format("name of tensor {}", index));
  const std::string tensor = fmt::format("{}: tensor {}", in.file(), escaped(row.info.name));
  if (row.info.name.empty())
    fail(Exit::bad_file, "{}: name of tensor {} is empty", in.file(), index);

  const auto format = in.take<uint32_t>("format"), layout = in.take<uint32_t>("layout");
  if (format >= kFormatCount)
    fail(Exit::bad_file, "{}: format is {}, expected 0 to {}", tensor, format, kFormatCount - 1);
  row.info.format = static_cast<Format>(format);

  const auto rows = in.take<uint64_t>("rows"), cols = in.take<uint64_t>("cols");
  if (rows < 1 || rows >= kMaxSide)
    fail(Exit::bad_file, "{}: rows is {}, expected 1 to 2^40 - 1", tensor, rows);
  if (cols < 1 || cols >= kMaxSide)
    fail(Exit::bad_file, "{}: cols is {}, expected 1 to 2^40 - 1", tensor, cols);
  const auto block = static_cast<uint64_t>(info(row.info.format).block);
  if (cols % block != 0)
    fail(Exit::bad_file, "{}: cols is {}, expected a multiple of {} ({})", tensor, cols, block,
         info(row.info.format).name);
  row.info.rows = static_cast<int64_t>(rows), row.info.cols = static_cast<int64_t>(cols);
  // A padded strip of the widest format is far below 2^60 bytes with this limit.
  if (!(Checked(rows) * cols).at_most(uint64_t{1} << 50))
    fail(Exit::bad_file, "{}: shape is ({}, {}), expected at most 2^50 weights", tensor, rows,
         cols);

  const uint32_t wanted = layout_of(row.info);
  if (layout == 1 && wanted > 1)
    fail(Exit::bad_file,
         "{}: layout is 1, expected {}: an older chaski wrote this {}, convert the model again",
         tensor, wanted, info(row.info.format).name);
  if (layout != wanted)
    fail(Exit::bad_file, "{}: layout is {}, expected {} for {} rows", tensor, layout, wanted, rows);
  row.offset = in.take<uint64_t>("offset");
  const auto bytes = in.take<uint64_t>("bytes");
  if (bytes != row.info.bytes())
    fail(Exit::bad_file, "{}: bytes is {}, expected {} for ({}, {})", tensor, bytes,
         row.info.bytes(), rows, cols);
  row.sum = in.take<uint64_t>("sum");
  return row;
}

void check_names(const std::string& file, const std::vector<TableRow>& table) {
  std::unordered_set<std::string_view> names;
  for (const TableRow& row : table)
    if (!names.insert(row.info.name).second)
      fail(Exit::bad_file, "{}: tensor {} occurs twice, expected once", file,
           escaped(row.info.name));
}

// The size that the file should have, if its tensors are stored without gaps.
std::optional<uint64_t> whole_size(const std::vector<const TableRow*>& by_offset, uint64_t end) {
  for (const TableRow* row : by_offset) {
    if (row->offset < end || row->offset - end >= kTensorAlign) return std::nullopt;
    const auto next = (Checked(row->offset) + row->info.bytes()).get();
    if (!next) return std::nullopt;
    end = *next;
  }
  return end;
}

// Checks that every tensor has its own aligned bytes between the header and the end of the file.
void check_places(const std::string& file, const std::vector<TableRow>& table, uint64_t header_end,
                  uint64_t file_bytes) {
  std::vector<const TableRow*> by_offset;
  for (const TableRow& row : table) by_offset.push_back(&row);
  std::stable_sort(by_offset.begin(), by_offset.end(),
                   [](auto* a, auto* b) { return a->offset < b->offset; });
  uint64_t free_from = header_end;
  const auto whole = whole_size(by_offset, header_end);
  if (whole && *whole > file_bytes) throw CutShort(file, file_bytes, *whole);
  std::string before = "the header";
  for (const TableRow* row : by_offset) {
    const std::string tensor = fmt::format("{}: tensor {}", file, escaped(row->info.name));
    if (row->offset % kTensorAlign != 0)
      fail(Exit::bad_file, "{}: offset is {}, expected a multiple of {}", tensor, row->offset,
           kTensorAlign);
    if (!(Checked(row->offset) + row->info.bytes()).at_most(file_bytes))
      fail(Exit::bad_file, "{}: offset is {} and bytes {}, but the file has {}", tensor,
           row->offset, row->info.bytes(), file_bytes);
    if (row->offset < free_from)
      fail(Exit::bad_file, "{}: offset is {}, expected at least {}, where {} ends", tensor,
           row->offset, free_from, before);
    free_from = row->offset + row->info.bytes();
    before = escaped(row->info.name);
  }
}

std::shared_ptr<Weights> weights_over(const std::string& name, std::span<const std::byte> bytes) {
  QuipuHeader header = decode_header(name, bytes, bytes.size());
  auto weights = std::make_shared<Weights>();
  weights->path = name;
  weights->kind = fmt::format("quipu v{}", kQuipuVersion);
  weights->meta = std::move(header.meta);
  for (TableRow& row : header.table) {
    weights->tensors.push_back({std::move(row.info), bytes.data() + row.offset});
    weights->sums.push_back(row.sum);
  }
  return weights;
}

}  // namespace

void expect_list_size(uint64_t items, const std::string& where) {
  // The longest list of a known model has a tenth of this.
  constexpr uint64_t kMaxItems = 1 << 22;
  if (items > kMaxItems)
    fail(Exit::bad_file, "{} has {} items, expected at most {}", where, items, kMaxItems);
}

Value take_value(Cursor& in, const std::string& field) {
  const std::string where = fmt::format("{}: {}", in.file(), field);
  Value value;
  value.type = static_cast<ValueType>(in.take<uint32_t>(field));
  if (value.type != ValueType::array) {
    as_stored(value.type, where, [&]<class T>(T) { value.data = take_one<T>(in, field); });
    return value;
  }
  value.element = static_cast<ValueType>(in.take<uint32_t>(field));
  as_stored(value.element, where, [&]<class T>(T) {
    constexpr uint64_t kMinBytes = std::is_same_v<T, std::string> ? sizeof(uint64_t) : sizeof(T);
    const uint64_t n = in.take<uint64_t>(field);
    if (n > in.remaining() / kMinBytes)
      fail(Exit::bad_file,
           "{} has {} entries, but only {} bytes are left in the file: it is cut short or damaged",
           where, n, in.remaining());
    expect_list_size(n, where);
    value.data = take_list<T>(in, n, field);
  });
  return value;
}

QuipuHeader decode_header(const std::string& file, std::span<const std::byte> bytes,
                          uint64_t file_bytes) {
  Cursor preamble(file, bytes);
  const uint64_t end = take_preamble(preamble);
  Cursor in(file, bytes.first(end));
  in.seek(kQuipuPreamble, "header");
  QuipuHeader header;
  header.meta.origin = file;
  take_metadata(in, header.meta);
  constexpr uint64_t kMinRow = 8 + 2 * 4 + 5 * 8;  // an empty name and the numbers
  const uint64_t n = in.count(in.take<uint64_t>("number of tensors"), kMinRow, "number of tensors");
  for (uint64_t i = 0; i < n; i++) header.table.push_back(take_row(in, i));
  if (in.remaining() != 0)
    fail(Exit::bad_file, "{}: header bytes is {}, expected {}", file, end - kQuipuPreamble,
         in.at() - kQuipuPreamble);
  check_names(file, header.table);
  check_places(file, header.table, end, file_bytes);
  return header;
}

const Weight* Weights::find(const std::string& name) const {
  const auto at = std::find_if(tensors.begin(), tensors.end(),
                               [&](const Weight& weight) { return weight.info.name == name; });
  return at == tensors.end() ? nullptr : &*at;
}

uint64_t Weights::bytes() const {
  uint64_t sum = 0;
  for (const Weight& weight : tensors) sum += weight.info.bytes();
  return sum;
}

// Returns false for a path that is not a regular file. Other readers report that.
bool is_quipu(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) &&
         beginning_of(path, kQuipuMagic.size()) == kQuipuMagic;
}

std::shared_ptr<const Weights> open_quipu(const std::string& path) {
  const auto mapping = Mapping::open(path);
  auto weights = weights_over(path, mapping->bytes());
  weights->storage = mapping, weights->state = mapping->state(), weights->mapping = mapping;
  return weights;
}

std::shared_ptr<const Weights> open_quipu(const std::string& name,
                                          std::span<const std::byte> bytes) {
  ENSURE(reinterpret_cast<uintptr_t>(bytes.data()) % kTensorAlign == 0,
         "kernels load whole cache lines of weights");
  return weights_over(name, bytes);
}

void verify(const Weights& weights, int threads) {
  for_each_job(weights.sums.size(), threads, [&](size_t t) {
    const Weight& weight = weights.tensors[t];
    if (const uint64_t sum = checksum(weight.data, weight.info.bytes()); sum != weights.sums[t])
      fail(Exit::bad_file, "{}: the file is damaged: tensor {} has sum {:016x}, expected {:016x}",
           weights.path, escaped(weight.info.name), sum, weights.sums[t]);
  });
}

ModelSource source_of(std::shared_ptr<const Weights> weights) {
  ModelSource source = tensors_of(weights);
  source.meta = weights->meta;
  return source;
}

ModelSource tensors_of(std::shared_ptr<const Weights> weights) {
  ModelSource source{weights->path, weights->kind, {}, {}, weights};
  for (const Weight& weight : weights->tensors) {
    const uint64_t strip = weight.info.tiled() ? strip_bytes(weight.info.format, weight.info.cols)
                                               : weight.info.bytes();
    source.tensors.push_back(
        {weight.info, [data = weight.data, strip](int64_t first, int64_t last, std::byte* dst) {
           std::memcpy(dst, data + first * strip, (last - first) * strip);
         }});
  }
  if (!weights->sums.empty()) source.verify = [weights](int threads) { verify(*weights, threads); };
  return source;
}

}  // namespace chaski
