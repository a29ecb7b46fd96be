// What an architecture declares about itself: its hyperparameters (Keys) and its tensors (Slots).
// Loader, importers, GGUF export, quantizer and random models walk these lists, so none of them
// knows a key or a tensor by name. models/arch/llama.cpp is an example.
#pragma once
#include <cmath>
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
std::string_view kind_name(Kind kind);  // for messages: "an integer"

// A value written in the code of an architecture.
using Given = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>,
                           std::vector<double>, std::vector<std::string>>;
// A value that is computed when it is needed. Without a result, the key must be in the file. `file`
// is for messages.
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

// One hyperparameter and the member of the model that receives it. Keys are read in the order of
// their list, so the default of a key may use members read before it.
struct Key {
  // A text that must be one of a few words; set(i) receives the index of the word.
  struct Words {
    std::vector<std::string> names;
    std::function<void(size_t)> set;
  };
  // A list of numbers. `count`, its length, may depend on keys read before.
  template <class T>
  struct Each {
    std::vector<T>* list;
    std::function<int64_t()> count;
  };
  using Member =
      std::variant<int64_t*, int*, double*, float*, bool*, Words, Each<int64_t>, Each<float>>;

  std::string ours;             // "model.head_count"
  std::string gguf;             // after "<architecture>.": "attention.head_count"; empty: none
  std::vector<std::string> hf;  // places in config.json; the first one present is used
  Kind kind;
  Member member;
  int64_t least = INT64_MIN, most = INT64_MAX;  // of an integer, or of each item
  bool above_zero = false;                      // the number must be positive and finite
  double least_number = -INFINITY, most_number = INFINITY;  // of a number, or of each item
  bool can_be_absent = false;                               // if absent, the member keeps its value
  std::optional<int64_t> hf_filled;  // fills up a list of config.json that is shorter
  bool hf_by_layer = false;  // config.json may have a list with the same integer for each layer
  bool hf_required = false, hf_no_null = false, hf_no_empty = false;
  Worked default_value, hf_default, gguf_default;  // if absent: anywhere, in config.json, in GGUF
  std::optional<Given> hf_null;      // the meaning of null there, if it differs from absent
  std::function<bool()> applies;     // empty: always
  std::function<bool()> hf_ignored;  // empty: never
  std::optional<double> gguf_means;  // GGUF has no name for the key and always means this value
  // Converts a number of config.json that has another meaning: a fraction of a head into a number
  // of channels.
  std::function<Given(double)> from_hf;
  std::function<Given(int64_t)> from_hf_integer;  // the same of an integer
  // Expands a single integer of a foreign file into a list, for example "every sixth layer".
  std::function<Given(int64_t)> from_one;
  std::vector<std::pair<std::string, std::string>> hf_words;  // Hugging Face's word, ours

  Key& in_gguf(std::string name);
  Key& not_in_gguf() { return in_gguf(""); }
  // GGUF files do not have the key and always mean this value. An export of another value fails.
  Key& in_gguf_always(double value) { return gguf_means = value, not_in_gguf(); }
  Key& in_hf(std::vector<std::string> places);
  Key& in_hf(std::initializer_list<std::string> places) { return in_hf(std::vector(places)); }
  Key& in_hf(std::string place) { return in_hf(std::vector{std::move(place)}); }
  Key& not_in_hf() { return in_hf(std::vector<std::string>{}); }
  // For a key that config.json may set to null with a meaning other than absent: null is `value`.
  template <class T>
  Key& hf_null_is(T value) {
    return hf_null = Given(value), *this;
  }
  // config.json must have the key, although it has a default elsewhere.
  Key& required_in_hf() { return hf_required = true, *this; }
  // null differs from absent, and chaski does not support it.
  Key& no_null_in_hf() { return hf_no_null = true, *this; }
  // An empty list in config.json means that the key is absent.
  Key& absent_if_empty_in_hf() { return hf_no_empty = true, *this; }
  // transformers does not read it in models of this kind.
  Key& ignored_in_hf_if(std::function<bool()> condition) {
    return hf_ignored = std::move(condition), *this;
  }
  // The default if config.json does not have the key; a GGUF file must have it.
  template <class T>
  Key& hf_otherwise(T value) {
    return hf_default = worked(std::move(value)), *this;
  }
  // The default if a GGUF file does not have the key.
  template <class T>
  Key& gguf_otherwise(T value) {
    return gguf_default = worked(std::move(value)), *this;
  }
  // config.json may have fewer items of a list of integers. The others are `with`.
  Key& filled_in_hf(int64_t with) { return hf_filled = with, *this; }
  // config.json may have a list of the same integer for each layer.
  Key& by_layer_in_hf() { return hf_by_layer = true, *this; }
  Key& hf_word(std::string theirs, std::string ours_is);
  Key& converted_from_hf(std::function<Given(double)> convert);
  Key& converted_from_hf_integer(std::function<Given(int64_t)> convert);
  Key& or_one(std::function<Given(int64_t)> list_of);
  Key& range(int64_t low, int64_t high);
  Key& between(double low, double high);  // of a number, or of each item
  Key& positive();
  Key& optional();
  // The default if no file has the key: a value, or a function that computes it. Importers write it
  // into the metadata.
  template <class T>
  Key& otherwise(T value) {
    return default_value = worked(std::move(value)), *this;
  }
  // The key applies only if `condition` holds. Otherwise it is not read.
  Key& when(std::function<bool()> condition);

  // Checks the value in `meta`, or the default, and stores it in the member. Returns the default if
  // it was used. `spelled` is the key's name in the user's file. Throws Error(bad_file).
  std::optional<Value> read(const Metadata& meta, const std::string& spelled) const;
};
Value to_value(const Given& given);

// A value that config.json must have, or must not have, because the graph supports nothing else.
struct HfCondition {
  std::vector<std::string> places;  // the same notation as a key's `hf`
  // The first is assumed if config.json does not say; an empty list: the key must be absent.
  std::vector<Given> allowed;
  bool each = false;  // of a list: of every item
  std::string from;   // before the expected value in messages: where it is from
};

// An object of config.json whose members are numbers of layers, each with the first of `keys` and
// perhaps others of them. It must have exactly the layers for which `wanted` is true; `reason`, for
// messages, names the key that says which.
struct HfLayers {
  std::string place, reason;
  std::vector<std::string> keys;
  std::function<bool(int64_t layer)> wanted;
};

// Tensors that the model has only if a flag of config.json is true: transformers ignores them
// otherwise.
struct HfTensors {
  std::string flag;
  std::vector<std::string> endings;  // of their names
  bool usual;                        // the flag's default
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
  // Each item is 1 or 0.
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
  void hf_expects(std::vector<std::string> places, std::vector<Given> allowed,
                  std::string from = "") {
    conditions.push_back({std::move(places), std::move(allowed), false, std::move(from)});
  }
  void hf_layers(std::string place, std::string reason, std::vector<std::string> keys,
                 std::function<bool(int64_t)> wanted) {
    layers.push_back({std::move(place), std::move(reason), std::move(keys), std::move(wanted)});
  }
  // In a list every item must be this value.
  void hf_expects_each(std::string place, Given value) {
    conditions.push_back({{std::move(place)}, {std::move(value)}, true, ""});
  }
  void hf_tensors(std::string flag, std::vector<std::string> endings, bool usual = false) {
    tensors.push_back({std::move(flag), std::move(endings), usual});
  }
  // A key that is already in the list, for changing it.
  Key& operator[](std::string_view name);

  std::deque<Key> list;  // a deque, so that references returned by add() stay valid
  std::vector<HfCondition> conditions;
  std::vector<HfLayers> layers;
  std::vector<HfTensors> tensors;
  bool hf_tied = false;  // the meaning of config.json if it does not say tie_word_embeddings

 private:
  Key& add(std::string name, Kind kind, Key::Member member);
};

// What a tensor is used for. Code outside the architecture decides by role, never by name.
enum class Role {
  matmul,           // all of it is read for every token
  router,           // chooses a token's experts: a matmul that keeps its format
  experts,          // matrices one below the other; a token reads only those chosen for it
  heads,            // matrices one below the other, each for its slice of the columns of x
  token_table,      // one row is read for every token; all of it if the model has no head
  position_table,   // one row is read for every position
  lookup,           // one row is read for every token, never all of it
  head,             // computes the logits; a model without one uses its token table
  vector,           // norms and biases: one row, f32
  outliers,         // outlier columns of a matmul in 16 bits: all are read for every token
  outlier_columns,  // their column numbers: one row, f32
  column_order,     // the order of a matmul's columns: one row, f32
};

// Whether quantize leaves such a tensor in its format.
constexpr bool keeps_format(Role r) {
  return r == Role::position_table || r == Role::outliers || r == Role::router;
}

// What a matmul of a layer computes, where llama.cpp's mixtures of formats distinguish it. It
// follows from the slot's GGUF name, so that all architectures declare it alike. Only `small` is
// declared by an architecture: llama-quantize leaves such a weight in its format.
enum class Projection { other, keys, values, qkv, outputs, down, small };

// The position of our rows (of a vector: elements) in a file that orders them differently. In our
// order rows are outputs, and in q and k the channels that rope rotates together are neighbours.
struct RowOrder {
  // The file has a matrix (in, out), like GPT-2's Conv1D. Of experts: each expert's matrix; then
  // the other members count the rows of all experts as if they were not transposed.
  bool transposed = false;
  // Half-split rotary. In each head of `head` rows the first `rotated` rows are two halves, and row
  // i of one half is rotated together with row i of the other.
  int64_t head = 0, rotated = 0;
  // Ours are the rows from `first` on in a tensor of `whole` rows. whole == 0: it has no other
  // rows.
  int64_t first = 0, whole = 0;
  // Ours are not contiguous: each run has `run` rows, and a run begins `pitch` rows after the begin
  // of the one before. run == 0: they are contiguous.
  int64_t run = 0, pitch = 0;
  // Each run of rows is a matrix, and ours are these matrices transposed, one below the other.
  bool turned = false;
  // Of a vector that the file has as a matrix with rows of `across` elements. Ours is the transpose
  // of `down` of its rows, from row `first` on. across == 0: it is a vector there too.
  int64_t down = 0, across = 0;

  bool plain() const { return !transposed && head == 0 && whole == 0 && across == 0; }
  // The file's row for our row; of a transposed matrix, its column.
  int64_t theirs(int64_t ours) const;
  // The same order inside a tensor of several parts.
  RowOrder inside(int64_t from, int64_t all) const {
    RowOrder part = *this;
    part.first = from, part.whole = all;
    return part;
  }
  // The rows of two parts that alternate row by row; ours are the first or the second part.
  static RowOrder every_other(bool second, int64_t whole) {
    RowOrder part;
    part.first = second, part.whole = whole, part.run = 1, part.pitch = 2;
    return part;
  }
  // The same order inside a tensor whose parts alternate `n` times.
  RowOrder taking_turns(int64_t n, int64_t rows) const {
    RowOrder part = *this;
    if (n > 1) part.run = rows / n, part.pitch = whole / n;
    return part;
  }
};
constexpr RowOrder kTransposed{true};
inline RowOrder half_split(int64_t head_dim, int64_t rotated) { return {false, head_dim, rotated}; }
inline RowOrder part(int64_t first, int64_t whole) { return RowOrder().inside(first, whole); }
// Rows [first, first + rows) of each of `heads` heads of `pitch` rows.
inline RowOrder part_of_heads(int64_t heads, int64_t pitch, int64_t first, int64_t rows) {
  RowOrder order;
  order.first = first, order.whole = heads * pitch, order.run = rows, order.pitch = pitch;
  return order;
}

// A weight with its optional companions. `bias` is added to the product. `order` is the order in
// which the weight reads its input columns (ops/reorder.h). The input columns listed in `outliers`,
// (1, n), are multiplied by `outlier_weight`, (rows, n), instead of by the weight
// (ops/set_aside.h); a weight has both or neither.
struct Linear {
  const Weight *weight = nullptr, *bias = nullptr, *order = nullptr;
  const Weight *outliers = nullptr, *outlier_weight = nullptr;
};
enum class Bias { none, maybe, always };

// The suffixes of these companions, after the name of their weight. Foreign formats have no such
// tensors.
constexpr std::string_view kOrder = ".order", kOutliers = ".outliers",
                           kOutlierWeight = ".outlier_weight";

// A tensor with its full names. Bias, order and outliers of a weight have slots of their own.
struct TensorSlot {
  std::string name;  // "layer.3.attn_q"
  std::string of;    // for an order and for outliers: the name of their weight
  std::string gguf;  // in our spelling; GGUF's is "blk.3.attn_q.weight"
  // Without the common prefix: "layers.3.self_attn.q_proj.weight". Experts that the file has one by
  // one have "*" for their number.
  std::string hf;
  std::string hf_else;         // of experts: their names if the file has them one by one instead
  int64_t rows = 1, cols = 0;  // cols 0: any number
  Role role = Role::matmul;
  int64_t experts = 1, chosen = 1;  // Role::experts: how many, and how many of them a token reads
  Projection projection = Projection::other;
  bool optional = false;
  float hf_less = 0;
  // Rows in the Hugging Face file if those are fewer; our further rows repeat its first. 0: equal.
  int64_t hf_rows = 0;
  bool hf_unit_rows = false, hf_ternary = false, hf_minus_exp = false;
  std::optional<float> hf_constant;  // the Hugging Face file has none: every number is this one
  int64_t matrix_rows = 1;
  std::string gguf_else;  // the tensor to read if a GGUF file has none; in our spelling
  RowOrder gguf_else_order;
  int64_t gguf_planes = 0;  // of a tensor with three dimensions in a GGUF file
  std::vector<int64_t>
      gguf_shape;  // its dimensions there, the columns first; empty: from rows and planes
  bool gguf_always = false, not_in_gguf = false;
  RowOrder gguf_order, hf_order;
  const Weight** weight = nullptr;
};

class Slots {
 public:
  // A weight and its bias, as an architecture declares them.
  struct Slot {
    std::string layer, name, gguf;  // layer: our prefix, "layer.3."
    std::string hf_layer, hf;       // and Hugging Face's
    int64_t rows, cols;
    Linear* member;
    Bias bias = Bias::none;
    Role role = Role::matmul;
    std::optional<Projection> projection;  // none: by its GGUF name
    int64_t experts = 1, chosen = 1;
    bool is_optional = false;
    float hf_less = 0;
    bool hf_bare = false, hf_minus_exp = false;
    int64_t hf_rows = 0, matrix_rows = 1;
    bool hf_unit_rows = false, hf_ternary = false;
    std::optional<float> hf_constant;
    std::string gguf_else, hf_else;
    int64_t gguf_planes = 0;
    std::vector<int64_t> gguf_shape;
    bool gguf_always = false, gguf_bare = false;
    RowOrder gguf_order, hf_order, gguf_else_order;

    Slot& in_hf(std::string name, RowOrder order = {});
    Slot& in_gguf(RowOrder order) { return in_gguf(name, order); }
    Slot& in_gguf(std::string name, RowOrder order);
    Slot& with(Bias b);
    Slot& as(Role r);
    Slot& small() { return projection = Projection::small, *this; }
    Slot& optional();
    // A vector: Hugging Face files store x for our x + `by`.
    Slot& less_in_hf(float by) { return hf_less = by, *this; }
    Slot& less_one_in_hf() { return less_in_hf(1); }
    Slot& bare_in_hf();  // its Hugging Face name does not end in ".weight"
    // A vector: Hugging Face files store x for our -e^x.
    Slot& minus_exp_in_hf() { return hf_minus_exp = true, *this; }
    // The Hugging Face matrix may have fewer rows; our further rows repeat its first.
    Slot& rows_in_hf(int64_t rows);
    // A vector that Hugging Face files do not have: all its numbers are `value`.
    Slot& constant_in_hf(float value) { return hf_constant = value, *this; }
    Slot& unit_rows_in_hf();  // ours are the file's rows divided by their lengths
    // A matrix of -1, 0 and 1. If the file has no tensor "NAME_scale", the matrix is rounded to
    // these values times its mean magnitude, and that mean becomes "NAME_scale".
    Slot& ternary_in_hf();
    Slot& matrix_of(int64_t rows);  // a vector that files store as a matrix of `rows` rows
    // A vector that files store as a matrix of `down` rows, which is the transpose of ours. If
    // all > 0, the matrix has `all` rows, and those of ours begin at row `first`.
    Slot& transpose_of(int64_t down, int64_t first = 0, int64_t all = 0);
    // Read this tensor if a GGUF file has none for the slot.
    Slot& or_in_gguf(std::string name, RowOrder order = {});
    // The rows are those of `n` experts, of which a token reads `chosen`. A Hugging Face file has
    // three dimensions, or "*" in its name is the number of an expert.
    Slot& of_experts(int64_t n, int64_t chosen);
    // A Hugging Face file may have the experts one by one instead, under this name with a "*".
    Slot& or_one_by_one_in_hf(std::string name) { return hf_else = std::move(name), *this; }
    // The GGUF tensor has three dimensions, of which the last is `n`.
    Slot& planes_in_gguf(int64_t n) { return gguf_planes = n, *this; }
    // The dimensions of the GGUF tensor, the columns first.
    Slot& shape_in_gguf(std::vector<int64_t> shape) { return gguf_shape = std::move(shape), *this; }
    // Its GGUF name does not end in ".weight".
    Slot& bare_in_gguf() { return gguf_bare = true, *this; }
    Slot& always_in_gguf() { return gguf_always = true, *this; }  // a head: else the token table
  };

  // rows == 1 adds a vector. After layer(i), the name is the part after "layer.i.".
  Slot& add(Linear& member, const std::string& name, int64_t rows, int64_t cols);
  // The following names are in layer i: "layer.3." and, in Hugging Face files, for example
  // "layers.3.".
  void layer(int64_t i, const std::string& hf_layers);
  void after_layers() { ours_ = hf_ = ""; }

  std::vector<TensorSlot> all() const;

  std::string hf_prefix;               // optional prefix of all Hugging Face names: "model."
  std::vector<std::string> hf_unread;  // suffixes of tensors to ignore
  // Prefixes of the tensors of other parts: those that read images, in folders whose config.json
  // has the keys of the text part at its top, and layers that predict one more token.
  std::vector<std::string> hf_other_parts;
  // Tensors of one number that become an item of a list in the metadata. "*" is the layer.
  struct HfNumber {
    std::string hf, key;
  };
  std::vector<HfNumber> hf_numbers;
  std::vector<std::string> gguf_unread;  // GGUF tensors to ignore, in our spelling
  // GGUF tensors that other readers expect and do not use, in our spelling. An import ignores them,
  // and an export writes zeros.
  std::vector<TensorInfo> gguf_unused;
  // Layers from this one on are ignored: they predict further tokens. -1: there are none.
  int64_t further_layers = -1;
  bool matmul_biases_in_gguf = true;  // GGUF files have a place for them

 private:
  std::deque<Slot> list_;
  std::string ours_, hf_;
};

}  // namespace chaski
