// What one forward pass computes: tokens, each of a sequence at a position. Prefill, decode,
// verification of draft tokens and eight sequences at once differ only in the batch. Tokens of one
// sequence are consecutive, in the order of their cells. The same batch goes to the CPU and to a
// device; pass_context.h says where a pass runs.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chaski {

// What a pass returns: one row for each output.
enum class Result {
  logits,
  hidden,  // after the last norm: the input of the matmul that makes logits
  both,    // the logits, and the hidden rows of all tokens (Plan::all_hidden)
};

// Which of a model's networks a graph computes. Only the decoder has states (states_of()).
enum class Network : uint8_t {
  decoder,  // predicts the next token: the only network of most models
  encoder,
};
constexpr int kNetworks = 2;

// Where the key and value of a token are stored. A token may have several stores, if several
// sequences share it but have pages of their own. It has none if it is stored already.
struct Store {
  int32_t token, page, slot;
};

// What attention reads of a pool (reading.h). A group is a run of pages of a chunk, together with
// the tokens that see any of these pages. The tokens belong to all sequences whose tables have
// exactly these pages at this place.
struct Reading {
  struct Run {  // tokens [first, end) of the batch, of one sequence
    int32_t first, end;
  };
  struct Group {
    int32_t chunk, from, to;  // pages [from, to) of the tables
    int32_t first, end;       // runs[first, end)
  };
  std::vector<Run> runs;
  std::vector<Group> groups;         // ordered by first token, then by chunk
  int64_t alone = 0, sequences = 0;  // groups if sequences shared none; sequences of the batch
};

struct Batch {
  // per token; rotary angles and learned positions use the position
  std::vector<int32_t> tokens, positions;
  // per token: the number of tokens of its sequence stored before it. Its key and value are in page
  // cell / 16 of the sequence's tables, slot cell % 16. It sees cells up to its own
  std::vector<int32_t> cells;
  std::vector<int32_t> sequences;  // per token: its sequence, an index into the tables of each pool
  std::vector<std::vector<const int32_t*>> tables;  // (pools, sequences): pages, in order of cells
  // (pools): all keys and values that the pass writes; empty for pools of recurrent states
  std::vector<std::vector<Store>> stores;
  std::vector<Reading> readings;  // (pools)
  std::vector<int32_t> outputs;   // indices of the tokens whose logits are wanted

  int64_t size() const { return int64_t(tokens.size()); }
  // The table of token t's sequence in the pool of a KvView or RecurrentView.
  template <class View>
  [[gnu::always_inline]] const int32_t* table(const View& s, int64_t t) const {
    return tables[size_t(s.pool)][size_t(sequences[size_t(t)])];
  }
};

}  // namespace chaski
