// doctest and the headers that most tests include, compiled once for all tests.
#pragma once
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "ggml-like-tensor/base/standard.h"
