#include "ggml-like-tensor/file/part_table.h"

#include <algorithm>
#include <cstring>

#include "ggml-like-tensor/base/checksum.h"
#include "ggml-like-tensor/base/mapping.h"

namespace chaski {

namespace {

constexpr std::string_view kPartsMagic("QPARTS\0\1", 8);

void append_number(std::string& out, uint64_t number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

uint64_t number_at(std::span<const std::byte> bytes, uint64_t at) {
  uint64_t number;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

}  // namespace

PartTable::PartTable(std::string path, AtomicFile& file, const Parts& parts, uint64_t header_sum,
                     const std::vector<TableRow>& table, const std::vector<Chunk>& chunks,
                     uint64_t data_end)
    : path_(std::move(path)),
      file_(file),
      parts_(parts),
      table_(table),
      chunks_(chunks),
      data_end_(data_end),
      lines_at_(aligned(data_end)),
      header_sum_(header_sum),
      left_(new std::atomic<size_t>[table.size()]),
      finished_(table.size()) {
  for (size_t t = 0, c = 0; t < table.size(); ++t) {
    first_.push_back(c);
    while (c < chunks.size() && chunks[c].tensor == t) ++c;
    left_[t] = c - first_.back();
  }
  first_.push_back(chunks.size());
}

std::string PartTable::foot() const {
  std::string foot;
  append_number(foot, lines_at_);
  append_number(foot, table_.size());
  for (const auto& [what, hash] : parts_.made_with) append_number(foot, hash);
  append_number(foot, header_sum_);
  append_number(foot, checksum(foot.data(), foot.size()));
  return foot.append(kPartsMagic);
}

PartTable::Line PartTable::line(size_t tensor, uint64_t data, const TensorNotes& notes) const {
  Line line{data, notes, 0};
  const uint64_t all[] = {header_sum_, tensor,   data,     notes[0], notes[1],
                          notes[2],    notes[3], notes[4], notes[5]};
  line.own = checksum(all, sizeof(all));
  return line;
}

uint64_t PartTable::sum_of(size_t tensor, const std::vector<uint64_t>& sums) const {
  return checksum(&sums[first_[tensor]], (first_[tensor + 1] - first_[tensor]) * sizeof(uint64_t));
}

void PartTable::begin(std::vector<uint64_t>& sums, int threads) {
  if (file_.size() > 0 && take_over(sums, threads)) return;
  std::fill(finished_.begin(), finished_.end(), 0);
  const std::string foot = this->foot();
  const uint64_t foot_at = lines_at_ + table_.size() * sizeof(Line);
  file_.cut(0);
  file_.pad_to(foot_at + foot.size());
  file_.write_at(foot_at, std::as_bytes(std::span(foot)));
}

void PartTable::expect_same(std::span<const std::byte> foot) const {
  const auto refuse = [&](const std::string& what) {
    fail(Exit::usage,
         "{}: the finished part of it was made with {}, expected the same as before (without "
         "--resume the file starts again)",
         path_, what);
  };
  for (size_t i = 0; i < parts_.made_with.size(); ++i)
    if (number_at(foot, 8 * (2 + i)) != parts_.made_with[i].second)
      refuse(parts_.made_with[i].first);
  if (number_at(foot, 8 * (2 + parts_.made_with.size())) != header_sum_) refuse("another input");
}

void PartTable::note(const std::string& line) const {
  if (parts_.note) parts_.note(path_ + ": " + line);
}

// Returns false if the earlier run left nothing that can be continued.
bool PartTable::take_over(std::vector<uint64_t>& sums, int threads) {
  const auto mapping = Mapping::open(file_.temporary());
  const std::span<const std::byte> bytes = mapping->bytes();
  const std::string wanted = foot();
  const auto refuse = [&] {
    note("the temporary file of an earlier run is damaged: everything starts again");
    return false;
  };
  if (bytes.size() < wanted.size()) {  // the run was killed while it began
    const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
    if (!std::ranges::all_of(bytes, is_zero))
      note("the temporary file of an earlier run is too short: everything starts again");
    return false;
  }
  const auto found = bytes.last(wanted.size());
  const std::string_view text(reinterpret_cast<const char*>(found.data()), found.size());
  if (text.find_first_not_of('\0') == text.npos)
    return false;  // the run was killed before it began
  const uint64_t summed = wanted.size() - 8 - kPartsMagic.size();
  if (!text.ends_with(kPartsMagic) || number_at(found, summed) != checksum(found.data(), summed))
    return refuse();
  expect_same(found);
  const uint64_t n = table_.size();
  if (text != wanted || bytes.size() != lines_at_ + n * sizeof(Line) + wanted.size())
    return refuse();
  std::atomic<int> damaged = 0;
  for_each_job(n, threads, [&](size_t t) {
    Line known;
    std::memcpy(&known, bytes.data() + lines_at_ + t * sizeof(Line), sizeof(Line));
    if (known.own == 0 && known.data == 0) return;  // the tensor was not finished
    if (line(t, known.data, known.notes).own != known.own) return void(++damaged);
    for (size_t c = first_[t]; c < first_[t + 1]; ++c)
      sums[c] = checksum(bytes.data() + table_[t].offset + chunks_[c].offset, chunks_[c].bytes);
    if (sum_of(t, sums) != known.data) return void(++damaged);
    parts_.kept(t, known.notes);
    finished_[t] = 1;
  });
  if (damaged > 0)
    note(fmt::format("{} of {} tensors of an earlier run are damaged and made again",
                     damaged.load(), n));
  return true;
}

void PartTable::written(size_t chunk, const std::vector<uint64_t>& sums) {
  const size_t t = chunks_[chunk].tensor;
  if (--left_[t] > 0) return;
  const Line line = this->line(t, sum_of(t, sums), parts_.notes(t));
  file_.write_at(lines_at_ + t * sizeof(Line), std::as_bytes(std::span(&line, 1)));
}

}  // namespace chaski
