// What requests ask of the models of a server, and what lists of models show, loaded or not.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "main/api/fields.h"
#include "main/api/request.h"

namespace chaski {

// What a request asks for.
struct ModelWish {
  std::string name;  // empty: the first model
  // Seconds that the model stays loaded after its last request; below 0: until other models need
  // its memory. Without it the server's default.
  std::optional<double> keep = {};
  bool streams = false;  // the response is a stream of events, in which a wait may be shown
};

// The fields "keep_alive" and "ttl": seconds as a number, or a text such as "5m". Throws ApiError.
std::optional<double> read_keep(const Field& fields);
// "90", "5m", "1h30m", "500ms", "-1" or "forever"; nothing for other texts. Below 0: for ever.
std::optional<double> seconds_of(const std::string& text);

// What the header of a model's file says.
struct ModelFacts {
  // format: of most bytes of the weights, such as "q4_k", or what a GGUF file calls its mixture:
  // "q4_k_m"
  std::string path, family, format;
  double weights = 0;          // how many there are
  uint64_t bytes = 0;          // of the weights in memory
  int context = 0, vocab = 0;  // context: also as --ctx sets it
};
ModelFacts facts_of(const Engine& engine);
// Without opening an engine. `context`: of --ctx, or 0.
ModelFacts facts_of(const ModelSource& source, int context);

// A model in a list.
struct ModelState {
  enum class Kind { unloaded, loading, loaded };
  std::string name;
  int64_t created = 0;  // seconds since 1970
  ModelFacts facts;
  Kind kind = Kind::loaded;
  double progress = 0;  // of loading, from 0 to 1
  uint64_t bytes = 0;   // that it takes: weights, mapped or not, and pages of the KV cache
  bool on_device = false;
  bool embeds = false;                         // it computes embeddings
  bool generates = true;                       // it is offered for texts
  std::optional<int64_t> expires_at = {};      // when it is unloaded without further requests
  std::optional<std::string> last_error = {};  // of the last try to load it
};
ModelState state_of(const ServedModel& served);  // of a loaded model
const char* word_of(ModelState::Kind kind);      // "unloaded", "loading", "loaded"

// A model's metadata and tokenizer, which need no loaded model.
struct ModelHeader {
  ModelState state;
  DefaultSettings defaults;
  TemplateChoice chat_template;
  const Metadata* meta = nullptr;
  const Tokenizer* tokenizer = nullptr;  // null: the model has none
  std::shared_ptr<const void> owner;     // of both
};
ModelHeader header_of(std::shared_ptr<const ServedModel> served);
// Opens the model's file. Throws what open_model() throws.
ModelHeader header_of(ModelState state, const std::string& tokenizer_file);

}  // namespace chaski
