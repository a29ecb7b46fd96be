// chaski serve: a local server that speaks the interfaces of OpenAI, Anthropic, ollama and
// llama-server. stdout gets its address, stderr a line of JSON for each request.
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <new>
#include <set>

#include "engine/drafting/drafters.h"
#include "engine/session/memory_need.h"
#include "engine/session/session_room.h"
#include "engine/shelf/converted.h"
#include "engine/shelf/inspection.h"
#include "engine/shelf/model_file.h"
#include "engine/shelf/shelf.h"
#include "main/commands/speaker.h"
#include "main/flags/commands.h"
#include "main/flags/fetch_model.h"
#include "main/flags/values.h"
#include "main/serve/service.h"
#include "main/terminal/output.h"
#include "main/terminal/signals.h"

namespace chaski {

namespace {

constexpr int kMostThreads = 256, kMostQueue = 100'000, kMostPort = 65535, kMostIdle = 86400;
constexpr double kLargestSlowdown = 1000;
// Sessions for which a device reserves memory. More requests share it.
constexpr int kReservedSessions = 4;

struct ServeFlags {
  GenerationFlags generation;
  ServiceOptions service;
  std::vector<std::string> models, embedding_models;
  std::string alias, think = "on", chat_template, most_body = "32M", memory, keep;
  std::string cache_size = "4G", store_size = "256M", prefix_memory = "auto";
  Flag cache_size_flag, store_size_flag;
  bool all_models = false, no_log = false, check = false;
};

void check(ServeFlags& flags) {
  GenerationFlags& g = flags.generation;
  g.resolve_config_conflicts();
  g.check();
  expect_no_grammar(g);
  flags.service.http.most_body = size_t(bytes_of("--max-body", flags.most_body));
  flags.service.log = !flags.no_log && !is_quiet();
  const auto expect = [](const Flag& size, const std::string& folder, const char* with) {
    if (size.typed() && folder.empty())
      fail(Exit::usage, "{}-size is given without {} DIR, expected both", with, with);
  };
  expect(flags.cache_size_flag, flags.service.cache_folder, "--cache");
  expect(flags.store_size_flag, flags.service.store_folder, "--store");
  flags.service.cache_bytes = bytes_of("--cache-size", flags.cache_size);
  flags.service.store_bytes = bytes_of("--store-size", flags.store_size);
  if (flags.prefix_memory != "auto")
    g.model.engine.most_idle_bytes = bytes_of("--prefix-memory", flags.prefix_memory);
  g.model.engine.sessions = std::min(flags.service.most_running, kReservedSessions);
  ModelsOptions& models = flags.service.models;
  models.refuses_more = !flags.memory.empty();
  if (models.refuses_more) models.most_bytes = bytes_of("--models-memory", flags.memory);
  if (!(models.most_slowdown >= 1 && models.most_slowdown <= kLargestSlowdown))
    fail(Exit::usage, "--slowdown is {}, expected a number from 1 to {}", models.most_slowdown,
         kLargestSlowdown);
  if (flags.keep.empty()) return;
  const std::optional<double> seconds = seconds_of(flags.keep);
  if (!seconds)
    fail(Exit::usage, "--keep-alive {}",
         refusal(flags.keep, "a time such as 90, 5m or 1h30m, or forever"));
  models.keep = *seconds;
}

// Requests share what the weights leave of the memory, or a part of it (session_room.h). Without
// --ctx, the context of a request is the longest that fits there: then returns a line about it.
std::string fit_into_memory(GenerationFlags& generation, const std::string& name) {
  const EngineOptions o = generation.model.options();
  const auto open = [&] { return open_as_kept(o.model, o.tokenizer, kept_of(o), o.notice); };
  const auto tokenizer = expect_runnable(open().source);  // the engine makes it first, too
  // Measured while the file is not mapped: its addresses are counted below.
  const std::optional<uint64_t> have = available_memory(), addresses = available_addresses();
  if (!have) return "";
  const OpenModel model = open();
  // A mapped file takes addresses, which `ulimit -v` may limit.
  const bool mapped = model.mapped && !o.copy &&
                      (!addresses || *addresses >= *have + totals_of(model.source).bytes);
  const uint64_t draft = draft_memory(generation);
  const auto room = session_room(model.source, mapped, o, *have - std::min(*have, draft));
  if (!room) return "";
  generation.model.engine.most_state_bytes = room->bytes;
  if (room->context == room->own) return "";
  generation.model.engine.context = room->context;
  const std::string weights = size_text(room->weights);
  return fmt::format(
      "{}: a context of {} tokens fits into the free memory of {}{}, {}; the model's own is {}; "
      "--ctx N sets another",
      name, room->context, size_text(*have),
      draft > 0 ? fmt::format(" with the draft model's {}", size_text(draft)) : "",
      room->weights_stay ? fmt::format("in addition to weights of {}", weights)
                         : fmt::format("where weights of {} do not stay", weights),
      room->own);
}

ServedModel open_served(GenerationFlags generation, const NamedModel& model,
                        const std::function<void(double)>& progress) {
  ServedModel served;
  generation.model.engine.upload = [&](uint64_t done, uint64_t all) {
    progress(all > 0 ? double(done) / double(all) : 0);
  };
  const std::string fitted = fit_into_memory(generation, model.name);
  served.model = open_loaded_model(generation);
  if (!fitted.empty()) put_notice(fitted);
  served.memory_chose_context = !fitted.empty();
  served.chat_template = model.chat_template;
  served.defaults = model.defaults;
  return served;
}

// Builds the list of models. The first one may have settings of its own: --tokenizer, --draft with
// a model, --chat-template.
class Offered {
 public:
  explicit Offered(const ServeFlags& flags)
      : flags_(flags), chat_template_(template_of(flags.chat_template)) {
    const std::string& hub = flags.generation.model.engine.model;
    for (const std::string& text : flags.models) add_given(text, false);
    if (flags.models.empty() && (!flags.all_models || !hub.empty()))
      add(flags.alias.empty() ? served_name(hub) : flags.alias, hub);
    if (flags.models.size() <= 1 && !models.empty()) started = models[0].name;
    for (const std::string& text : flags.embedding_models) add_given(text, true);
    for (const NamedModel& model : models) given.push_back(model.name);
    if (flags.all_models) add_all();
    if (models.size() == 1) started = models[0].name;
    if (models.empty())
      fail(Exit::usage, "--all-models is given, but chaski list shows no model that runs here");
  }

  std::vector<NamedModel> models;
  std::vector<std::string> given;  // without those of --all-models
  std::string started;             // opened at the start; empty: none

 private:
  void add_given(const std::string& text, bool embeds) {
    auto [name, model] = name_and_model(text);
    if (text.starts_with('=') || (model.empty() && !name.empty()))
      fail(Exit::usage, "{} {}: expected NAME=MODEL with a name and a model",
           embeds ? "--embedding-model" : "--model", escaped(text));
    if (models.empty() && !flags_.alias.empty() && !name.empty())
      fail(Exit::usage, "--alias {} names the model that --model {} names already",
           escaped(flags_.alias), escaped(text));
    const bool plain = name.empty();
    const std::string path = model_here(path_of_named_model(model), Fetch::ask, WantedModel::any);
    if (models.empty() && !flags_.alias.empty()) name = flags_.alias;
    if (name.empty()) name = served_name(path);
    if (embeds)
      for (NamedModel& other : models)
        if (other.engine.model == path) return void(other.embeds = true);
    add(name, path);
    models.back().embeds = embeds, models.back().generates = !embeds;
    if (embeds) embeds_only_.insert(models.back().name);
    if (plain && !embeds && started.empty()) started = name;
  }

  void add_all() {
    std::error_code none;
    std::vector<std::string> left_out;
    for (const ShelvedModel& model : models_on_shelf()) {
      // A model that only computes embeddings under a name of its own is offered for texts too.
      const auto is_there = [&](const NamedModel& other) {
        return other.name == model.name ||
               (!embeds_only_.contains(other.name) &&
                std::filesystem::equivalent(other.engine.model, model.path, none));
      };
      if (std::ranges::any_of(models, is_there)) continue;
      if (runs(model.path))
        add(model.name, model.path);
      else
        left_out.push_back(model.name);
    }
    if (!left_out.empty())
      put_notice(fmt::format("not offered, because chaski cannot run them (chaski list): {}",
                             fmt::join(left_out, ", ")));
  }
  static bool runs(const std::string& path) {
    try {
      return refusal_of(path).empty();
    } catch (const Error&) {
      return false;
    }
  }
  static bool is_model(const std::string& draft) {
    const auto is_word = [&](const DrafterKind* kind) { return kind->word && kind->word == draft; };
    return draft != "auto" && draft != "none" && std::ranges::none_of(drafter_kinds(), is_word);
  }

  void add(const std::string& name, const std::string& path) {
    NamedModel model;
    GenerationFlags generation = flags_.generation;
    generation.model.engine.model = path;
    if (!models.empty()) {
      generation.model.engine.tokenizer.clear();
      if (is_model(generation.draft)) generation.draft = "auto";
    } else {
      model.chat_template = chat_template_;
    }
    model.name = name;
    model.engine = generation.model.options();
    model.defaults.request = generation.generate;
    model.defaults.request.context_policy = context_policy_of(generation.context_policy);
    model.defaults.random_seed = generation.random_seed;
    model.defaults.thinks = flags_.think == "on";
    model.open = [generation, model](const std::function<void(double)>& progress) {
      return open_served(generation, model, progress);
    };
    models.push_back(std::move(model));
  }

  const ServeFlags& flags_;
  const TemplateChoice chat_template_;
  std::set<std::string> embeds_only_;  // names
};

std::string ready_line(const ServeFlags& flags, const ServedModel* served, const Offered& offered,
                       bool cache_is_usable) {
  const ServiceOptions& s = flags.service;
  if (flags.check && offered.given.size() > 1)
    return fmt::format("{} models can be opened", offered.given.size());
  std::vector<std::string> names;
  for (const NamedModel& model : offered.models) names.push_back(model.name);
  const std::string all = fmt::format("{} models are offered: {}", names.size(),
                                      escaped(fmt::format("{}", fmt::join(names, ", "))));
  if (!served) return "ready; " + all + ", which are loaded when requests ask for them";
  const std::string others = names.size() > 1 ? "; " + all : "";
  std::string line = fmt::format(
      "{} is ready: a context of {} tokens, at most {} requests at once, {} for prefixes",
      served->name, served->engine().context_length(), s.most_running,
      size_text(served->engine().most_idle_bytes()));
  if (!s.cache_folder.empty())
    line += cache_is_usable
                ? fmt::format(", {} in {}", size_text(s.cache_bytes), escaped(s.cache_folder))
                : fmt::format("; {} cannot be used: nothing is kept over a restart",
                              escaped(s.cache_folder));
  return line + others;
}

int serve(ServeFlags& flags) {
  check(flags);
  const Offered offered(flags);
  ModelsOptions& models = flags.service.models;
  if (flags.memory.empty() && offered.models.size() > 1)
    models.most_bytes = memory_for_models().value_or(0);
  // A client that goes away must not end the server.
  ::signal(SIGPIPE, SIG_IGN);
  // A request for which memory does not suffice ends with status 503. By default the program ends.
  std::set_new_handler(nullptr);
  const Interruption interruption(Interruption::Scope::program);
  Service service(flags.service, offered.models);
  for (const std::string& address : service.addresses()) put(address + "\n");
  std::vector<std::string> opened;
  if (!offered.started.empty()) opened.push_back(offered.started);
  if (!opened.empty() && !flags.check)
    put_summary(
        offered.started +
        " is being loaded: requests wait for it, and /health has status 200 when it is ready");
  service.run(flags.check ? offered.given : opened, interruption.descriptor(),
              [&](const ServedModel* served) {
                put_summary(ready_line(flags, served, offered, service.cache_is_usable()));
                if (flags.check) service.stop();
              });
  return int(Exit::done);
}

}  // namespace

Action declare_serve(Flags parser) {
  auto flags = std::make_shared<ServeFlags>();
  ServiceOptions& s = flags->service;
  flags->generation.declare(parser, flags->models);
  hide_grammar_flags(parser);
  declare_chat_template(parser, flags->chat_template);
  parser
      .add("--think", flags->think,
           "whether models that can think do so, unless the request says it (default {})")
      .one_of({"on", "off"})
      .type("HOW");
  parser
      .add("--alias", flags->alias, "name of the model for clients (default: the name of its file)")
      .not_empty("a name")
      .type("NAME");
  parser.add_switch("--all-models", flags->all_models,
                    "also offer the models of chaski list by their names; each is loaded when a "
                    "request asks for it");
  parser
      .add("--embedding-model", flags->embedding_models,
           "decoder for /v1/embeddings and /api/embed, as for -m (encoders such as BERT do not "
           "run); may be repeated")
      .one_each()
      .not_empty("a model file or folder")
      .type("MODEL");
  parser
      .add("--models-memory", flags->memory,
           "memory of all loaded models together, such as 8G: weights and KV caches; the least "
           "recently used ones are unloaded (default: the free memory)")
      .not_empty("a number of bytes")
      .type("SIZE");
  parser
      .add(
          "--keep-alive", flags->keep,
          "how long a model stays loaded after its last request, such as 5m or forever, unless the "
          "request says it (default: until other models need its memory)")
      .not_empty("a time")
      .type("TIME");
  parser.add_switch(
      "--any-model", s.models.any_name,
      "answer requests for an unknown model with the first one, for clients with a fixed name");
  parser.heading("Server");
  parser.add("--host", s.http.host, "address to listen on (default {})")
      .not_empty("an address")
      .type("ADDRESS");
  const Flag port =
      parser.add("--port", s.http.port, "port; 0: any free one, which is printed (default {})")
          .within(0, kMostPort)
          .type("N");
  parser.add("--socket", s.http.socket_path, "listen on this Unix socket instead of a port")
      .not_empty("a file")
      .excludes(port)
      .type("PATH");
  parser
      .add("--parallel", s.most_running,
           "most requests at once; they share the context's memory and its prefixes (default {})")
      .within(1, kMostThreads)
      .type("N");
  parser
      .add("--queue", s.most_waiting,
           "most requests that wait; further ones get status 503 (default {})")
      .within(0, kMostQueue)
      .type("N");
  parser
      .add(
          "--slowdown", s.models.most_slowdown,
          "while a prompt is read, the time between two tokens of other answers is at most N times "
          "that without it; more for each further prompt that waits (default {})")
      .type("N");
  parser.add("--max-tokens", s.most_tokens, "most tokens of one answer (default: no limit)")
      .within(1, kMaxCount)
      .type("N");
  parser
      .add("--max-seconds", s.http.most_seconds,
           "longest time for an answer; it then ends with the text so far (default: no limit)")
      .within(1, kMostIdle)
      .type("N");
  parser
      .add(
          "--prefix-memory", flags->prefix_memory,
          "memory for keys and values beyond which prefixes that no request uses are dropped, such "
          "as 2G; auto: that of four contexts of up to 8192 tokens (default {})")
      .not_empty("a number of bytes, or auto")
      .knows({"auto"})
      .type("BYTES");
  parser
      .add("--cache", s.cache_folder,
           "keep prefixes and answers in this folder, also over restarts; answers of requests with "
           "a seed or temperature 0")
      .not_empty("a folder")
      .type("DIR");
  flags->cache_size_flag =
      parser
          .add("--cache-size", flags->cache_size,
               "the files of --cache have at most this many bytes (default {})")
          .not_empty("a number of bytes")
          .type("BYTES");
  parser
      .add("--store", s.store_folder,
           "let the page keep conversations in this folder, those of each API key apart")
      .not_empty("a folder")
      .type("DIR");
  flags->store_size_flag =
      parser
          .add("--store-size", flags->store_size,
               "the files of --store have at most this many bytes (default {})")
          .not_empty("a number of bytes")
          .type("BYTES");
  parser.add("--max-body", flags->most_body, "most bytes of a request (default {})")
      .not_empty("a number of bytes")
      .type("BYTES");
  parser
      .add("--timeout", s.http.idle_seconds,
           "close a connection after N seconds without a byte in either direction (default {})")
      .within(1, kMostIdle)
      .type("N");
  parser
      .add("--api-keys", s.gate.keys_file,
           "file of API keys. One key a line. After it may stand name=NAME and limits per minute: "
           "requests=N, tokens=N. SIGHUP reads it again")
      .not_empty("a file")
      .type("FILE");
  parser
      .add("--allow-host", s.gate.hosts,
           "name of this server that clients use; addresses and localhost are always allowed; may "
           "be repeated")
      .one_each()
      .type("NAME");
  parser
      .add("--allow-origin", s.gate.origins,
           "web page that may use this server, such as https://chat.example; *: any; may be "
           "repeated")
      .one_each()
      .type("ORIGIN");
  parser.add_switch(
      "--move-dates", s.move_dates,
      "in Anthropic's interface, move lines with today's date from the system message "
      "to the first question, so that a new date does not empty the prefix cache");
  parser.add_switch("--no-log", flags->no_log, "write no line for each request");
  parser.add_switch("--log-prompts", s.log_prompts,
                    "write the bodies of requests into these lines, with all prompts");
  parser.add_switch("--check", flags->check,
                    "open the model and the sockets, then exit: tests a configuration");
  parser.heading("");
  parser.example("Check that the model loads and the port is free",
                 "chaski serve -m model.gguf --port 0 --check");
  parser.example(
      "Offer two models by name, which take at most 8 GB together",
      "chaski serve -m small=model.gguf -m large=model.gguf --models-memory 8G --port 0 --check");
  parser.example("Listen on a Unix socket, log nothing",
                 "chaski serve -m model.gguf --socket chaski.sock --no-log --check");
  return [flags] { return serve(*flags); };
}

}  // namespace chaski
