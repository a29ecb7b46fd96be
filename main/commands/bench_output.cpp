#include "main/commands/bench_output.h"

#include <algorithm>

#include "main/terminal/json_output.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

using Json = JsonValue;

constexpr double kGiga = 1e9;

// The limit that a case is nearer to, and the share of it that is reached. Above 1 for weights that
// fit into the caches, because they are not read from memory.
struct Nearest {
  const char* what;
  double share;
};
Nearest nearer(double memory, double arithmetic, double seconds) {
  return memory >= arithmetic ? Nearest{"memory", memory / seconds}
                              : Nearest{"arithmetic", arithmetic / seconds};
}
Nearest nearest_of(const BenchCase& c, const MachineLimits& l) {
  const int tokens = c.tokens_a_unit();
  return nearer(c.cpu.memory_seconds(l.cpu) + c.device.memory_seconds(l.device),
                c.cpu.arithmetic_seconds(l.cpu, c.format, tokens) +
                    c.device.arithmetic_seconds(l.device, c.format, tokens),
                c.seconds.median);
}
Nearest nearest_of(const StepTime& s, const BenchCase& c, const MachineLimits& l) {
  const Limits& there = s.name.on_device ? l.device : l.cpu;
  return nearer(s.work.memory_seconds(there),
                s.work.arithmetic_seconds(there, c.format, c.tokens_a_unit()), s.seconds);
}
// The limits that a row shows: the CPU's, unless only the device runs layers. The CPU's also if its
// memory could not be measured, because its arithmetic always is.
const Limits& first_of(const MachineLimits& l) {
  return l.device.measured() && !l.cpu.measured() ? l.device : l.cpu;
}

// The pass with the fewest tokens of a series, the denominator of T(n) / T(1).
const BenchCase* narrowest(const std::vector<BenchCase>& cases, const BenchCase& c) {
  const BenchCase* least = &c;
  for (const BenchCase& other : cases)
    if (other.kind == c.kind && other.kv == c.kv && other.depth == c.depth &&
        other.tokens < least->tokens)
      least = &other;
  return least;
}

std::string table_row(const BenchCase& c, const BenchResult& r, const MachineLimits& limits) {
  const int n = c.tokens_a_unit();
  const Nearest limit = nearest_of(c, limits);
  std::string row =
      fmt::format("{:<9}{:>6} {:>7} {:>4} {:>7} {:>10.4g} ({:.4g} to {:.4g})", c.name(), c.tokens,
                  c.format, c.kv, c.depth, c.rate(), n / c.seconds.most, n / c.seconds.least);
  row = fmt::format("{:<68}{:>10.4g} {:>8.4g} {:>8.4g}  {:.0f}% of {}", row, 1e3 * c.seconds.median,
                    c.bytes() / c.seconds.median / kGiga, c.operations() / c.seconds.median / kGiga,
                    100 * limit.share, limit.what);
  if (c.kind != BenchCase::Kind::width) return row + "\n";
  const BenchCase& one = *narrowest(r.cases, c);
  return row + fmt::format(", T({})/T({}) {:.3g}\n", c.tokens, one.tokens,
                           c.seconds.median / one.seconds.median);
}

std::string rounded(double n) { return fmt::format("{:.4g}", n); }

std::string profile_rows(const BenchCase& c, const MachineLimits& limits) {
  double all = 0;
  for (const StepTime& s : c.profile) all += s.seconds;
  std::string text = fmt::format("  {} passes", rounded(c.passes));
  if (c.steps > 0) text += fmt::format(", {} steps", rounded(c.steps));
  if (c.kernels > 0) text += fmt::format(", {} kernels", rounded(c.kernels));
  text += "\n";
  for (const StepTime& s : c.profile) {
    if (s.seconds == 0) continue;  // part of a device's matmul, see cuda/backend/fused.h
    const Nearest limit = nearest_of(s, c, limits);
    const std::string name = fmt::format("{}{}{}{}", s.name.on_device ? "device " : "", s.name.op,
                                         s.name.weight.empty() ? "" : " ", s.name.weight);
    text += fmt::format(
        "  {:<30}{:>5} calls {:>9.4g} ms {:>5.1f}% {:>9.4g} MB {:>7.4g} GB/s {:>8.4g} Gop/s", name,
        rounded(s.calls), 1e3 * s.seconds, 100 * s.seconds / all, s.work.bytes / 1e6,
        s.work.bytes / s.seconds / kGiga, s.work.operations / s.seconds / kGiga);
    text += limit.share >= 0.005 ? fmt::format("  {:.0f}% of {}\n", 100 * limit.share, limit.what)
                                 : "\n";
  }
  return text;
}

// A case as a row. The names are the columns of the CSV and the keys of the JSON; never rename
// them.
Json fields(const BenchRun& run, const BenchCase& c, const MachineLimits& machine) {
  const Nearest limit = nearest_of(c, machine);
  const Limits& limits = first_of(machine);
  return {{"model", run.model},
          {"format", c.format},
          {"isa", run.isa},
          {"threads", run.threads},
          {"load", run.load},
          {"kv", c.kv},
          {"case", c.name()},
          {"tokens", c.tokens},
          {"depth", c.depth},
          {"seconds", c.seconds.median},
          {"seconds_least", c.seconds.least},
          {"seconds_most", c.seconds.most},
          {"tokens_per_second", c.rate()},
          {"bytes", c.bytes()},
          {"operations", c.operations()},
          {"gigabytes_per_second", c.bytes() / c.seconds.median / kGiga},
          {"gigaops_per_second", c.operations() / c.seconds.median / kGiga},
          {"limit", limit.what},
          {"share_of_limit", limit.share},
          {"read_gigabytes_per_second", limits.memory / kGiga},
          {"int8_gigaops_per_second", limits.integer(c.format, c.tokens_a_unit()) / kGiga},
          {"f32_gigaops_per_second", limits.floating("f32") / kGiga},
          {"device", run.device}};
}

Json limits_json(const Limits& l, const char* memory) {
  Json json = {{memory, l.memory / kGiga}};
  for (const auto& [format, rate] : l.arithmetic)
    json[format + "_gigaops_per_second"] = rate / kGiga;
  return json;
}
Json limits_json(const MachineLimits& l) {
  Json json = l.cpu.measured() ? limits_json(l.cpu, "read_gigabytes_per_second") : Json::object();
  if (l.device.measured()) json["device"] = limits_json(l.device, "copy_gigabytes_per_second");
  return json;
}

std::string limits_line(const char* what, const Limits& before, const Limits& after) {
  if (!before.measured()) return "";
  std::string line = fmt::format("limits before and after: {} {:.4g} and {:.4g} GB/s; arithmetic",
                                 what, before.memory / kGiga, after.memory / kGiga);
  for (const auto& [format, rate] : before.arithmetic)
    line += fmt::format(" {} {:.4g} and {:.4g}", format, rate / kGiga,
                        after.arithmetic.at(format) / kGiga);
  return line + " Gop/s\n";
}

Json ops_json(const BenchCase& c) {
  Json list = Json::array();
  for (const StepTime& s : c.profile)
    list.push_back({{"op", s.name.op},
                    {"weight", s.name.weight},
                    {"on_device", s.name.on_device},
                    {"calls", s.calls},
                    {"seconds", s.seconds},
                    {"bytes", s.work.bytes},
                    {"operations", s.work.operations}});
  return list;
}

// A field as in RFC 4180: text is quoted if needed.
std::string csv_field(const Json& value) {
  if (!value.is_string()) return value.dump();
  const std::string& text = value.string();
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

void put_bench_table(const BenchRun& run, const BenchResult& r) {
  const std::string where = run.device == "cpu" ? "" : run.device + ", ";
  std::string text =
      fmt::format("{}: {:.3g} GB of weights, {}{} threads, {}, median of {}\n", escaped(run.model),
                  run.weight_bytes / kGiga, where, run.threads, run.isa, run.repetitions);
  for (const KvStates& s : run.states) text += states_line(s);
  text += fmt::format("{:<15} {:>7} {:>4} {:>7} {:>10} {:<20}{:>10} {:>8} {:>8}  {}\n", "case",
                      "weights", "kv", "depth", "tok/s", "(least to most)", "ms", "GB/s", "Gop/s",
                      "nearest limit");
  for (const BenchCase& c : r.cases) {
    const MachineLimits limits = r.limits(c);
    text += table_row(c, r, limits);
    if (!c.profile.empty()) text += profile_rows(c, limits);
  }
  if (!r.sgemm_library.empty()) text += fmt::format("sgemm by {}\n", r.sgemm_library);
  put(text + limits_line("memory reads", r.before.cpu, r.after.cpu) +
      limits_line("copies of the device", r.before.device, r.after.device));
}

void put_bench_json(const BenchRun& run, const BenchResult& r) {
  Json cases = Json::array();
  for (const BenchCase& c : r.cases) {
    cases.push_back(fields(run, c, r.limits(c)));
    if (c.profile.empty()) continue;
    cases.back().update(
        {{"passes", c.passes}, {"steps", c.steps}, {"kernels", c.kernels}, {"ops", ops_json(c)}});
  }
  Json states = Json::array();
  for (const KvStates& s : run.states) states.push_back(states_json(s));
  Json json = {{"model", run.model},
               {"isa", run.isa},
               {"device", run.device},
               {"threads", run.threads},
               {"threads_used", run.threads_used},
               {"repetitions", run.repetitions},
               {"weight_bytes", run.weight_bytes},
               {"states", states},
               {"limits_before", limits_json(r.before)},
               {"limits_after", limits_json(r.after)},
               {"cases", cases}};
  if (!r.sgemm_library.empty()) json["sgemm_library"] = r.sgemm_library;
  put_json(json);
}

void put_bench_csv(const BenchRun& run, const BenchResult& r) {
  std::string header, rows;
  for (const BenchCase& c : r.cases) {
    const Json all = fields(run, c, r.limits(c));
    std::string row;
    header.clear();
    for (const auto& [name, value] : all.members()) {
      header += (header.empty() ? "" : ",") + name;
      row += (row.empty() ? "" : ",") + csv_field(value);
    }
    rows += row + "\n";
  }
  put(header + "\n" + rows);
}

}  // namespace chaski
