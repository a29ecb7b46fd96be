#include "models/other_kinds.h"

#include <algorithm>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

constexpr std::string_view kEmbedding = "an embedding model",
                           kEncoderDecoder = "an encoder-decoder model",
                           kSpeech = "a speech recognition model", kImage = "an image model",
                           kClassifier = "a classifier or reranker";

struct Named {
  std::string_view name, what;
};

// GGUF's names.
constexpr Named kGgufNames[] = {
    {"bert", kEmbedding},        {"nomic-bert", kEmbedding},   {"nomic-bert-moe", kEmbedding},
    {"neo-bert", kEmbedding},    {"jina-bert-v2", kEmbedding}, {"jina-bert-v3", kEmbedding},
    {"modern-bert", kEmbedding}, {"eurobert", kEmbedding},     {"gemma-embedding", kEmbedding},
    {"t5encoder", kEmbedding},   {"t5", kEncoderDecoder},      {"clip", kImage}};

// How the names of classes in config.json begin. A class of one of the tasks below is named by it.
constexpr Named kClasses[] = {{"Bert", kEmbedding},
                              {"Roberta", kEmbedding},
                              {"XLMRoberta", kEmbedding},
                              {"CamembertM", kEmbedding},
                              {"DistilBert", kEmbedding},
                              {"Albert", kEmbedding},
                              {"Electra", kEmbedding},
                              {"Deberta", kEmbedding},
                              {"MPNet", kEmbedding},
                              {"NomicBert", kEmbedding},
                              {"ModernBert", kEmbedding},
                              {"JinaBert", kEmbedding},
                              {"Gemma3TextModel", kEmbedding},
                              {"T5EncoderModel", kEmbedding},
                              {"T5", kEncoderDecoder},
                              {"MT5", kEncoderDecoder},
                              {"UMT5", kEncoderDecoder},
                              {"LongT5", kEncoderDecoder},
                              {"Bart", kEncoderDecoder},
                              {"MBart", kEncoderDecoder},
                              {"Marian", kEncoderDecoder},
                              {"Pegasus", kEncoderDecoder},
                              {"M2M100", kEncoderDecoder},
                              {"EncoderDecoder", kEncoderDecoder},
                              {"Whisper", kSpeech},
                              {"Wav2Vec2", kSpeech},
                              {"Hubert", kSpeech},
                              {"Moonshine", kSpeech},
                              {"CLIP", kImage},
                              {"Siglip", kImage},
                              {"ViT", kImage},
                              {"Dinov2", kImage}};

constexpr std::string_view kClassifiers[] = {"ForSequenceClassification", "ForTokenClassification"};

}  // namespace

std::string_view other_kind(std::string_view name) {
  for (const std::string_view task : kClassifiers)
    if (name.ends_with(task)) return kClassifier;
  for (const Named& one : kGgufNames)
    if (name == one.name) return one.what;
  // A class for causal language models generates text, whatever its name begins with.
  if (name.ends_with("ForCausalLM") || name.ends_with("LMHeadModel")) return "";
  const auto at =
      std::ranges::find_if(kClasses, [&](const Named& one) { return name.starts_with(one.name); });
  return at == std::end(kClasses) ? "" : at->what;
}

void refuse_other_kind(const std::string& path, const std::string& name) {
  if (const std::string_view what = other_kind(name); !what.empty())
    fail(Exit::bad_file, "{}: is {} ({}), but chaski runs only models that generate text", path,
         what, escaped(name));
}

}  // namespace chaski
