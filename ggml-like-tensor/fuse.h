// Rewrites of a graph before it is planned. Each matches a pattern of neighbouring nodes. Its fused
// form computes the same numbers in the same order. A fusion saves a trip through memory and a
// barrier.
#pragma once
#include "ggml-like-tensor/graph.h"

namespace chaski {

// All rewrites, in the order in which they enable each other:
//   act(x Wg) * (x Wu)          -> gated_matmul
//   matmuls that share x        -> one matmul of up to three weights (q, k, v)
//   a + b, then a norm of it    -> norm that adds
//   rope(q), rope(k), kv_write  -> kv_write that rotates
//   x read by block formats     -> its producer also quantizes it, or a quantize_acts node does
// With `none`, each input of block formats is quantized by a node of its own. The bits are the same
// with more steps; this is for tests.
enum class Fuse { all, none };
void fuse(Graph& graph, Fuse which = Fuse::all);

// Whether the node reads input i as floats. A matmul whose weights all have block formats reads
// in[0] only quantized.
bool reads_floats(const Graph& graph, const Node& node, size_t i);

}  // namespace chaski
