// See model_file.h. What a file is, is told by its content, never by its name; only for an output
// is a name all there is.
#include "engine/model_file.h"

#include "engine/bundled.h"
#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/cores.h"
#include "models/import/import.h"

namespace chaski {

namespace {

// A .quipu file brings its tokenizer along: a flag that would be ignored is an error.
ModelSource open_own(const std::string& path, const std::string& tokenizer) {
  if (!tokenizer.empty())
    fail(Exit::usage, "{}: has its tokenizer inside, expected no tokenizer file ({})", path,
         tokenizer);
  return source_of(open_quipu(path));
}

void write_gguf(const ModelSource& source, const std::string& out, const OnProgress& progress) {
  export_gguf(out, source);
  uint64_t bytes = 0;
  for (const TensorSource& tensor : source.tensors) bytes += tensor.info.bytes();
  if (progress) progress({"", bytes, bytes});
}

}  // namespace

ModelSource open_source(const std::string& path, const std::string& tokenizer) {
  if (path.empty()) return source_of(open_quipu("(bundled)", bundled_model()));
  if (is_quipu(path)) return open_own(path, tokenizer);
  return import_model(path, {tokenizer});
}

void verify_source(const ModelSource& source) { source.verify(usable_cores()); }

void convert_model(const std::string& in, const std::string& out, const std::string& tokenizer,
                   int threads, const OnProgress& progress) {
  refuse_same_file(in, out);
  const ModelSource source = open_source(in, tokenizer);
  const int crew = threads > 0 ? threads : usable_cores();
  if (source.verify) source.verify(crew);
  if (out.ends_with(".gguf")) return write_gguf(source, out, progress);
  write_quipu(out, source, crew, [&](size_t tensor, uint64_t done, uint64_t total) {
    if (progress) progress({source.tensors[tensor].info.name, done, total});
  });
}

}  // namespace chaski
