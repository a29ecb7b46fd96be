// What a model keeps of a sequence from pass to pass, as its graph declares it: one Graph::state()
// for each state, and ops that hold the StateId. state_layout.h says where states are stored.
#pragma once
#include <cstdint>
#include <variant>

namespace chaski {

using StateId = int32_t;  // in the order of Graph::states

// Keys and values of the positions so far, in pages (kv_layout.h).
struct Paged {
  int heads = 0;             // of keys and values; 0: kept elsewhere (split.h)
  int k_dim = 0, v_dim = 0;  // channels of a head
  int window = 0;            // > 0: a token sees the last `window` cells, including its own
  // The values are the first v_dim channels of the keys and are not stored separately (multi-head
  // latent attention).
  bool v_inside_k = false;
  // With a window: cells are in blocks of `window`, and a token sees only cells of its own block.
  bool chunked = false;

  bool operator==(const Paged&) const = default;
  // The first cell (batch.h) that the token of `cell` sees.
  int64_t first_seen(int64_t cell) const {
    if (window > 0 && chunked) return cell / window * window;
    return window > 0 && cell >= window ? cell - window + 1 : 0;
  }
};

// A block of bytes that summarizes all tokens so far. Its content at the start of a sequence is
// undefined and must not be read.
struct Recurrent {
  int64_t bytes = 0;  // 0: kept elsewhere

  bool operator==(const Recurrent&) const = default;
};

using State = std::variant<Paged, Recurrent>;

}  // namespace chaski
