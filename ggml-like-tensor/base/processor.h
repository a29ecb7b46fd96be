// Instruction sets that the processor has and whose registers the system saves. In place of
// __builtin_cpu_supports(), which is always false in zig's runtime library.
#pragma once
#if defined(__x86_64__)
#include <cpuid.h>

#include <initializer_list>

namespace chaski {

class Processor {
 public:
  Processor() {
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return;
    constexpr unsigned kSavedByXsave = 1u << 27;
    if (!(ecx & kSavedByXsave)) return;
    one_ = ecx;
    unsigned low, high;
    asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    saved_ = low;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) seven_b_ = ebx, seven_c_ = ecx;
  }
  // Bit numbers: Intel's manual, volume 2, CPUID.
  bool avx2() const { return saves(0x6) && all(one_, {12, 28, 29}) && all(seven_b_, {5}); }
  bool avx512() const { return avx2() && saves(0xE6) && all(seven_b_, {16, 17, 30, 31}); }
  bool avx512vnni() const { return avx512() && all(seven_c_, {11}); }
  bool avx512vbmi() const { return avx512() && all(seven_c_, {1}); }

 private:
  bool saves(unsigned registers) const { return (saved_ & registers) == registers; }
  static bool all(unsigned word, std::initializer_list<int> bits) {
    for (const int bit : bits)
      if (!(word >> bit & 1)) return false;
    return true;
  }
  unsigned one_ = 0, seven_b_ = 0, seven_c_ = 0, saved_ = 0;
};

}  // namespace chaski
#endif
