// OpenBLAS, for comparison in `bench --sgemm` only. It adds in another order, so no forward pass
// uses it. It is opened at run time, because chaski also runs without it, and because loading it
// starts its threads, which would delay `chaski run`.
#pragma once
#include <string>

namespace chaski {

class OpenBlas {
 public:
  // Selects OpenBLAS kernels for the instruction set that chaski uses, unless OPENBLAS_CORETYPE is
  // set: a library older than the CPU would select kernels of 2004. Throws Error(io) if the library
  // or a function is missing. The library stays loaded.
  OpenBlas(int threads, const std::string& isa);

  std::string config() const { return config_; }  // version, core type of the kernels, thread limit
  // c (m, n) = a (m, k) times the transpose of b (n, k). All are row-major without padding.
  void multiply(int m, int n, int k, const float* a, const float* b, float* c) const;

 private:
  using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                         const float* a, int lda, const float* b, int ldb, float beta, float* c,
                         int ldc);
  Sgemm sgemm_;
  std::string config_;
};

}  // namespace chaski
