// doctest and the headers that every test includes, compiled once for all tests.
#pragma once
#include <doctest/doctest.h>

#include "ggml-like-tensor/base/standard.h"
