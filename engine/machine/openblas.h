// OpenBLAS, opened when it is asked for: it starts its threads as it is loaded, which a `chaski
// run` should not wait for, and chaski runs without it. A yardstick only: it does not add in our
// order, so it has no part in a forward pass.
#pragma once
#include <string>

namespace chaski {

class OpenBlas {
 public:
  // For the instruction set that chaski itself uses, unless OPENBLAS_CORETYPE says otherwise: left
  // alone, a library older than the machine takes the kernels of 2004. Throws Error(io) if it is
  // not there or lacks a function. It stays loaded.
  OpenBlas(int threads, const std::string& isa);

  std::string config() const { return config_; }  // version, the kernels' core type, most threads
  // c (m, n) = a (m, k) times b (n, k) transposed, all of them rows of floats one after another.
  void multiply(int m, int n, int k, const float* a, const float* b, float* c) const;

 private:
  using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                         const float* a, int lda, const float* b, int ldb, float beta, float* c,
                         int ldc);
  Sgemm sgemm_;
  std::string config_;
};

}  // namespace chaski
