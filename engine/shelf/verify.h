// Checks a model file against the checksums of its tensors before it runs. Because reading the
// whole file takes time, Verify::once writes a stamp into the user's cache folder and checks the
// file again only after its size, times or inode changed. Only Verify::always finds bits that rot
// on the disk.
#pragma once
#include <string>

#include "ggml-like-tensor/file/quipu.h"

namespace chaski {

enum class Verify { always, once, never };

// Throws Error(bad_file) with the name of the first damaged tensor. Without a cache folder,
// Verify::once checks every time.
void verify_file(const Weights& weights, Verify how, int threads);
// Writes the stamp of a file whose checksums have just been compared. `state` is that of its
// mapping.
void keep_verified(const std::string& path, const std::string& state);

}  // namespace chaski
