// doctest and what every test includes, compiled once for all tests.
#pragma once
#include <doctest/doctest.h>

#include "ggml-like-tensor/base/standard.h"
