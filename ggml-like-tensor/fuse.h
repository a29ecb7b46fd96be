// Rewrites of a graph before it is planned. Each is a pattern over neighbouring nodes whose fused
// form computes the same numbers in the same order; what a fusion saves is a trip through memory
// and a barrier.
#pragma once
#include "ggml-like-tensor/graph.h"

namespace chaski {

// All of them, in the order in which they enable each other:
//   act(x Wg) * (x Wu)          -> gated_matmul
//   matmuls that share x        -> one matmul of up to three weights (q, k, v)
//   a + b, then a norm of it    -> norm that adds
//   rope(q), rope(k), kv_write  -> kv_write that rotates
//   x read by block formats     -> its producer quantizes it in passing, or a quantize_acts node
//                               does
// None of them: what block formats read is quantized, each by a node of its own. Same bits, more
// steps; for tests.
enum class Fuse { all, none };
void fuse(Graph& graph, Fuse which = Fuse::all);

// Whether node reads input i as floats (a matmul whose weights are all block formats reads in[0]
// only quantized).
bool reads_floats(const Graph& graph, const Node& node, size_t i);

}  // namespace chaski
