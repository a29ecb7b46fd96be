// Reports what is in a model file, what it needs, and whether chaski can run it. Works for models
// that chaski cannot run, too.
#pragma once
#include <string>
#include <vector>

#include "ggml-like-tensor/base/nearest.h"  // for the names of flags too
#include "ggml-like-tensor/file/model_source.h"

namespace chaski {

struct Need {
  std::string what, name;  // "architecture", "qwen2"
  bool here;               // chaski supports it
  std::string nearest;     // the nearest supported name if it does not; may be empty
};

struct Inspection {
  ModelSource source;
  std::vector<Need> needs;
  std::string refusal;  // why chaski cannot run it, in one line; empty if it can
};

// Accepts the same files as open_model() in model_file.h. Throws its errors if the file is not a
// model, is damaged or cannot be read.
Inspection inspect_model(const std::string& path, const std::string& tokenizer);
// Why chaski cannot run the model at `path`, as far as its header shows; empty if it can.
std::string refusal_of(const std::string& path);

// What a model is good for in a few words, such as "chat, code", as far as its header shows. Also
// of models that chaski cannot run, if it knows what they are: "embeddings". Else empty.
std::string good_for(const Inspection& found);
// The values of a header under the names that GGUF has for them ("llama.context_length"), which
// other programs look for. Values without such a name are left out.
Metadata gguf_metadata(const Metadata& meta);
// The model's own context in tokens; 0 if the file does not say.
int64_t own_context(const ModelSource& source);

}  // namespace chaski
