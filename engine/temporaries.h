// The one thing main/ needs from below engine/: remove_temporaries_now(), for a signal handler that
// is about to end the program.
#pragma once
#include "ggml-like-tensor/base/atomic_file.h"
