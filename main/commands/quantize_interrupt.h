// What Ctrl-C says while chaski quantize works: what is kept, and how to go on.
#pragma once
#include <string>

namespace chaski {

struct QuantizeInterrupt {
  std::string out, stats;  // files; `stats` is empty without --stats
  bool calibrates;         // --calibrate is given
  bool resumes;            // --resume is given

  void is_measuring() const;  // the calibration begins
  void is_encoding() const;   // the tensors are encoded
  ~QuantizeInterrupt();       // nothing is said any more
};

}  // namespace chaski
