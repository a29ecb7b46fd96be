// chaski plan: predicts memory and speed of a model before its weights are read. Its exit status is
// that of chaski run, as far as it can be predicted.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "engine/measure/forecast.h"
#include "engine/measure/kv_loss.h"
#include "engine/shelf/shelf.h"
#include "main/flags/commands.h"
#include "main/flags/options.h"
#include "main/terminal/json_output.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

struct PlanFlags {
  ModelFlags model;
  std::string shape;
  int hosts = 1;
  std::string link = "1G,80us";
  bool measure_again = false, json = false;
};

std::string speed_text(double rate) {
  return fmt::format("{:.{}f} tok/s", rate, rate < 10 ? 2 : rate < 100 ? 1 : 0);
}
std::string kv_name(Format kv) { return std::string(info(kv).name); }

std::string row(const char* what, const std::string& found, const std::string& about = "") {
  return about.empty() ? fmt::format("  {:<18}{:>12}\n", what, found)
                       : fmt::format("  {:<18}{:>12}  {}\n", what, found, about);
}

std::string where_weights_are(const Forecast& f) {
  if (f.mapped) return "stay in the mapped file";
  return f.kind == "random weights" || f.kind.starts_with("quipu")
             ? "in memory"
             : fmt::format("a copy in memory of the {}", f.kind);
}

std::string memory_table(const Forecast& f) {
  std::string text = row("weights", size_text(f.weights), where_weights_are(f));
  text += row("keys and values", size_text(f.states),
              fmt::format("in {}, a full context of {}", kv_name(f.kv), f.context));
  if (f.recurrent > 0)
    text += row("recurrent state", size_text(f.recurrent),
                "of a text of any length; the row above has it, with its copies");
  if (const std::string known = kv_loss(f.kv); !known.empty())
    text += row("KL from f16", f.kv_loss ? fmt::format("{:.2g}", f.kv_loss->kl) : "unknown",
                fmt::format("{}; on four models with f16 weights it is {}",
                            f.kv_loss ? "measured with this model"
                                      : "for this model: run, chat and eval measure it",
                            known));
  text += row("activations", size_text(f.activations),
              fmt::format("of a pass, {}", counted(uint64_t(f.threads), "thread")));
  if (f.experts)
    text +=
        row("experts", size_text(f.experts->bytes),
            fmt::format("of {} in memory, {:.0f}% of the chosen ones {}; {:.1f} MB a token are "
                        "read from the file at {:.2f} GB/s",
                        size_text(f.experts->all), 100 * f.experts->found,
                        f.experts->uses_known ? "by their use in earlier runs"
                                              : "if all are chosen equally often",
                        double(f.experts->read_a_token) / 1e6, f.experts->file_bandwidth / 1e9));
  if (f.streamed)
    text += row("streamed", size_text(f.streamed->a_pass),
                fmt::format("of the weights are not kept in memory: every token reads them from "
                            "the file at {:.2f} GB/s into a ring buffer of {}",
                            f.streamed->file_bandwidth / 1e9, size_text(f.streamed->ring)));
  text += row("program", size_text(f.program), "with its tokenizer");
  text += row("all", size_text(f.sum()),
              f.have ? fmt::format("{} are available", size_text(*f.have)) : "");
  if (f.device_needs > 0)
    text += row("on the GPU", size_text(f.device_needs),
                fmt::format("of {} free, {} of {} layers", size_text(f.device_has),
                            f.layers - f.cpu_layers, f.layers));
  return text;
}

std::string speed_table(const Forecast& f) {
  if (f.cpu_layers < f.layers)
    return row("speed", "unknown", "for layers on a GPU; chaski bench measures it");
  if (!f.no_speed.empty()) return row("speed", "unknown", f.no_speed);
  if (!f.speed) return "";
  std::string text = row("prompt", speed_text(f.speed->prompt),
                         fmt::format("of {} tokens", std::min(kForecastPrompt, f.own_context)));
  text += row("decode", speed_text(f.speed->decode),
              f.bandwidth > 0 ? fmt::format("{} a token; memory reads {:.1f} GB/s",
                                            size_text(f.bytes_a_token), f.bandwidth / 1e9)
                              : "");
  if (const double end = f.decode_at_the_end(); end > 0)
    text += row("at the end", speed_text(end), "at most, when the context is full");
  return text;
}

// "1G,80us": bits a second, and the time from one machine to another.
LinkSpeed link_of(const std::string& text) {
  const auto refuse = [&] {
    fail(Exit::usage, "--link is {}, expected bits a second and a latency, such as 1G,80us",
         escaped(text));
  };
  const auto number_and_unit = [&](const std::string& part,
                                   std::initializer_list<std::pair<const char*, double>> units) {
    char* end = nullptr;
    const double number = std::strtod(part.c_str(), &end);
    for (const auto& [unit, times] : units)
      if (std::string_view(end) == unit && number > 0 && number * times < 1e15)
        return number * times;
    refuse();
    return 0.0;
  };
  const size_t comma = text.find(',');
  if (comma == text.npos) refuse();
  return {number_and_unit(text.substr(0, comma), {{"M", 1e6}, {"G", 1e9}}) / 8,
          number_and_unit(text.substr(comma + 1), {{"us", 1e-6}, {"ms", 1e-3}})};
}

// The number of machines that decodes fastest, if speeds are known.
int best_of(const std::vector<FleetForecast>& fleet) {
  return std::ranges::max_element(fleet, {}, [](const auto& f) { return f.speed->decode; })->ranks;
}

std::string fleet_table(const Forecast& f, int hosts, const std::string& link) {
  if (f.fleet.empty()) return "";
  const FleetForecast& n = f.fleet[size_t(hosts) - 1];
  const std::string each = "each of " + std::to_string(hosts);
  const std::string memory = row(each.c_str(), size_text(n.weights + n.states),
                                 fmt::format("{} of weights, {} of keys and values",
                                             size_text(n.weights), size_text(n.states)));
  if (!n.speed)
    return memory + row("speed, together", "unknown",
                        "because the model does not fit into this machine's memory, where it "
                        "would be measured");
  return memory + row("prompt, together", speed_text(n.speed->prompt), "with a link of " + link) +
         row("decode, together", speed_text(n.speed->decode),
             fmt::format("{} gathers and {:.2f} MB a token; {} is the fastest", n.gathers,
                         double(n.received) / 1e6, counted(uint64_t(best_of(f.fleet)), "machine")));
}

std::string ways_text(const Forecast& f, const EngineOptions& options) {
  std::string text;
  for (const Remedy& way : f.ways)
    text +=
        row("would fit", size_text(way.bytes + f.program), remedy_text(way, options, f.context));
  return f.map.empty() ? text : text + row("or mapped", "", f.map);
}

std::string verdict_of_memory(const Forecast& f, const EngineOptions& options) {
  const char* const runs = f.has_tokenizer ? "it runs" : "it would run";
  if (!f.fits && f.starts && f.longest_context == 0)
    return fmt::format("{}, but almost no memory is left for a context", runs);
  if (!f.fits && f.starts)
    return fmt::format("{}, but a context of {} does not fit: {} tokens do", runs, f.context,
                       f.longest_context);
  if (!f.fits)
    return "it does not fit" + (f.ways.empty()
                                    ? fmt::format(", not even with fewer bits per weight{}",
                                                  f.map.empty() ? "" : ", unless it is mapped")
                                    : ": " + remedy_text(f.ways[0], options, f.context) + " does");
  if (f.experts)
    return fmt::format(
        "{}: experts are read from the file when they are chosen, because not all fit into memory",
        runs);
  if (f.streamed)
    return fmt::format("{} slowly: every token reads {} of weights from the file, because {}", runs,
                       size_text(f.streamed->a_pass),
                       options.weight_memory > 0 ? "--weight-memory leaves no more room"
                                                 : "the weights do not fit into memory");
  if (!f.weights_stay)
    return fmt::format(
        "{} slowly: the weights are larger than memory, so every token reads them from the disk",
        runs);
  return fmt::format("it fits, with a context of {}", f.context);
}

std::string verdict(const Forecast& f, const EngineOptions& options) {
  const std::string memory = verdict_of_memory(f, options);
  if (f.has_tokenizer) return memory;
  return fmt::format(
      "it does not run, because it has no tokenizer{}; as for memory, {}",
      std::filesystem::is_directory(f.path) ? " (a tokenizer.json in its folder would do)" : "",
      memory);
}

Exit exit_of(const Forecast& f) {
  return !f.starts ? Exit::memory : f.has_tokenizer ? Exit::done : Exit::bad_file;
}

JsonValue json_of(const Forecast& f, const EngineOptions& options) {
  JsonValue ways = JsonValue::array();
  for (const Remedy& way : f.ways) {
    ways.push_back({{"change", remedy_text(way, options, f.context)},
                    {"context", way.context},
                    {"kv", kv_name(way.kv)},
                    {"bytes", way.bytes + f.program}});
    if (way.weights) ways.back()["weights"] = info(*way.weights).name;
  }
  JsonValue json = {{"model", f.path},
                    {"kind", f.kind},
                    {"context", f.context},
                    {"own_context", f.own_context},
                    {"kv", kv_name(f.kv)},
                    {"threads", f.threads},
                    {"layers", f.layers},
                    {"device_layers", f.layers - f.cpu_layers},
                    {"weight_bytes", f.weights},
                    {"weights_mapped", f.mapped},
                    {"state_bytes", f.states},
                    {"recurrent_bytes", f.recurrent},
                    {"activation_bytes", f.activations},
                    {"program_bytes", f.program},
                    {"bytes", f.sum()},
                    {"fits", f.fits},
                    {"starts", exit_of(f) == Exit::done},
                    {"has_tokenizer", f.has_tokenizer},
                    {"weights_stay_in_memory", f.weights_stay},
                    {"longest_context", f.longest_context},
                    {"ways", ways},
                    {"weight_bytes_a_token", f.bytes_a_token},
                    {"verdict", verdict(f, options)}};
  if (f.have) json["available_bytes"] = *f.have;
  if (f.kv_loss) json["kv_kl"] = f.kv_loss->kl;
  if (f.device_needs > 0)
    json["device_bytes"] = f.device_needs, json["device_free_bytes"] = f.device_has;
  if (f.experts) {
    json["expert_bytes"] = f.experts->all, json["expert_memory_bytes"] = f.experts->bytes;
    json["experts_found"] = f.experts->found;
    json["read_bytes_a_token"] = f.experts->read_a_token;
    json["file_gigabytes_per_second"] = f.experts->file_bandwidth / 1e9;
  }
  if (f.streamed) {
    json["read_bytes_a_token"] = f.streamed->a_pass;
    json["file_gigabytes_per_second"] = f.streamed->file_bandwidth / 1e9;
  }
  if (f.speed) {
    json["prompt_tokens_per_second"] = f.speed->prompt;
    json["decode_tokens_per_second"] = f.speed->decode;
  }
  if (!f.fleet.empty()) json["hosts"] = JsonValue::array();
  for (const FleetForecast& n : f.fleet) {
    JsonValue host = {{"hosts", n.ranks},
                      {"weight_bytes", n.weights},
                      {"state_bytes", n.states},
                      {"gathers_a_token", n.gathers},
                      {"received_bytes_a_token", n.received}};
    if (n.speed) {
      host["prompt_tokens_per_second"] = n.speed->prompt;
      host["decode_tokens_per_second"] = n.speed->decode;
    }
    json["hosts"].push_back(host);
  }
  if (!f.fleet.empty() && f.speed) json["fastest_hosts"] = best_of(f.fleet);
  if (f.bandwidth > 0) {
    json["read_gigabytes_per_second"] = f.bandwidth / 1e9;
    json["decode_tokens_per_second_at_the_end"] = f.decode_at_the_end();
  }
  return json;
}

int plan(const PlanFlags& flags) {
  ForecastOptions options;
  options.engine = flags.model.options(), options.measure_again = flags.measure_again;
  options.note = [](const std::string& what) {
    if (stderr_is_terminal()) put_note("measuring " + what + ", once on this machine ...");
  };
  if (!flags.shape.empty()) options.shape = shape_of(flags.shape);
  options.ranks = flags.hosts, options.link = link_of(flags.link);
  const Forecast f = forecast(options);
  const int status = int(exit_of(f));
  if (flags.json) {
    put_json(json_of(f, options.engine));
    return status;
  }
  put(fmt::format("{}: {}, {}\n", escaped(flags.shape.empty() ? f.path : flags.shape), f.kind,
                  counted(uint64_t(f.layers), "layer")) +
      memory_table(f) +
      row("context", std::to_string(f.longest_context),
          fmt::format("that fits; the model's own is {}", f.own_context)) +
      ways_text(f, options.engine) + speed_table(f) + fleet_table(f, flags.hosts, flags.link) +
      verdict(f, options.engine) + "\n");
  return status;
}

}  // namespace

Action declare_plan(Flags parser) {
  auto flags = std::make_shared<PlanFlags>();
  flags->model.declare(parser);
  declare_shape(parser, flags->shape);
  parser
      .add("MODEL", flags->model.engine.model,
           "model file or folder, as for -m (default: the bundled model)")
      .not_empty("a model file or folder")
      .model()
      .excludes(parser.named("--model"))
      .excludes(parser.named("--shape"));
  parser.add_switch("--measure", flags->measure_again,
                    "measure speeds again, even if an earlier plan kept them");
  parser
      .add("--hosts", flags->hosts,
           "also predict the model on N machines as fast as this one (docs/fleet.md)")
      .within(1, 1024)
      .type("N");
  parser
      .add("--link", flags->link,
           "network between them: bits a second, and the time from one to another (default {})")
      .type("SPEED,TIME");
  declare_json(parser, flags->json);
  parser.table(
      {"Exit status",
       {{"0", "chaski run would start"},
        {"3", "the model would not start: it has no tokenizer, or its file is damaged"},
        {"4", "the model would not start: memory is too small; the last line says what fits"}}});
  parser.example("Memory and speed of a model", "chaski plan model.gguf");
  parser.example("With a longer context and smaller keys",
                 "chaski plan model.gguf -c 2048 --kv q8");
  parser.example("For a program, before anything is read", "chaski plan model.gguf --json");
  return [flags] { return plan(*flags); };
}

}  // namespace chaski
