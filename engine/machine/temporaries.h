// Gives main/'s handlers of fatal signals two functions of ggml-like-tensor/:
// remove_temporaries_now() and mapped_file_at().
#pragma once
#include "ggml-like-tensor/base/atomic_file.h"
#include "ggml-like-tensor/base/mapping.h"
