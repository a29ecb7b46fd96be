// The order in which the device adds the products of a row. It is part of the results and does not
// depend on the kernel, the number of tokens or the other tokens of the batch.
//
//   block formats   blocks of 32 columns in order, each as quant/panel.h defines, from zero in
//                   each segment; then the segments, first to last
//   f16, bf16       blocks of 32 columns in order and segments likewise. The tensor cores add the
//                   32 products from zero, the low parts of x before the high parts. One fma or
//                   addition then adds that sum (float_dot.cuh)
//   by fma          f32, and codes under an f32 scale: the phases of fma_dot.cuh in each segment;
//                   then the segments, first to last
//
// A segment is a run of whole groups of 8 blocks (256 columns). The number of segments and their
// limits depend on the row's length alone.
#pragma once

namespace chaski {

constexpr int kMostSegments = 16;
constexpr int kGroupBlocks = 8;

struct Run {
  int from, to;
};
constexpr int groups_of(int blocks) { return (blocks + kGroupBlocks - 1) / kGroupBlocks; }
constexpr int segments_of(int groups) { return groups < kMostSegments ? groups : kMostSegments; }
// Groups [from, to) of segment s, at least one.
constexpr Run segment_of(int s, int groups) {
  const int n = segments_of(groups);
  return {s * groups / n, (s + 1) * groups / n};
}

}  // namespace chaski
