// What one forward pass computes: tokens, each of some sequence at some position. Prefill, decode,
// the check of a draft and eight sequences at once differ in this and in nothing else. Tokens of
// one sequence are consecutive, in order of cells. Where a pass runs is pass_context.h's: the same
// batch goes to the CPU and to a device.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chaski {

// The key and value of a token go to a page. A token may have several stores, as where sequences
// that share it have pages of their own, or none, as where they are stored already.
struct Store {
  int32_t token, page, slot;
};

// What attention reads of a pool (reading.h). A group is some pages of a chunk, and the tokens that
// see any of them: those of every sequence whose table has just these pages there.
struct Reading {
  struct Run {  // tokens [first, end) of the batch, of one sequence
    int32_t first, end;
  };
  struct Group {
    int32_t chunk, from, to;  // pages [from, to) of the tables
    int32_t first, end;       // runs[first, end)
  };
  std::vector<Run> runs;
  std::vector<Group> groups;         // in the order of their first tokens, then of chunks
  int64_t alone = 0, sequences = 0;  // groups if no sequence shared any; sequences of the batch
};

struct Batch {
  // per token; its position is what rotary angles and learned positions go by
  std::vector<int32_t> tokens, positions;
  // per token: how many of its sequence were stored before it. Its sequence finds its keys and
  // values in page cell / 16 of its tables, slot cell % 16; it sees cells up to its own
  std::vector<int32_t> cells;
  std::vector<int32_t> sequences;  // per token: whose it is, an index into each pool's tables
  std::vector<std::vector<const int32_t*>> tables;  // (pools, sequences): pages, in order of cells
  // (pools): all that a pass writes of keys and values; nothing for pools of recurrent states
  std::vector<std::vector<Store>> stores;
  std::vector<Reading> readings;  // (pools)
  std::vector<int32_t> outputs;   // indices of the tokens whose logits are wanted

  int64_t size() const { return int64_t(tokens.size()); }
  // Of a KvView or RecurrentView.
  template <class View>
  [[gnu::always_inline]] const int32_t* table(const View& s, int64_t t) const {
    return tables[size_t(s.pool)][size_t(sequences[size_t(t)])];
  }
};

}  // namespace chaski
