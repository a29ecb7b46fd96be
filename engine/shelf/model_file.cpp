// See model_file.h. The kind of an input file is determined by its content, never by its name. Only
// the kind of an output file depends on its name.
#include "engine/shelf/model_file.h"

#include <algorithm>
#include <filesystem>

#include "engine/shelf/bundled.h"
#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/cores.h"
#include "models/architecture.h"
#include "models/import/gguf/gguf.h"
#include "models/import/import.h"

namespace chaski {

namespace {

OpenModel as_mapped(std::shared_ptr<const Weights> mapped) { return {source_of(mapped), mapped}; }

void write_gguf(const ModelSource& source, const std::string& out, const OnProgress& progress) {
  export_gguf(out, source);
  const uint64_t bytes = totals_of(source).bytes;
  if (progress) progress({"", bytes, bytes});
}

}  // namespace

bool takes_tokenizer(const std::string& path) { return !path.empty() && is_llama2c(path); }

OpenModel open_model(const std::string& path, const std::string& tokenizer) {
  if (!tokenizer.empty() && !takes_tokenizer(path))
    fail(Exit::usage, "{} has its own tokenizer, expected no --tokenizer, found --tokenizer {}",
         path.empty() ? "the bundled model" : path, tokenizer);
  if (path.empty()) return as_mapped(open_quipu("(bundled)", bundled_model()));
  if (is_quipu(path)) return as_mapped(open_quipu(path));
  return {import_model(path, {tokenizer}), nullptr};
}

Metadata open_tokenizer(const std::string& path, const std::string& tokenizer) {
  if (path.empty() || !tokenizer.empty() || is_quipu(path))
    return open_model(path, tokenizer).source.meta;
  Metadata meta = import_tokenizer(path);
  if (!Tokenizer::described(meta))
    fail(
        Exit::bad_file,
        "{}: has no tokenizer, expected a model file, a folder with tokenizer.json, or a file of a "
        "tokenizer",
        path);
  return meta;
}

ModelTotals totals_of(const ModelSource& source) {
  ModelTotals totals;
  totals.tensors = source.tensors.size();
  for (const TensorSource& tensor : source.tensors) {
    const TensorInfo& t = tensor.info;
    totals.weights += t.rows * t.cols, totals.bytes += t.bytes();
    if (std::find(totals.formats.begin(), totals.formats.end(), t.format) == totals.formats.end())
      totals.formats.push_back(t.format);
  }
  return totals;
}

void verify_source(const ModelSource& source) { source.verify(usable_cores()); }

std::unique_ptr<Tokenizer> tokenizer_of(const Metadata& meta) {
  if (!Tokenizer::described(meta)) return nullptr;
  std::unique_ptr<Tokenizer> tokenizer = Tokenizer::make(meta);
  const int64_t vocab = meta.integer("model.vocab_size", tokenizer->size());
  if (tokenizer->size() > vocab)
    fail(Exit::bad_file, "{}: tokenizer.tokens has {} pieces, expected at most model.vocab_size {}",
         meta.origin, tokenizer->size(), vocab);
  return tokenizer;
}

std::unique_ptr<Tokenizer> expect_runnable(const ModelSource& source) {
  if (source.tensors.empty()) {
    model_of(source.meta);  // first, because an error about the architecture is the most useful
    fail(Exit::bad_file, "{}: {} has no tensors, only a vocabulary", source.path, source.kind);
  }
  expect_model(source);
  return tokenizer_of(source.meta);
}

bool replaces_file(const std::string& out) {
  std::error_code none;
  return std::filesystem::is_regular_file(out, none) && std::filesystem::file_size(out, none) > 0;
}

void expect_replaceable(const std::string& out) {
  if (replaces_file(out) && !is_quipu(out) && beginning_of(out, 4) != kGgufMagic)
    fail(Exit::usage, "{}: the file exists and is not a model, expected another name", out);
}

void convert_model(const ModelSource& source, const std::string& out, int threads,
                   const OnProgress& progress) {
  refuse_same_file(source.path, out);
  const int crew = threads > 0 ? threads : usable_cores();
  if (source.verify) source.verify(crew);
  if (out.ends_with(".gguf")) return write_gguf(source, out, progress);
  write_quipu(out, source, crew, [&](size_t tensor, uint64_t done, uint64_t total) {
    if (progress) progress({source.tensors[tensor].info.name, done, total});
  });
}

}  // namespace chaski
