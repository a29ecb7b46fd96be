// What a handler of main/ that is about to end the program needs from below engine/:
// remove_temporaries_now() and mapped_file_at().
#pragma once
#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/base/mapping.h"
