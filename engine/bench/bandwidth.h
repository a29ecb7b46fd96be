// How fast this machine reads memory: the limit of decoding, measured beside it. A figure of this
// minute, not of the machine: neighbours and clocks move it. Not for caches: the buffer is larger
// than they are.
#pragma once
#include <cstdint>

namespace chaski {

struct BandwidthOptions {
  int threads = 1;
  // halved until it is at most a quarter of the memory that is free
  uint64_t bytes = uint64_t{512} << 20;
  // how long is measured; filling the buffer takes about 0.2 s before that
  double seconds = 0.25;
};

// Bytes per second of the fastest pass over the buffer. 0 if there is no memory for a buffer.
double measure_read_bandwidth(const BandwidthOptions& options);

// Measured once per process and thread count; the later calls cost nothing.
double cached_read_bandwidth(int threads);

}  // namespace chaski
