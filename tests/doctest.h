// doctest, compiled once for all tests, before the project's own headers. So under its long names:
// CHECK is a word of error.h too, and becomes doctest's in support.h, behind the headers that mean
// the other.
#pragma once
#define DOCTEST_CONFIG_NO_SHORT_MACRO_NAMES
#include <doctest/doctest.h>

#include "ggml-like-tensor/base/standard.h"
