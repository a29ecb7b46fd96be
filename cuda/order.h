// In which order the device adds the products of a row, whatever kernel, number of tokens or company: part of the results.
//
//   block formats   32 columns after 32 columns as quant/panel.h says, from zero in each segment; then the segments, first to last
//   float formats   float_dot.cuh's phases in each segment; then the segments, first to last
//
// A segment is a run of whole groups of 8 blocks (256 columns), and which one depends on the row's length alone.
#pragma once

namespace chaski {

constexpr int kSegments = 8;
constexpr int kGroupBlocks = 8;

struct Run {
  int from, to;
};
// Groups [from, to) of segment s.
constexpr Run segment_of(int s, int groups) { return {s * groups / kSegments, (s + 1) * groups / kSegments}; }
constexpr int groups_of(int blocks) { return (blocks + kGroupBlocks - 1) / kGroupBlocks; }

}  // namespace chaski
