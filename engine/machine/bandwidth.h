// Measures how fast this machine reads memory, which limits decoding. Other programs and clock
// speeds change the figure from minute to minute. The buffer is larger than the caches.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "ggml-like-tensor/base/mapping.h"

namespace chaski {

// CHASKI_MEASURE is "brief": measurements of this folder take a moment, and their figures are
// inexact. Tests use it.
bool measures_briefly();

struct BandwidthOptions {
  int threads = 1;
  // size of the buffer; halved until it is at most a quarter of the free memory
  uint64_t bytes = uint64_t{512} << 20;
  // length of the measurement; filling the buffer takes another 0.2 s or so
  double seconds = 0.25;
};

// Bytes per second of the fastest pass over the buffer. 0 if there is no memory for a buffer.
double measure_read_bandwidth(const BandwidthOptions& options);

// Measures it several times with one buffer, so that a measurement takes options.seconds.
class BandwidthMeter {
 public:
  explicit BandwidthMeter(const BandwidthOptions& options);
  ~BandwidthMeter();
  double measure();

 private:
  struct Buffer;
  template <class Work>
  double each_chunk(double seconds, const Work& work) const;

  BandwidthOptions options_;
  std::unique_ptr<Buffer> buffer_;
};

// Bytes per second that several threads read from all over a file, past the system's cache where
// the file system allows that. Takes about 0.3 seconds. 0 if the file cannot be read.
double measure_file_bandwidth(const Mapping& file);

// The name under which a speed is stored (cache_folder.h). It contains a hash of the host name,
// because several machines may share the folder.
std::string speed_place(const std::string& of);

// The bandwidth last measured on this machine, in bytes per second; 0: none. `of` is such as
// "cpu, -t 4". It is stored in the cache folder, because measuring takes about a second.
double kept_bandwidth(const std::string& of);
std::string cpu_with(int threads);  // "cpu, -t 4"
void keep_bandwidth(const std::string& of, double bytes_per_second);

}  // namespace chaski
