// How fast this machine reads memory: the limit of decoding, measured beside it. A figure of this
// minute, not of the machine: neighbours and clocks move it. Not for caches: the buffer is larger
// than they are.
#pragma once
#include <cstdint>
#include <string>

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

// Where a speed of something on this machine is kept (cache_folder.h): the folder may be several
// machines'.
std::string speed_place(const std::string& of);

// What was measured last on this machine of something, such as "cpu, -t 4", in bytes per
// second; 0 if nothing was. It is kept in the cache folder, because measuring takes a second that
// nobody wants to wait after an answer.
double kept_bandwidth(const std::string& of);
std::string cpu_with(int threads);  // "cpu, -t 4"
void keep_bandwidth(const std::string& of, double bytes_per_second);

}  // namespace chaski
