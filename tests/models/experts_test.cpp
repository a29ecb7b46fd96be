// Mixtures of experts: files whose experts do not fit together, and the bytes that a token reads.
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/session/engine.h"
#include "models/import/import.h"
#include "tests/kit/import_support.h"
#include "tests/kit/program.h"
#include "tests/kit/support.h"

using namespace chaski;
using namespace chaski::test;

namespace {

using json = nlohmann::json;

// A copy of the golden model qwen3moe, with its config.json and the header of its weights changed.
struct Changed {
  TempFolder temp;
  json config, header;
  std::string buffer;

  Changed() {
    const std::string file = read_file(golden("models/qwen3moe/model.safetensors"));
    uint64_t size = 0;
    std::memcpy(&size, file.data(), sizeof size);
    header = json::parse(file.substr(sizeof size, size));
    buffer = file.substr(sizeof size + size);
    config = json::parse(read_file(golden("models/qwen3moe/config.json")));
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

TEST_CASE("experts: config.json alone cannot ask for 50 million tensors") {
  Changed changed;
  changed.config["num_hidden_layers"] = 4096, changed.config["num_experts"] = 4096;
  changed.write();
  const std::string limit = "ulimit -v 1000000; exec ";  // KiB
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
