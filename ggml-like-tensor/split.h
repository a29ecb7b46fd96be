// Cuts a graph in two before a layer, for two backends: the CPU runs the first layers, a device
// runs the rest.
#pragma once
#include "ggml-like-tensor/graph.h"

namespace chaski {

struct SplitGraph {
  Graph first, rest;
};

// Whether `whole` can be cut before `layer`: exactly one value crosses the cut, and nothing after
// the cut uses a state or a weight of a layer before it.
bool can_split(const Graph& whole, int layer);

// The one value that crosses a cut before `layer`; kNone if there are several.
ValueId crossing_value(const Graph& whole, int layer);

// Cuts `whole`, as a model wrote it (before fuse()); can_split() must be true. The rest begins with
// the first node that reads a weight of `layer`, 0 <= layer < number of layers. It begins earlier
// if more than one value would cross the cut there. The value that crosses it is the first part's
// result and the rest's input. Both graphs list all states; states whose ops are in the other graph
// are marked as kept elsewhere (state.h).
SplitGraph split(Graph whole, int layer);

// Cuts `whole` before and after the experts of each layer: parts 0, 2, ... have no experts, and
// parts 1, 3, ... have them. The last part has none. One value crosses each cut, and parts with
// experts use no state. All parts list all states. Without experts there is one part. Empty if they
// cannot be cut out.
std::vector<Graph> around_experts(const Graph& whole);

}  // namespace chaski
