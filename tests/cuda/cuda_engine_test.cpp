// The engine with a device: --device and --gpu-layers through the library, and, with the host shim,
// through the program.
#include "engine/passes/pipeline.h"
#include "engine/passes/placement.h"
#include "engine/requests/generate.h"
#include "engine/requests/scheduler.h"
#include "engine/session/engine.h"
#include "tests/kit/cuda_device.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/program.h"
#include "tests/kit/scratch_model.h"

using namespace chaski;
using namespace chaski::test;

namespace {

std::shared_ptr<Engine> open_on(const std::string& device, int gpu_layers = kAllThatFit) {
  EngineOptions o;
  o.device = device, o.gpu_layers = gpu_layers, o.sessions = 3, o.context = 300;
  return Engine::open(o);
}

int cpu_layers(const Engine& e) {
  const Stage& first = *e.pipeline().stages().front();
  return first.device() == "cpu" ? first.layers().count() : 0;
}

using Logits = std::vector<float>;
Logits logits_of(Session& s, std::span<const TokenId> tokens, int wanted = 1) {
  const auto logits = s.extend(tokens, wanted);
  return {logits.begin(), logits.end()};
}

Logits hidden_of(Session& s, std::span<const TokenId> tokens, int wanted) {
  const auto rows = s.hidden(tokens, wanted);
  return {rows.begin(), rows.end()};
}

double error_of_logits(const Logits& x, const Logits& y) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < y.size(); ++i)
    difference += (double(x[i]) - y[i]) * (double(x[i]) - y[i]), size += double(y[i]) * y[i];
  return x.size() == y.size() ? difference / size : INFINITY;
}

std::string story(Engine& e, SamplerOptions sampling, int tokens) {
  GenerateOptions o;
  o.max_tokens = tokens, o.sampling = sampling;
  const auto session = e.session();
  return generate(*session, e.tokenizer().encode_prompt("Once upon a time"), o,
                  [](std::string_view) {})
      .text;
}

// Writes the bundled model with biases on q, k and v.
void write_biased(const std::string& path) {
  ModelSource source = source_of(open_on("cpu")->weights());
  for (size_t i = 0, n = source.tensors.size(); i < n; ++i) {
    const TensorInfo& w = source.tensors[i].info;
    if (!w.name.ends_with("attn_q") && !w.name.ends_with("attn_k") && !w.name.ends_with("attn_v"))
      continue;
    TensorInfo bias{w.name + ".bias", Format::f32, 1, w.rows};
    const auto fill = [bias](int64_t, int64_t, std::byte* to) {
      for (int64_t c = 0; c < bias.cols; ++c)
        reinterpret_cast<float*>(to)[c] = 0.1f * float(c % 7) - 0.3f;
    };
    source.tensors.push_back({bias, fill});
  }
  write_quipu(path, source, 1);
}

// An engine opened with a device setting, and the notices that it gave.
struct Opened {
  std::shared_ptr<Engine> engine;
  std::vector<std::string> notices;
  explicit Opened(EngineOptions o) {
    o.notice = [this](const std::string& line) { notices.push_back(line); };
    engine = Engine::open(o);
  }
};

}  // namespace

TEST_CASE("cuda/engine: all layers, some, or none on a device: the same logits within rounding") {
  Device device;
  if (!device.available()) return;
  for (const std::string& model :
       {std::string(), golden("models/gpt2"), golden("models/mistral_window"),
        golden("models/phi2"), golden("models/olmo2"), golden("models/mpt"), golden("models/olmo"),
        golden("models/deepseek_v2_lite"), golden("models/deepseek_v3"), golden("models/gemma2"),
        golden("models/gemma3"), golden("models/gemma3n"), golden("models/gemma4"),
        golden("models/mistral3"), golden("models/cohere2"), golden("models/command_r_plus"),
        golden("gguf/tiny_llama_mixed.gguf")}) {
    CAPTURE(model);
    EngineOptions o;
    o.model = model, o.device = "cpu";
    const auto cpu = Engine::open(o);
    const int layers = cpu_layers(*cpu);
    const auto tokens = tokens_for(*cpu, 20);
    const Logits want = logits_of(*cpu->session(), tokens, 3);
    const Logits hidden = hidden_of(*cpu->session(), tokens, 3);
    const bool share = model.ends_with("gemma3n") || model.ends_with("gemma4");
    for (int on_device = share ? layers : 1; on_device <= layers; ++on_device) {
      o.device = "cuda", o.gpu_layers = on_device;
      const auto e = Engine::open(o);
      CHECK(cpu_layers(*e) == layers - on_device);
      CHECK((e->device().find(" layers") == std::string::npos) == (on_device == layers));
      CHECK(error_of_logits(logits_of(*e->session(), tokens, 3), want) < 1e-4);
      CHECK(error_of_logits(hidden_of(*e->session(), tokens, 3), hidden) < 1e-4);
    }
  }
}

TEST_CASE(
    "cuda/engine: a device's logits depend on the tokens alone: chunks, forks, rewinds, batch") {
  Device device;
  if (!device.available()) return;
  for (const int gpu_layers : {kAllThatFit, 2}) {
    CAPTURE(gpu_layers);
    const auto e = open_on("cuda", gpu_layers);
    const auto t = tokens_for(*e, 24);
    const std::span<const TokenId> all = t;
    auto s = e->session();
    const Logits last = logits_of(*s, all);
    auto other = e->session();
    other->extend(all.first(11));
    other->extend(all.subspan(11, 12), 0);
    CHECK(logits_of(*other, all.last(1)) == last);
    other.reset();

    s->rewind(21);
    auto f = s->fork();
    s->extend(std::vector<TokenId>(3, 5));  // writes into the page that both share
    CHECK(logits_of(*f, all.subspan(21)) == last);
    std::vector<TokenId> changed(t.begin(), t.begin() + 21);
    changed.insert(changed.end(), {5, 5, 5, 7});
    const Logits alone = logits_of(*e->session(), changed);
    CHECK(logits_of(*s, std::vector<TokenId>{7}) == alone);

    f->rewind(14);
    s->rewind(20);
    const Extension together[] = {
        {.session = f.get(), .tokens = all.subspan(14)},
        {.session = s.get(), .tokens = std::span<const TokenId>(changed).subspan(20)}};
    const auto both = extend_all(together);
    CHECK(std::equal(last.begin(), last.end(), both.begin()));
    CHECK(std::equal(alone.begin(), alone.end(), both.begin() + long(last.size())));
  }
}

TEST_CASE("cuda/engine: experts that stay on the CPU") {
  Device device;
  if (!device.available()) return;
  for (const char* name : {"qwen3moe", "mixtral", "gpt_oss", "dots1"}) {
    CAPTURE(name);
    EngineOptions o;
    o.model = golden("models/") + name, o.device = "cpu", o.sessions = 3;
    const auto cpu = Engine::open(o);
    const auto t = tokens_for(*cpu, 24);
    const std::span<const TokenId> all = t;
    const Logits want = logits_of(*cpu->session(), t, 3);
    o.device = "cuda";
    const auto whole = Engine::open(o);
    o.cpu_experts = true;
    const int layers = cpu_layers(*cpu);
    for (int on_device = 1; on_device <= layers; ++on_device) {
      o.gpu_layers = on_device;
      const auto e = Engine::open(o);
      CHECK(cpu_layers(*e) == layers - on_device);
      CHECK(e->device().find("experts on the CPU") != std::string::npos);
      if (on_device == layers)
        CHECK(e->pipeline().cuda()->backend().bytes_in_use() <
              whole->pipeline().cuda()->backend().bytes_in_use());
      const Logits got = logits_of(*e->session(), t, 3);
      CHECK(error_of_logits(got, want) < 1e-4);
      CHECK(error_of_logits(hidden_of(*e->session(), t, 3), hidden_of(*cpu->session(), t, 3)) <
            1e-4);
      // In portions, alone and next to another session it gives the same bits.
      auto one = e->session(), two = e->session();
      one->extend(all.first(11), 0), two->extend(all.first(5), 0);
      const Extension together[] = {{.session = two.get(), .tokens = all.subspan(5, 3)},
                                    {.session = one.get(), .tokens = all.subspan(11), .wanted = 3}};
      const auto both = extend_all(together);
      CHECK(std::equal(got.begin(), got.end(), both.begin() + e->vocab_size()));
    }
  }
  EngineOptions o;
  o.device = "cuda", o.cpu_experts = true;
  CHECK(std::string(error_of([&] { Engine::open(o); }).what()).find("has no experts") !=
        std::string::npos);
}

TEST_CASE(
    "cuda/engine: the five kernels of a decode step give the bits of the separate steps, "
    "with pages of every format") {
  Device device;
  if (!device.available()) return;
  // Heads of 32 channels and of 16, layer norms, f32, f16 and block weights; biases, with heads of
  // both widths.
  const TempFolder folder;
  const std::string biased = folder / "biased.quipu";
  write_biased(biased);
  for (const std::string& model :
       {std::string(), biased, golden("models/gpt2"), golden("models/llama_gqa_untied"),
        golden("gguf/tiny_llama_mixed.gguf")})
    for (const KvType& kv : kKvTypes) {
      if (kv.format == Format::q4_0 || (model == biased && kv.format != Format::q8)) continue;
      CAPTURE(model);
      CAPTURE(kv.name);
      EngineOptions o;
      o.model = model, o.kv = kv.format, o.device = "cuda", o.sessions = 2;
      const auto e = Engine::open(o);
      const auto t = tokens_for(*e, 3);
      const Logits together = logits_of(*e->session(), t, 3);
      Logits one_by_one;
      const auto s = e->session();
      for (const TokenId& token : t)
        for (const float logit : s->extend({&token, 1})) one_by_one.push_back(logit);
      CHECK(one_by_one == together);
    }
}

TEST_CASE(
    "cuda/engine: tokens drawn on the device are those that the sampler draws from its logits, "
    "also with draft tokens") {
  Device device;
  if (!device.available()) return;
  const auto e = open_on("cuda");
  const auto t = tokens_for(*e, 12);
  for (const double temperature : {0.0, 0.9}) {
    SamplerOptions o;
    o.temperature = temperature, o.seed = 11;
    Sampler sampler(o);
    auto s = e->session(), one_by_one = e->session();
    CHECK(s->draw(t, sampler).size() == 1);
    // From here on every draft token is right except the third.
    std::vector<TokenId> guesses{t.back()}, drawn;
    one_by_one->extend(std::span(t).first(11), 0);
    for (int i = 0; i < 4; ++i) {
      const auto logits = one_by_one->decode(guesses.back());
      drawn.push_back(
          sampler.draw(logits.first(size_t(e->tokenizer().size())), one_by_one->tokens()));
      guesses.push_back(i == 2 ? drawn[2] ^ 1 : drawn[size_t(i)]);
    }
    s->rewind(11);
    const auto said = std::vector<TokenId>(drawn.begin(), drawn.begin() + 3);
    const auto last = std::span<const TokenId>(guesses).first(1);
    const Draft chain = Draft::chain(std::span<const TokenId>(guesses).subspan(1));
    CHECK(s->draw(last, sampler, chain.nodes) == said);
    // The same on a branch after another branch that is wrong from its first token on.
    Draft tree;
    tree.add(std::vector<TokenId>{drawn[0] ^ 1, drawn[1]});
    tree.add(std::span<const TokenId>(guesses).subspan(1));
    s->rewind(11);
    CHECK(s->draw(last, sampler, tree.nodes) == said);
    CHECK(s->position() == 14);
  }
}

TEST_CASE("cuda/engine: requests with different settings in one pass give the same text as alone") {
  Device device;
  if (!device.available()) return;
  EngineOptions o;
  o.device = "cuda", o.sessions = 3;
  const auto e = Engine::open(o);
  const auto prompt = e->tokenizer().encode_prompt("Once upon a time");
  const auto options = [](int i) {
    GenerateOptions g;
    g.max_tokens = 6 + i, g.sampling.seed = uint64_t(i), g.sampling.temperature = 0.6 * i;
    return g;
  };
  Scheduler scheduler(e);
  std::vector<std::unique_ptr<Request>> requests;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(std::make_unique<Request>(*e, prompt, options(i), [](std::string_view) {}));
    scheduler.add(*requests.back());
  }
  while (scheduler.step()) {
  }
  for (int i = 0; i < 3; ++i)
    CHECK(requests[size_t(i)]->finished().tokens ==
          generate(*e->session(), prompt, options(i), [](std::string_view) {}).tokens);
}

TEST_CASE("cuda/engine: states of every kind, whole or split: chunks, forks, rewinds, batch") {
  Device device;
  if (!device.available()) return;
  const TempFolder folder;
  EngineOptions o;
  o.model = write_scratch_model(folder / "scratch.quipu"), o.context = 300, o.sessions = 3;
  o.device = "cpu";
  const auto cpu = Engine::open(o);
  const auto t = tokens_for(*cpu, 45);
  const std::span<const TokenId> all = t;
  const Logits want = logits_of(*cpu->session(), all);
  for (const int gpu_layers : {4, 3, 2, 1}) {
    CAPTURE(gpu_layers);
    o.device = "cuda", o.gpu_layers = gpu_layers;
    const auto e = Engine::open(o);
    auto s = e->session(), other = e->session();
    const Logits last = logits_of(*s, all);
    CHECK(error_of_logits(last, want) < 1e-4);
    for (const TokenId& token : all.first(7)) other->extend({&token, 1}, 0);
    other->extend(all.subspan(7, 20), 20);
    auto fork = other->fork();
    other->extend(std::vector<TokenId>(5, 9), 5);
    CHECK(logits_of(*fork, all.subspan(27)) == last);
    const int reached = other->rewind(27);
    CHECK(reached == 27);
    const Extension together[] = {{.session = fork.get(), .tokens = all.first(3)},
                                  {.session = other.get(), .tokens = all.subspan(size_t(reached))}};
    const auto both = extend_all(together);
    CHECK(std::equal(last.begin(), last.end(), both.begin() + long(last.size())));
    s->rewind(20);
    CHECK(logits_of(*s, all.subspan(size_t(s->position()))) == last);
  }
}

TEST_CASE(
    "cuda/engine: models with recurrent layers, whole or split: the CPU's logits within rounding, "
    "and the same bits in chunks, one by one, forked, after rewinds and in a batch") {
  Device device;
  if (!device.available()) return;
  for (const std::string& model :
       {golden("models/mamba2"), golden("models/qwen35"), golden("models/rwkv7_small"),
        golden("models/falcon_h1"), golden("models/granite_hybrid"), golden("models/plamo2")}) {
    CAPTURE(model);
    EngineOptions o;
    o.model = model, o.device = "cpu", o.context = 64, o.sessions = 3;
    const auto cpu = Engine::open(o);
    const auto t = tokens_for(*cpu, 20);
    const std::span<const TokenId> all = t;
    const Logits want = logits_of(*cpu->session(), t, 3);
    const Logits hidden = hidden_of(*cpu->session(), t, 3);
    const int layers = cpu_layers(*cpu);
    // The first layer of RWKV 7 gives its values to all others.
    const bool share = model.ends_with("rwkv7_small");
    for (int on_device = share ? layers : 1; on_device <= layers; ++on_device) {
      CAPTURE(on_device);
      o.device = "cuda", o.gpu_layers = on_device;
      const auto e = Engine::open(o);
      CHECK(cpu_layers(*e) == layers - on_device);
      auto s = e->session(), other = e->session();
      const Logits got = logits_of(*s, t, 3);
      CHECK(error_of_logits(got, want) < 1e-4);
      CHECK(error_of_logits(hidden_of(*e->session(), t, 3), hidden) < 1e-4);
      // A chunk, decode steps, and a fork whose parent goes on with other tokens.
      other->extend(all.first(9), 0);
      for (const TokenId& token : all.subspan(9, 4)) other->extend({&token, 1}, 0);
      auto fork = other->fork();
      other->extend(std::vector<TokenId>(3, 5), 1);
      CHECK(logits_of(*fork, all.subspan(13), 3) == got);
      // A recurrent state goes back to its last snapshot, and the tokens after it are read again.
      const size_t reached = size_t(other->rewind(13)), start = size_t(s->rewind(17));
      const Extension together[] = {
          {.session = other.get(), .tokens = all.subspan(reached), .wanted = 3},
          {.session = s.get(), .tokens = all.subspan(start), .wanted = 3}};
      const auto both = extend_all(together);
      REQUIRE(both.size() == 2 * got.size());
      CHECK(std::equal(got.begin(), got.end(), both.begin()));
      CHECK(std::equal(got.begin(), got.end(), both.begin() + long(got.size())));
    }
  }
}

TEST_CASE("cuda/engine: a recurrent layer without a kernel: the CPU with a reason, or an error") {
  Device device;
  if (!device.available()) return;
  const std::string reason = "cuda: there is no kernel for taylor_scan; use --device cpu";
  EngineOptions o;
  o.model = golden("models/based"), o.context = 64;
  const Opened fallback(o);
  CHECK(fallback.engine->device() == "cpu");
  REQUIRE(!fallback.notices.empty());
  CHECK(fallback.notices.back() == "on the CPU: " + reason);
  o.device = "cuda";
  const Error error = error_of([&] { Opened unused(o); });
  CHECK(error.code == Exit::device);
  CHECK(error.what() == reason);
}

TEST_CASE("cuda/engine: the bundled model's greedy story equals the CPU's") {
  Device device;
  if (!device.available()) return;
#if defined(CHASKI_CUDA_SHIM)
  const int tokens = 16;  // a token takes a tenth of a second
#else
  const int tokens = 64;
#endif
  SamplerOptions greedy;
  greedy.temperature = 0;
  CHECK(story(*open_on("cuda"), greedy, tokens) == story(*open_on("cpu"), greedy, tokens));
}

#if defined(CHASKI_CUDA_SHIM)

TEST_CASE("cuda/engine: the number of layers that fit is found and reported") {
  shim::show_devices(1);
  EngineOptions o;
  {
    const Opened all(o);
    CHECK(cpu_layers(*all.engine) == 0);
    CHECK(all.engine->batch_length() == 512);  // the model's own context
    CHECK(all.notices.empty());
  }
  shim::set_device_memory(4'000'000);
  {
    const Opened some(o);
    CHECK(cpu_layers(*some.engine) > 0);
    CHECK(cpu_layers(*some.engine) < 6);
    REQUIRE(some.notices.size() == 1);
    CHECK(some.notices[0].find(" of 6 layers fit into 0.004 GB, the others run on the CPU") !=
          std::string::npos);
  }
  shim::set_device_memory(300'000);
  {
    const Opened none(o);
    CHECK(none.engine->device() == "cpu");
    REQUIRE(none.notices.size() == 1);
    CHECK(none.notices[0] ==
          "on the CPU: cuda:0 (host shim 0) has 0.0003 GB free, too little for one layer");
  }
  o.device = "cuda";
  Error error = error_of([&] { Opened unused(o); });
  CHECK(error.code == Exit::memory);
  CHECK(std::string(error.what()).find("6 of 6 layers with a context of 512 need 0.00") !=
        std::string::npos);
  CHECK(std::string(error.what())
            .ends_with("GB of device memory, 0.0003 GB are free; use --device cpu"));
  shim::set_device_memory(4'000'000);
  CHECK(std::string(error_of([&] { Opened unused(o); }).what()).find("; --gpu-layers ") !=
        std::string::npos);
  shim::set_device_memory(size_t(1) << 34);
  shim::show_devices(0);
}

TEST_CASE("cuda/engine: a context too long for the device is shortened, unless it was requested") {
  shim::show_devices(1);
  const auto bundled = open_on("cpu");
  Weights weights = *bundled->weights();
  weights.meta.set_int("model.context_length", 100000);
  const auto model = bind_model(weights);
  std::vector<std::string> notices;
  EngineOptions o;
  o.device = "cuda", o.notice = [&](const std::string& line) { notices.push_back(line); };
  const auto context = [&] { return settle(*model, o, weights.path).context; };
  CHECK(context() == 100000);
  CHECK(notices.empty());
  shim::set_device_memory(200'000'000);
  const int cut = context();
  CHECK(cut < 100000);
  CHECK(cut > 4096);
  CHECK(notices ==
        std::vector<std::string>{fmt::format(
            "cuda:0 (host shim 0): a context of {} fits, the model's own is 100000", cut)});
  // It is the longest context: this one fits, one step more does not.
  o.context = cut;
  CHECK(context() == cut);
  o.context = cut + 256;
  CHECK(error_of(context).code == Exit::memory);
  shim::set_device_memory(size_t(1) << 34);
  shim::show_devices(0);
}

namespace {

bool fits(const Engine& engine, const EngineOptions& o, size_t bytes) {
  shim::set_device_memory(bytes);
  return error_of([&] { settle(const_cast<Model&>(engine.model()), o, engine.path()); }).code ==
         Exit::done;
}
// Gives the device the least memory, within 4 KB, with which the settings fit. Returns 4 KB less.
size_t set_least_memory(const Engine& engine, const EngineOptions& o) {
  size_t least = 1 << 20;
  for (size_t most = 1 << 26; least + 4096 < most;) {
    const size_t middle = (least + most) / 2;
    (fits(engine, o, middle) ? most : least) = middle;
  }
  REQUIRE(fits(engine, o, least + 4096));
  return least;
}

}  // namespace

// A pass of 32 tokens splits the context over the device, longer and shorter ones take less memory.
TEST_CASE("cuda/engine: a device just large enough has room for a pass of any number of tokens") {
  shim::show_devices(1);
  EngineOptions o;
  o.device = "cuda", o.gpu_layers = 1, o.context = 8192;
  const auto bundled = open_on("cpu");
  set_least_memory(*bundled, o);
  const auto e = Engine::open(o);
  const auto session = e->session();
  for (const int tokens : {600, 32, 33, 1})  // first a whole batch
    CHECK(logits_of(*session, tokens_for(*e, tokens)).size() == size_t(e->vocab_size()));
  shim::set_device_memory(size_t(1) << 34);
  shim::show_devices(0);
}

TEST_CASE("cuda/engine: a device just large enough has room for the logits of a whole pass") {
  shim::show_devices(1);
  EngineOptions o;
  o.device = "cuda", o.gpu_layers = 1, o.context = 160, o.outputs = 130;
  const auto bundled = open_on("cpu");
  const size_t least = set_least_memory(*bundled, o);
  {
    const auto e = Engine::open(o);
    CHECK(logits_of(*e->session(), tokens_for(*e, 130), 130).size() ==
          130 * size_t(e->vocab_size()));
  }
  // Each of these sessions has an output, although only one verification pass at a time was
  // requested.
  o.outputs = 1, o.sessions = 130;
  CHECK(!fits(*bundled, o, least - 4096));
  shim::set_device_memory(size_t(1) << 34);
  shim::show_devices(0);
}

TEST_CASE(
    "cuda/engine: auto is the CPU without a device, or with pages that have no kernels, and says "
    "why") {
  shim::show_devices(0);
  EngineOptions o;
  CHECK(Opened(o).notices.empty());  // no device was requested
  o.verbose = true;
  const Opened none(o);
  CHECK(none.engine->device() == "cpu");
  CHECK(none.notices == std::vector<std::string>{"on the CPU: no CUDA-capable device is detected"});
  shim::show_devices(1);
  o.kv = Format::q4_0;
  const Opened q4(o);
  CHECK(q4.engine->device() == "cpu");
  CHECK(q4.notices ==
        std::vector<std::string>{
            "on the CPU: cuda: there is no kernel for kv_write over q4_0 pages; use --device cpu"});
  o.device = "cuda:0";
  CHECK(error_of([&] { Opened unused(o); }).code == Exit::device);
  o.gpu_layers = 0;
  const Opened cpu(o);
  CHECK(cpu.engine->device() == "cpu");
  CHECK(cpu.notices.empty());
  shim::show_devices(0);
}

namespace {

Outcome shim_run(const Arguments& arguments, const std::string& memory = "17179869184") {
  const char* binary = std::getenv("CHASKI_SHIM_BIN");
  setenv("CHASKI_SHIM_DEVICES", "1", 1), setenv("CHASKI_SHIM_MEMORY", memory.c_str(), 1);
  Outcome outcome = Program(arguments, "", "", binary ? binary : "build/tests/chaski-shim").wait();
  unsetenv("CHASKI_SHIM_DEVICES"), unsetenv("CHASKI_SHIM_MEMORY");
  return outcome;
}

}  // namespace

TEST_CASE("cli/--device cuda: a story, the device that ran it, and the errors") {
  const Arguments run = {"run", "-n", "6", "--seed", "10", "--device"};
  const auto with = [&](const Arguments& more) {
    Arguments all = run;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::string text = chaski_run(with({"cpu"})).out, story = text.substr(16, text.size() - 17);
  const Outcome all = shim_run(with({"cuda", "--json"})),
                some = shim_run(with({"cuda:0", "--gpu-layers", "2"}));
  REQUIRE_MESSAGE(all.status == 0, all.err);
  CHECK(all.out.find("\"device\":\"cuda:0 (host shim 0)\"") != std::string::npos);
  CHECK(all.out.find(story) != std::string::npos);
  CHECK_MESSAGE(some.status == 0, some.err);
  CHECK(some.out == text);
  check_one_line(shim_run(with({"cuda:1"})), 6, "--device is cuda:1, but there is no such device");
  check_one_line(shim_run(with({"cuda"}), "1000000"), 4, "need 0.00");
  const Outcome little = shim_run(with({"auto"}), "1000000");
  CHECK(little.status == 0);
  CHECK_MESSAGE(little.err.starts_with("chaski: "), little.err);
}

TEST_CASE("cli/bench --device cuda: steps with their bytes, also with sequences side by side") {
  const Outcome outcome =
      shim_run({"bench", "--device", "cuda", "--gpu-layers", "2", "-p", "4", "-n", "2",
                "--sequences", "1,2", "-r", "1", "--profile", "--json"});
  REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
  for (const char* part : {"\"device\":\"cuda:0 (host shim 0), 2 of 6 layers\"",
                           "\"copy_gigabytes_per_second\":", "\"case\":\"sequences\"",
                           "\"op\":\"draw\"", "\"on_device\":true", "\"on_device\":false"})
    CHECK_MESSAGE(outcome.out.find(part) != std::string::npos, part);
}

#endif
