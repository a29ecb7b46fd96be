#include "main/speaker.h"

#include "engine/model_file.h"
#include "main/output.h"

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

ContextPolicy policy_of(const std::string& name) {
  return name == "shift"   ? ContextPolicy::shift
         : name == "sinks" ? ContextPolicy::sinks
                           : ContextPolicy::stop;
}

}  // namespace

std::string Speaker::drop_line(int dropped, int before, int behind) const {
  return fmt::format(
      "the context of {} tokens is full: {} are dropped behind the first {}, and the last {} read "
      "again",
      engine->context_length(), dropped, before, behind);
}
std::string Speaker::full_line() const {
  return fmt::format(
      "the context of {} tokens is full, the text ends here: --ctx N for more where the model has "
      "it, or --context-policy shift",
      engine->context_length());
}

Speaker::Speaker(const GenerationFlags& flags)
    : engine(open_engine(flags.model.options())), options(flags.generate) {
  engine->tokenizer();  // a model without one is refused now
  session = engine->session();
  options.context_policy = policy_of(flags.context_policy);
  options.on_drop = [this](int dropped, int before, int behind) {
    put_notice(drop_line(dropped, before, behind));
  };
  if (flags.draft == "none") return;
  if (flags.draft != "auto" && flags.draft != "ngram") draft = open_engine(draft_options(flags));
  options.draft_length = flags.draft_length;
  drafter = new_drafter(options.sampling);
  options.drafter = drafter.get();
  options.governor = &governor;
}

std::unique_ptr<Drafter> Speaker::new_drafter(const SamplerOptions& sampling) const {
  if (draft) return model_drafter(draft, *engine, sampling);
  return options.draft_length > 0 ? ngram_drafter() : nullptr;
}

}  // namespace chaski
