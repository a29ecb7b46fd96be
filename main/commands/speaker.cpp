#include "main/commands/speaker.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "engine/drafting/draft_eagle.h"
#include "engine/measure/kv_loss.h"
#include "engine/session/memory_need.h"
#include "engine/shelf/model_file.h"
#include "main/api/settings.h"
#include "main/terminal/output.h"
#include "main/terminal/progress.h"

namespace chaski {

namespace {

// The options of the draft model: those of the main model that apply to both.
EngineOptions draft_options(const GenerationFlags& flags) {
  EngineOptions options = flags.model.options();
  options.model = flags.draft;
  options.context = 0, options.gpu_layers = kAllThatFit, options.cpu_experts = false;
  options.expert_memory = options.weight_memory = 0;  // are meant for the main model
  options.link = nullptr;  // a small model takes less time than its gathers
  if (!takes_tokenizer(flags.draft)) options.tokenizer.clear();
  return options;
}

std::shared_ptr<Engine> open_draft(const GenerationFlags& flags) {
  try {
    EngineOptions options = draft_options(flags);
    // The limit is the main model's. Of the draft model's own memory, its sessions share what is
    // not for its weights.
    if (options.most_state_bytes > 0) {
      const OpenModel draft = open_model(options.model, options.tokenizer);
      const uint64_t all = memory_when_open(draft.source, options),
                     weights = totals_of(draft.source).bytes;
      options.most_state_bytes = all - std::min(all, weights);
    }
    return open_engine(options);
  } catch (const Error& error) {
    std::error_code none;
    if (error.code != Exit::bad_file || !std::filesystem::is_directory(flags.draft, none)) throw;
    fail(error.code,
         "--draft is neither a model that can be read nor draft heads (medusa_lm_head.safetensors, "
         "or model.safetensors with fc.weight, mtp_layers or mtp.fc.weight): {}",
         error.what());
  }
}

// A note if --kv loses more than most_kv_loss() with this model. The first start with a model and a
// format measures it, if the result can be stored.
void put_kv_loss(const Engine& engine, bool verbose) {
  const Format kv = engine.kv_format();
  if (most_kv_loss(kv) == 0) return;
  const std::string name(info(kv).name);
  std::optional<KvLoss> loss = kept_kv_loss(engine.path(), kv);
  if (!loss && can_keep_kv_loss(engine.path(), kv)) {
    loss = measure_kv_loss(engine, [&] {
      if (stderr_is_terminal()) put_state("measuring once what --kv " + name + " loses here ...");
    });
    if (loss) keep_kv_loss(engine.path(), kv, *loss);
  }
  if (!loss || (!verbose && !loss->is_large(kv))) return;
  put_notice(fmt::format(
      "--kv {}: the KL divergence of this model's predictions from those with "
      "--kv f16 is {:.2g} a token{}",
      name, loss->kl,
      !loss->is_large(kv) ? ""
                          : fmt::format(", expected at most {:g}: --kv {} loses less",
                                        most_kv_loss(kv), kv == Format::q8 ? "f16" : "q8 or f16")));
}

}  // namespace

std::shared_ptr<LoadedModel> open_loaded_model(const GenerationFlags& flags) {
  const std::shared_ptr<Engine> engine = open_engine(flags.model.options());
  engine->tokenizer();  // throws now if the model has no tokenizer
  put_kv_loss(*engine, flags.verbose());
  NewDrafter drafters;
  if (flags.draft != "none")
    drafters = open_drafter({.name = flags.draft,
                             .target = engine,
                             .sessions = flags.model.options().sessions,
                             .open_model = [&] { return open_draft(flags); }});
  return std::make_shared<LoadedModel>(engine, std::move(drafters), flags.draft_length);
}

uint64_t draft_memory(const GenerationFlags& flags) {
  std::error_code none;
  if (!std::filesystem::exists(flags.draft, none)) return 0;
  try {
    const auto target = [&] {
      const EngineOptions main = flags.model.options();
      return open_model(main.model, main.tokenizer).source.meta;
    };
    if (has_next_layer(flags.draft, target)) return 0;
    const EngineOptions o = draft_options(flags);
    return memory_when_open(open_model(o.model, o.tokenizer).source, o);
  } catch (const Error&) {
    return 0;
  }
}

void hide_grammar_flags(Flags& flags) {
  for (const char* name : {"--grammar", "--json-schema", "--regex"}) flags.named(name).help("");
}

void expect_no_grammar(const GenerationFlags& flags) {
  if (const std::string flag = flags.grammar_flag(); !flag.empty())
    fail(Exit::usage, "{} constrains one text, expected it as a field of each request", flag);
}

std::string served_name(const std::string& path) {
  if (path.empty()) return "story";
  const std::filesystem::path at(path);
  const std::string extension = at.extension();
  const bool known = extension == ".gguf" || extension == ".quipu" || extension == ".bin";
  const std::string name = known ? at.stem() : at.filename();
  return name.empty() ? at.parent_path().filename().string() : name;
}

std::string Speaker::drop_line(int dropped, int before, int after) const {
  return fmt::format(
      "the context of {} is full: {}{} dropped, and the last {} {} read again",
      counted(uint64_t(engine().context_length()), "token"),
      before > 0 ? counted(uint64_t(dropped), "token") + fmt::format(" after the first {}", before)
                 : "the first " + counted(uint64_t(dropped), "token"),
      dropped == 1 ? " is" : " are", after, after == 1 ? "is" : "are");
}

bool Speaker::is_stopped(const GenerateResult& result) const {
  return result.finish == Finish::stop && !options.stop.empty();
}

bool Speaker::is_incomplete(const GenerateResult& result) const {
  return !result.complete && result.finish != Finish::interrupted;
}

std::string Speaker::cut_line(const GenerateResult& result) const {
  const bool incomplete = is_incomplete(result);
  const std::string before = !incomplete            ? ""
                             : grammar_flag.empty() ? ", before its tool call is complete"
                                                    : ", before " + grammar_flag + " is satisfied";
  if (result.finish == Finish::length && (incomplete || options.max_tokens != 0))
    return fmt::format("cut off by -n after {}{}", counted(result.tokens.size(), "token"), before);
  if (result.finish == Finish::full)
    return fmt::format(
        "cut off because the context of {} is full{}: --ctx N gives a larger context if the "
        "model supports it, --context-policy shift drops old tokens",
        counted(uint64_t(engine().context_length()), "token"), before);
  const char* whose = options.stop.empty() ? "stop text of the chat template" : "--stop text";
  return incomplete ? fmt::format("cut off by a {}{}", whose, before) : "";
}

void Speaker::put_cuts(std::span<const GenerateResult> results) const {
  std::map<std::string, size_t> lines;
  for (const GenerateResult& result : results) ++lines[cut_line(result)];
  lines.erase("");
  for (const auto& [line, n] : lines)
    put_notice(results.size() == 1
                   ? "the answer is " + line
                   : fmt::format("{} of {} are {}", n, counted(results.size(), "answer"), line));
  put_saturation();
}

void Speaker::open(const GenerationFlags& flags, std::shared_ptr<const Rules> new_rules) {
  drafter.reset(), grammar.reset(), session.reset(), model.reset();
  answers.reset(), governor = Governor();
  drafter_loss_reported = false;
  const std::atomic<bool>* const interrupt = options.interrupt;
  options = flags.generate;
  options.interrupt = interrupt;
  model = open_loaded_model(flags);
  const std::shared_ptr<Engine>& engine = model->engine();
  if (!flags.answer_cache.empty() && flags.repeats_answers()) answers.emplace(flags.answer_cache);
  session = engine->session();
  options.on_drop = [this](int dropped, int before, int after) {
    put_notice(drop_line(dropped, before, after));
  };
  options.on_drafter_lost = [this](const std::string& why) {
    if (!std::exchange(drafter_loss_reported, true))
      put_notice(why + ": the text continues without a drafter");
  };
  if (flags.verbose() && flags.draft == "auto" && engine->device() == "cpu" &&
      has_next_layer(engine->path(), [&] { return engine->meta(); }))
    put_notice(fmt::format("{0} has a layer that predicts draft tokens: --draft {0} uses it",
                           engine->path()));
  if (flags.draft != "none")
    options.draft_length = flags.draft_length, options.governor = &governor;
  constrain(new_rules, flags.grammar_flag());
  set(flags);
}

void Speaker::constrain(const std::shared_ptr<const Rules>& new_rules, const char* flag) {
  grammar = new_rules ? model->grammar(new_rules) : nullptr;
  rules = new_rules;
  options.grammar = grammar.get();
  grammar_flag = flag;
}

void Speaker::set(const GenerationFlags& settings) {
  options.sampling = settings.generate.sampling;
  options.max_tokens = settings.generate.max_tokens, options.stop = settings.generate.stop;
  options.context_policy = context_policy_of(settings.context_policy);
  drafter = model->drafter(options.sampling);
  options.drafter = drafter.get();
}

GenerateResult Speaker::generate(std::span<const TokenId> prompt, GenerateOptions options,
                                 const Sink& sink) const {
  ReadingLine reading(shows_reading);
  options.on_read = [&](int known, int all) {
    reading.show(known, all);
    if (on_portion) on_portion();
  };
  return chaski::generate(*session, prompt, options, sink);
}

GenerateResult Speaker::answer(std::span<const TokenId> prompt, GenerateOptions options,
                               const Sink& sink) {
  std::shared_ptr<Grammar> compiled;
  if (options.rules) compiled = model->grammar(options.rules), options.grammar = compiled.get();
  const auto generated = [&] { return generate(prompt, options, sink); };
  return answers ? answers->answer(engine(), prompt, options, sink, generated) : generated();
}

void expect_kv_file(const std::string& path) {
  std::error_code none;
  if (std::filesystem::exists(path, none) && !Session::is_saved(path))
    fail(Exit::usage, "{}: the file exists and holds no KV cache, expected another name", path);
}

}  // namespace chaski
