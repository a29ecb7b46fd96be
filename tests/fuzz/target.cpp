#include "tests/fuzz/target.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>

#include "engine/text/tokenizer/tokenizer.h"
#include "models/architecture.h"
#include "models/import/hf/hf_config.h"
#include "models/import/hf/hf_tokenizer.h"

namespace chaski::fuzz {

namespace {

struct Scratch {
  std::string path;
  Scratch() {
    char name[] = "/tmp/chaski_fuzz_XXXXXX";
    path = ::mkdtemp(name);
  }
  ~Scratch() { std::filesystem::remove_all(path); }
};

// Skips models whose tensors need more memory: in tiles a tensor may have a thousand times the
// bytes of its rows.
constexpr uint64_t kMostBytes = 16 << 20;

// The memory from which kernels would read the tensors.
struct Memory {
  std::vector<std::byte*> blocks;
  ~Memory() {
    for (std::byte* block : blocks) operator delete[](block, std::align_val_t(64));
  }
  std::byte* take(uint64_t n) {
    blocks.push_back(new (std::align_val_t(64)) std::byte[n]);
    return blocks.back();
  }
};

std::shared_ptr<Weights> read_all(const ModelSource& source) {
  auto weights = std::make_shared<Weights>();
  auto memory = std::make_shared<Memory>();
  weights->path = source.path, weights->meta = source.meta;
  uint64_t bytes = 0;
  for (const TensorSource& t : source.tensors) bytes += t.info.bytes();
  if (bytes > kMostBytes) return nullptr;
  for (const TensorSource& t : source.tensors) {
    std::byte* data = memory->take(t.info.bytes());
    t.read(0, t.info.tiled() ? (t.info.rows + kStrip - 1) / kStrip : 1, data);
    weights->tensors.push_back({t.info, data});
  }
  weights->storage = memory;
  return weights;
}

}  // namespace

std::vector<Target>& targets() {
  static std::vector<Target> list;
  return list;
}

void expect(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "fuzz: %s does not hold\n", what);
  std::abort();
}

std::string folder() {
  static const Scratch scratch;
  return scratch.path;
}

std::string write(const std::string& name, std::string_view bytes) {
  const std::string path = folder() + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

void empty_folder() {
  for (const auto& entry : std::filesystem::directory_iterator(folder()))
    std::filesystem::remove(entry.path());
}

std::vector<std::string_view> parts_of(std::string_view input) {
  constexpr std::string_view kSeam = "----\n";
  std::vector<std::string_view> parts;
  for (size_t end; (end = input.find(kSeam)) != std::string_view::npos;) {
    parts.push_back(input.substr(0, end));
    input.remove_prefix(end + kSeam.size());
  }
  parts.push_back(input);
  return parts;
}

void check_line(int code, const std::string& line) {
  expect(code >= 2 && code <= 8, "an Error has an exit status from 2 to 8");
  expect(escaped(line) == line, "an error is one line that is safe for a terminal");
  expect(line.size() < 2000, "an error line has less than 2000 bytes");
}

void use(const ModelSource& source) {
  if (source.meta.has("tokenizer.kind"))
    may_fail([&] {
      use_tokenizer(source.meta, "Hello w\xc3\xb6rld, <s> 123\n\xf0\x9f\xa6\x99 \xff\xc0");
    });
  if (const auto weights = read_all(source)) may_fail([&] { bind_model(*weights); });
}

void use_tokenizer(const Metadata& meta, std::string_view text) {
  const auto tokenizer = Tokenizer::make(meta);
  const std::vector<TokenId> ids = tokenizer->encode(text);
  for (const TokenId id : ids) {
    expect(id >= 0 && id < tokenizer->size(), "a token is in the vocabulary");
    expect(!tokenizer->is_control(id), "a user's text has no control tokens");
  }
  tokenizer->encode_with_control(text);
  tokenizer->decode(ids);
}

void use_hf_tokenizer(const std::string& name, std::string_view bytes) {
  empty_folder();
  write(name, bytes);
  may_fail([] {
    Metadata meta;
    meta.origin = folder();
    HfConfig config;
    config.vocab_size = 400;
    read_hf_tokenizer(folder(), config, meta);
    use_tokenizer(meta, "Hello w\xc3\xb6rld, <s> 123\n\xf0\x9f\xa6\x99 \xff\xc0");
  });
}

}  // namespace chaski::fuzz
