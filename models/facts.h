// What an architecture says about itself, each thing once: a list of its hyperparameters (Keys) and
// a list of its tensors (Slots). Loader, importers, GGUF export, quantizer and random models walk
// the lists; none of them knows a key or a tensor by name. models/arch/llama.cpp shows what they
// look like.
#pragma once
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "ggml-like-tensor/file/quipu.h"

namespace chaski {

enum class Kind { text, texts, integer, integers, number, numbers, flag, flags };
std::string_view kind_name(Kind kind);  // for error lines: "an integer"

// A value that stands in the code of an architecture.
using Given = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>,
                           std::vector<double>, std::vector<std::string>>;
// One that is worked out when it is needed; nothing: it must be in the file. `file` is for error
// lines.
using Worked = std::function<std::optional<Given>(const std::string& file)>;
template <class T>
Worked worked(T value) {
  if constexpr (std::is_invocable_v<T, const std::string&>)
    return value;
  else if constexpr (std::is_invocable_v<T>)
    return [value](const std::string&) -> std::optional<Given> { return value(); };
  else
    return [given = Given(value)](const std::string&) { return given; };
}

// One hyperparameter and the member of the model that it is read into. Keys are read in the order
// of their list, so what one of them works out may use the members of those before it.
struct Key {
  // A text that is one of a few words, each with a number of its own.
  struct Words {
    std::vector<std::string> names;
    std::function<void(size_t)> set;
  };
  // A number for each of `count`, which keys before this one have told.
  template <class T>
  struct Each {
    std::vector<T>* list;
    std::function<int64_t()> count;
  };
  using Member =
      std::variant<int64_t*, int*, double*, float*, bool*, Words, Each<int64_t>, Each<float>>;

  std::string ours;             // "model.head_count"
  std::string gguf;             // behind "<architecture>.", "attention.head_count"; empty: none
  std::vector<std::string> hf;  // places in config.json; the first that is there counts
  Kind kind;
  Member member;
  int64_t least = INT64_MIN, most = INT64_MAX;     // of an integer, or of each
  bool above_zero = false;                         // a number: more than 0, and finite
  bool may_lack = false;                           // absent: the member stays as it is
  Worked default_value, hf_default, gguf_default;  // absent; absent in config.json, in GGUF
  std::optional<Given> hf_null;  // what null means there, if not the same as absent
  std::function<bool()> counts;  // not there: always
  // A number of config.json that stands for another: part of a head for a number of channels.
  std::function<Given(double)> from_hf;
  // An integer of a foreign file that stands for a list: every sixth of the layers, say.
  std::function<Given(int64_t)> from_one;
  std::vector<std::pair<std::string, std::string>> hf_words;  // Hugging Face's word, ours

  Key& in_gguf(std::string name);
  Key& not_in_gguf() { return in_gguf(""); }
  Key& in_hf(std::vector<std::string> places);
  Key& in_hf(std::initializer_list<std::string> places) { return in_hf(std::vector(places)); }
  Key& in_hf(std::string place) { return in_hf(std::vector{std::move(place)}); }
  Key& not_in_hf() { return in_hf(std::vector<std::string>{}); }
  // Where null in config.json is a value of its own.
  template <class T>
  Key& hf_null_is(T value) {
    return hf_null = Given(value), *this;
  }
  // When the key is not in config.json, though it must be in a GGUF file.
  template <class T>
  Key& hf_otherwise(T value) {
    return hf_default = worked(std::move(value)), *this;
  }
  // When the key is not in a GGUF file.
  template <class T>
  Key& gguf_otherwise(T value) {
    return gguf_default = worked(std::move(value)), *this;
  }
  Key& hf_word(std::string theirs, std::string ours_is);
  Key& converted_from_hf(std::function<Given(double)> convert);
  Key& or_one(std::function<Given(int64_t)> list_of);
  Key& range(int64_t low, int64_t high);
  Key& positive();
  Key& optional();
  // When the key is absent: a value, or a function that works it out. Importers write it down.
  template <class T>
  Key& otherwise(T value) {
    return default_value = worked(std::move(value)), *this;
  }
  // The key means something only if `condition` holds; if not, it is passed over.
  Key& when(std::function<bool()> condition);

  // Checks the value that `meta` has, or the default, and puts it into the member. Returns the
  // default if it was used. `spelled` is the key's name in the user's file. Throws Error(bad_file).
  std::optional<Value> read(const Metadata& meta, const std::string& spelled) const;
};
Value to_value(const Given& given);

// What config.json has to say, or leave unsaid, because the graph does nothing else.
struct HfCondition {
  std::vector<std::string> places;  // as those of a key
  std::vector<Given> allowed;  // the first is meant where nothing is said; none: must be absent
};

class Keys {
 public:
  template <class T>
  Key& integer(T& member, std::string name) {
    return add(std::move(name), Kind::integer, &member);
  }
  template <class T>
  Key& number(T& member, std::string name) {
    return add(std::move(name), Kind::number, &member);
  }
  Key& integers(std::vector<int64_t>& member, std::string name, const int64_t& count) {
    return add(std::move(name), Kind::integers,
               Key::Each<int64_t>{&member, [&count] { return count; }});
  }
  Key& numbers(std::vector<float>& member, std::string name, std::function<int64_t()> count) {
    return add(std::move(name), Kind::numbers, Key::Each<float>{&member, std::move(count)});
  }
  // 1 or 0 each.
  Key& flags(std::vector<int64_t>& member, std::string name, const int64_t& count) {
    return add(std::move(name), Kind::flags,
               Key::Each<int64_t>{&member, [&count] { return count; }})
        .range(0, 1);
  }
  Key& flag(bool& member, std::string name) { return add(std::move(name), Kind::flag, &member); }
  template <class Enum>
  Key& word(Enum& member, std::string name, std::vector<std::pair<std::string, Enum>> words) {
    Key::Words w;
    for (auto& [text, value] : words) w.names.push_back(text);
    w.set = [&member, words](size_t i) { member = words[i].second; };
    return add(std::move(name), Kind::text, std::move(w));
  }
  void hf_expects(std::vector<std::string> places, std::vector<Given> allowed) {
    conditions.push_back({std::move(places), std::move(allowed)});
  }
  // A key that is in the list already, to say otherwise of it.
  Key& operator[](std::string_view name);

  std::deque<Key> list;  // a deque, so that what add() returned stays where it is
  std::vector<HfCondition> conditions;
  bool hf_tied = false;  // what config.json means when it does not say tie_word_embeddings

 private:
  Key& add(std::string name, Kind kind, Key::Member member);
};

// What a tensor is for, as far as anybody but its architecture asks.
enum class Role {
  matmul,           // read whole for every token
  token_table,      // a row is read for every token; all of it, if there is no head
  position_table,   // a row is read for every position
  lookup,           // a row is read for every token, and never all of it
  head,             // makes the logits; a model without one uses its token table
  vector,           // norms and biases: one row, f32
  outliers,         // outlier columns of a matmul in 16 bits: read whole for every token
  outlier_columns,  // their numbers: one row, f32
  column_order,     // the order of a matmul's columns: one row, f32
};

// Where our rows (of a vector: elements) lie in a file that has another order. Ours: rows of
// outputs, and in q and k the channels that rope turns together are neighbours.
struct RowOrder {
  bool transposed = false;  // a matrix (in, out), as GPT-2's Conv1D
  // Half-split rotary: of each head of `head` rows the first `rotated` are two halves, and row i of
  // one half is turned together with row i of the other.
  int64_t head = 0, rotated = 0;
  // Ours are the rows from `first` on of a tensor that has `whole` rows; 0: it has no others.
  int64_t first = 0, whole = 0;
  // Ours do not follow each other there: `run` of them do, and the next run begins `pitch` rows
  // behind the beginning of the one before it. 0: they do.
  int64_t run = 0, pitch = 0;

  bool plain() const { return !transposed && head == 0 && whole == 0; }
  // Their row for our row. Not for transposed matrices.
  int64_t theirs(int64_t ours) const;
  // The same rows inside a tensor of several parts.
  RowOrder inside(int64_t from, int64_t all) const {
    RowOrder part = *this;
    part.first = from, part.whole = all;
    return part;
  }
  // Inside a tensor where parts take turns, `n` times over.
  RowOrder taking_turns(int64_t n, int64_t rows) const {
    RowOrder part = *this;
    if (n > 1) part.run = rows / n, part.pitch = whole / n;
    return part;
  }
};
constexpr RowOrder kTransposed{true};
inline RowOrder half_split(int64_t head_dim, int64_t rotated) { return {false, head_dim, rotated}; }
inline RowOrder part(int64_t first, int64_t whole) { return RowOrder().inside(first, whole); }

// A weight and, where there is one, its bias, and the order of columns in which it wants its input
// (ops/reorder.h). Numbers of columns that are not multiplied by it but, as 16-bit numbers, by
// another weight that is added (ops/set_aside.h): (1, n) and (rows, n), or neither.
struct Linear {
  const Weight *weight = nullptr, *bias = nullptr, *order = nullptr;
  const Weight *outliers = nullptr, *outlier_weight = nullptr;
};
enum class Bias { none, maybe, always };

// What the names of an order and of outliers end with, behind that of their weight; no foreign
// format has such tensors.
constexpr std::string_view kOrder = ".order", kOutliers = ".outliers",
                           kOutlierWeight = ".outlier_weight";

// A tensor as walkers see it: names in full, the bias and order of a weight beside it.
struct TensorSlot {
  std::string name;  // "layer.3.attn_q"
  std::string of;    // of an order and of outliers: the name of their weight
  std::string gguf;  // in our spelling; GGUF's is "blk.3.attn_q.weight"
  std::string hf;    // without what all names may begin with: "layers.3.self_attn.q_proj.weight"
  int64_t rows = 1, cols = 0;  // cols 0: any number
  Role role = Role::matmul;
  bool optional = false;
  bool hf_less_one = false;
  int64_t hf_rows = 0;  // fewer than ours, which behind them are its first; 0: as many
  bool hf_unit_rows = false, hf_ternary = false;
  int64_t matrix_rows = 1;
  std::string gguf_else;  // what is read where a GGUF file lacks it, in our spelling and order
  RowOrder gguf_order, hf_order;
  const Weight** weight = nullptr;
};

class Slots {
 public:
  // A weight and its bias, as an architecture lists them.
  struct Slot {
    std::string layer, name, gguf;  // layer: what ours begin with, "layer.3."
    std::string hf_layer, hf;       // and Hugging Face's
    int64_t rows, cols;
    Linear* member;
    Bias bias = Bias::none;
    Role role = Role::matmul;
    bool may_lack = false;
    bool hf_less_one = false, hf_bare = false;
    int64_t hf_rows = 0, matrix_rows = 1;
    bool hf_unit_rows = false, hf_ternary = false;
    std::string gguf_else;
    RowOrder gguf_order, hf_order;

    Slot& in_hf(std::string name, RowOrder order = {});
    Slot& in_gguf(RowOrder order) { return in_gguf(name, order); }
    Slot& in_gguf(std::string name, RowOrder order);
    Slot& with(Bias b);
    Slot& as(Role r);
    Slot& optional();
    Slot& less_one_in_hf();  // a vector: Hugging Face files have x where ours is 1 + x
    Slot& bare_in_hf();      // its name there does not end in ".weight"
    // A matrix that may have fewer rows there: behind them ours are its first.
    Slot& rows_in_hf(int64_t rows);
    Slot& unit_rows_in_hf();  // ours are its rows divided by their lengths
    // A matrix of -1, 0 and 1. Where a file has no "NAME_scale" beside it, it is to be rounded to
    // these times the mean of its sizes, which becomes the tensor "NAME_scale".
    Slot& ternary_in_hf();
    Slot& matrix_of(int64_t rows);  // a vector that files have as a matrix of so many rows
    Slot& or_in_gguf(
        std::string name);  // where a GGUF file lacks it, another tensor is read for it
  };

  // rows == 1: a vector. The name is that behind "layer.N." once layer(N) was called.
  Slot& add(Linear& member, const std::string& name, int64_t rows, int64_t cols);
  // Names from here on are of layer i: "layer.3." and in Hugging Face files, say, "layers.3.".
  void layer(int64_t i, const std::string& hf_layers);
  void behind_layers() { ours_ = hf_ = ""; }

  std::vector<TensorSlot> all() const;

  std::string hf_prefix;                 // what every Hugging Face name may begin with: "model."
  std::vector<std::string> hf_unread;    // ends of names of tensors that are no weights
  std::vector<std::string> gguf_unread;  // names of such in GGUF files, in our spelling

 private:
  std::deque<Slot> list_;
  std::string ours_, hf_;
};

}  // namespace chaski
