// Typed key/values of a model: hyperparameters, tokenizer, chat template, provenance. The value
// types are those of GGUF, so that a GGUF file's metadata is kept unchanged; `.quipu` stores the
// same types.
//
// Keys that chaski itself reads (an importer must fill all of them):
//   general.architecture   str   one of models/architectures.list
//   general.name           str
//   model.*                      hyperparameters: keys() of the architecture's file lists them
//   tokenizer.kind         str   "spm" | "bpe" | "unigram" | "wordpiece" | "rwkv"
//   tokenizer.tokens       [str] each piece as GGUF stores it. spm: U+2581 is a space; bpe: GPT-2's
//                          alphabet of bytes; rwkv: a literal of Python
//   tokenizer.scores       [f32] spm, unigram;   tokenizer.merges [str] "left right", bpe
//   tokenizer.types        [i32] 1 normal 2 unknown 3 control 4 user-defined 5 unused 6 byte
//   tokenizer.pre          str   bpe pre-tokenizer by its GGUF name, or
//   tokenizer.pre_patterns [str] its regular expressions, applied one after the other
//   tokenizer.normalizer   [str] steps applied to a text first (engine/text/tokenizer/normalizer.h)
//   tokenizer.charsmap     [u8]  SentencePiece's compiled rules, if one of the steps uses them
//   tokenizer.every_space  bool  spm, unigram: no piece has more than one space or an inner space
//   tokenizer.prefix_once  bool  spm, unigram: adds no space to a text that begins with one
//   tokenizer.bos_id, .eos_id, .eot_id, .unk_id, .pad_id int
//   tokenizer.eos_ids      [i32] every id that ends an answer
//   tokenizer.add_bos, .add_eos, .add_space_prefix, .ignore_merges bool; with tokenizer.pre the
//                          first and the last may be absent: the pre-tokenizer's name implies them
//   tokenizer.chat_template str
//   source.file, source.kind, source.xxh3 str    what the model was converted from
//   quantize.type          str   the type requested from `chaski quantize`
//   quantize.method        str   the rounding method, if there was a calibration text: auto, gptq,
//                          awq, awq+gptq
//   quantize.calibration.text, .xxh3 str, .tokens int    the calibration text
//   quantize.errors, .output_errors, .search_errors [f32]    for each tensor, in order: the error
//                          of its weights, and where known the error of its outputs, as stored and
//                          as a search would have left it
//   gguf.<key>             any   a GGUF key that none of the above replaces, kept for export
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "ggml-like-tensor/file/lists.h"

namespace chaski {

enum class ValueType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  str = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

// Integers and booleans of any width are stored as int64_t (u64: the same bits), floats as double.
using AnyData = std::variant<int64_t, double, std::string, Ints, Floats, Texts>;

// A copy is made separately and then moved, which cannot throw. If the variant's own copy runs out
// of memory, libstdc++ 12 destroys an alternative that was never constructed.
struct Data : AnyData {
  using AnyData::AnyData;
  Data() = default;
  Data(const Data& other) : AnyData() {
    std::visit([this](auto copy) { static_cast<AnyData&>(*this) = std::move(copy); },
               static_cast<const AnyData&>(other));
  }
  Data(Data&&) noexcept = default;
  Data& operator=(Data other) noexcept {
    AnyData::operator=(std::move(static_cast<AnyData&>(other)));
    return *this;
  }
  bool operator==(const Data& other) const {
    return static_cast<const AnyData&>(*this) == static_cast<const AnyData&>(other);
  }
};

struct Value {
  ValueType type = ValueType::i64;     // if `array`: see element
  ValueType element = ValueType::i64;  // the type of an array's elements
  Data data;

  bool operator==(const Value&) const = default;
};

class Metadata {
 public:
  std::string origin;  // file name for error messages

  void set(const std::string& key, Value value) { values_[key] = std::move(value); }
  void set_str(const std::string& key, std::string value);
  void set_int(const std::string& key, int64_t value);   // stored as i64
  void set_float(const std::string& key, double value);  // stored as f64
  void set_bool(const std::string& key, bool value);
  void set_strs(const std::string& key, Texts value);
  void set_floats(const std::string& key, Floats value);  // stored as f32
  void set_ints(const std::string& key, Ints value);      // stored as i32
  void erase(const std::string& key) { values_.erase(key); }

  bool has(const std::string& key) const { return values_.count(key) > 0; }
  const Value* find(const std::string& key) const;

  // The one-argument forms throw Error(bad_file) with origin and key if the key is missing. Every
  // form throws if the value has another type. An integer is accepted where a float is requested.
  const std::string& str(const std::string& key) const;
  std::string str(const std::string& key, std::string_view otherwise) const;
  int64_t integer(const std::string& key) const;
  int64_t integer(const std::string& key, int64_t otherwise) const;
  double number(const std::string& key) const;
  double number(const std::string& key, double otherwise) const;
  bool boolean(const std::string& key, bool otherwise) const;
  const Texts& strs(const std::string& key) const;     // empty when absent
  const Floats& floats(const std::string& key) const;  // empty when absent
  const Ints& ints(const std::string& key) const;      // empty when absent

  // sorted, so that the same input gives the same bytes
  const std::map<std::string, Value>& all() const { return values_; }

 private:
  std::map<std::string, Value> values_;
};

}  // namespace chaski
