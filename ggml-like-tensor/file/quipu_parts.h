// Writing a .quipu file in several runs: what a writer that was killed had finished is kept by the
// next one, tensor by tensor, if it makes the same file.
#pragma once
#include <array>

#include "ggml-like-tensor/file/quipu.h"

namespace chaski {

// What the maker of a tensor has to know of it again when an earlier run finished it.
using TensorNotes = std::array<uint64_t, 6>;

struct Parts {
  // What the file is made with besides the metadata and tensors of its source: a hash of each, and
  // what to call another ("other settings"). A file that was begun with others is not gone on with.
  std::vector<std::pair<std::string, uint64_t>> made_with;
  // Whether to go on with what a killed writer left, and to leave to the next what this one has
  // finished when it ends early, by an error or a signal. Without it such an end removes all, as
  // write_quipu() does; what kill -9 or a power cut left can be gone on with either way.
  bool resume = false;
  // Asked when all strips of a tensor were made; from any thread.
  std::function<TensorNotes(size_t tensor)> notes;
  // Told of each tensor that an earlier run finished, before anything is made; from any thread. May
  // throw to refuse.
  std::function<void(size_t tensor, const TensorNotes&)> kept;
  // Told, if it is set, of what an earlier run left and this one does not go on with.
  std::function<void(const std::string& line)> note;
};

// As write_quipu(), with the same bytes in the end. Throws Error(usage) for a file that was begun
// with something else.
void write_quipu_in_parts(const std::string& path, const ModelSource& source, int threads,
                          const Parts& parts, const Progress& progress,
                          const std::function<void(Metadata&)>& finish);

}  // namespace chaski
