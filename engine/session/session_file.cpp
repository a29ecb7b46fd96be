// A session as a file, little-endian:
//
//   offset 0   magic "CHASKIS\4": the last byte is the version. u64 XXH3-64 of all that follows.
//   offset 16  u64 sum of the model, u64 context, str format of keys and values (u64 length, bytes)
//   tokens     u64 n, n x i32.
//   pools      u64 n, n x u64 number of the first page kept: a window has dropped earlier pages.
//   pages      by pool, page and state: keys and values of each head (kv_layout.h), or the block
//              of a recurrent state.
//   earlier    u64 position of earlier recurrent states, 0: none. Then their blocks, by pool.
//
// Version 1 did not center the keys of f8, q8 and q4_0. Version 2 did not scale the keys of q8 and
// q4_0 (ops/kv_write.h). Version 3 stored recurrent states in another order, and no earlier ones. A
// file is read if this version stores its format in the same form.
//
// The sum of the model covers its hyperparameters, --rope-scaling, and each tensor: name, format,
// shape and 4 KB each of its beginning, middle and end. Reading all weights would take longer than
// computing the tokens again. The context is in the file because some models choose their rotary
// angles by it. Of the snapshots of recurrent states only the one at the end of the last prompt is
// saved: a restored session continues there, at its end, or from position 0.
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "engine/passes/message.h"
#include "engine/session/session_impl.h"
#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/base/checksum.h"
#include "ggml-like-tensor/base/cursor.h"
#include "ggml-like-tensor/base/mapping.h"
#include "ggml-like-tensor/file/value_io.h"

namespace chaski {

namespace {

constexpr std::string_view kSessionMagic("CHASKIS\4", 8), kSessionName("CHASKIS", 7);
constexpr int kFirstVersion = 1, kScaled = 3, kSessionVersion = 4;
constexpr size_t kSessionPreamble = 16, kSummedBytes = 4096, kHeldBytes = 1 << 20;

class SumWriter {
 public:
  explicit SumWriter(const std::string& path) : file_(path), sum_(XXH3_createState()) {
    ENSURE(sum_, "the hash state was allocated");
    XXH3_64bits_reset(sum_.get());
    const std::string preamble = std::string(kSessionMagic) + std::string(8, '\0');
    file_.write(std::as_bytes(std::span(preamble)));
  }

  void put(const void* bytes, size_t n) {
    held_.append(static_cast<const char*>(bytes), n);
    if (held_.size() >= kHeldBytes) flush();
  }
  void put(const std::string& bytes) { put(bytes.data(), bytes.size()); }
  uint64_t commit() {
    flush();
    const uint64_t sum = XXH3_64bits_digest(sum_.get());
    file_.write_at(kSessionMagic.size(), std::as_bytes(std::span(&sum, 1)));
    file_.commit();
    return file_.size();
  }

 private:
  void flush() {
    XXH3_64bits_update(sum_.get(), held_.data(), held_.size());
    file_.write(std::as_bytes(std::span(held_)));
    held_.clear();
  }

  AtomicFile file_;
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> sum_;
  std::string held_;
};

// Compares context and KV format of the file with those of the engine.
void expect_same_settings(const std::string& path, uint64_t context, const std::string& kv,
                          uint64_t context_here, const std::string& kv_here) {
  std::string differs, flags;
  const auto add = [](std::string& list, const char* between, const std::string& one) {
    list += (list.empty() ? "" : between) + one;
  };
  if (context != context_here) {
    add(differs, " and ",
        fmt::format("made in a context of {} tokens, expected {}", context, context_here));
    add(flags, " ", fmt::format("-c {}", context));
  }
  if (kv != kv_here) {
    add(differs, " and ", fmt::format("in {}, expected {}", escaped(kv), kv_here));
    add(flags, " ", "--kv " + escaped(kv));
  }
  if (!differs.empty())
    fail(Exit::bad_file, "{}: its keys and values are {} ({} continues with them)", path, differs,
         flags);
}

// Pages that are given back, or left to the prefix index, when this ends.
class TakenPages {
 public:
  explicit TakenPages(std::vector<KvPool>& pools) : pools_(pools) {}
  ~TakenPages() {
    for (const auto& [pool, page] : taken_) pools_[pool].release(page);
  }
  TakenPages(const TakenPages&) = delete;
  int32_t try_take(size_t pool) {  // kNoPage: all pages are in use
    const std::optional<int32_t> page = pools_[pool].try_take();
    if (page) taken_.emplace_back(pool, *page);
    return page.value_or(kNoPage);
  }

 private:
  std::vector<KvPool>& pools_;
  std::vector<std::pair<size_t, int32_t>> taken_;
};

}  // namespace

uint64_t sum_of_model(const Engine& e) {
  std::string summed;
  append_text(summed, e.rope_scaling());
  for (const auto& [key, value] : e.meta().all())
    if (key.starts_with("model.") || key == "general.architecture") {
      append_text(summed, key);
      append_value(summed, value, key);
    }
  for (const Weight& w : e.weights()->tensors) {
    append_text(summed, w.info.name);
    append_text(summed, info(w.info.format).name);
    append(summed, w.info.rows), append(summed, w.info.cols);
    const size_t bytes = w.info.bytes(), sample = std::min(bytes, kSummedBytes);
    for (const size_t at : {size_t(0), (bytes - sample) / 2, bytes - sample})
      append(summed, checksum(w.data + at, sample));
  }
  return checksum(summed.data(), summed.size());
}

bool Session::is_saved(const std::string& path) {
  const std::string start = beginning_of(path, kSessionMagic.size());
  return start.size() == kSessionMagic.size() && start.starts_with(kSessionName);
}

void Session::expect_kept(const std::string& path) const {
  for (const auto& stage : engine().pipeline().stages())
    if (!stage->host_states())
      fail(Exit::usage, "{}: keys and values on {} cannot be saved, expected --device cpu{}", path,
           stage->device(), stage->device().starts_with("cpu") ? " and one rank" : "");
}

uint64_t Session::save(const std::string& path) const {
  const Engine& e = engine();
  expect_kept(path);
  std::string header;
  append(header, sum_of_model(e));
  append(header, uint64_t(e.context_length()));
  append_text(header, e.kv_type());
  append(header, uint64_t(tokens().size()));
  for (const TokenId token : tokens()) append(header, token);
  append(header, uint64_t(impl_->tables.size()));
  for (const PageTable& t : impl_->tables) append(header, uint64_t(t.first()));
  SumWriter out(path);
  out.put(header);
  for (size_t pool = 0; pool < impl_->tables.size(); ++pool)
    for (const int32_t page : impl_->tables[pool].held())
      each_block(e, int(pool), page,
                 [&](const std::byte* block, size_t bytes) { out.put(block, bytes); });
  const PrefixIndex::Link* const earlier =
      impl_->has_recurrent() ? impl_->indexed_state(std::min(impl_->prompt_end, position() - 1))
                             : nullptr;
  std::string end;
  append(end, uint64_t(earlier ? earlier->end : 0));
  out.put(end);
  for (size_t pool = 0; earlier && pool < impl_->tables.size(); ++pool)
    if (impl_->tables[pool].recurrent())
      each_block(e, int(pool), earlier->places[pool],
                 [&](const std::byte* block, size_t bytes) { out.put(block, bytes); });
  return out.commit();
}

void Session::restore(const std::string& path) {
  impl_->index_end();
  rewind(0);
  Engine& e = engine();
  const std::shared_ptr<const Mapping> mapped = Mapping::open(path);
  Cursor in(path, mapped->bytes());
  const auto magic = in.raw(kSessionMagic.size(), "magic");
  if (std::memcmp(magic.data(), kSessionName.data(), kSessionName.size()) != 0)
    fail(Exit::bad_file, "{}: not a file of keys and values, expected one that chaski wrote", path);
  const int version = int(magic.back());
  if (version < kFirstVersion || version > kSessionVersion)
    fail(Exit::bad_file, "{}: keys and values of version {}, expected at most {}", path, version,
         kSessionVersion);
  const auto sum = in.take<uint64_t>("sum");
  expect_kept(path);
  const auto rest = mapped->bytes().subspan(kSessionPreamble);
  if (checksum(rest.data(), rest.size()) != sum)
    fail(Exit::bad_file, "{}: the file is damaged: its checksum does not match", path);
  if (in.take<uint64_t>("model") != sum_of_model(e))
    fail(Exit::bad_file, "{}: its keys and values are of another model than {}", path, e.path());
  const auto context = in.take<uint64_t>("context");
  const std::string kv = in.text("format");
  expect_same_settings(path, context, kv, uint64_t(e.context_length()), e.kv_type());
  const bool same_form = kv == "f16" || kv == "f32" || (kv == "f8" && version > kFirstVersion);
  if (version < kSessionVersion && impl_->has_recurrent())
    fail(
        Exit::bad_file,
        "{}: an earlier chaski stored its recurrent states in another order; the text must be read "
        "again",
        path);
  if (version < kScaled && !same_form)
    fail(Exit::bad_file,
         "{}: an earlier chaski stored its keys in another form of {}; the text must be read again",
         path, kv);
  const uint64_t n = in.count(in.take<uint64_t>("tokens"), sizeof(TokenId), "tokens");
  if (n > uint64_t(e.context_length()))
    fail(Exit::bad_file, "{}: it has {} tokens, expected at most {}", path, n, e.context_length());
  std::vector<TokenId> tokens;
  for (uint64_t i = 0; i < n; ++i) {
    tokens.push_back(in.take<TokenId>("tokens"));
    if (tokens.back() < 0 || tokens.back() >= e.vocab_size())
      fail(Exit::bad_file, "{}: token {} is {}, expected 0 to {}", path, i, tokens.back(),
           e.vocab_size() - 1);
  }
  auto& tables = impl_->tables;
  if (const auto pools = in.take<uint64_t>("pools"); pools != tables.size())
    fail(Exit::bad_file, "{}: it has {} groups of layers with a KV cache, the model has {}", path,
         pools, tables.size());
  try {
    impl_->kv().expect_memory(
        [&] {
          uint64_t bytes = 0;
          for (size_t i = 0; i < tables.size(); ++i)
            bytes += impl_->kv().pools[i].new_bytes(tables[i].pages_to(0, int(n)));
          return bytes;
        },
        [&] { return fmt::format("{}: the KV cache of {} positions", path, n); });
    for (PageTable& t : tables) {
      const auto first = in.take<uint64_t>("first page");
      const uint64_t most = t.recurrent() ? 0 : n / kPage;
      if (first > most)
        fail(Exit::bad_file, "{}: its first page is {}, expected at most {}", path, first, most);
      t.take(int(first), int(n));
      if (!t.reaches(int(n)))
        fail(Exit::bad_file, "{}: its first page is {}, after cells that the next token attends to",
             path, first);
    }
    for (size_t pool = 0; pool < tables.size(); ++pool)
      for (const int32_t page : tables[pool].held())
        each_block(e, int(pool), page, [&](std::byte* block, size_t bytes) {
          std::memcpy(block, in.raw(bytes, "pages").data(), bytes);
        });
    const uint64_t earlier = version < kSessionVersion ? 0 : in.take<uint64_t>("earlier states");
    if (earlier % kPage != 0 || earlier > n || (earlier > 0 && !impl_->has_recurrent()))
      fail(Exit::bad_file,
           "{}: it has recurrent states of position {}, expected a multiple of {} up to {}", path,
           earlier, kPage, n);
    std::vector<int32_t> places;
    TakenPages taken(impl_->kv().pools);
    bool have_room = true;  // otherwise the earlier states are passed over
    for (size_t pool = 0; earlier > 0 && pool < tables.size(); ++pool) {
      places.push_back(tables[pool].recurrent() ? taken.try_take(pool) : kNoPage);
      if (!tables[pool].recurrent()) continue;
      const bool taken_here = places.back() != kNoPage;
      each_block(e, int(pool), taken_here ? places.back() : tables[pool].page(0),
                 [&](std::byte* block, size_t bytes) {
                   const auto from = in.raw(bytes, "earlier states");
                   if (taken_here) std::memcpy(block, from.data(), bytes);
                 });
      have_room = have_room && taken_here;
    }
    if (in.remaining() > 0)
      fail(Exit::bad_file, "{}: {} unexpected bytes after the last page", path, in.remaining());
    impl_->tokens = std::move(tokens);
    impl_->tentative = false;
    if (earlier > 0 && have_room) impl_->index_state(int(earlier), places);
  } catch (...) {
    rewind(0);
    throw;
  }
}

}  // namespace chaski
