// Foreign model files. Each importer is one file; this is the list.
#pragma once
#include <string>

#include "ggml-like-tensor/file/model_source.h"

namespace chaski {

struct ImportOptions {
  // llama2.c: its tokenizer.bin; empty: tokenizer.bin or tok<vocabulary size>.bin beside the model
  std::string tokenizer;
};

// Whether import_model() takes it for llama2.c, the one kind whose tokenizer is a file of its own.
// Throws Error(io).
bool is_llama2c(const std::string& path);

// By content, not by name: GGUF v2/v3 file, folder with config.json, llama2.c .bin v0 or v2. (A
// .quipu file is not foreign.) Throws Error(bad_file | io) naming the file, the field, what was
// found and what was expected.
ModelSource import_model(const std::string& path, const ImportOptions& options = {});

// Error(bad_file) for a folder of heads that guess for a model.
void expect_no_heads(const std::string& folder);

// What can be shown of a GGUF file or Hugging Face folder that import_model() refuses because
// chaski lacks what it needs: metadata under the file's own names, behind "gguf." or "hf.", and
// tensors that cannot be read. Throws Error(bad_file | io) where the file itself is damaged, or
// holds heads.
ModelSource look_at_model(const std::string& path);

// The tokenizer alone, as keys tokenizer.*, of a model that import_model() takes, or of a folder
// that holds tokenizer files and perhaps nothing else, or of such a file itself: tokenizer.json,
// SentencePiece's .model, or vocab.txt. Throws Error(bad_file | io).
Metadata import_tokenizer(const std::string& path, const ImportOptions& options = {});

ModelSource import_gguf(const std::string& path);
ModelSource import_hf_folder(const std::string& folder);
ModelSource import_llama2c(const std::string& path, const std::string& tokenizer);

// .quipu (or anything imported) to GGUF v3: tensors keep their bits. Throws Error(bad_file) for a
// tensor whose format GGUF lacks, and says what to do.
void export_gguf(const std::string& path, const ModelSource& source);

}  // namespace chaski
