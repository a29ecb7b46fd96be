#include "main/bench_output.h"

#include <algorithm>

#include "main/json_output.h"
#include "main/output.h"

namespace chaski {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kGiga = 1e9;

// Which limit a case is nearer to, and how near. Above 1 for weights that fit into the caches: they are not read from memory.
struct Bound {
  const char* what;
  double share;
};
Bound bound_of(const BenchCase& c, const Limits& limits) {
  const double memory = c.memory_seconds(limits), arithmetic = c.arithmetic_seconds(limits);
  return memory >= arithmetic ? Bound{"memory", memory / c.seconds.median} : Bound{"arithmetic", arithmetic / c.seconds.median};
}

// The pass with the fewest tokens beside which T(n) / T(1) is told.
const BenchCase* narrowest(const std::vector<BenchCase>& cases, const BenchCase& c) {
  const BenchCase* least = &c;
  for (const BenchCase& other : cases)
    if (other.kind == c.kind && other.kv == c.kv && other.depth == c.depth && other.tokens < least->tokens) least = &other;
  return least;
}

std::string table_row(const BenchCase& c, const BenchResult& r, const Limits& limits) {
  const int n = c.tokens_a_unit();
  const Bound bound = bound_of(c, limits);
  std::string row = fmt::format("{:<7}{:>6} {:>7} {:>4} {:>7} {:>10.4g} ({:.4g} to {:.4g})", c.name(), c.tokens, c.format, c.kv, c.depth,
                                c.rate(), n / c.seconds.most, n / c.seconds.least);
  row = fmt::format("{:<66}{:>10.4g} {:>8.4g} {:>8.4g}  {:.0f}% of {}", row, 1e3 * c.seconds.median, c.bytes / c.seconds.median / kGiga,
                    c.operations / c.seconds.median / kGiga, 100 * bound.share, bound.what);
  if (c.kind != BenchCase::Kind::width) return row + "\n";
  const BenchCase& one = *narrowest(r.cases, c);
  return row + fmt::format(", T({})/T({}) {:.3g}\n", c.tokens, one.tokens, c.seconds.median / one.seconds.median);
}

std::string counted(double n) { return fmt::format("{:.4g}", n); }

std::string profile_rows(const BenchCase& c) {
  double all = 0;
  for (const OpTime& o : c.ops) all += o.seconds;
  std::string text = fmt::format("  {} passes, {} steps, {} barriers\n", counted(c.passes), counted(c.steps), counted(c.barriers));
  for (const OpTime& o : c.ops)
    text += fmt::format("  {:<14}{:>5} calls {:>9.4g} ms {:>5.1f}% {:>9.4g} MB {:>7.4g} GB/s {:>8.4g} Gop/s\n", o.op, counted(o.calls),
                        1e3 * o.seconds, 100 * o.seconds / all, o.bytes / 1e6, o.bytes / o.seconds / kGiga,
                        o.operations / o.seconds / kGiga);
  return text;
}

// A case as a row: the names are the columns of the CSV and the keys of the JSON, and stay.
Json fields(const BenchRun& run, const BenchCase& c, const Limits& limits) {
  const Bound bound = bound_of(c, limits);
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
          {"bytes", c.bytes},
          {"operations", c.operations},
          {"gigabytes_per_second", c.bytes / c.seconds.median / kGiga},
          {"gigaops_per_second", c.operations / c.seconds.median / kGiga},
          {"limit", bound.what},
          {"share_of_limit", bound.share},
          {"read_gigabytes_per_second", limits.read / kGiga},
          {"int8_gigaops_per_second", limits.integer(c.format) / kGiga},
          {"f32_gigaops_per_second", limits.f32() / kGiga}};
}

Json limits_json(const Limits& l) {
  Json json = {{"read_gigabytes_per_second", l.read / kGiga}};
  for (const auto& [format, rate] : l.arithmetic) json[format + "_gigaops_per_second"] = rate / kGiga;
  return json;
}

Json ops_json(const BenchCase& c) {
  Json list = Json::array();
  for (const OpTime& o : c.ops)
    list.push_back({{"op", o.op}, {"calls", o.calls}, {"seconds", o.seconds}, {"bytes", o.bytes}, {"operations", o.operations}});
  return list;
}

// RFC 4180: a text is quoted if it has to be.
std::string csv_field(const Json& value) {
  if (!value.is_string()) return value.dump();
  const std::string text = value.get<std::string>();
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

void put_bench_table(const BenchRun& run, const BenchResult& r) {
  const Limits limits = r.limits();
  std::string text = fmt::format("{}: {:.3g} GB of weights, {} threads, {}, median of {}\n", escaped(run.model), run.weight_bytes / kGiga,
                                 run.threads, run.isa, run.repetitions);
  text += fmt::format("{:<13} {:>7} {:>4} {:>7} {:>10} {:<20}{:>10} {:>8} {:>8}  {}\n", "case", "weights", "kv", "depth", "tok/s",
                      "(least to most)", "ms", "GB/s", "Gop/s", "nearest limit");
  for (const BenchCase& c : r.cases) {
    text += table_row(c, r, limits);
    if (!c.ops.empty()) text += profile_rows(c);
  }
  if (!r.sgemm_library.empty()) text += fmt::format("sgemm by {}\n", r.sgemm_library);
  text += fmt::format("limits before and after: memory reads {:.4g} and {:.4g} GB/s; arithmetic", r.before.read / kGiga,
                      r.after.read / kGiga);
  for (const auto& [format, rate] : r.before.arithmetic)
    text += fmt::format(" {} {:.4g} and {:.4g}", format, rate / kGiga, r.after.arithmetic.at(format) / kGiga);
  put(text + " Gop/s\n");
}

void put_bench_json(const BenchRun& run, const BenchResult& r) {
  Json cases = Json::array();
  for (const BenchCase& c : r.cases) {
    cases.push_back(fields(run, c, r.limits()));
    if (c.ops.empty()) continue;
    cases.back().update({{"passes", c.passes}, {"steps", c.steps}, {"barriers", c.barriers}, {"ops", ops_json(c)}});
  }
  Json json = {{"model", run.model},
               {"isa", run.isa},
               {"threads", run.threads},
               {"repetitions", run.repetitions},
               {"weight_bytes", run.weight_bytes},
               {"limits_before", limits_json(r.before)},
               {"limits_after", limits_json(r.after)},
               {"cases", cases}};
  if (!r.sgemm_library.empty()) json["sgemm_library"] = r.sgemm_library;
  put_json(json);
}

void put_bench_csv(const BenchRun& run, const BenchResult& r) {
  std::string header, rows;
  for (const BenchCase& c : r.cases) {
    const Json all = fields(run, c, r.limits());
    std::string row;
    header.clear();
    for (const auto& [name, value] : all.items()) {
      header += (header.empty() ? "" : ",") + name;
      row += (row.empty() ? "" : ",") + csv_field(value);
    }
    rows += row + "\n";
  }
  put(header + "\n" + rows);
}

}  // namespace chaski
