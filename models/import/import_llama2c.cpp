// The .bin files of llama2.c: version 0 (no magic, f32), 1 (f32) and 2 (int8 in groups), and the
// tokenizer.bin in the same folder. Layout: karpathy/llama2.c, export.py, run.c and runq.c. As in
// chaski, rope rotates neighbouring rows of wq and wk.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "ggml-like-tensor/base/checked.h"
#include "ggml-like-tensor/base/cursor.h"
#include "ggml-like-tensor/base/mapping.h"
#include "models/architecture.h"
#include "models/import/folder.h"
#include "models/import/import.h"
#include "models/import/row_tensors.h"
#include "models/import/tokenizer/tokenizer_defaults.h"

namespace chaski {
namespace {

constexpr uint32_t kMagic = 0x616b3432;  // "ak42"
constexpr uint64_t kHeaderBytes = 256;   // for versions 1 and 2
constexpr int64_t kBlock = 32;           // of Format::q8f

struct Header {
  int32_t version = 0, group = 0;
  int64_t dim, hidden, layers, heads, kv_heads, vocab, context;
  bool shared;  // the classifier is the embedding table
  int64_t head_dim() const { return dim / heads; }
  int64_t kv_dim() const { return head_dim() * kv_heads; }
};

void check(const Cursor& in, std::string_view field, int64_t found, int64_t most) {
  if (found < 1 || found > most)
    fail(Exit::bad_file, "{}: {} is {}, expected 1 to {}", in.file(), field, found, most);
}

// These bounds keep every product below 2^63: at most 2^17 x 2^20 per matrix, and 2^10 layers.
void check(const Cursor& in, const Header& h) {
  check(in, "dim", h.dim, 1 << 17);
  check(in, "hidden_dim", h.hidden, 1 << 20);
  check(in, "n_layers", h.layers, 1 << 10);
  check(in, "n_heads", h.heads, 1 << 10);
  check(in, "n_kv_heads", h.kv_heads, h.heads);
  check(in, "vocab_size", h.vocab, 1 << 22);
  check(in, "seq_len", h.context, 1 << 24);
  if (h.dim % h.heads != 0 || h.head_dim() % 2 != 0)
    fail(Exit::bad_file, "{}: n_heads is {}, expected a divisor of dim {} with an even quotient",
         in.file(), h.heads, h.dim);
  if (h.heads % h.kv_heads != 0)
    fail(Exit::bad_file, "{}: n_kv_heads is {}, expected a divisor of n_heads {}", in.file(),
         h.kv_heads, h.heads);
}

void check_group(const Cursor& in, const Header& h) {
  check(in, "group_size", h.group, 1 << 17);
  if (h.group % kBlock != 0 || h.dim % h.group != 0 || h.hidden % h.group != 0)
    fail(Exit::bad_file,
         "{}: group_size is {}, expected a multiple of {} that divides dim {} and hidden_dim {}",
         in.file(), h.group, kBlock, h.dim, h.hidden);
}

Header read_header(Cursor& in) {
  Header h;
  if (in.take<uint32_t>("magic") == kMagic) {
    h.version = in.take<int32_t>("version");
    if (h.version != 1 && h.version != 2)
      fail(Exit::bad_file, "{}: llama2.c version is {}, expected 0, 1 or 2", in.file(), h.version);
  } else {
    in.seek(0, "header");
  }
  for (int64_t* field : {&h.dim, &h.hidden, &h.layers, &h.heads, &h.kv_heads, &h.vocab, &h.context})
    *field = in.take<int32_t>("header");
  h.shared = h.version == 0 ? h.vocab > 0 : in.take<uint8_t>("shared_classifier") != 0;
  if (h.version == 0) h.vocab = std::abs(h.vocab);
  if (h.version == 2) h.group = in.take<int32_t>("group_size");
  check(in, h);
  if (h.version == 2) check_group(in, h);
  if (h.version != 0) in.seek(kHeaderBytes, "header");
  return h;
}

// Writes a row of q8f blocks from int8 values and the scales of their groups. `first` is the index
// of the row's first value in its tensor.
void write_q8f_row(const std::byte* values, const std::byte* scales, int64_t first, int64_t group,
                   int64_t cols, std::byte* dst) {
  for (int64_t c = 0; c < cols; c += kBlock) {
    std::memcpy(dst, scales + (first + c) / group * sizeof(float), sizeof(float));
    std::memcpy(dst + sizeof(float), values + first + c, kBlock);
    dst += sizeof(float) + kBlock;
  }
}

class Llama2cImport {
 public:
  Llama2cImport(const std::string& path, const std::string& tokenizer)
      : mapping_(Mapping::open(path)),
        in_(path, mapping_->bytes()),
        h_(read_header(in_)),
        tokenizer_(tokenizer) {
    source_.path = path;
    source_.kind = fmt::format("llama2.c v{}", h_.version);
    source_.meta.origin = path;
    source_.storage = mapping_;
    source_.drop_pages = [mapping = mapping_] { mapping->drop_pages(); };
  }

  ModelSource run() {
    check_size();
    write_hyperparameters();
    h_.version == 0 ? take_v0() : take_v1_or_v2();
    read_tokenizer();
    return std::move(source_);
  }

 private:
  // Checked before any tensor is read, so that the message for a truncated file gives both sizes.
  void check_size() const {
    const uint64_t per_layer =
        2 * h_.dim * h_.dim + 2 * h_.dim * h_.kv_dim() + 3 * h_.dim * h_.hidden;
    const uint64_t weights = per_layer * h_.layers + h_.vocab * h_.dim * (h_.shared ? 1 : 2);
    const uint64_t norms = h_.dim * (2 * h_.layers + 1);
    uint64_t expected = in_.at() + (norms + weights) * sizeof(float);
    if (h_.version == 0) expected += h_.context * h_.head_dim() * sizeof(float);  // the rope tables
    if (h_.version == 2)
      expected = in_.at() + norms * sizeof(float) + weights + weights / h_.group * sizeof(float);
    const uint64_t found = mapping_->bytes().size();
    if (found < expected) throw CutShort(in_.file(), found, expected);
    if (found != expected)
      fail(Exit::bad_file, "{}: file has {} bytes, expected {} from its header", in_.file(), found,
           expected);
  }

  void write_hyperparameters() {
    Metadata& meta = source_.meta;
    const std::filesystem::path path = source_.path;
    meta.set_str("general.architecture", "llama");
    meta.set_str("general.name", path.stem().string());
    meta.set_int("model.context_length", h_.context);
    meta.set_int("model.embedding_length", h_.dim);
    meta.set_int("model.block_count", h_.layers);
    meta.set_int("model.feed_forward_length", h_.hidden);
    meta.set_int("model.head_count", h_.heads);
    meta.set_int("model.head_count_kv", h_.kv_heads);
    meta.set_int("model.vocab_size", h_.vocab);
    meta.set_float("model.norm_epsilon", 1e-5);
    meta.set_str("source.file", path.filename().string());
    meta.set_str("source.kind", source_.kind);
    complete_model(meta);
  }

  void take_v0() {
    take_matrix("token_embd", h_.vocab, h_.dim);
    take_norms("attn_norm");
    take_attention();
    take_norms("ffn_norm");
    take_feed_forward();
    take_vector("output_norm");
    in_.raw(h_.context * h_.head_dim() * sizeof(float), "rope tables");
    if (!h_.shared) take_matrix("output", h_.vocab, h_.dim);
  }

  void take_v1_or_v2() {
    take_norms("attn_norm");
    take_norms("ffn_norm");
    take_vector("output_norm");
    take_matrix("token_embd", h_.vocab, h_.dim);
    take_attention();
    take_feed_forward();
    if (!h_.shared) take_matrix("output", h_.vocab, h_.dim);
  }

  void take_norms(std::string_view name) {
    for (int64_t n = 0; n < h_.layers; ++n) take_vector(fmt::format("layer.{}.{}", n, name));
  }
  void take_attention() {
    take_layers("attn_q", h_.dim, h_.dim);
    take_layers("attn_k", h_.kv_dim(), h_.dim);
    take_layers("attn_v", h_.kv_dim(), h_.dim);
    take_layers("attn_output", h_.dim, h_.dim);
  }
  void take_feed_forward() {
    take_layers("ffn_gate", h_.hidden, h_.dim);
    take_layers("ffn_down", h_.dim, h_.hidden);
    take_layers("ffn_up", h_.hidden, h_.dim);
  }
  void take_layers(std::string_view name, int64_t rows, int64_t cols) {
    for (int64_t n = 0; n < h_.layers; ++n)
      take_matrix(fmt::format("layer.{}.{}", n, name), rows, cols);
  }

  void take_vector(const std::string& name) {
    source_.tensors.push_back(
        tensor_over(name, Format::f32, in_.raw(h_.dim * sizeof(float), name).data(), 1, h_.dim));
  }

  void take_matrix(const std::string& name, int64_t rows, int64_t cols) {
    if (h_.version != 2) {
      auto data = in_.raw(rows * cols * sizeof(float), name).data();
      return source_.tensors.push_back(tensor_over(name, Format::f32, data, rows, cols));
    }
    const std::byte* values = in_.raw(rows * cols, name).data();
    const std::byte* scales = in_.raw(rows * cols / h_.group * sizeof(float), name).data();
    source_.tensors.push_back(tensor_of_rows(
        name, Format::q8f, rows, cols, [=, group = h_.group](int64_t row, std::byte* dst) {
          write_q8f_row(values, scales, row * cols, group, cols, dst);
        }));
  }

  std::string find_tokenizer() const {
    if (!tokenizer_.empty()) return tokenizer_;
    const auto folder = std::filesystem::path(source_.path).parent_path();
    const std::string own = (folder / fmt::format("tok{}.bin", h_.vocab)).string(),
                      common = (folder / "tokenizer.bin").string();
    for (auto& path : {own, common})
      if (exists(path)) return path;
    fail(Exit::io, "{}: tokenizer is missing, expected {} or {}, or the flag --tokenizer",
         source_.path, own, common);
  }

  // Ids are fixed: 0 unknown, 1 BOS, 2 EOS, then the 256 bytes. run.c ends a text at BOS.
  // llama2.c's export writes line feeds around pieces 1 and 2, and plain spaces for SentencePiece's
  // U+2581.
  void read_tokenizer() {
    const std::string path = find_tokenizer();
    auto mapping = Mapping::open(path);
    Cursor in(path, mapping->bytes());
    in.take<int32_t>("max_token_length");
    in.count(h_.vocab, 8, "vocab_size of the model");
    std::vector<std::string> tokens;
    std::vector<double> scores;
    std::vector<int64_t> types;
    for (int64_t id = 0; id < h_.vocab; ++id) {
      const std::string field = fmt::format("piece {}", id);
      scores.push_back(in.take<float>(field));
      const int32_t length = in.take<int32_t>(field);
      if (length < 0)
        fail(Exit::bad_file, "{}: length of {} is {}, expected 0 or more", path, field, length);
      auto bytes = in.raw(length, field);
      tokens.push_back(piece(id, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
      types.push_back(id == 0 ? kUnknown : id < 3 ? kControl : id < 259 ? kByte : kNormal);
    }
    if (in.remaining() != 0)
      fail(Exit::bad_file, "{}: {} bytes follow the {} pieces of the vocabulary, expected none",
           path, in.remaining(), h_.vocab);
    write_tokenizer(std::move(tokens), std::move(scores), std::move(types));
  }

  static std::string piece(int64_t id, std::string_view text) {
    if (id < 3) return id == 0 ? "<unk>" : id == 1 ? "<s>" : "</s>";
    std::string out;
    for (char c : text) c == ' ' ? out += "\u2581" : out += c;
    return out;
  }

  void write_tokenizer(std::vector<std::string> tokens, std::vector<double> scores,
                       std::vector<int64_t> types) {
    Metadata& meta = source_.meta;
    meta.set_str("tokenizer.kind", "spm");
    meta.set_strs("tokenizer.tokens", std::move(tokens));
    meta.set_floats("tokenizer.scores", std::move(scores));
    meta.set_ints("tokenizer.types", std::move(types));
    meta.set_int("tokenizer.unk_id", 0);
    meta.set_int("tokenizer.bos_id", 1);
    meta.set_int("tokenizer.eos_id", 2);
    meta.set_ints("tokenizer.eos_ids", {1, 2});
    meta.set_bool("tokenizer.add_bos", true);
    meta.set_bool("tokenizer.add_space_prefix", true);
    complete_tokenizer(meta);
  }

  std::shared_ptr<const Mapping> mapping_;
  Cursor in_;
  Header h_;
  std::string tokenizer_;
  ModelSource source_;
};

}  // namespace

ModelSource import_llama2c(const std::string& path, const std::string& tokenizer) {
  return Llama2cImport(path, tokenizer).run();
}

}  // namespace chaski
