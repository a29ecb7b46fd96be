// The importers of foreign model files, one source file each.
#pragma once
#include <string>

#include "ggml-like-tensor/file/model_source.h"

namespace chaski {

struct ImportOptions {
  // For llama2.c: the path of its tokenizer.bin. If empty: tokenizer.bin or tok<vocabulary
  // size>.bin in the model's folder.
  std::string tokenizer;
};

// True if import_model() reads the file as llama2.c, the only format with a separate tokenizer
// file. Throws Error(io).
bool is_llama2c(const std::string& path);

// Recognises by content, not by name: GGUF v2/v3 file, folder with config.json, llama2.c .bin v0 or
// v2. (.quipu is chaski's own format.) Throws Error(bad_file | io) naming the file, the field, what
// was found and what was expected.
ModelSource import_model(const std::string& path, const ImportOptions& options = {});

// Throws Error(bad_file) for a folder of draft heads.
void expect_no_heads(const std::string& folder);

// A description of a GGUF file or Hugging Face folder that import_model() refuses as unsupported:
// metadata under the file's own names with the prefix "gguf." or "hf.", and the names, formats and
// shapes of its tensors, whose data the description cannot read. Throws Error(bad_file | io) if the
// file is damaged or holds draft heads.
ModelSource look_at_model(const std::string& path);

// Only the tokenizer, as keys tokenizer.*. `path` is a model that import_model() reads, a folder
// with tokenizer files, or one such file: tokenizer.json, SentencePiece's .model, or vocab.txt.
// Throws Error(bad_file | io).
Metadata import_tokenizer(const std::string& path, const ImportOptions& options = {});

ModelSource import_gguf(const std::string& path);
// The layer for one more token in a GGUF file, which may hold only this layer, and whether there is
// one that DeltaNext reads. The first throws Error(bad_file | io).
class DeltaNext;
ModelSource import_gguf_next(const std::string& path, DeltaNext& layer);
bool gguf_has_next(const std::string& path);
ModelSource import_hf_folder(const std::string& folder);
ModelSource import_llama2c(const std::string& path, const std::string& tokenizer);

// Writes a .quipu or imported model as GGUF v3; tensors keep their bits. Throws Error(bad_file) for
// a tensor whose format GGUF does not have, with advice.
void export_gguf(const std::string& path, const ModelSource& source);

}  // namespace chaski
