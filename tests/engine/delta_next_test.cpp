// The multi-token prediction layers of Qwen 3.5 and Qwen 3 Next: which folders and files have one,
// damaged layers, and texts that are generated with their drafts. eagle_test.cpp compares their
// logits.
#include <cstring>
#include <nlohmann/json.hpp>

#include "engine/pages/kv_cache.h"
#include "engine/requests/generate.h"
#include "engine/requests/scheduler.h"
#include "engine/shelf/model_file.h"
#include "models/import/gguf/gguf.h"
#include "models/import/hf/safetensors.h"
#include "models/import/import.h"
#include "tests/kit/eagle_support.h"
#include "tests/kit/import_support.h"
#include "tests/kit/program.h"
#include "tests/kit/quipu_support.h"

namespace chaski::test {
namespace {

const std::string kNames[] = {"qwen35", "qwen35_moe", "qwen3next"};

std::string model_of_golden(const std::string& name) { return golden("models/" + name); }
std::string layer_of(const std::string& name) { return golden("heads/" + name); }

// A folder with the golden model in one shard and its layer in the other.
void write_whole_folder(const std::string& folder, const std::string& name) {
  nlohmann::json index;
  for (const std::string& from : {model_of_golden(name), layer_of(name)}) {
    const std::string shard = from == layer_of(name) ? "b.safetensors" : "a.safetensors";
    for (const SafeTensor& t : read_safetensors(from + kWeights).tensors)
      index["weight_map"][t.name] = shard;
    write_file(folder + "/" + shard, read_file(from + kWeights));
  }
  write_file(folder + kWeights + ".index.json", index.dump());
  write_file(folder + kConfig, read_file(layer_of(name) + kConfig));
}

// The matrix of an expert. Its tensor has the matrices of all experts, or only this one.
struct ExpertPart {
  std::string kind;  // "gate", "up" or "down"
  int64_t expert, begin, rows, cols;
};
std::vector<ExpertPart> expert_parts(const SafeTensor& t) {
  const auto named = [&](const char* kind) { return contains(t.name, kind); };
  const std::string kind = named("up_proj") ? "up" : named("gate_proj") ? "gate" : "down";
  const int64_t cols = t.shape.back();
  if (t.shape.size() == 2) return {{kind, 0, 0, t.shape[0], cols}};
  const bool both = named("gate_up_proj");
  const int64_t rows = both ? t.shape[1] / 2 : t.shape[1];
  std::vector<ExpertPart> parts;
  for (int64_t e = 0, begin = 0; e < t.shape[0]; ++e)
    for (const char* each : {both ? "gate" : "down", "up"}) {
      if (!both && parts.size() > size_t(e)) break;
      parts.push_back({each, e, begin, rows, cols});
      begin += rows * cols;
    }
  return parts;
}

// A tensor of a GGUF file in f32.
struct GgufPart {
  std::string name;
  std::vector<int64_t> shape;  // as in GGUF: the columns first
  std::vector<float> numbers;
};

// The golden layer under its names in GGUF files. Norms there are 1 + x.
std::vector<GgufPart> gguf_parts(const std::string& name, int layer) {
  const std::map<std::string, std::string> names{
      {"fc", "nextn.eh_proj"},
      {"pre_fc_norm_embedding", "nextn.enorm"},
      {"pre_fc_norm_hidden", "nextn.hnorm"},
      {"norm", "nextn.shared_head_norm"},
      {"layers.0.input_layernorm", "attn_norm"},
      {"layers.0.post_attention_layernorm", "post_attention_norm"},
      {"layers.0.self_attn.q_proj", "attn_q"},
      {"layers.0.self_attn.k_proj", "attn_k"},
      {"layers.0.self_attn.v_proj", "attn_v"},
      {"layers.0.self_attn.o_proj", "attn_output"},
      {"layers.0.self_attn.q_norm", "attn_q_norm"},
      {"layers.0.self_attn.k_norm", "attn_k_norm"},
      {"layers.0.mlp.gate_proj", "ffn_gate"},
      {"layers.0.mlp.up_proj", "ffn_up"},
      {"layers.0.mlp.down_proj", "ffn_down"},
      {"layers.0.mlp.gate", "ffn_gate_inp"},
      {"layers.0.mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
      {"layers.0.mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
      {"layers.0.mlp.shared_expert.up_proj", "ffn_up_shexp"},
      {"layers.0.mlp.shared_expert.down_proj", "ffn_down_shexp"}};
  std::map<std::string, GgufPart> experts;
  std::vector<GgufPart> parts;
  for (const SafeTensor& t : read_safetensors(layer_of(name) + kWeights).tensors) {
    std::vector<float> numbers(t.size / 2);
    decode_plain_row(*t.format, t.data, int64_t(numbers.size()), numbers.data());
    if (contains(t.name, ".experts.")) {
      for (const ExpertPart& e : expert_parts(t)) {
        GgufPart& part = experts[e.kind];
        part.name = fmt::format("blk.{}.ffn_{}_exps.weight", layer, e.kind);
        part.shape = {e.cols, e.rows, part.shape.empty() ? 1 : part.shape[2] + 1};
        part.numbers.insert(part.numbers.end(), numbers.begin() + e.begin,
                            numbers.begin() + e.begin + e.rows * e.cols);
      }
      continue;
    }
    std::string key = t.name.substr(strlen("mtp."));
    key.resize(key.size() - strlen(".weight"));
    GgufPart part{fmt::format("blk.{}.{}.weight", layer, names.at(key)),
                  {t.shape.rbegin(), t.shape.rend()},
                  std::move(numbers)};
    if (t.shape.size() == 1)
      for (float& x : part.numbers) ++x;
    parts.push_back(std::move(part));
  }
  for (auto& [kind, part] : experts) parts.push_back(std::move(part));
  return parts;
}

// Adds the layer to a GGUF file: its tensors, and what the keys say about layers.
std::string with_layer(const std::string& path, const std::string& name) {
  const GgufFile file = read_gguf(path);
  std::string text = read_file(path);
  const auto arch = std::get<std::string>(file.values.at("general.architecture").data);
  const auto text_of = [](const std::string& s) {
    std::string out;
    append<uint64_t>(out, s.size());
    return out + s;
  };
  uint64_t begin = UINT64_MAX, n_tensors = 0, n_keys = 0;
  for (const GgufTensor& t : file.tensors) begin = std::min(begin, t.offset);
  std::string data = text.substr(begin), head = text.substr(0, begin);
  const std::string count = text_of(arch + ".block_count");
  const size_t at = head.find(count) + count.size() + 4;
  uint32_t layers = 0;
  std::memcpy(&layers, head.data() + at, 4);
  const std::vector<GgufPart> parts = gguf_parts(name, int(layers));
  ++layers;
  std::memcpy(head.data() + at, &layers, 4);
  std::memcpy(&n_tensors, head.data() + 8, 8), std::memcpy(&n_keys, head.data() + 16, 8);
  n_tensors += parts.size(), ++n_keys;
  std::memcpy(head.data() + 8, &n_tensors, 8), std::memcpy(head.data() + 16, &n_keys, 8);
  std::string infos;
  const auto pad = [](std::string& to) { to.resize((to.size() + 31) / 32 * 32); };
  for (const GgufPart& part : parts) {
    pad(data);
    infos += text_of(part.name);
    append<uint32_t>(infos, uint32_t(part.shape.size()));
    for (const int64_t d : part.shape) append<uint64_t>(infos, uint64_t(d));
    append<uint32_t>(infos, 0), append<uint64_t>(infos, data.size());
    for (const float x : part.numbers) append(data, x);
  }
  pad(data);
  const size_t first = head.find(text_of(file.tensors[0].name));
  // The old infos end with padding, which the new ones must not follow.
  size_t end = first;
  for (size_t i = 0; i < file.tensors.size(); ++i) {
    uint64_t length = 0;
    uint32_t dims = 0;
    std::memcpy(&length, head.data() + end, 8);
    std::memcpy(&dims, head.data() + end + 8 + length, 4);
    end += 8 + length + 4 + 8 * dims + 4 + 8;
  }
  std::string key = text_of(arch + ".nextn_predict_layers");
  append<uint32_t>(key, 4), append<uint32_t>(key, 1);
  head = head.substr(0, 24) + key + head.substr(24, end - 24) + infos;
  pad(head);
  return head + data;
}

TEST_CASE("next layer of Qwen: folders and files that have one are recognized") {
  const TempFolder temp;
  const auto keys = [](const std::string& name) {
    return [name] { return import_model(model_of_golden(name)).meta; };
  };
  for (const std::string& name : kNames) {
    CAPTURE(name);
    CHECK(HeadsFolder(layer_of(name)).kind() == HeadsKind::delta_next);
    CHECK(has_next_layer(layer_of(name), keys(name)));
    CHECK(!has_next_layer(model_of_golden(name), keys(name)));
    write_whole_folder(temp.path, name);
    CHECK(has_next_layer(temp.path, keys(name)));
    // A model of another kind or size may use the whole folder as a draft model.
    CHECK(!has_next_layer(temp.path, keys(name == "qwen35" ? "qwen35_moe" : "qwen35")));
    CHECK_NOTHROW(open_on_cpu(temp.path, Format::f16));
    const auto other = [&] {
      Metadata meta = keys(name)();
      meta.set_int("model.embedding_length", 64);
      return meta;
    };
    CHECK(!has_next_layer(temp.path, other));
  }
  const std::string gguf = temp / "model.gguf";
  write_file(gguf, with_layer(model_of_golden("qwen35") + "/model.gguf", "qwen35"));
  CHECK(has_next_layer(gguf, keys("qwen35")));
  CHECK(!has_next_layer(gguf, keys("qwen3next")));
  CHECK(!has_next_layer(model_of_golden("qwen35") + "/model.gguf", keys("qwen35")));
  CHECK(!has_next_layer("ngram", keys("qwen35")));
}

TEST_CASE("next layer of Qwen: damaged folders are refused in one line") {
  const auto target = open_on_cpu(model_of_golden("qwen35"), Format::f32);
  const auto moe = open_on_cpu(model_of_golden("qwen35_moe"), Format::f32);
  const auto llama = open_on_cpu(kEagleTarget, Format::f32);
  const DamagedHeads folder{layer_of("qwen35"), kWeights,
                            [&](const std::string& path) { open_eagle(path, target); }};
  folder.refused("mtp_num_hidden_layers is 2, expected 1", kConfig, R"("mtp_num_hidden_layers": 1)",
                 R"("mtp_num_hidden_layers": 2)");
  folder.refused("mtp_use_dedicated_embeddings is true, expected false", kConfig,
                 R"("mtp_num_hidden_layers": 1)", R"("mtp_use_dedicated_embeddings": true)");
  folder.refused("model.embedding_length is 64, expected 32, as in " + target->path(), kConfig,
                 R"("hidden_size": 32)", R"("hidden_size": 64)");
  folder.refused("model.vocab_size is 97, expected 96, as in " + target->path(), kConfig,
                 R"("vocab_size": 96)", R"("vocab_size": 97)");
  folder.refused("tensor mtp.fx.weight is unexpected in a layer that predicts one token more",
                 kWeights, "mtp.fc.weight", "mtp.fx.weight");
  folder.refused("tensor mtp.layers.1.mlp.up_proj.weight is unexpected", kWeights,
                 "mtp.layers.0.mlp.up_proj.weight", "mtp.layers.1.mlp.up_proj.weight");
  folder.refused("tensor mtp.fc.weight has dtype I16, expected F32", kWeights,
                 R"("mtp.fc.weight":{"dtype":"F16")", R"("mtp.fc.weight":{"dtype":"I16")");
  const auto refusal = [&](const std::string& from, const std::string& to) {
    return folder.refusal([&](const std::string& path) {
      std::string text = read_file(path + kWeights);
      const size_t at = text.find(from);
      REQUIRE(at != text.npos);
      write_file(path + kWeights, text.replace(at, from.size(), to));
    });
  };
  CHECK(contains(refusal("mtp.norm.weight", "xtp.norm.weight"),
                 "tensor mtp.norm.weight is missing, expected it in a layer that predicts one"));
  CHECK(contains(refusal(R"("shape":[32,64])", R"("shape":[64,32])"),
                 "tensor nextn.eh_proj has shape (64, 32), expected (32, 64)"));
  CHECK(contains(folder.refusal([](const std::string& path) {
    std::string text = read_file(path + kWeights);
    text[text.size() - 1] = '\x7c', text[text.size() - 2] = 0;
    write_file(path + kWeights, text);
  }),
                 "is not finite"));
  // The keys of a model that also reads images are in an object.
  for (const int layers : {1, 2}) {
    const TempFolder temp;
    nlohmann::json text = nlohmann::json::parse(read_file(layer_of("qwen35") + kConfig)), whole;
    text["mtp_num_hidden_layers"] = layers;
    whole["architectures"] = {"Qwen3_5ForConditionalGeneration"}, whole["text_config"] = text;
    write_file(temp.path + kConfig, whole.dump());
    write_file(temp.path + kWeights, read_file(layer_of("qwen35") + kWeights));
    if (layers == 1) {
      CHECK_NOTHROW(open_eagle(temp.path, target));
      continue;
    }
    const std::string error = error_of([&] { open_eagle(temp.path, target); }).what();
    CHECK_MESSAGE(contains(error, "mtp_num_hidden_layers is 2, expected 1"), error);
  }
  // The layer of another model.
  const Error other = error_of([&] { open_eagle(layer_of("qwen35"), llama); });
  CHECK(other.code == Exit::bad_file);
  CHECK_MESSAGE(contains(other.what(), "expected 64, as in " + kEagleTarget),
                std::string(other.what()));
  const DamagedHeads experts{layer_of("qwen3next"), kWeights, [](const std::string& path) {
                               open_eagle(path,
                                          open_on_cpu(model_of_golden("qwen3next"), Format::f32));
                             }};
  CHECK(
      contains(experts.refusal([](const std::string& path) {
        std::string text = read_file(path + kWeights);
        const std::string from = "mtp.layers.0.mlp.experts.3.up_proj.weight";
        write_file(path + kWeights, text.replace(text.find(from), from.size(),
                                                 "xtp.layers.0.mlp.experts.3.up_proj.weight"));
      }),
               "tensor layers.0.mlp.experts.*.up_proj.weight is there for 5 experts, expected 6"));
}

TEST_CASE("next layer of Qwen: a GGUF file has the layer of its folder") {
  const TempFolder temp;
  const std::string gguf = temp / "model.gguf";
  for (const std::string& name : kNames) {
    CAPTURE(name);
    const std::string without = model_of_golden(name) + "/model.gguf";
    write_file(gguf, with_layer(without, name));
    const auto target = open_on_cpu(gguf, Format::f32), plain = open_on_cpu(without, Format::f32);
    const auto text = tokens_for(*target, 30);
    const auto rows = rows_of(target, std::span(text).first(29));
    CHECK(same(rows, rows_of(plain, std::span(text).first(29))));
    std::vector<Draft> drafts;
    for (const std::string& path : {gguf, layer_of(name)}) {
      const auto drafter = eagle_drafter(open_eagle(path, target), {});
      drafter->read_hidden(text, rows);
      drafts.push_back(drafter->propose(text, {6}));
    }
    CHECK(drafts[0].nodes.size() == 6);
    CHECK(drafts[0] == drafts[1]);
    const auto damaged = [&](const std::string& from, const std::string& to) {
      std::string bytes = read_file(gguf);
      write_file(temp / "damaged.gguf", bytes.replace(bytes.find(from), from.size(), to));
      const Error error = error_of([&] { open_eagle(temp / "damaged.gguf", target); });
      CHECK(error.code == Exit::bad_file);
      return std::string(error.what());
    };
    CHECK(contains(damaged("nextn_predict_layers\x04", "nextn_predict_layerz\x04"),
                   ".nextn_predict_layers is 0, expected 1"));
    CHECK(contains(damaged("nextn.hnorm", "nextn.hxorm"), "tensor nextn.hnorm is missing"));
  }
}

// Writes the tensors of a folder again, with a tensor for each matrix of each expert.
void write_one_by_one(const std::string& to, const std::string& from, const std::string& layer) {
  std::vector<EagleTensor> tensors;
  for (const SafeTensor& t : read_safetensors(from + kWeights).tensors) {
    int64_t n = 1;
    for (const int64_t d : t.shape) n *= d;
    std::vector<float> all(static_cast<size_t>(n));
    decode_plain_row(*t.format, t.data, n, all.data());
    const auto add = [&](const std::string& name, std::vector<int64_t> shape, int64_t begin) {
      tensors.push_back(
          {name, std::move(shape), [all, begin](int64_t i) { return all[size_t(begin + i)]; }});
    };
    if (!contains(t.name, ".mlp.experts.")) {
      add(t.name, t.shape, 0);
      continue;
    }
    const std::string stem = t.name.substr(0, t.name.find(".mlp."));
    for (const ExpertPart& e : expert_parts(t))
      add(fmt::format("{}.mlp.experts.{}.{}_proj.weight", stem, e.expert, e.kind), {e.rows, e.cols},
          e.begin);
  }
  write_tensors(to + kWeights, tensors);
  write_file(to + kConfig, read_file(from + kConfig));
  CHECK(contains(read_file(to + kWeights), layer + ".mlp.experts.5.gate_proj.weight"));
}

TEST_CASE("next layer of Qwen: experts may be one by one or in one tensor") {
  const std::string name = "qwen35_moe";
  const TempFolder model, layer;
  write_one_by_one(model.path, model_of_golden(name), "model.layers.3");
  write_one_by_one(layer.path, layer_of(name), "mtp.layers.0");
  const auto target = open_on_cpu(model_of_golden(name), Format::f32);
  const auto text = tokens_for(*target, 30);
  const auto rows = rows_of(target, std::span(text).first(29));
  CHECK(same(rows, rows_of(open_on_cpu(model.path, Format::f32), std::span(text).first(29))));
  std::vector<Draft> drafts;
  for (const std::string& path : {layer.path, layer_of(name)}) {
    const auto drafter = eagle_drafter(open_eagle(path, target), {});
    drafter->read_hidden(text, rows);
    drafts.push_back(drafter->propose(text, {6}));
  }
  CHECK(drafts[0].nodes.size() == 6);
  CHECK(drafts[0] == drafts[1]);
}

TEST_CASE("next layer of Qwen: text is the same with it and without, also after a rewind") {
  int accepted = 0, guessed = 0;
  for (const std::string& name : kNames) {
    CAPTURE(name);
    const TempFolder temp;
    const std::string model =
        write_with_words(temp / "words.quipu", model_of_golden(name), "\xe2\x96\x81w");
    const auto target = open_on_cpu(model, Format::f16), cold = open_on_cpu(model, Format::f16);
    cold->kv_cache().prefixes.reset();  // no text begins from a prefix
    const auto eagle = open_eagle(layer_of(name), target);
    const auto first = tokens_for(*target, 70);
    auto other = first;
    other.resize(60), other.push_back(9);
    for (const double temperature : {0.0, 0.8}) {
      const GenerateOptions plain = drawn(temperature, 3, 40);
      for (const int k : {1, 4})
        for (const bool governed : {false, true}) {
          GenerateOptions with = plain;
          Noted noted(eagle_drafter(eagle, with.sampling));
          Governor governor;
          with.drafter = &noted, with.draft_length = k;
          with.governor = governed ? &governor : nullptr;
          const auto session = target->session();
          // The second text takes back a part of the first; the third begins as the first did,
          // whose pages other sessions know.
          for (const auto& prompt : {first, other, first}) {
            const auto got = generate(*session, prompt, with, kUnheard);
            CHECK(got.tokens == generate(*cold->session(), prompt, plain, kUnheard).tokens);
            accepted += got.accepted, guessed += got.drafted;
          }
        }
      // Two texts at once.
      Scheduler scheduler(target);
      std::vector<std::unique_ptr<Drafter>> drafters;
      std::vector<std::unique_ptr<Request>> requests;
      for (const uint64_t seed : {5, 6}) {
        GenerateOptions with = drawn(temperature, seed, 40);
        drafters.push_back(eagle_drafter(eagle, with.sampling));
        with.drafter = drafters.back().get(), with.draft_length = 3;
        requests.push_back(std::make_unique<Request>(*target, first, with, kUnheard));
        scheduler.add(*requests.back());
      }
      while (scheduler.step()) {
      }
      for (size_t i = 0; i < 2; ++i)
        CHECK(requests[i]->finished().tokens ==
              generate(*cold->session(), first, drawn(temperature, 5 + i, 40), kUnheard).tokens);
    }
  }
  MESSAGE("draft tokens: " << guessed << ", accepted: " << accepted);
  CHECK(accepted > 0);
}

TEST_CASE("next layer of Qwen: a draft depends on the text, not on how its rows were read") {
  for (const std::string& name : kNames) {
    CAPTURE(name);
    const TempFolder temp;
    const auto target =
        open_on_cpu(write_with_words(temp / "words.quipu", model_of_golden(name), "\xe2\x96\x81w"),
                    Format::f16);
    const auto eagle = open_eagle(layer_of(name), target);
    GenerateOptions with = drawn(0.8, 4, 40);
    Noted noted(eagle_drafter(eagle, with.sampling));
    with.drafter = &noted, with.draft_length = 3;
    generate(*target->session(), tokens_for(*target, 50), with, kUnheard);
    size_t seen = 0;
    for (const auto& [history, draft] : noted.notes) {
      if (draft.nodes.empty()) continue;
      CHECK(draft == drafted_from_scratch(eagle, target, with.sampling, history, draft.depths()));
      ++seen;
    }
    CHECK(seen > 10);
  }
}

TEST_CASE("cli/a Qwen 3.5 model drafts with its own layer") {
  const TempFolder temp;
  const std::string model = write_with_words(temp / "words.quipu", model_of_golden("qwen35"),
                                             "\xe2\x96\x81w"),
                    whole = temp / "whole.gguf";
  REQUIRE(chaski_run({"convert", model, temp / "plain.gguf"}).status == 0);
  write_file(whole, with_layer(temp / "plain.gguf", "qwen35"));
  const auto run = [&](const std::string& draft, const std::string& temperature,
                       const std::string& of, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words{"run", "--device",     "cpu",       "-p",     "w5 w9 w7",  "-n",
                                   "60",  "--temp",       temperature, "--seed", "3",         "-m",
                                   of,    "--ignore-end", "--draft",   draft,    "--answers", "2"};
    words.insert(words.end(), more.begin(), more.end());
    return chaski_run(words);
  };
  for (const char* temperature : {"0", "0.8"})
    for (const std::string& of : {model, whole}) {
      const Outcome plain = run("none", temperature, of);
      CHECK_MESSAGE(plain.status == 0, plain.err);
      for (const std::string& draft : {layer_of("qwen35"), whole}) {
        const Outcome with = run(draft, temperature, of);
        CHECK_MESSAGE(with.status == 0, with.err);
        CHECK(with.out == plain.out);
      }
    }
  const std::string hint = whole + " has a layer that predicts draft tokens: --draft " + whole;
  CHECK(contains(run("auto", "0", whole, {"-v"}).err, hint));
  CHECK(!contains(run("auto", "0", model, {"-v"}).err, "has a layer that predicts"));
  const auto chat = [&](const std::string& draft) {
    return chaski_run({"chat", "--device", "cpu", "-m", whole, "--draft", draft, "-n", "40",
                       "--seed", "4", "--ignore-end"},
                      "w5 w6 w7\nw8 w9\n/undo\nw10 w11\n");
  };
  const Outcome plain = chat("none"), with = chat(whole);
  CHECK_MESSAGE(plain.status == 0, plain.err);
  CHECK_MESSAGE(with.status == 0, with.err);
  CHECK(with.out == plain.out);
  CHECK(plain.out.size() > 100);
  // The layer of another model.
  const Outcome other = run(layer_of("qwen35_moe"), "0", "models/bundled/story.quipu");
  CHECK(other.status == 3);
  CHECK_MESSAGE(other.one_error_line(), other.err);
  CHECK_MESSAGE(other.error_says("config.json: model.embedding_length is 32, expected 192, as in "),
                other.err);
}

}  // namespace
}  // namespace chaski::test
