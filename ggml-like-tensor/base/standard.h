// The headers of the standard library that most files read, compiled once (Makefile: FIRST). Every
// file still includes what it uses: builds with other flags do without this.
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
