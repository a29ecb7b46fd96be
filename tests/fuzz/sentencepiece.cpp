// tokenizer.model, SentencePiece's protobuf, and the tokenizer that is made of it.
#include "models/hf_config.h"
#include "models/hf_tokenizer.h"
#include "tests/fuzz/target.h"

namespace chaski::fuzz {
namespace {

const Declared sentencepiece("sentencepiece", [](std::string_view input) {
  empty_folder();
  write("tokenizer.model", input);
  may_fail([] {
    Metadata meta;
    meta.origin = folder();
    HfConfig config;
    config.vocab_size = 400;
    read_hf_tokenizer(folder(), config, meta);
    use_tokenizer(meta, "Hello w\xc3\xb6rld, <s> 123\n\xf0\x9f\xa6\x99 \xff\xc0");
  });
});

}  // namespace
}  // namespace chaski::fuzz
