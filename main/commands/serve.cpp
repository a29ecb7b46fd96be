// chaski serve: a local server that speaks the interfaces of OpenAI, Anthropic, ollama and
// llama-server. stdout gets its address, stderr a line of JSON for each request.
#include <algorithm>
#include <csignal>
#include <memory>
#include <new>

#include "main/commands/speaker.h"
#include "main/flags/commands.h"
#include "main/flags/values.h"
#include "main/serve/service.h"
#include "main/terminal/output.h"
#include "main/terminal/signals.h"

namespace chaski {

namespace {

constexpr int kMostThreads = 256, kMostQueue = 100'000, kMostPort = 65535, kMostIdle = 86400;
// Sessions for which a device reserves memory. More requests share it.
constexpr int kReservedSessions = 4;

struct ServeFlags {
  GenerationFlags generation;
  ServiceOptions service;
  std::string alias, think = "on", chat_template, most_body = "32M";
  bool no_log = false, check = false;
};

void check(ServeFlags& flags) {
  GenerationFlags& g = flags.generation;
  g.resolve_config_conflicts();
  g.check();
  expect_no_grammar(g);
  flags.service.http.most_body = size_t(bytes_of("--max-body", flags.most_body));
  flags.service.log = !flags.no_log && !is_quiet();
  g.model.engine.sessions = std::min(flags.service.most_running, kReservedSessions);
}

ServedModel open_served(const ServeFlags& flags, const TemplateChoice& chat_template,
                        const std::function<void(double)>& progress) {
  ServedModel served;
  served.name =
      flags.alias.empty() ? served_name(flags.generation.model.engine.model) : flags.alias;
  served.created = unix_time();
  GenerationFlags generation = flags.generation;
  generation.model.engine.upload = [&](uint64_t done, uint64_t all) {
    progress(all > 0 ? double(done) / double(all) : 0);
  };
  served.model = open_loaded_model(generation);
  served.chat_template = chat_template;
  served.defaults.request = generation.generate;
  served.defaults.request.context_policy = context_policy_of(generation.context_policy);
  served.defaults.random_seed = generation.random_seed;
  served.defaults.thinks = flags.think == "on";
  return served;
}

int serve(ServeFlags& flags) {
  check(flags);
  const TemplateChoice chat_template = template_of(flags.chat_template);
  // A client that goes away must not end the server.
  ::signal(SIGPIPE, SIG_IGN);
  // A request for which memory does not suffice ends with status 503. By default the program ends.
  std::set_new_handler(nullptr);
  const Interruption interruption(Interruption::Scope::program);
  Service service(flags.service);
  for (const std::string& address : service.addresses()) put(address + "\n");
  service.run([&](const auto& progress) { return open_served(flags, chat_template, progress); },
              interruption.descriptor(),
              [&](const ServedModel& served) {
                put_summary(fmt::format(
                    "{} is ready: a context of {} tokens, at most {} requests at once", served.name,
                    served.engine().context_length(), flags.service.most_running));
                if (flags.check) service.stop();
              });
  return int(Exit::done);
}

}  // namespace

Action declare_serve(Flags parser) {
  auto flags = std::make_shared<ServeFlags>();
  ServiceOptions& s = flags->service;
  flags->generation.declare(parser);
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
  parser.add_switch("--any-model", s.any_model,
                    "answer requests for any model name, for clients with a fixed one");
  parser.heading("Server");
  parser.add("--host", s.http.host, "address to listen on (default {})")
      .not_empty("an address")
      .type("ADDRESS");
  parser.add("--port", s.http.port, "port; 0: any free one, which is printed (default {})")
      .within(0, kMostPort)
      .type("N");
  parser.add("--socket", s.http.socket_path, "listen on this Unix socket instead of a port")
      .not_empty("a file")
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
  parser.add("--max-tokens", s.most_tokens, "most tokens of one answer (default: no limit)")
      .within(1, kMaxCount)
      .type("N");
  parser
      .add("--max-seconds", s.http.most_seconds,
           "longest time for an answer; it then ends with the text so far (default: no limit)")
      .within(1, kMostIdle)
      .type("N");
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
  parser.example("Serve for one second, at most two requests at once",
                 "timeout --preserve-status 1 chaski serve -m model.gguf --port 0 --parallel 2");
  parser.example("Listen on a Unix socket, log nothing",
                 "chaski serve -m model.gguf --socket chaski.sock --no-log --check");
  return [flags] { return serve(*flags); };
}

}  // namespace chaski
