// A graph cut in two in front of a layer, for two backends: the CPU runs the first layers, a device
// the rest.
#pragma once
#include "ggml-like-tensor/graph.h"

namespace chaski {

struct SplitGraph {
  Graph first, rest;
};

// `whole` as a model wrote it, before fuse(). The rest begins with the first node that reads a
// weight of `layer`, 0 <= layer < the number of layers, or with what is needed in front of it so
// that one value goes over, which is the first's result and the rest's input. Both graphs list all
// states, but those whose ops are the other's as kept elsewhere (state.h).
SplitGraph split(Graph whole, int layer);

}  // namespace chaski
