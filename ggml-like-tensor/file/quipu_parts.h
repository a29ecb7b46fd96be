// Writes a .quipu file in several runs. The tensors that a killed writer had finished are kept by
// the next one, if it makes the same file.
#pragma once
#include <array>

#include "ggml-like-tensor/file/quipu.h"

namespace chaski {

// What the maker of a tensor needs to know when an earlier run finished the tensor.
using TensorNotes = std::array<uint64_t, 6>;

struct Parts {
  // The things besides the source's metadata and tensors that determine the file: for each a hash,
  // and how to name a different one ("other settings"). A file that was begun with different ones
  // is not continued.
  std::vector<std::pair<std::string, uint64_t>> made_with;
  // If set, continues the file of a killed writer, and keeps the finished part if this run ends
  // early by an error or a signal. If not set, such an end removes everything, as in write_quipu().
  // The file of a run that ended by kill -9 or a power cut can be continued in both cases.
  bool resume = false;
  // Called when all strips of a tensor were made; from any thread.
  std::function<TensorNotes(size_t tensor)> notes;
  // Called for each tensor that an earlier run finished, before anything is made; from any thread.
  // May throw to refuse the tensor.
  std::function<void(size_t tensor, const TensorNotes&)> kept;
  // If set, called with a message when an earlier run left something that is not continued.
  std::function<void(const std::string& line)> note;
};

// Like write_quipu(), with the same bytes at the end. Throws Error(usage) for a file that was begun
// with other inputs or settings.
void write_quipu_in_parts(const std::string& path, const ModelSource& source, int threads,
                          const Parts& parts, const Progress& progress,
                          const std::function<void(Metadata&)>& finish);

}  // namespace chaski
