// tokenizer.model: a minimal reader of SentencePiece's protobuf. Schema: google/sentencepiece,
// src/sentencepiece_model.proto. Models of type word and char are refused.
#include <string_view>
#include <utility>

#include "ggml-like-tensor/base/cursor.h"
#include "ggml-like-tensor/base/mapping.h"
#include "models/import/tokenizer/tokenizer_parts.h"

namespace chaski {
namespace {

// One field of a message. `number` has a number or the length; `bytes` has the content of a
// length-delimited field.
struct Field {
  uint64_t id = 0, number = 0;
  std::span<const std::byte> bytes;
  std::string text() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
};

uint64_t take_varint(Cursor& in) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t byte = in.take<uint8_t>("number");
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  fail(Exit::bad_file, "{}: number at offset {} has more than 10 bytes: not a SentencePiece model",
       in.file(), in.at());
}

Field take_field(Cursor& in) {
  const uint64_t tag = take_varint(in);
  Field field{tag >> 3, 0, {}};
  switch (tag & 7) {
    case 0:
      field.number = take_varint(in);
      break;
    case 1:
      field.number = in.take<uint64_t>("fixed64");
      break;
    case 2:
      field.bytes = in.raw(take_varint(in), "message");
      break;
    case 5:
      field.number = in.take<uint32_t>("fixed32");
      break;
    default:
      fail(Exit::bad_file, "{}: wire type is {}, expected 0, 1, 2 or 5: not a SentencePiece model",
           in.file(), tag & 7);
  }
  return field;
}

template <class F>
void each_field(const std::string& file, std::span<const std::byte> message, F&& f) {
  for (Cursor in(file, message); in.remaining() > 0;) f(take_field(in));
}

constexpr uint64_t kUnigram = 1, kBpe = 2;

struct Trainer {
  uint64_t model_type = kUnigram;
  int64_t unk = 0, bos = 1, eos = 2, pad = -1;
};

// Negative numbers are stored as 64-bit two's complement.
Trainer read_trainer(const std::string& file, std::span<const std::byte> message) {
  Trainer trainer;
  each_field(file, message, [&](const Field& f) {
    switch (f.id) {
      case 3:
        trainer.model_type = f.number;
        break;
      case 40:
        trainer.unk = static_cast<int64_t>(f.number);
        break;
      case 41:
        trainer.bos = static_cast<int64_t>(f.number);
        break;
      case 42:
        trainer.eos = static_cast<int64_t>(f.number);
        break;
      case 43:
        trainer.pad = static_cast<int64_t>(f.number);
        break;
    }
  });
  return trainer;
}

void read_piece(std::span<const std::byte> message, TokenizerParts& parts) {
  std::string piece;
  float score = 0;
  uint64_t type = 1;
  each_field(parts.file, message, [&](const Field& f) {
    if (f.id == 1) piece = f.text();
    if (f.id == 2) score = std::bit_cast<float>(static_cast<uint32_t>(f.number));
    if (f.id == 3) type = f.number;
  });
  const size_t id = parts.tokens.size();
  if (type < 1 || type > 6)
    fail(Exit::bad_file, "{}: type of piece {} is {}, expected 1 to 6", parts.file, id, type);
  ++parts.pieces;
  parts.put(static_cast<int64_t>(id), piece, static_cast<PieceType>(type));
  parts.scores.push_back(score);
}

void read_normalizer(std::span<const std::byte> message, TokenizerParts& parts) {
  bool squeeze = true;
  each_field(parts.file, message, [&](const Field& f) {
    if (f.id == 2)
      for (const std::byte byte : f.bytes) parts.charsmap.push_back(std::to_integer<uint8_t>(byte));
    if (f.id == 3) parts.add_space_prefix = f.number != 0;
    if (f.id == 4) squeeze = f.number != 0;
  });
  if (!parts.charsmap.empty()) parts.normalizer.push_back("charsmap");
  if (squeeze) parts.normalizer.push_back("squeeze");
}

std::string piece_at(const TokenizerParts& parts, int64_t id) {
  return id >= 0 && id < static_cast<int64_t>(parts.tokens.size()) ? parts.tokens[id] : "";
}

}  // namespace

TokenizerParts read_sentencepiece(const std::string& path) {
  TokenizerParts parts;
  parts.file = path;
  parts.kind = "spm";
  parts.add_space_prefix = true;
  parts.add_bos = true;
  Trainer trainer;
  auto mapping = Mapping::open(path);
  each_field(path, mapping->bytes(), [&](const Field& f) {
    if (f.id == 1) read_piece(f.bytes, parts);
    if (f.id == 2) trainer = read_trainer(path, f.bytes);
    if (f.id == 3) read_normalizer(f.bytes, parts);
  });
  if (trainer.model_type != kBpe && trainer.model_type != kUnigram)
    fail(Exit::bad_file, "{}: trainer_spec.model_type is {}, expected {} (unigram) or {} (BPE)",
         path, trainer.model_type, kUnigram, kBpe);
  if (trainer.model_type == kUnigram) parts.kind = "unigram";
  parts.bos = piece_at(parts, trainer.bos), parts.eos = piece_at(parts, trainer.eos);
  parts.unk = piece_at(parts, trainer.unk), parts.pad = piece_at(parts, trainer.pad);
  return parts;
}

}  // namespace chaski
