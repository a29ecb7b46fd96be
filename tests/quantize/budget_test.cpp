// engine/quantize/budget.h: formats for a budget, recipes, and the flags for both.
#include "engine/quantize/budget.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/quantize/mixture.h"
#include "engine/quantize/quantize.h"
#include "engine/shelf/model_file.h"
#include "models/architecture.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;

namespace {

// Invented sensitivities of the bundled model: later layers matter more.
Calibration invented(const ModelSource& in) {
  Calibration c;
  for (const TensorSource& t : in.tensors)
    if (t.info.tiled())
      c.kl[t.info.name] =
          t.info.name.starts_with("layer.") ? 0.001 * (1 + double(t.info.name[6] - '0')) : 0.02;
  return c;
}

uint64_t bytes_in(const std::string& path) { return open_quipu(path)->bytes(); }
uint64_t file_bytes(const std::string& path) { return std::filesystem::file_size(path); }

}  // namespace

TEST_CASE("budget/more bytes give less divergence, and never exceed the budget") {
  const ModelSource in = source_of(open_quipu(kStory));
  const Calibration known = invented(in);
  uint64_t own = 0;
  for (const TensorSource& t : in.tensors) own += t.info.bytes();
  const FormatCosts costs(jobs_of(in), kStory, known, 2);
  double before = 1;
  for (const uint64_t most : {1100000, 1300000, 1650000, 1800000, 2000000, 2500000}) {
    RecipeLimit budget;
    budget.bytes = most;
    const FormatPlan plan = costs.plan(budget);
    CAPTURE(most);
    CHECK(plan.bytes <= most);
    CHECK(plan.bytes > most - 110000);  // fewer bytes are left than a step takes
    CHECK(plan.kl < before);
    before = plan.kl;
    uint64_t bytes = 0;
    for (const FormatPlan::Row& row : plan.tensors) bytes += row.bytes;
    CHECK(bytes == plan.bytes);
    // Of equal weights, the one that matters more never has fewer bits.
    for (int layer = 1; layer < 6; ++layer)
      CHECK(info(plan.recipe.at(fmt::format("layer.{}.ffn_down", layer))).bits() + 0.3 >=
            info(plan.recipe.at(fmt::format("layer.{}.ffn_down", layer - 1))).bits());
  }
  RecipeLimit all;
  all.bytes = own;
  CHECK(costs.plan(all).kl < 1e-12);  // every tensor keeps its own format
  RecipeLimit bits;
  bits.bits_per_weight = 5;
  const FormatPlan plan = costs.plan(bits);
  CHECK(plan.bits_per_weight() <= 5);
  CHECK(plan.bits_per_weight() > 4.7);
  RecipeLimit kl;
  kl.kl = plan.kl;
  CHECK(costs.plan(kl).bytes < plan.bytes + 110000);
  CHECK(costs.plan(kl).kl <= plan.kl);
}

TEST_CASE("budget/an impossible budget is refused with both numbers") {
  const ModelSource in = source_of(open_quipu(kStory));
  const WeightJobs jobs = jobs_of(in);
  RecipeLimit little;
  little.bytes = 900000;
  const Error error = error_of([&] { FormatCosts(jobs, in.path, invented(in), 1).plan(little); });
  CHECK(error.code == Exit::usage);
  CHECK_MESSAGE(contains(error.what(), "the budget is 0.90 MB, expected at least 0.9"),
                error.what());
  CHECK(error_of([&] { FormatCosts(jobs, in.path, {}, 1); }).code == Exit::usage);
  CHECK(error_of([&] { expect_possible(jobs, in.path, little); }).what() ==
        std::string(error.what()));
}

TEST_CASE("cli/quantize --size: a size that is too small is refused before anything is measured") {
  const TempFolder folder;
  const std::string text = write_file(folder / "text.txt", read_file(kCalibrationText));
  const Outcome small = chaski_run({"quantize", kStory, folder / "small", "--calibrate", text,
                                    "--chunks", "1", "--size", "900K", "--dry-run"});
  check_one_line(small, 2, "the budget is 0.90 MB, expected at least");
  CHECK(!std::filesystem::exists(folder / ".small.stats"));
}

TEST_CASE("cli/quantize --stats: a file that is cut short is called one, and what to do is said") {
  const TempFolder folder;
  const std::string text = write_file(folder / "text.txt", read_file(kCalibrationText)),
                    stats = folder / "stats";
  const Arguments command = {"quantize", kStory, folder / "out", "q4", "--method", "search"};
  const auto ran = [&](const Arguments& more) {
    Arguments all = command;
    all.insert(all.end(), more.begin(), more.end());
    return chaski_run(all);
  };
  const Arguments measures = {"--calibrate", text, "--chunks", "1", "--stats", stats};
  REQUIRE(ran(measures).status == 0);
  const std::string whole = read_file(stats);
  Arguments resumes = measures;
  resumes.push_back("--resume");
  const auto refused = [&](size_t bytes, const std::string& says) {
    write_file(stats, whole.substr(0, bytes));
    check_one_line(ran({"--stats", stats}), 3,
                   stats + ": " + says + ": --calibrate TEXT measures again\n");
    check_one_line(
        ran(resumes), 3,
        stats + ": " + says + ": remove the file, and the same command measures again\n");
  };
  // The end of the last tensor is the end that the file names; bytes that align it may follow.
  const std::string half = error_of([&] {
                             write_file(stats, whole.substr(0, whole.size() / 2));
                             load_calibration(stats);
                           }).what();
  const std::string figures = half.substr(stats.size() + 2, half.rfind(": ") - stats.size() - 2);
  CHECK_MESSAGE(figures.starts_with("the file is cut short: "), half);
  CHECK_MESSAGE(
      figures.find(fmt::format("% of it is there, {} of ", whole.size() / 2)) != std::string::npos,
      half);
  refused(whole.size() / 2, figures);
  refused(10, "tensor count: 8 bytes wanted at offset 8, file has 10: it is cut short or damaged");
  refused(0, "is empty");
  std::filesystem::remove(stats);
  CHECK(ran(resumes).status == 0);
}

TEST_CASE("cli/quantize: an existing file that is no model is not replaced") {
  const TempFolder folder;
  const std::string notes = write_file(folder / "notes.txt", "precious");
  const Outcome refused = chaski_run({"quantize", kStory, notes, "q4", "--fast"});
  check_one_line(refused, 2, notes + ": the file exists and is not a model, expected another name");
  CHECK(read_file(notes) == "precious");
  for (int i = 0; i < 2; ++i) {  // but a model is
    const Outcome outcome = chaski_run({"quantize", kStory, folder / "model", "q4", "--fast"});
    CHECK(outcome.status == 0);
    CHECK(outcome.error_says("model: the model that was there is replaced\n") == (i == 1));
  }
}

TEST_CASE("budget/recipes: the first matching line decides") {
  const ModelSource in = source_of(open_quipu(kStory));
  const WeightJobs jobs = jobs_of(in);
  const Recipe recipe = read_recipe("r.txt",
                                    "# a comment\n"
                                    "layer\\.0\\.ffn_.* = q5_0   # another\n"
                                    "\n"
                                    "ffn_(gate|up)=q4h\r\n"
                                    "^layer = q4",
                                    jobs, kStory);
  CHECK(recipe.at("layer.0.ffn_up") == Format::q5_0);
  CHECK(recipe.at("layer.1.ffn_up") == Format::q4h);
  CHECK(recipe.at("layer.1.attn_q") == Format::q4);
  CHECK(recipe.count("token_embd") == 0);
  CHECK(recipe.count("layer.0.attn_norm") == 0);  // a vector
  const auto refusal = [&](const char* text) {
    const Error error = error_of([&] { read_recipe("r.txt", text, jobs, kStory); });
    CHECK(error.code == Exit::usage);
    return std::string(error.what());
  };
  CHECK_MESSAGE(contains(refusal("a = q4\nb = q77\n"), "r.txt: line 2 is \"b = q77\""),
                refusal("x"));
  CHECK(contains(refusal("(a = q4"), "line 1: \"(a\" is not a regular expression"));
}

TEST_CASE("cli/quantize --size: the plan is shown, kept, and can be saved as a recipe") {
  const TempFolder folder;
  const std::string text = write_file(folder / "text.txt", read_file(kCalibrationText)),
                    stats = folder / "stats";
  const auto run = [&](std::vector<std::string> flags, int status = 0) {
    flags.insert(flags.begin(), {"quantize", kStory});
    const Outcome outcome = chaski_run(flags);
    REQUIRE_MESSAGE(outcome.status == status, outcome.err);
    return outcome;
  };
  const Outcome dry = run({folder / "dry", "--calibrate", text, "--chunks", "1", "--stats", stats,
                           "--size", "2M", "--dry-run", "--write-recipe", folder / "recipe"});
  CHECK_MESSAGE(contains(dry.out, "KL, predicted\n"), dry.out);
  CHECK_MESSAGE(contains(dry.out, "plan: "), dry.out);
  CHECK(!std::filesystem::exists(folder / "dry"));
  // The saved statistics contain the divergences, so no text is read again.
  const Outcome kept = run({folder / "kept", "--stats", stats, "--size", "2M"});
  CHECK(file_bytes(folder / "kept") <= 2000000);
  CHECK(file_bytes(folder / "kept") > 1890000);
  const std::string plan = dry.out.substr(dry.out.find("plan: "));
  CHECK_MESSAGE(kept.out.starts_with(plan), kept.out);
  run({folder / "recipe.quipu", "--stats", stats, "--recipe", folder / "recipe"});
  CHECK(read_file(folder / "recipe.quipu") == read_file(folder / "kept"));
  run({folder / "bits", "--stats", stats, "--bpw", "5"});
  CHECK(bytes_in(folder / "bits") <= uint64_t(5.0 / 8 * 3025344));
  run({folder / "kl", "--stats", stats, "--kl", "0.01", "--dry-run"});
  const auto refused = [&](std::vector<std::string> flags, const std::string& says) {
    flags.insert(flags.begin(), {"quantize", kStory, folder / "x"});
    check_one_line(chaski_run(flags), 2, says);
  };
  refused({"--size", "2M"}, "need --calibrate TEXT, or the --stats FILE");
  refused({"--size", "2X", "--stats", stats}, "--size is 2X, expected a number of bytes");
  refused({"--size", "900K", "--stats", stats}, "the budget is 0.90 MB");
  refused({"--size", "2M", "--bpw", "5", "--stats", stats}, "expected one of them");
  refused({"--write-recipe", folder / "r"}, "--write-recipe needs a budget: --size");
  refused({"--size", "2M", "--stats", stats, "--write-recipe", folder / "./x"}, "expected two");
  refused({"--calibrate", text, "--chunks", "1", "--stats", stats}, "exists already");
  refused({"-c", "64"}, "-c is 64: it needs --fits BYTES");

  // --fits subtracts what a run needs besides weights, which is more with a longer context.
  const auto in_memory = [&](const char* context, std::vector<std::string> known) {
    known.insert(known.begin(), {folder / "fits", "--fits", "20500K", "-c", context, "--dry-run"});
    const std::string out = run(known).out;
    REQUIRE_MESSAGE(contains(out, "plan: "), out);
    return out.substr(out.find("plan: "));
  };
  const std::string least = in_memory("64", {"--stats", stats});
  CHECK(least != in_memory("512", {"--stats", stats}));
  // The result does not depend on the memory that the process uses.
  CHECK(least == in_memory("64", {"--stats", stats, "-t", "3"}));
  CHECK(least == in_memory("64", {"--calibrate", text, "--chunks", "1"}));
  check_one_line(chaski_run({"quantize", kStory, folder / "x", "--stats", stats, "--fits", "5M"}),
                 4, "a context of 512 needs ");
}

TEST_CASE("budget/--size is of the file, whatever the method and the length of its metadata") {
  const TempFolder folder;
  ModelSource in = source_of(open_quipu(kStory));
  Calibration known = invented(in);
  known.text = "a text", known.hash = "0123456789abcdef", known.tokens = 512;
  for (const size_t length : {0, 100000}) {
    in.meta.set_str("general.description", std::string(length, 'x'));
    QuantizeOptions options;
    options.calibration = &known;
    RecipeLimit budget;
    budget.file_bytes = 2000000, budget.overhead = overhead_of(in, options);
    const FormatPlan plan = FormatCosts(jobs_of(in), kStory, known, 1).plan(budget);
    options.recipe = plan.recipe;
    quantize_model(in, jobs_of(in), folder / "out", options, {});
    CHECK(file_bytes(folder / "out") <= plan.file_bytes);
    CHECK(file_bytes(folder / "out") + 64 * in.tensors.size() + 2048 > plan.file_bytes);
    CHECK(plan.file_bytes <= 2000000);
    CHECK(plan.file_bytes > 1890000);
  }
}

TEST_CASE("budget/Q4_K_M goes by what a matmul computes: q, k and v in one matrix are values") {
  const ModelSource in = open_model(golden("models/gpt2")).source;
  const auto recipe = recipe_of_mixture("Q4_K_M", jobs_of(in), in.meta, Format::q4, false);
  REQUIRE(recipe);
  CHECK(recipe->at("layer.0.attn_qkv") == Format::q4h);
  CHECK(recipe->at("layer.2.attn_qkv") == Format::q6);  // the last of three
  CHECK(recipe->at("layer.0.ffn_up") == Format::q4h);
  for (const TensorSlot& slot : tensors_of(*model_of(in.meta)))
    CHECK((slot.projection == Projection::down) == slot.name.ends_with(".ffn_down"));
}

// The formats of llama-quantize --dry-run (b11739), as scripts/check/check_mixtures.py compares
// them for all golden models.
TEST_CASE("budget/mixtures: the formats of llama-quantize") {
  const auto formats_of = [](const ModelSource& in, const char* mixture, bool calibrated = false) {
    const auto recipe =
        recipe_of_mixture(mixture, jobs_of(in), in.meta, *base_of_mixture(mixture), calibrated)
            .value();
    return [recipe](const char* name) { return info(recipe.at(name)).name; };
  };
  // An embedding that is not the head has the base.
  const ModelSource phi3 = open_model(golden("models/phi3")).source;
  for (const auto& [mixture, base, head] : {std::tuple("Q4_0", "q4_0", "q8"),
                                            {"Q4_1", "q4_1", "q8"},
                                            {"Q5_0", "q5_0", "q8"},
                                            {"Q5_1", "q5_1", "q8"},
                                            {"Q8_0", "q8", "q8"},
                                            {"Q6_K", "q8", "q8"},
                                            {"Q2_K", "q4_0", "q8"}}) {
    CAPTURE(mixture);
    CHECK(formats_of(phi3, mixture)("token_embd") == base);
    CHECK(formats_of(phi3, mixture)("layer.0.ffn_up") == base);
    CHECK(formats_of(phi3, mixture)("output") == head);
  }
  // Layers without attention are not counted: jamba's third layer has its first matrix of values.
  const ModelSource jamba = open_model(golden("models/jamba")).source;
  CHECK(formats_of(jamba, "Q3_K_M")("layer.2.attn_v") == "q5_1");
  // 80 layers are a 70B.
  ModelSource qwen2 = open_model(golden("models/qwen2")).source;
  CHECK(formats_of(qwen2, "Q3_K_S")("layer.0.attn_v") == "q4_0");
  qwen2.meta.set_int("model.block_count", 80);
  CHECK(formats_of(qwen2, "Q3_K_S")("layer.0.attn_v") == "q5_1");
  CHECK(formats_of(qwen2, "Q4_0")("layer.0.ffn_down") == "q4_0");
  CHECK(formats_of(qwen2, "Q4_0", true)("layer.0.ffn_down") == "q4_1");
  CHECK(formats_of(qwen2, "Q5_0", true)("layer.0.ffn_down") == "q5_1");
  // Small weights keep their format.
  const ModelSource gemma3n = open_model(golden("models/gemma3n")).source;
  CHECK(formats_of(gemma3n, "Q8_0")("layer.0.laurel_l") == "f32");
  CHECK(formats_of(gemma3n, "Q8_0")("layer.0.attn_q") == "q8");
}

TEST_CASE("cli/quantize --recipe Q4_K_M: llama.cpp's mixture") {
  const TempFolder folder;
  const Outcome outcome =
      chaski_run({"quantize", kStory, folder / "out", "--fast", "--recipe", "Q4_K_M", "--json"});
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  std::map<std::string, std::string> to;
  const nlohmann::json report = nlohmann::json::parse(outcome.out);
  for (const auto& t : report["tensors"]) to[t["name"]] = t["to"];
  CHECK(to["layer.2.attn_v"] == "q6");  // layers 2 and 5 of six
  CHECK(to["layer.5.ffn_down"] == "q6");
  CHECK(to["layer.2.attn_k"] == "q4h");
  CHECK(to["layer.3.ffn_down"] == "q4h");
  CHECK(to["token_embd"] == "q6");  // the table is the head too

  // In GGUF's formats, those that divide the bundled model's columns.
  const Outcome gguf = chaski_run(
      {"quantize", kStory, folder / "k", "q4_k", "--fast", "--recipe", "Q4_K_M", "--json"});
  REQUIRE_MESSAGE(gguf.status == 0, gguf.err);
  const nlohmann::json made = nlohmann::json::parse(gguf.out);
  for (const auto& t : made["tensors"]) to[t["name"]] = t["to"];
  CHECK(to["layer.2.attn_v"] == "q8");
  CHECK(to["layer.5.ffn_down"] == "q6_k");
  CHECK(to["layer.3.ffn_down"] == "q4_k");
  CHECK(to["layer.2.attn_k"] == "q5_0");
  const Outcome exported = chaski_run({"convert", folder / "k", folder / "k.gguf"});
  CHECK_MESSAGE(exported.status == 0, exported.err);

  // The name of a GGUF file asks for these formats too, unless --type names another.
  const auto made_as_gguf = [&](const Arguments& more) {
    Arguments all = {"quantize", kStory, folder / "m.gguf", "--fast", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = chaski_run(all);
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    return nlohmann::json::parse(outcome.out);
  };
  const nlohmann::json by_name = made_as_gguf({"--recipe", "Q4_K_M"});
  CHECK(by_name["tensors"] == made["tensors"]);
  CHECK(by_name["type"] == "Q4_K_M");
  CHECK(made_as_gguf({"--recipe", "Q4_K_M", "--type", "q5_k"})["type"] == "q5_k");
}

// What llama-quantize chooses for the same weights: six layers of 4 query heads and 2 key heads;
// 256 columns divide those of ffn_down only.
TEST_CASE("cli/quantize TYPE: llama-quantize's mixtures, as GGUF too") {
  const TempFolder folder;
  const auto formats_of = [&](const Arguments& more) {
    Arguments all = {"quantize", kStory, folder / "m.gguf", "--fast", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome made = chaski_run(all);
    REQUIRE_MESSAGE(made.status == 0, made.err);
    std::map<std::string, std::string> to;
    const nlohmann::json report = nlohmann::json::parse(made.out);
    for (const auto& t : report["tensors"]) to[t["name"]] = t["to"];
    return to;
  };
  struct Row {
    const char *mixture, *first_down, *last_down, *first_values, *outputs;
  };
  for (const Row& row : {Row{"Q4_K_M", "q4_k", "q6_k", "q5_0", "q5_0"},
                         {"Q4_K", "q4_k", "q6_k", "q5_0", "q5_0"},
                         {"q4_k_s", "q4_k", "q4_k", "q5_1", "q5_0"},
                         {"Q5_K_M", "q5_k", "q6_k", "q5_1", "q5_1"},
                         {"Q3_K_M", "q4_k", "q4_k", "q5_1", "q5_0"},
                         {"Q3_K_L", "q5_k", "q5_k", "q5_1", "q5_1"},
                         {"q3_k_s", "q3_k", "q3_k", "q4_0", "q4_0"},
                         {"IQ4_XS", "iq4_xs", "iq4_xs", "iq4_nl", "iq4_nl"},
                         {"Q2_K", "q3_k", "q3_k", "q4_0", "q4_0"}}) {
    CAPTURE(row.mixture);
    auto to = formats_of({row.mixture});
    CHECK(to["layer.0.ffn_down"] == row.first_down);
    CHECK(to["layer.5.ffn_down"] == row.last_down);
    CHECK(to["layer.0.attn_v"] == row.first_values);
    CHECK(to["layer.0.attn_output"] == row.outputs);
    CHECK(to["token_embd"] == "q8");
    CHECK(!have(folder / "m.gguf.quipu"));
    const Outcome story = chaski_run({"run", "-m", folder / "m.gguf", "-p", "Once", "-n", "3"});
    CHECK_MESSAGE(story.status == 0, story.err);
  }
  // The mixture's number, in the type that other programs expect: 4 is u32.
  const auto number_of = [&](const Arguments& more) {
    formats_of(more);
    const std::string file = read_file(folder / "m.gguf"), key = "general.file_type";
    const size_t at = file.find(key);
    if (at == file.npos) return -1;
    CHECK(file[at + key.size()] == 4);
    return int(file[at + key.size() + 4]);
  };
  const std::string recipe = write_file(folder / "q6_k", ".* = q4_0\n");
  CHECK(number_of({"Q4_K_M"}) == 15);
  CHECK(number_of({}) == 15);  // the default of GGUF files
  CHECK(number_of({"q8"}) == 7);
  CHECK(number_of({"q4_0", "--recipe", recipe}) == -1);
  check_one_line(chaski_run({"quantize", kStory, folder / "n.gguf", "q4"}), 2,
                 "q4 is chaski's own format, expected one that GGUF files have (");
  // Types that chaski reads only name the mixture with the nearest number of bits.
  for (const auto& [type, nearest] : {std::pair("IQ3_M", "Q3_K_S (it reads iq3_s)"),
                                      {"IQ2_XXS", "Q2_K (it reads iq2_xxs)"},
                                      {"iq1_m", "Q2_K (it reads iq1_m)"},
                                      {"TQ1_0", "tq2_0 (it reads tq1_0)"}})
    check_one_line(chaski_run({"quantize", kStory, folder / "n.gguf", type}), 2, nearest);
  CHECK(formats_of({"Q4_1"})["layer.0.attn_v"] == "q4_1");
  CHECK(formats_of({"Q5_1"})["layer.0.attn_v"] == "q5_1");
  check_one_line(chaski_run({"quantize", kStory, folder / "n", "Q4_K_M", "--recipe", "Q3_K_M"}), 2,
                 "--type is Q4_K_M, a mixture, which is not possible with --recipe");
}

TEST_CASE("cli/quantize --dry-run: what a type, mixture or recipe gives, without a budget") {
  const TempFolder folder;
  const std::string recipe = write_file(folder / "recipe", "ffn_down = q6\n. = q3\n");
  for (const Arguments& type : {Arguments{"Q4_K_M"}, {"q4"}, {"--recipe", recipe}}) {
    const auto run = [&](const Arguments& more) {
      Arguments all = {"quantize", kStory, folder / "out"};
      all.insert(all.end(), type.begin(), type.end());
      all.insert(all.end(), more.begin(), more.end());
      const Outcome outcome = chaski_run(all);
      REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
      return outcome.out;
    };
    const auto planned = nlohmann::json::parse(run({"--dry-run", "--json"}));
    CHECK(!have(folder / "out"));
    const std::string table = run({"--dry-run"});
    CHECK_MESSAGE(contains(table, "\nplan: a file of "), table);
    CHECK_MESSAGE(contains(table, "layer.0.ffn_down"), table);
    const auto made = nlohmann::json::parse(run({"--fast", "--json"}));
    REQUIRE(planned["tensors"].size() == made["tensors"].size());
    std::map<std::string, std::string> to;
    for (const auto& t : made["tensors"]) to[t["name"]] = t["to"];
    for (const auto& t : planned["tensors"]) CHECK(to[t["name"]] == t["to"]);
    const uint64_t bytes = file_bytes(folder / "out"), most = planned["file_bytes"];
    CHECK(bytes <= most);
    CHECK(bytes > most - 16000);
    std::filesystem::remove(folder / "out");
  }
}
