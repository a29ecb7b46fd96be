// Records which tensors of an unfinished .quipu file are finished. The table is stored after the
// data until the file is complete:
//
//   a line of 64 bytes for each tensor: u64 XXH3-64 of the checksums of its chunks, 6 x u64 notes,
//              u64 checksum of the line; with any other content the tensor is not finished
//   foot       u64 offset of the lines, u64 number of tensors, a u64 hash of each thing the file
//              is made from and of its header, u64 XXH3-64 of these, magic "QPARTS\0\1"
//
// A line is written when its whole tensor is written. It counts only if both its checksums are
// right. So the order in which the bytes reach the disk does not matter.
#pragma once
#include <atomic>
#include <memory>

#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/file/chunks.h"
#include "ggml-like-tensor/file/quipu_parts.h"
#include "ggml-like-tensor/file/value_io.h"

namespace chaski {

class PartTable {
 public:
  // For a file whose data end at `data_end`. `path` is for error messages; `header_sum` tells files
  // of another header apart.
  PartTable(std::string path, AtomicFile& file, const Parts& parts, uint64_t header_sum,
            const std::vector<TableRow>& table, const std::vector<Chunk>& chunks,
            uint64_t data_end);

  // Makes room for data and table, or continues an earlier run. In that case the checksums of the
  // chunks that it finished are put into `sums`.
  void begin(std::vector<uint64_t>& sums, int threads);
  bool finished(size_t tensor) const { return finished_[tensor]; }
  // Called when a chunk was written, with the checksums of all chunks so far; from any thread.
  void written(size_t chunk, const std::vector<uint64_t>& sums);
  void remove() { file_.cut(data_end_); }

 private:
  struct Line {
    uint64_t data = 0;
    TensorNotes notes = {};
    uint64_t own = 0;
  };
  static_assert(sizeof(Line) == 64);

  std::string foot() const;
  Line line(size_t tensor, uint64_t data, const TensorNotes& notes) const;
  uint64_t sum_of(size_t tensor, const std::vector<uint64_t>& sums) const;
  bool take_over(std::vector<uint64_t>& sums, int threads);
  void note(const std::string& line) const;
  void expect_same(std::span<const std::byte> foot) const;

  const std::string path_;
  AtomicFile& file_;
  const Parts& parts_;
  const std::vector<TableRow>& table_;
  const std::vector<Chunk>& chunks_;
  const uint64_t data_end_, lines_at_, header_sum_;
  std::vector<size_t> first_;  // first chunk of each tensor, and the number of chunks
  std::unique_ptr<std::atomic<size_t>[]> left_;  // chunks of each tensor still to write
  std::vector<char> finished_;
};

}  // namespace chaski
