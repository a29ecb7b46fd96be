// Whether a model file is checked against the sums of its tensors before it is run. Reading it all
// takes time, so a file that was found sound is stamped in the user's cache folder and not read
// again until its size, times or inode have changed. (Bits that rot on the disk change none of
// these: Verify::always finds them.)
#pragma once
#include <string>

#include "ggml-like-tensor/file/quipu.h"

namespace chaski {

enum class Verify { always, once, never };

// Throws Error(bad_file), which names the first tensor that is damaged. Where there is no cache
// folder to write a stamp to, Verify::once checks every time.
void verify_file(const Weights& weights, Verify how, int threads);

}  // namespace chaski
