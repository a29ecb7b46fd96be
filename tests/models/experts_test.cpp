// Mixtures of experts: files whose experts do not fit together, and the bytes that a token reads.
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/quantize/quantize.h"
#include "engine/session/session.h"
#include "models/architecture.h"
#include "models/import/import.h"
#include "tests/kit/import_support.h"
#include "tests/kit/program.h"
#include "tests/kit/support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

using json = nlohmann::json;

// A copy of a golden model, with its config.json and the header of its weights changed.
struct Changed {
  TempFolder temp;
  json config, header;
  std::string buffer;

  explicit Changed(const std::string& model = "models/qwen3moe") {
    const std::string file = read_file(golden(model + "/model.safetensors"));
    uint64_t size = 0;
    std::memcpy(&size, file.data(), sizeof size);
    header = json::parse(file.substr(sizeof size, size));
    buffer = file.substr(sizeof size + size);
    config = json::parse(read_file(golden(model + "/config.json")));
  }
  void rename(const std::string& tensor, const std::string& to) {
    header[to] = header.at(tensor), header.erase(tensor);
  }
  void write() const {
    write_file(temp / "config.json", config.dump());
    write_file(temp / "model.safetensors", safetensors(header.dump(), buffer));
  }
  std::string refusal() {
    write();
    return error_of([&] {
             EngineOptions o;
             o.model = temp.path;
             Engine::open(o);
           })
        .what();
  }
};

const std::string kExpert = "model.layers.0.mlp.experts.3.up_proj.weight";

}  // namespace

TEST_CASE("experts: a folder whose experts do not fit together is refused by name") {
  Changed missing;
  missing.rename(kExpert, "model.rotary_emb.inv_freq");
  CHECK(
      contains(missing.refusal(),
               "tensor layers.0.mlp.experts.*.up_proj.weight is there for 5 experts, expected 6"));
  Changed other;
  other.rename(kExpert, "model.layers.0.mlp.experts.6.up_proj.weight");
  CHECK(contains(other.refusal(), "experts.6.up_proj.weight is unexpected in a qwen3moe model"));
  Changed format;
  format.header[kExpert]["dtype"] = "BF16", format.header[kExpert]["shape"] = {16, 64};
  CHECK(contains(format.refusal(),
                 "tensor layers.0.mlp.experts.*.up_proj.weight has f32 (16, 32) and bf16 (16, 64), "
                 "expected 16 rows for each expert and one format"));
}

TEST_CASE("experts: packed and transposed experts that do not fit together are refused by name") {
  const std::string up = "model.layers.0.mlp.experts.gate_up_proj";
  Changed missing("packed/mxfp4");
  missing.rename(up + "_scales", "model.rotary_emb.inv_freq");
  CHECK(contains(missing.refusal(), "tensor " + up + "_scales is missing, expected it together"));
  Changed flat("packed/mxfp4");
  flat.header[up + "_blocks"]["shape"] = {6, 64, 16};
  CHECK(contains(flat.refusal(), "has shape (6, 64, 16), expected (experts, outputs, blocks, 16)"));
  Changed other("packed/mxfp4");
  other.header[up + "_scales"]["shape"] = {6, 32, 2};
  CHECK(contains(other.refusal(), "has shape (6, 32, 2), expected (6, 64, 1)"));
  Changed fewer("models/gpt_oss");
  fewer.config["num_local_experts"] = 5;
  CHECK(contains(fewer.refusal(), "down_proj has shape (6, 32, 32), expected 1 or 2 dimensions"));
  Changed rows("models/dbrx");
  rows.config["ffn_config"]["moe_num_experts"] = 5;
  CHECK(contains(rows.refusal(), "expected 5 experts"));
}

TEST_CASE("experts: a quantized mixture keeps its router and stays near its logits") {
  for (const char* model : {"qwen3moe", "gpt_oss", "phimoe", "dbrx", "llama4", "gemma4_experts"}) {
    CAPTURE(model);
    const TempFolder temp;
    const std::string folder = golden(std::string("models/") + model);
    QuantizeOptions options;
    options.type = Format::q8;
    quantize_model(folder, temp / "q8.quipu", options, {});
    const std::vector<TokenId> tokens{30, 58, 3, 19, 40, 1, 0, 63};
    const auto logits = [&](const std::string& path) {
      EngineOptions o;
      o.model = path, o.kv = Format::f32;
      const auto engine = Engine::open(o);
      for (const auto& w : engine->model().weights) {
        const bool router = contains(w.weight->info.name, "ffn_gate_inp");
        if (router) CHECK(w.weight->info.format == Format::f32);
        if (path.ends_with(".quipu") && contains(w.weight->info.name, "ffn_up_exps") &&
            w.weight->info.tiled())
          CHECK(w.weight->info.format == Format::q8);
      }
      const auto session = engine->session();
      const auto last = session->extend(tokens, int(tokens.size()));
      return std::vector<float>(last.begin(), last.end());
    };
    const std::vector<float> exact = logits(folder), near = logits(temp / "q8.quipu");
    double error = 0, size = 0;
    for (size_t i = 0; i < exact.size(); ++i)
      error += std::pow(double(near[i]) - exact[i], 2), size += std::pow(double(exact[i]), 2);
    // With weights in q8 a token may choose other experts.
    CHECK(std::sqrt(error / size) < 0.25);
  }
}

TEST_CASE("experts: numbers that do not fit together are refused by name") {
  const auto refusal = [](const char* key, int value) {
    Changed changed;
    changed.config[key] = value;
    return changed.refusal();
  };
  CHECK(contains(refusal("num_experts_per_tok", 7),
                 "model.expert_used_count is 7, expected 1 to expert_count 6"));
  CHECK(contains(refusal("num_experts", 1), "model.expert_count is 1, expected at least 2"));
  CHECK(contains(refusal("moe_intermediate_size", 24),
                 "model.expert_feed_forward_length is 24, expected a multiple of 16"));
}

TEST_CASE("experts: config.json alone cannot ask for a million tensors") {
  Changed changed;
  changed.config["num_hidden_layers"] = 60, changed.config["num_experts"] = 4096;
  changed.write();
  const std::string limit = has_address_sanitizer() ? "exec " : "ulimit -v 1000000; exec ";  // KiB
  const Outcome outcome =
      Program({"-c", limit + chaski_binary() + " run -p a -n 1 -m " + changed.temp.path}, "", "",
              "/bin/sh")
          .wait();
  check_one_line(outcome, 3, "is there for 6 experts, expected 4096");
}

TEST_CASE("experts: a decode step reads those that its tokens choose") {
  EngineOptions o;
  o.model = golden("models/qwen3moe");
  const auto engine = Engine::open(o);
  // In floats, for each of two layers: q, k, v and the output of attention, the router, and three
  // matrices of each of six experts. Then the head.
  const double attention = 64 * 32 + 2 * 32 * 32 + 32 * 64, router = 6 * 32, expert = 3 * 16 * 32;
  const auto bytes = [&](double experts) {
    return uint64_t(std::llround(4 * (2 * (attention + router + experts * expert) + 96 * 32)));
  };
  // Six rows of a router are stored as a strip of 16.
  const uint64_t padding = 2 * 10 * 32 * 4;
  CHECK(engine->weight_bytes() == bytes(3) + padding);
  // Each expert is left out by a token with a probability of one half.
  CHECK(engine->weight_bytes(2) == bytes(4.5) + padding);
  CHECK(engine->weight_bytes(30) == bytes(6) + padding);
}
