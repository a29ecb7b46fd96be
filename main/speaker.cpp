#include "main/speaker.h"

#include "engine/model_file.h"

namespace chaski {

namespace {

// What the flags say of the model, as far as it concerns the smaller one too.
EngineOptions draft_options(const GenerationFlags& flags) {
  EngineOptions options = flags.model.options();
  options.model = flags.draft;
  options.context = 0, options.gpu_layers = kAllThatFit;
  if (!takes_tokenizer(flags.draft)) options.tokenizer.clear();
  return options;
}

}  // namespace

Speaker::Speaker(const GenerationFlags& flags)
    : engine(open_engine(flags.model.options())), options(flags.generate) {
  engine->tokenizer();  // a model without one is refused now
  session = engine->session();
  if (flags.draft == "none") return;
  drafter = flags.draft == "auto" || flags.draft == "ngram"
                ? ngram_drafter()
                : model_drafter(open_engine(draft_options(flags)), *engine, options.sampling);
  options.drafter = drafter.get();
  options.draft_length = flags.draft_length;
  options.governor = &governor;
}

}  // namespace chaski
