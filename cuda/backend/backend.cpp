// Implements CudaBackend for one device: its weights, pages, plans and passes. All work goes to one
// stream, in order. The host waits only for results.
#include "cuda/backend.h"

#include <algorithm>
#include <unordered_map>

#include "cuda/backend/fused.h"
#include "cuda/backend/limits.cuh"
#include "cuda/backend/pass.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/use.h"
#include "cuda/draw/draw.cuh"
#include "cuda/table.h"

namespace chaski {

namespace {

size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

// Checks that every step of a bound plan has a kernel. The addresses it is bound to do not matter.
void expect_kernels(const Plan& plan, size_t shared_limit) {
  for (const Step& s : plan.steps) {
    if (cuda_entry_of(s.op).supports(s.op, s.args, shared_limit)) continue;
    std::string formats;
    for (int i = 0; i < s.args.n_in; ++i)
      if (s.args.in[i].weight)
        formats +=
            (formats.empty() ? " over " : ", ") + std::string(info(s.args.in[i].format).name);
    if (const StateId* state = state_of(s.op); state && formats.empty())
      if (const KvView& kv = s.args.where->states.paged[size_t(*state)]; kv.pool >= 0)
        formats = fmt::format(" over {} pages{}", info(kv.layout.format).name,
                              kv.layout.v_inside_k ? " with the values inside the keys" : "");
    if (const auto* attention = std::get_if<Attention>(&s.op)) {
      if (attention->source == Attention::Source::batch)
        formats = " over keys and values of the batch";
      if (attention->mask == Attention::Mask::full) formats += " with a full mask";
    }
    if (cuda_entry_of(s.op).supports(s.op, s.args, SIZE_MAX)) {
      const Attention* attention = std::get_if<Attention>(&s.op);
      const bool f32_pages =
          attention &&
          s.args.where->states.paged[size_t(attention->state)].layout.format == Format::f32;
      fail(Exit::device,
           "cuda: {}{} needs more shared memory than this device has ({} KB a block); use {}",
           name_of(s.op), formats, shared_limit / 1024, f32_pages ? "--kv f16" : "--device cpu");
    }
    fail(Exit::device, "cuda: there is no kernel for {}{}; use --device cpu", name_of(s.op),
         formats);
  }
}

struct BoundPlan final : CudaPlan {
  BoundPlan(Graph graph, const Batch& batch, const PassContext& where)
      : steps(std::move(graph), batch, where, kMostFused), batch(batch) {}
  const Plan& plan() const override { return steps; }
  size_t kernels() const override { return launches.size(); }

  Plan steps;
  std::vector<FusedSteps> launches;
  const Batch& batch;
  std::vector<size_t> ropes;  // indices into the backend's tables, by RopeSpec of the graph
  CudaGraph captured[2];      // the plan without and with a draw
  int runs[2] = {};
  int generation = -1;  // of the addresses the plan was bound to
};

class Device final : public CudaBackend {
 public:
  Device(std::vector<const Weight*> weights, const CudaOptions& o, CudaDevice device)
      : weights_(std::move(weights)),
        options_(o),
        device_(std::move(device)),
        where_{o.states, {}},
        pass_(o.max_batch, o.context, o.states.pools),
        tokens_(size_t(o.max_batch) * sizeof(int32_t), "drawn tokens"),
        pinned_tokens_(tokens_.size(), "drawn tokens") {
    size_t bytes = 0;
    for (const Weight* w : weights_) offsets_[w] = bytes, bytes += aligned(w->info.bytes());
    pages_ = pages_that_fit();
    weight_bytes_ = DeviceBytes(bytes, "weights");
    std::vector<std::byte*> addresses;
    for (size_t i = 0; i < pages_.size(); ++i) {
      pools_.emplace_back(size_t(pages_[i]) * where_.states.pools[i].page_bytes, "keys and values");
      addresses.push_back(pools_.back().data());
    }
    where_.states.place(addresses);
  }
  ~Device() override {
    cudaSetDevice(device_.index);
    cudaStreamSynchronize(stream_);
  }

  const CudaDevice& device() const override { return device_; }
  uint64_t bytes_in_use() const override {
    uint64_t n = weight_bytes_.size() + arena_.size() + pass_.bytes() + tokens_.size() +
                 draw_scratch_.size();
    for (const DeviceBytes& p : pools_) n += p.size();
    for (const DeviceBytes& s : scratch_) n += s.size();
    for (const RopeTable& r : ropes_) n += r.bytes();
    return n;
  }

  void upload(const std::function<void(uint64_t, uint64_t)>& progress) override;

  const StateLayout& states() const override { return where_.states; }
  const std::vector<int64_t>& pages() const override { return pages_; }
  void copy_page(int pool, int32_t from, int32_t to) override {
    const int64_t count = pages_[size_t(pool)];
    ENSURE(from >= 0 && to >= 0 && from < count && to < count, "a page must be in its pool");
    make_current();
    // The same bytes as StateLayout::copy_page(), but all heads of a state in one call: a head is a
    // row. There the order of the heads is that of a kept page's file.
    for (const KvView& s : where_.states.paged) {
      if (s.pool != pool || s.layout.heads == 0) continue;
      const size_t pitch = size_t(kPageGroup) * (s.layout.k_bytes() + s.layout.v_bytes());
      const auto heads = size_t(s.layout.heads);
      stream_.copy_rows(s.keys(0, to), s.keys(0, from), pitch, s.layout.k_bytes(), heads);
      stream_.copy_rows(s.values(0, to), s.values(0, from), pitch, s.layout.v_bytes(), heads);
    }
    for (const RecurrentView& s : where_.states.recurrent)
      if (s.pool == pool && s.bytes > 0)
        stream_.copy(s.block(to), s.block(from), s.bytes, cudaMemcpyDeviceToDevice);
  }

  CudaLimits measure_limits() override {
    make_current();
    return cuda_limits(stream_, device_.multiprocessors);
  }

  std::unique_ptr<CudaPlan> plan(Graph graph, const Batch& batch) override;
  void run(CudaPlan& plan, std::span<const CudaDraw> draws, const float* input) override;
  std::span<const float> result() override;
  std::span<const int32_t> tokens() override {
    stream_.wait();
    return {pinned_tokens_.as<int32_t>(), size_t(result_.rows)};
  }

 private:
  std::vector<int64_t> pages_that_fit() const;
  void grow(DeviceBytes& bytes, size_t need, const char* what);
  void bind(BoundPlan& p);
  LaunchContext context_of(const BoundPlan& p) const;
  template <class After>
  void launch_steps(const BoundPlan& p, After after_launch);
  void draw_tokens(const BoundPlan& p);
  void send_input(const BoundPlan& p, const float* input);
  void launch_timed(const BoundPlan& p, bool draw);
  // Calls may come from any thread, and each thread has its own current device.
  void make_current() const { check_cuda(cudaSetDevice(device_.index), "cudaSetDevice"); }

  const std::vector<const Weight*> weights_;
  CudaOptions options_;
  CudaDevice device_;
  const DeviceUse use_{device_.index};
  CudaStream stream_;
  std::unordered_map<const Weight*, size_t> offsets_;
  DeviceBytes weight_bytes_, arena_, scratch_[Ops::kCount], draw_scratch_;
  PassContext where_;
  std::vector<int64_t> pages_;  // by pool
  std::vector<DeviceBytes> pools_;
  PassBuffers pass_;
  std::vector<RopeTable> ropes_;
  int generation_ = 0;  // incremented when memory that plans are bound to has moved

  Shape result_;  // of the last pass
  const float* result_data_ = nullptr;
  DeviceBytes tokens_;
  PinnedBytes pinned_tokens_, pinned_result_, pinned_input_;
  CudaEvent input_sent_;
};

std::vector<int64_t> Device::pages_that_fit() const {
  const uint64_t need = cuda_bytes_needed(weights_, options_, device_.total_bytes);
  if (need > device_.free_bytes)
    fail(Exit::memory,
         "cuda:{} ({}): weights, {} positions of keys and values and working memory need {:.3g} "
         "GB, {:.3g} GB are free",
         device_.index, device_.name, options_.context, double(need) / 1e9,
         double(device_.free_bytes) / 1e9);
  // Splits the remaining memory between the pools in proportion to what they want.
  std::vector<int64_t> pages, more;
  uint64_t wanted = 0;
  for (size_t i = 0; i < where_.states.pools.size(); ++i) {
    const CudaOptions::Pages& p = options_.pages[i];
    pages.push_back(whole_groups(p.least));
    more.push_back(std::max<int64_t>(0, whole_groups(p.wanted) - pages[i]));
    wanted += uint64_t(more[i]) * where_.states.pools[i].page_bytes;
  }
  const uint64_t left = device_.free_bytes - need;
  const double share = wanted > left ? double(left) / double(wanted) : 1;
  for (size_t i = 0; i < pages.size(); ++i)
    pages[i] += int64_t(share * double(more[i])) / kPageGroup * kPageGroup;
  return pages;
}

void Device::upload(const std::function<void(uint64_t, uint64_t)>& progress) {
  make_current();
  constexpr size_t kChunk = size_t(8) << 20;
  struct Stage {
    PinnedBytes bytes{kChunk, "staging buffers"};
    CudaEvent sent;
  } stages[3];
  struct AtEnd {  // progress() may throw while copies from the staging buffers are in flight
    const CudaStream& stream;
    ~AtEnd() { cudaStreamSynchronize(stream); }
  } at_end{stream_};
  uint64_t done = 0;
  int turn = 0;
  uint64_t all = 0;
  for (const Weight* w : weights_) all += w->info.bytes();
  for (const Weight* w : weights_) {
    const size_t size = w->info.bytes();
    for (size_t at = 0; at < size; at += kChunk) {
      const size_t n = std::min(kChunk, size - at);
      Stage& s = stages[turn++ % 3];
      s.sent.wait();
      std::memcpy(s.bytes.data(), w->data + at, n);
      stream_.copy(weight_bytes_.data() + offsets_.at(w) + at, s.bytes.data(), n,
                   cudaMemcpyHostToDevice);
      s.sent.record(stream_);
      if (progress) progress(done += n, all);
    }
  }
  stream_.wait();
}

// The memory is zeroed: see LaunchContext::scratch.
void Device::grow(DeviceBytes& bytes, size_t need, const char* what) {
  if (need <= bytes.size()) return;
  stream_.wait();
  bytes = {};
  bytes = DeviceBytes(aligned(need), what);
  check_cuda(cudaMemsetAsync(bytes.data(), 0, bytes.size(), stream_), "cudaMemsetAsync");
  ++generation_;
}

std::unique_ptr<CudaPlan> Device::plan(Graph graph, const Batch& batch) {
  make_current();
  stream_.wait();  // the caller may drop other plans now, so none may be running
  auto p = std::make_unique<BoundPlan>(std::move(graph), batch, where_);
  grow(arena_, p->steps.arena_bytes(), "activations");
  for (const RopeSpec& spec : p->steps.graph().ropes) {
    size_t i = 0;
    while (i < ropes_.size() && !(ropes_[i].spec() == spec)) ++i;
    if (i == ropes_.size()) ropes_.emplace_back(spec, options_.context);
    p->ropes.push_back(i);
  }
  bind(*p);
  expect_kernels(p->steps, device_.shared_limit);
  for (const Step& s : p->steps.steps)
    grow(scratch_[s.op.index()],
         cuda_entry_of(s.op).scratch(s.op, s.args, options_.context, device_.shared_limit),
         "partial sums");
  for (size_t i = 0; i < p->steps.steps.size(); i += p->launches.back().count)
    p->launches.push_back(fused_steps(p->steps, i, device_.shared_limit));
  const Shape result = p->steps.result_shape();
  grow(draw_scratch_, draw_scratch(result.rows, result.cols), "candidates of a draw");
  return p;
}

void Device::bind(BoundPlan& p) {
  p.steps.bind(arena_.data(), [&](const Weight& w) {
    const auto at = offsets_.find(&w);
    ENSURE(at != offsets_.end(), "a plan may only read weights of its backend");
    return weight_bytes_.data() + at->second;
  });
  for (CudaGraph& g : p.captured) g.reset();
  p.generation = generation_;
}

LaunchContext Device::context_of(const BoundPlan& p) const {
  LaunchContext c;
  c.stream = stream_;
  pass_.place(c.batch);
  for (size_t i = 0; i < p.ropes.size() && i < size_t(kMostRopes); ++i)
    c.batch.ropes[i] = ropes_[p.ropes[i]].data();
  c.context = options_.context, c.multiprocessors = device_.multiprocessors,
  c.shared_limit = device_.shared_limit;
  return c;
}

template <class After>
void Device::launch_steps(const BoundPlan& p, After after_launch) {
  LaunchContext c = context_of(p);
  for (const FusedSteps& f : p.launches) {
    const Step& s = p.steps.steps[f.matmul];
    c.scratch = scratch_[s.op.index()].data();
    const int64_t rows = s.args.in[0].weight ? s.args.out[0].shape.rows : s.args.in[0].shape.rows;
    if (f.count > 1) launch_fused(p.steps, f, c);
    // take_rows and the steps after it have no rows if no logits are wanted
    else if (rows > 0)
      cuda_entry_of(s.op).launch(s.op, s.args, c);
    after_launch(f);
  }
}

void Device::draw_tokens(const BoundPlan& p) {
  LaunchContext c = context_of(p);
  c.scratch = draw_scratch_.data();
  const Shape r = p.steps.result_shape();
  launch_draw(c, pass_.draws(), p.steps.result(), r.rows, r.cols, tokens_.as<int32_t>());
  stream_.copy(pinned_tokens_.data(), tokens_.data(), size_t(r.rows) * sizeof(int32_t),
               cudaMemcpyDeviceToHost);
}

void Device::launch_timed(const BoundPlan& p, bool draw) {
  std::vector<std::unique_ptr<CudaEvent>> events;
  auto mark = [&] {
    events.push_back(std::make_unique<CudaEvent>(true)), events.back()->record(stream_);
  };
  mark();
  launch_steps(p, [&](const FusedSteps&) { mark(); });
  if (draw) draw_tokens(p), mark();
  events.back()->wait();
  auto seconds = [&](size_t i) { return events[i + 1]->seconds_since(*events[i]); };
  profile->assign(p.steps.steps.size(), 0);
  for (size_t i = 0; i < p.launches.size(); ++i) (*profile)[p.launches[i].matmul] = seconds(i);
  if (draw) profile->push_back(seconds(p.launches.size()));
}

// This copy is not part of the captured graph. It writes what the first step reads. Nothing earlier
// on the stream still reads that memory.
void Device::send_input(const BoundPlan& p, const float* input) {
  const Shape s = p.steps.input_shape();
  const size_t bytes = size_t(s.rows * s.cols) * sizeof(float);
  ENSURE((bytes > 0) == (input != nullptr),
         "a plan gets an input if its graph was split, and only then");
  if (!input) return;
  if (pinned_input_.size() < bytes) {
    stream_.wait();
    pinned_input_ = {};
    pinned_input_ = PinnedBytes(bytes, "input activations");
  }
  input_sent_.wait();
  std::memcpy(pinned_input_.data(), input, bytes);
  stream_.copy(p.steps.input(), pinned_input_.data(), bytes, cudaMemcpyHostToDevice);
  input_sent_.record(stream_);
}

void Device::run(CudaPlan& plan, std::span<const CudaDraw> draws, const float* input) {
  auto& p = static_cast<BoundPlan&>(plan);
  const Batch& b = p.batch;
  make_current();
  const bool draw = !draws.empty();
  ENSURE(!draw || draws.size() == b.outputs.size(), "there must be one draw for each output");
  ENSURE(std::all_of(draws.begin(), draws.end(), cuda_can_draw), "the host makes all other draws");
  if (pass_.reserve_for(b, stream_)) ++generation_;
  if (p.generation != generation_) bind(p);
  int64_t reach = 0;
  for (int32_t position : b.positions) reach = std::max<int64_t>(reach, position + 1);
  ENSURE(reach <= options_.context, "positions must be within the context");
  for (size_t i : p.ropes) ropes_[i].fill_to(reach, stream_);
  pass_.send(b, draws, stream_);
  send_input(p, input);

  // The first run also loads the kernels, which must not happen during capture. A prompt of an odd
  // length is usually not seen again, so capturing it at once would not pay.
  auto whole_pass = [&] {
    launch_steps(p, [](const FusedSteps&) {});
    if (draw) draw_tokens(p);
  };
  CudaGraph& captured = p.captured[draw];
  if (profile) {
    launch_timed(p, draw);
  } else if (p.runs[draw]++ == 0) {
    whole_pass();
  } else {
    if (!captured.made()) captured.capture(stream_, whole_pass);
    captured.launch(stream_);
  }
  result_ = p.steps.result_shape(), result_data_ = p.steps.result();
}

std::span<const float> Device::result() {
  make_current();
  const size_t n = size_t(result_.rows) * size_t(result_.cols);
  if (pinned_result_.size() < n * sizeof(float)) {
    stream_.wait();
    pinned_result_ = {};
    pinned_result_ = PinnedBytes(n * sizeof(float), "logits");
  }
  stream_.copy(pinned_result_.data(), result_data_, n * sizeof(float), cudaMemcpyDeviceToHost);
  stream_.wait();
  return {pinned_result_.as<float>(), n};
}

}  // namespace

uint64_t cuda_bytes_needed(std::span<const Weight* const> weights, const CudaOptions& o,
                           uint64_t device_bytes) {
  uint64_t need = o.working + device_bytes / 64;
  for (const Weight* w : weights) need += aligned(w->info.bytes());
  for (size_t i = 0; i < o.states.pools.size(); ++i)
    need += uint64_t(whole_groups(o.pages[i].least)) * o.states.pools[i].page_bytes;
  return need;
}

void CudaWorking::add(Graph graph, const Batch& batch, const StateLayout& states) {
  ENSURE(shared_limit_ > 0, "the limit must be the device's");
  const PassContext where{states, {}};
  Plan plan(std::move(graph), batch, where, kMostFused);
  alignas(64) static std::byte nowhere[64];  // only shapes and formats are looked at, not data
  plan.bind(nowhere);
  expect_kernels(plan, shared_limit_);
  const auto most = [](uint64_t& most, uint64_t bytes) {
    most = std::max<uint64_t>(most, aligned(bytes));
  };
  most(arena_, plan.arena_bytes());
  for (const Step& s : plan.steps)
    most(scratch_[s.op.index()],
         cuda_entry_of(s.op).scratch(s.op, s.args, context_, shared_limit_));
  for (const RopeSpec& spec : plan.graph().ropes)
    if (std::ranges::find(ropes_, spec) == ropes_.end()) ropes_.push_back(spec);
  const Shape result = plan.result_shape();
  most(draw_, draw_scratch(result.rows, result.cols));
}

uint64_t CudaWorking::bytes() const {
  uint64_t n = arena_ + draw_;
  for (const uint64_t of_op : scratch_) n += of_op;
  for (const RopeSpec& spec : ropes_) n += uint64_t(context_) * uint64_t(spec.dim) * sizeof(float);
  return n;
}

std::unique_ptr<CudaBackend> CudaBackend::open(std::vector<const Weight*> weights,
                                               const CudaOptions& options) {
  const DeviceUse use(options.device);  // from the first call on, so that nothing resets it
  const CudaDevices all = cuda_devices();
  const auto found = std::find_if(all.list.begin(), all.list.end(),
                                  [&](const CudaDevice& d) { return d.index == options.device; });
  if (found == all.list.end())
    fail(Exit::device, "cuda: device {} was requested, but {}", options.device,
         all.list.empty() ? all.why_none : fmt::format("there are {}", all.list.size()));
  CudaDevice device = *found;
  check_cuda(cudaSetDevice(device.index), "cudaSetDevice");
  check_cuda(cudaMemGetInfo(&device.free_bytes, &device.total_bytes), "cudaMemGetInfo");
  return std::make_unique<Device>(std::move(weights), options, std::move(device));
}

}  // namespace chaski
