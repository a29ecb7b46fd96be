// What an op is on a CPU: CpuKernel<Op, V>, written over the Lanes V of an instruction set. table.h
// asks for one of every op, so that an op without does not compile. backend.h says what run(),
// units(), grain(), scratch() and shared(), which may be missing, are.
#pragma once
#include "ggml-like-tensor/backend.h"

namespace chaski {
namespace {

template <class Op, class V>
struct CpuKernel;

// What most have in common: a unit is a row of the output.
struct ByRow {
  template <class Op>
  static int64_t units(const Op&, const OpArgs& a) {
    return a.out[0].shape.rows;
  }
  template <class Op>
  static int64_t grain(const Op&, const OpArgs&) {
    return 1;
  }
  template <class Op>
  static size_t scratch(const Op&, const OpArgs&) {
    return 0;
  }
};

}  // namespace
}  // namespace chaski
