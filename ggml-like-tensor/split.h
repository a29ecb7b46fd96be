// A graph cut in two in front of a layer, for two backends: the CPU runs the first layers, a device
// the rest.
#pragma once
#include "ggml-like-tensor/graph.h"

namespace chaski {

struct SplitGraph {
  Graph first, rest;
};

// Whether `whole` can be cut in front of `layer`: one value goes over, and no layer behind the cut
// reads a state of one before it.
bool can_split(const Graph& whole, int layer);

// The one value that goes over in front of `layer`; kNone if there are several.
ValueId entering(const Graph& whole, int layer);

// `whole` as a model wrote it, before fuse(), where can_split() says so. The rest begins with the
// first node that reads a weight of `layer`, 0 <= layer < the number of layers, or with what is
// needed in front of it so that one value goes over, which is the first's result and the rest's
// input. Both graphs list all states, but those whose ops are the other's as kept elsewhere
// (state.h).
SplitGraph split(Graph whole, int layer);

}  // namespace chaski
