// What an op is on a CPU: CpuKernel<Op, V>, written over the Lanes V of an instruction set. table.h
// uses one for every op, so an op without a kernel does not compile. backend.h describes run(),
// units(), grain(), scratch() and shared(); the last three are optional.
#pragma once
#include "ggml-like-tensor/backend.h"

namespace chaski {
namespace {

template <class Op, class V>
struct CpuKernel;

// Base of kernels whose unit is a row of the output.
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
