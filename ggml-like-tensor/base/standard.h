// The standard headers that most files use, compiled once (Makefile: FIRST). Every file still
// includes what it uses, because builds with other flags do not use this one.
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ggml-like-tensor/base/error.h"
