// In which order the device adds the products of a row, whatever kernel, number of tokens or
// company: part of the results.
//
//   block formats   32 columns after 32 columns as quant/panel.h says, from zero in each segment;
//                   then the segments, first to last
//   f16, bf16       32 columns after 32 columns, likewise: the tensor cores' sum of 32, from zero,
//                   low parts of x before high ones, is added by one fma or addition
//                   (float_dot.cuh)
//   by fma          f32, and codes under an f32 scale: fma_dot.cuh's phases in each segment; then
//                   the segments, first to last
//
// A segment is a run of whole groups of 8 blocks (256 columns). How many there are and which is
// which depends on the row's length alone.
#pragma once

namespace chaski {

constexpr int kMostSegments = 16;
constexpr int kGroupBlocks = 8;

struct Run {
  int from, to;
};
constexpr int groups_of(int blocks) { return (blocks + kGroupBlocks - 1) / kGroupBlocks; }
constexpr int segments_of(int groups) { return groups < kMostSegments ? groups : kMostSegments; }
// Groups [from, to) of segment s: one at least.
constexpr Run segment_of(int s, int groups) {
  const int n = segments_of(groups);
  return {s * groups / n, (s + 1) * groups / n};
}

}  // namespace chaski
