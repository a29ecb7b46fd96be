#include "main/api/ollama_request.h"

#include <fmt/format.h>

#include <algorithm>

namespace chaski {

namespace {

// What ollama lets a client choose about the machine; the flags of the server decide it here.
void accept_machine_options(const Field& options) {
  options.accept({"num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread", "numa", "use_mmap",
                  "use_mlock", "low_vram", "f16_kv", "vocab_only", "logits_all",
                  "penalize_newline"});
  expect_only(options, "tfs_z", 1);
}

}  // namespace

void read_ollama_options(const Field& fields, const DefaultSettings& defaults, int context,
                         AnswerSettings& settings) {
  const auto options = fields.find("options");
  settings = read_settings(options ? *options : fields, defaults);
  if (!options) return;
  accept_machine_options(*options);
  if (const auto most = options->find("num_predict")) {  // -1 and -2: until the context is full
    settings.request.max_tokens = std::max(most->whole(-2), -1);
    settings.most_tokens_field = most->path();
  }
  if (const auto asked = options->find("num_ctx"); asked && asked->whole(0) > context)
    asked->refuse(
        fmt::format("is {}, expected at most {}: the context of this server, which --ctx sets",
                    asked->whole(0), context));
}

void read_ollama_format(const Field& fields, AnswerSettings& settings) {
  const auto format = fields.find("format");
  if (!format) return;
  if (!format->is_text()) return constrain_to_schema(*format, settings);
  const std::string word = format->one_of({"", "json"});
  if (word == "json") constrain_to_object(*format, settings);
}

bool read_think(const Field& fields, bool otherwise) {
  const auto think = fields.find("think");
  if (!think) return otherwise;
  if (think->is_flag()) return think->flag();
  think->one_of({"low", "medium", "high"});
  return true;
}

void refuse_images(const Field& fields) {
  if (const auto images = fields.find("images"); images && !images->items().empty())
    images->refuse("is not empty: the model reads text only");
}

bool is_streamed(const Field& fields) {
  const auto stream = fields.find("stream");
  return !stream || stream->flag();
}

void accept_ollama_fields(const Field& fields) {
  expect_only(fields, "logprobs", false);
  expect_only(fields, "top_logprobs", 0);
}

GenerateFields read_generate_fields(const Field& fields) {
  refuse_images(fields);
  expect_only(fields, "template", "");
  expect_only(fields, "context", OrderedJson::array());
  GenerateFields out;
  const auto system = fields.find("system");
  if (system) out.system = system->text();
  if (const auto suffix = fields.find("suffix")) out.suffix = suffix->text();
  if (const auto raw = fields.find("raw")) out.raw = raw->flag();
  if (!out.system.empty() && (out.raw || !out.suffix.empty()))
    system->refuse(fmt::format("is given together with {}, expected one of them",
                               out.suffix.empty() ? "raw" : "suffix"));
  return out;
}

}  // namespace chaski
