// Operations on model files that do not run the model: open any kind, convert, verify, count.
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
  // The same tensors, mapped and ready to run: for .quipu files and the bundled model. Null for all
  // other files, which have to be converted first.
  std::shared_ptr<const Weights> mapped;
  bool verified = false;  // the checksums of `mapped` are checked, as --verify asked
};

// Every command opens its models with this function. An empty path is the bundled model.
// `tokenizer` is the tokenizer file of a llama2.c model, or empty. Throws Error(io | bad_file), and
// Error(usage) if a tokenizer file is given for another kind of model.
OpenModel open_model(const std::string& path, const std::string& tokenizer = "");
// The metadata of a model's tokenizer. Ignores tensors, so it accepts more files than open_model()
// (import_tokenizer() in import.h).
Metadata open_tokenizer(const std::string& path, const std::string& tokenizer = "");
// Whether a tokenizer file may be given for the model at `path`. Throws Error(io).
bool takes_tokenizer(const std::string& path);

// The tokenizer in the metadata of a model, or null if there is none. Throws Error(bad_file).
std::unique_ptr<Tokenizer> tokenizer_of(const Metadata& meta);
// Checks a model as opening an engine would, before any weight is read. Throws Error(bad_file) for
// an unknown architecture or tokenizer, a file with only a vocabulary, and a missing or wrong key
// or tensor. Returns the model's tokenizer.
std::unique_ptr<Tokenizer> expect_runnable(const ModelSource& source);

// Sums over the tensors of a model.
struct ModelTotals {
  size_t tensors = 0;
  int64_t weights = 0;
  uint64_t bytes = 0;           // in a .quipu file
  std::vector<Format> formats;  // of the tensors, each once
  double bits_per_weight() const { return weights > 0 ? 8.0 * double(bytes) / double(weights) : 0; }
};
ModelTotals totals_of(const ModelSource& source);

struct FileProgress {
  std::string tensor;
  uint64_t done = 0, total = 0;  // bytes of output
  // Weights that get another format; only quantize sets them.
  uint64_t encoded = 0, to_encode = 0;
};
using OnProgress = std::function<void(const FileProgress&)>;

// Reads all tensors and compares their checksums, on all cores. Needs source.verify.
void verify_source(const ModelSource& source);

// Whether the file `out` exists and is not empty, so that a command that writes a model there
// replaces it.
bool replaces_file(const std::string& out);
// Throws Error(usage) if that file is not a model: a mistyped name must not overwrite it.
void expect_replaceable(const std::string& out);

// Writes GGUF if `out` ends in .gguf, else .quipu. Refuses an `out` that is the model itself, also
// by a link, before it writes anything.
void convert_model(const ModelSource& source, const std::string& out, int threads,
                   const OnProgress& progress);

}  // namespace chaski
