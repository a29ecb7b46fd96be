// The file of an answer, little-endian; a str is a u64 length and its bytes:
//   magic "CHASKIA\2"; the last byte is the version
//   u64 XXH3-64 of the bytes after it
//   str key, i32 finish, u8 complete, i32 prompt tokens, u64 n, n x i32 tokens, str text
#include "engine/requests/answer_cache.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <tuple>

#include "engine/machine/bounded_folder.h"
#include "engine/machine/this_program.h"
#include "engine/session/engine.h"
#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/base/checksum.h"
#include "ggml-like-tensor/base/cursor.h"
#include "ggml-like-tensor/base/mapping.h"
#include "ggml-like-tensor/file/value_io.h"

namespace chaski {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAnswerMagic("CHASKIA\2", 8);
constexpr size_t kKeyDigits = 64;

// Concatenates values. Texts and lists begin with their length, so different values never give the
// same bytes.
class Record {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T> Record& add(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Record& add(std::string_view text) {
    add(uint64_t(text.size()));
    bytes_ += text;
    return *this;
  }
  Record& add(const std::string& text) { return add(std::string_view(text)); }
  template <class T>
  Record& add(std::span<const T> list) {
    add(uint64_t(list.size()));
    for (const T& value : list) add(value);
    return *this;
  }
  Record& add(const std::pair<TokenId, double>& bias) { return add(bias.first).add(bias.second); }
  template <class T>
  Record& add(const std::vector<T>& list) {
    return add(std::span<const T>(list));
  }

  std::string& bytes() { return bytes_; }

 private:
  std::string bytes_;
};

// What the file of an answer has after its sum.
Record record_of(const std::string& key, const GenerateResult& result) {
  Record record;
  record.add(key).add(int32_t(result.finish)).add(uint8_t(result.complete));
  record.add(int32_t(result.prompt_tokens));
  record.add(result.tokens).add(result.text);
  return record;
}

// Adds all settings of a draw. Structured bindings name the members of DrawSettings, so a new
// member does not compile until it is added here.
void add_sampling(Record& key, const SamplerOptions& options) {
  each_parameter(options, [&](const auto& part, const auto& p) { key.add(part.*p.value); });
  const auto& [bias, banned, steps, seed] = static_cast<const DrawSettings&>(options);
  key.add(bias).add(banned).add(steps);
  key.add(options.temperature > 0 ? seed : 0);
}

void add_settings(Record& key, const RequestSettings& settings) {
  const auto& [max_tokens, sampling, stop, ignore_end, spelled, pauses_stop, resumes_stop, scored,
               context_policy, keep] = settings;
  ENSURE(!scored, "log probabilities are not stored");
  key.add(max_tokens).add(stop).add(ignore_end).add(spelled).add(context_policy).add(keep);
  key.add(pauses_stop).add(resumes_stop);
  add_sampling(key, sampling);
}

void add_model(Record& key, const Weights& weights) {
  for (const auto& [name, value] : weights.meta.all()) {
    if (!name.starts_with("model.") && !name.starts_with("tokenizer.") &&
        name != "general.architecture")
      continue;
    key.add(name);
    append_value(key.bytes(), value, name);
  }
  for (size_t i = 0; i < weights.tensors.size(); ++i) {
    const Weight& w = weights.tensors[i];
    key.add(w.info.name)
        .add(std::string_view(info(w.info.format).name))
        .add(w.info.rows)
        .add(w.info.cols);
    key.add(weights.sums.empty() ? checksum(w.data, w.info.bytes()) : weights.sums[i]);
  }
}

}  // namespace

AnswerKeys::AnswerKeys(Engine& engine) {
  Record key;
  key.add(program_checksum());
  add_model(key, *engine.weights());
  key.add(engine.kv_type())
      .add(engine.context_length())
      .add(engine.rope_scaling())
      .add(engine.device());
  prefix_.add(std::as_bytes(std::span(key.bytes())));
}

std::string AnswerKeys::key(std::span<const TokenId> prompt, const GenerateOptions& options) const {
  Record key;
  key.add(prompt);
  add_settings(key, options);
  key.add(options.grammar ? options.grammar->rules().sum()
          : options.rules ? options.rules->sum()
                          : 0);
  Sha256 sum = prefix_;
  sum.add(std::as_bytes(std::span(key.bytes())));
  return sum.finish();
}

std::string AnswerKeys::model() const {
  Sha256 sum = prefix_;
  return sum.finish();
}

AnswerCache::AnswerCache(std::string folder, uint64_t most_bytes)
    : folder_(std::move(folder)), most_bytes_(most_bytes) {
  std::error_code error, none;
  fs::create_directories(folder_, error);
  if (!fs::is_directory(folder_, none))
    fail(Exit::io, "{}: cannot be created as a folder: {}", folder_,
         error ? error.message() : "a file with this name exists");
}

std::string AnswerCache::path_of(const std::string& key) const {
  return (fs::path(folder_) / (key + kEnding)).string();
}

std::optional<GenerateResult> AnswerCache::find(const std::string& key) const {
  const std::string path = path_of(key);
  std::error_code none;
  if (!fs::exists(path, none)) return std::nullopt;
  const auto mapped = Mapping::open(path);
  // The first digits of the name are enough for a message.
  const std::string shown = fmt::format("{}: the answer {}...", folder_, key.substr(0, 8));
  Cursor in(shown, mapped->bytes());
  const auto magic = in.raw(kAnswerMagic.size(), "magic");
  const auto sum = in.take<uint64_t>("sum");
  const auto rest = mapped->bytes().subspan(in.at());
  if (std::memcmp(magic.data(), kAnswerMagic.data(), magic.size()) != 0 ||
      checksum(rest.data(), rest.size()) != sum || in.text("key") != key)
    fail(Exit::bad_file, "{}: is damaged, or belongs to another key", shown);
  GenerateResult result;
  const auto finish = in.take<int32_t>("finish");
  if (finish < 0 || finish >= int(Finish::interrupted))
    fail(Exit::bad_file, "{}: finish is {}, expected 0 to {}", shown, finish,
         int(Finish::interrupted) - 1);
  result.finish = Finish(finish);
  result.complete = in.take<uint8_t>("complete") != 0;
  result.prompt_tokens = result.cached_tokens = result.known_tokens = in.take<int32_t>("prompt");
  const uint64_t n = in.count(in.take<uint64_t>("tokens"), sizeof(TokenId), "tokens");
  for (uint64_t i = 0; i < n; ++i) result.tokens.push_back(in.take<TokenId>("tokens"));
  result.text = in.text("text");
  result.cached = true;
  mark_used(path);
  return result;
}

uint64_t AnswerCache::file_bytes(const std::string& key, const GenerateResult& result) {
  return kAnswerMagic.size() + sizeof(uint64_t) + record_of(key, result).bytes().size();
}

void AnswerCache::expect_can_keep(const std::string& key) const {
  const AtomicFile not_kept(path_of(key), Permissions::owner_only);
}

void AnswerCache::keep(const std::string& key, const GenerateResult& result) const {
  if (result.finish == Finish::interrupted || result.dropped_tokens > 0) return;
  Record rest = record_of(key, result);
  const uint64_t sum = checksum(rest.bytes().data(), rest.bytes().size());
  AtomicFile file(path_of(key), Permissions::owner_only);
  file.write(std::as_bytes(std::span(kAnswerMagic)));
  file.write(std::as_bytes(std::span(&sum, 1)));
  file.write(std::as_bytes(std::span(rest.bytes())));
  file.commit();
  drop_oldest();
}

// Removes only files with names of answers. Another program may remove some of them meanwhile.
void AnswerCache::drop_oldest() const {
  if (most_bytes_ == 0) return;
  struct Kept {
    fs::file_time_type time;
    fs::path path;
    uint64_t bytes;
  };
  std::vector<Kept> all;
  uint64_t bytes = 0;
  std::error_code none;
  for (auto at = fs::directory_iterator(folder_, none); at != fs::directory_iterator();
       at.increment(none)) {
    const std::string name = at->path().filename().string();
    if (name.size() != kKeyDigits + std::string_view(kEnding).size() || !name.ends_with(kEnding) ||
        name.find_first_not_of("0123456789abcdef") != kKeyDigits)
      continue;
    std::error_code gone;
    const uint64_t size = at->file_size(gone);
    const fs::file_time_type time = at->last_write_time(gone);
    if (gone) continue;
    all.push_back({time, at->path(), size});
    bytes += size;
  }
  std::sort(all.begin(), all.end(), [](const Kept& a, const Kept& b) {
    return std::tie(a.time, a.path) < std::tie(b.time, b.path);
  });
  for (size_t i = 0; i < all.size() && bytes > most_bytes_; ++i) {
    fs::remove(all[i].path, none);
    bytes -= all[i].bytes;
  }
}

}  // namespace chaski
