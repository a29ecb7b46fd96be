// The slash commands of chat about the model, the settings and the statistics.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>

#include "engine/shelf/model_file.h"
#include "engine/shelf/shelf.h"
#include "engine/shelf/short_names.h"
#include "engine/text/ordered_json.h"
#include "main/commands/chat.h"
#include "main/flags/options.h"
#include "main/flags/values.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

const std::string kNothing = "\"\"";  // the value that turns a setting off
const std::vector<std::string> kForms = {"grammar", "json-schema", "regex"};  // at most one is set
const std::vector<std::string> kRepeated = {"--stop", "--ban", "--dry-sequence-breaker"};

std::string text_of(const Settings& settings) {
  std::string text;
  for (const auto& [name, value] : settings) {
    const size_t end = std::min(value.find('\n'), value.size());
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", name, value.substr(0, end),
                        end < value.size() ? " ..." : "");
  }
  return text;
}

double rate(uint64_t tokens, double seconds) { return seconds > 0 ? double(tokens) / seconds : 0; }

// The values of a setting that may be repeated: the text as it is, or texts in quotes as in JSON.
std::vector<std::string> values_of(const std::string& name, const std::string& text) {
  if (!text.starts_with('"') || std::ranges::count(kRepeated, name) == 0) return {text};
  std::vector<std::string> values;
  for (size_t at = 0; at < text.size(); at = text.find_first_not_of(' ', at)) {
    size_t end = at + 1;
    while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
    const auto value = maybe_json(text.substr(at, end + 1 - at));
    if (!value.is_string())
      fail(Exit::usage, "{} is {}, expected a text, or texts in quotes such as \"A\" \"B\\n\"",
           name, text);
    values.push_back(value.get<std::string>());
    at = end + 1;
  }
  return values;
}

// As for -m, but never downloads: Ctrl-C in a download would end the chat.
std::string path_of_wanted_model(const std::string& name) {
  const std::string path = path_of_named_model(name);
  std::error_code none;
  const ShortName* const known = find_short_name(name);
  if (known && !std::filesystem::exists(path, none)) refuse_missing_model(*known);
  refuse_unknown_model(path, WantedModel::text);
  return path;
}

// The name of a setting as it is typed: "temp", "--temp", "n".
std::string flag_of(const std::string& typed) {
  return (typed.starts_with('-') ? "" : typed.size() == 1 ? "-" : "--") + typed;
}

}  // namespace

// Closes the old model first: two models may not fit into memory, and on a GPU the new one would
// get the room that the old one leaves.
void Chat::change_model(const std::string& name) {
  if (name.empty()) return put_note("the model is " + shown_model());
  GenerationFlags settings = settings_;
  std::string& path = settings.model.engine.model;
  path = path_of_wanted_model(name);
  if (!takes_tokenizer(path)) settings.model.engine.tokenizer.clear();
  expect_runnable(open_model(path, settings.model.engine.tokenizer).source);
  const std::shared_ptr<const Rules> rules = speaker_.rules;
  const auto open = [&](const GenerationFlags& flags, const TemplateChoice& format) {
    speaker_.open(flags, rules);
    conversation_.change_model(model_of(speaker_.engine()), format);
  };
  try {
    open(settings, {});
  } catch (const Error&) {
    over_ = true;  // unless the old model can be opened again
    open(settings_, changed_model_ ? TemplateChoice() : flags_.format);
    over_ = false;
    throw;
  }
  settings_ = settings;
  if (flags_.format.given() && !std::exchange(changed_model_, true))
    put_notice("--chat-template does not apply to the new model: its own template is used");
  changed_model_ = true;
  put_template_notices();
  put_state(fmt::format(
      "the model is {}{}", shown_model(),
      conversation_.messages().empty() ? "" : ": the next question reads the conversation again"));
}

// The whole name of the model, also where a part of it was typed.
std::string Chat::shown_model() const {
  const std::string path = speaker_.engine().path(), line = with_name_of_model(path + ": ");
  const std::string typed = line.substr(0, line.size() - 2);
  if (typed == path) return path;
  const FoundModel found = find_model(typed);
  return found.path == path ? found.name : typed;
}

// The name by which a later chat finds the model from any folder.
std::string Chat::lasting_name() const {
  namespace fs = std::filesystem;
  const std::string path = speaker_.engine().path(), name = name_on_shelf(path);
  std::error_code none;
  return name == path && fs::exists(path, none) ? fs::canonical(path, none).string() : name;
}

// A note if a loaded conversation was saved with another model.
void Chat::put_other_model(const std::string& saved, const std::string& path) const {
  const std::string here = lasting_name();
  if (saved.empty() || saved == here) return;
  const std::string other = path_of_saved_model(saved).empty()
                                ? ""
                                : fmt::format("; /model {} changes to that one", escaped(saved));
  put_notice(fmt::format("{} was saved with the model {}; it continues with {}{}", path,
                         escaped(saved), here, other));
}

// "temp 0.5": a flag of the command line without its dashes. "parameter temp 0.5" works too, for
// users of ollama.
void Chat::set(const std::string& text) {
  constexpr std::string_view kParameter = "parameter ";
  const std::string pair = text.substr(text.starts_with(kParameter) ? kParameter.size() : 0);
  if (pair == "think" || pair == "nothink")
    fail(Exit::usage, "/set {}: expected /think {}", pair, pair == "think" ? "show" : "hide");
  const size_t end = std::min(pair.find_first_of(" \n"), pair.size());
  const size_t begin = std::min(pair.find_first_not_of(" \n", end), pair.size());
  const std::string name = pair.substr(0, end), value = pair.substr(begin);
  if (value.empty())
    fail(Exit::usage, "/set expects a name and a value, such as /set temp 0.5; /show lists them");
  if (flag_of(name) == flag_of(kSystem)) return set_system(value);
  change_settings({{name, value}});
  show_settings();
}

// Reads one setting. Returns its long name.
std::string Chat::read_setting(GenerationFlags& settings, const std::string& typed,
                               const std::string& value, Typed where) {
  const std::string flag = flag_of(typed);
  std::string name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
  if (value == kNothing) {
    settings.clear_setting(name);
    return name;
  }
  std::vector<std::string> words;
  for (const std::string& each : values_of(flag, value)) words.insert(words.end(), {flag, each});
  const std::vector<std::string> others(where == Typed::here ? 1 : 0, kSystem);
  const std::vector<std::string> names = read_flags(
      "/set", words, [&](Flags& flags) { settings.declare_settings(flags); }, others);
  if (!names.empty()) name = names[0];
  if (name == "seed") settings.choose_seed();
  if (std::ranges::count(kForms, name) > 0)
    for (const std::string& other : kForms)
      if (other != name) settings.clear_setting(other);
  return name;
}

// Changes all of these settings or, on an error, none. A grammar is kept as its text, so that a
// saved conversation needs no other file.
void Chat::change_settings(const Settings& changes, Typed where) {
  GenerationFlags settings = settings_;
  Settings changed = changed_;
  try {
    for (const auto& [typed, value] : changes) {
      const std::string name = read_setting(settings, typed, value, where);
      changed[name] = value;
    }
    settings.check();
    if (*settings.grammar_flag() && settings.generate.ignore_end)
      fail(Exit::usage, "a grammar and --ignore-end are both given, expected one of them");
    if (*settings.grammar_flag() && !flags_.tools.options().tools.empty())
      fail(Exit::usage, "a grammar and --tools are both given, expected one of them");
    const Sampler expected(settings.generate.sampling, &speaker_.engine().tokenizer());
    const auto forms = [](const GenerationFlags& flags) {
      return std::tie(flags.grammar, flags.json_schema, flags.regex);
    };
    if (forms(settings) != forms(settings_)) {
      const auto source = settings.grammar_source(where == Typed::here);
      speaker_.constrain(settings.rules(source), settings.grammar_flag());
      if (source) {
        for (const std::string& form : kForms) changed.erase(form);
        changed[settings.grammar_flag() + 2] = source->text;
      }
    }
  } catch (const Error& error) {  // the user typed the name without dashes
    const std::string line = error.what();
    throw Error(error.code, line.substr(std::min(line.find_first_not_of('-'), line.size())));
  }
  settings_ = settings, changed_ = changed;
  speaker_.set(settings_);
}

// Applies the settings of a saved conversation in place of those of /set. Flags typed on the
// command line override them.
void Chat::take_settings(Settings saved, const std::string& path) {
  for (const Flag& flag : flags_.settings)
    if (flag.typed()) saved.erase(flag.name().substr(2));
  put_reset_settings(saved);
  forget_settings();
  if (saved.empty()) return;
  Settings taken, refused;  // refused: with the reasons
  try {
    change_settings(saved, Typed::in_file);
    taken = saved;
  } catch (const Error&) {
    // One by one, again after each success: some settings are limits of others.
    for (size_t before = saved.size() + 1; saved.size() < before;) {
      before = saved.size();
      for (const auto& [name, value] : Settings(saved)) try {
          change_settings({{name, value}}, Typed::in_file);
          taken[name] = value;
          saved.erase(name);
        } catch (const Error& error) {
          refused[name] = error.what();
        }
    }
    for (const auto& [name, value] : saved)
      put_notice(fmt::format("{}: its setting {} is ignored: {}", path, name, refused[name]));
  }
  if (!taken.empty()) put_state("settings of the file: " + text_of(taken));
}

// Names the settings of /set that /load takes back.
void Chat::put_reset_settings(const Settings& saved) const {
  std::vector<std::string> names;
  for (const auto& [name, value] : changed_)
    if (!saved.contains(name)) names.push_back(name);
  if (!names.empty())
    put_note(fmt::format("set back, because the file does not set it or the command line does: {}",
                         fmt::join(names, ", ")));
}

// Takes the changes of /set back.
void Chat::forget_settings() {
  if (changed_.empty()) return;
  speaker_.constrain(first_rules_, flags_.generation.grammar_flag());
  const ModelFlags model = settings_.model;
  settings_ = flags_.generation;
  settings_.model = model;
  changed_.clear();
  speaker_.set(settings_);
}

void Chat::show_settings() {
  const SamplerOptions& s = speaker_.options.sampling;
  const int tokens = speaker_.options.max_tokens;
  put_note(
      fmt::format("settings: temp {}, top-k {}, top-p {}, min-p {}, repeat-penalty {}, seed "
                  "{}, tokens {}",
                  s.temperature, s.top_k, s.top_p, s.min_p, s.repeat_penalty, s.seed,
                  tokens < 0 ? "until the model ends" : std::to_string(tokens)));
  for (const auto& [name, text] :
       {std::pair("grammar", settings_.grammar), std::pair("json-schema", settings_.json_schema),
        std::pair("regex", settings_.regex)})
    if (!text.empty()) put_note(fmt::format("{}: {}", name, text));
  if (settings_.context_policy != "stop") put_note("context-policy: " + settings_.context_policy);
  for (const std::string& text : settings_.generate.stop) put_note("stop: " + text);
  if (!changed_.empty()) put_note("set here: " + text_of(changed_));
}

void Chat::show(const std::string&) {
  const Engine& engine = speaker_.engine();
  const ChatTemplate& format = conversation_.format();
  put_note(fmt::format("model:    {}, on {}", engine.path(), engine.device()));
  put_note(fmt::format("template: {}", !format.own() ? fmt::format("the {} format", format.name())
                                       : changed_model_ || !flags_.format.given()
                                           ? "from the model file"
                                           : "from " + flags_.format.origin));
  put_note(fmt::format("system:   {}",
                       conversation_.has_system() ? conversation_.messages()[0].content : "none"));
  if (const Tools& tools = flags_.tools.options().tools; !tools.empty())
    put_note(fmt::format("tools:    {}", fmt::join(tools.names(), ", ")));
  show_settings();
  put_note("context:  " + of_context(conversation_.tokens().size()));
}

void Chat::count_tokens(const std::string&) { put_note(of_context(conversation_.tokens().size())); }

void Chat::stats(const std::string&) {
  put_note(fmt::format("{}; {} read, {:.0f} tok/s, {} cached", counted(total_.answers, "answer"),
                       counted(total_.read, "token"), rate(total_.timed, total_.prompt_seconds),
                       total_.cached));
  put_note(fmt::format("{} written, {:.1f} tok/s{}", counted(total_.written, "token"),
                       rate(total_.written, total_.decode_seconds),
                       total_.drafted == 0 ? ""
                                           : fmt::format("; {} of {} draft tokens accepted",
                                                         total_.accepted, total_.drafted)));
}

}  // namespace chaski
