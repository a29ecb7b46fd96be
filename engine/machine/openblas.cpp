#include "engine/machine/openblas.h"

#include <dlfcn.h>

#include <cstdlib>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

constexpr const char* kLibrary = "libopenblas.so.0";

template <class Function>
Function symbol(void* library, const char* name) {
  void* at = ::dlsym(library, name);
  if (!at) fail(Exit::io, "{}: has no {}, expected OpenBLAS", kLibrary, name);
  return reinterpret_cast<Function>(at);
}

}  // namespace

OpenBlas::OpenBlas(int threads, const std::string& isa) {
  const char* const core = isa.starts_with("avx512") || isa == "amx" ? "SkylakeX"
                           : isa.starts_with("avx")                  ? "Haswell"
                                                                     : nullptr;
  if (core) ::setenv("OPENBLAS_CORETYPE", core, 0);
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(Exit::io, "--sgemm needs OpenBLAS, which cannot be opened: {}", ::dlerror());
  sgemm_ = symbol<Sgemm>(library, "cblas_sgemm");
  symbol<void (*)(int)>(library, "openblas_set_num_threads")(threads);
  config_ = symbol<char* (*)()>(library, "openblas_get_config")();
}

void OpenBlas::multiply(int m, int n, int k, const float* a, const float* b, float* c) const {
  constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;  // of the CBLAS interface
  sgemm_(kRowMajor, kNoTrans, kTrans, m, n, k, 1, a, k, b, k, 0, c, n);
}

}  // namespace chaski
