// Sizes of tensors, and loading a whole model from its source into memory. (quipu_write.cpp writes
// it into a file.)
#include "ggml-like-tensor/file/model_source.h"

#include <sys/mman.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "ggml-like-tensor/base/checked.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/memory.h"
#include "ggml-like-tensor/file/chunks.h"
#include "ggml-like-tensor/file/quipu.h"

namespace chaski {

uint64_t TensorInfo::bytes() const {
  const FormatInfo& f = info(format);
  const uint64_t blocks = static_cast<uint64_t>(cols) / f.block;
  const uint64_t strips = static_cast<uint64_t>(rows) / kStrip + (rows % kStrip != 0);
  const Checked size =
      tiled() ? Checked(strips) * (Checked(blocks) * f.tile_bytes + kStrip * f.row_header_bytes)
              : Checked(blocks) * f.row_block_bytes + f.row_header_bytes;
  // The limit is well below 2^64, so that rounding an offset up cannot wrap.
  if (!size.at_most(uint64_t{1} << 60))
    fail(Exit::bad_file, "tensor {} has shape ({}, {}), expected at most 2^60 bytes", escaped(name),
         rows, cols);
  return *size.get();
}

const TensorSource* ModelSource::find(const std::string& name) const {
  const auto at = std::find_if(tensors.begin(), tensors.end(),
                               [&](const auto& tensor) { return tensor.info.name == name; });
  return at == tensors.end() ? nullptr : &*at;
}

namespace {

[[noreturn]] void too_large(const std::string& path, uint64_t need, std::optional<uint64_t> have) {
  const auto gb = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  const std::string found = have ? fmt::format("{:.3g} GB are available", gb(*have))
                                 : "but the system refuses this amount";
  fail(Exit::memory, "{}: the weights need {:.3g} GB of memory, {}", path, gb(need), found);
}

// Zeroed memory for all tensors, in huge pages if the system grants them, because decoding reads
// all of it for every token.
std::shared_ptr<std::byte> allocate(const std::string& path, uint64_t size) {
  const auto have = available_memory();
  if (have && size > *have) too_large(path, size, have);
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) too_large(path, size, have);
  ::madvise(data, size, MADV_HUGEPAGE);
  return {static_cast<std::byte*>(data), [size](std::byte* p) { ::munmap(p, size); }};
}

}  // namespace

std::shared_ptr<const Weights> load(const ModelSource& source, int threads) {
  std::vector<uint64_t> offsets;
  Checked end = 0;
  for (const TensorSource& tensor : source.tensors) {
    offsets.push_back(end.get().value_or(0));
    end = end + aligned(tensor.info.bytes());
  }
  const uint64_t size = end.get().value_or(std::numeric_limits<uint64_t>::max());
  const auto memory = allocate(source.path, std::max<uint64_t>(size, 1));

  const auto chunks = chunks_of(source);
  for_each_job(chunks.size(), threads, [&](size_t job) {
    const Chunk& chunk = chunks[job];
    source.tensors[chunk.tensor].read(chunk.first, chunk.last,
                                      memory.get() + offsets[chunk.tensor] + chunk.offset);
    if (source.drop_pages) source.drop_pages();
  });

  auto weights = std::make_shared<Weights>();
  weights->path = source.path, weights->kind = source.kind, weights->meta = source.meta,
  weights->storage = memory;
  for (size_t t = 0; t < offsets.size(); t++)
    weights->tensors.push_back({source.tensors[t].info, memory.get() + offsets[t]});
  return weights;
}

}  // namespace chaski
