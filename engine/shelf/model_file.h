// Model files as a user handles them: open anything, convert, verify, inspect. No running of models
// here.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/text/tokenizer/tokenizer.h"
#include "ggml-like-tensor/file/quipu.h"

namespace chaski {

// A model file of any kind, opened.
struct OpenModel {
  ModelSource source;
  // The same tensors, ready to be run where they lie: of a .quipu file and the bundled model. Null
  // for all others, which have to be converted first.
  std::shared_ptr<const Weights> mapped;
};

// Every command opens its models here. An empty path is the bundled model. `tokenizer` is the
// tokenizer file of a llama2.c model, empty if there is none to name. Throws Error(io | bad_file),
// and Error(usage) for a tokenizer file beside a model that would not read it.
OpenModel open_model(const std::string& path, const std::string& tokenizer = "");
// The metadata of a model's tokenizer, where its tensors do not matter: takes more than
// open_model() does (import_tokenizer() in import.h).
Metadata open_tokenizer(const std::string& path, const std::string& tokenizer = "");
// Whether a tokenizer file may be given for the model at `path`. Throws Error(io).
bool takes_tokenizer(const std::string& path);

// The tokenizer that the metadata of a model describe; null if it has none. Throws Error(bad_file).
std::unique_ptr<Tokenizer> tokenizer_of(const Metadata& meta);
// Throws what opening an engine would throw about the model itself, before any weight is read:
// Error(bad_file) for an unknown architecture or tokenizer, a file that is a vocabulary only, a key
// or tensor that is missing or wrong. Returns the model's tokenizer.
std::unique_ptr<Tokenizer> expect_runnable(const ModelSource& source);

// What the tensors of a model come to.
struct ModelTotals {
  size_t tensors = 0;
  int64_t weights = 0;          // numbers
  uint64_t bytes = 0;           // as .quipu stores them
  std::vector<Format> formats;  // each that a tensor has, once
  double bits_per_weight() const { return weights > 0 ? 8.0 * double(bytes) / double(weights) : 0; }
};
ModelTotals totals_of(const ModelSource& source);

struct FileProgress {
  std::string tensor;
  uint64_t done = 0, total = 0;  // bytes of output
  // numbers that get another format, of quantize alone
  uint64_t encoded = 0, to_encode = 0;
};
using OnProgress = std::function<void(const FileProgress&)>;

// Reads all of a source that has sums (ModelSource::verify), on all cores.
void verify_source(const ModelSource& source);

// To .quipu, or to GGUF when `out` ends in .gguf. Refuses an `out` that is the model itself (name,
// link) before a byte is written.
void convert_model(const ModelSource& source, const std::string& out, int threads,
                   const OnProgress& progress);

}  // namespace chaski
