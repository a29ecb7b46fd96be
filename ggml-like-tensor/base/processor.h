// Instruction sets that the processor has and whose registers the system saves. In place of
// __builtin_cpu_supports(), which is always false in zig's runtime library.
#pragma once
#if defined(__x86_64__)
#include <cpuid.h>

#include <initializer_list>
#include <string_view>

namespace chaski {

class Processor {
 public:
  // What cpuid and xgetbv return: the first letters of the vendor's name, leaf 1's ecx, leaf 7's
  // ebx, ecx and edx, its subleaf 1's eax, and the registers that the system saves.
  struct Words {
    unsigned vendor = 0, one_c = 0, seven_b = 0, seven_c = 0, seven_d = 0, seven_one_a = 0,
             saved = 0;
  };
  explicit Processor(const Words& words) : words_(words) {}
  Processor() {
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(0, &eax, &ebx, &ecx, &edx)) return;
    words_.vendor = ebx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return;
    constexpr unsigned kSavedByXsave = 1u << 27;
    if (!(ecx & kSavedByXsave)) return;
    words_.one_c = ecx;
    unsigned low, high;
    asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    words_.saved = low;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return;
    words_.seven_b = ebx, words_.seven_c = ecx, words_.seven_d = edx;
    if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) words_.seven_one_a = eax;
  }
  // Bit numbers: Intel's manual, volume 2, CPUID.
  bool avx2() const {
    return saves(0x6) && all(words_.one_c, {12, 28, 29}) && all(words_.seven_b, {5});
  }
  bool avxvnni() const { return avx2() && all(words_.seven_one_a, {4}); }
  bool avx512() const { return avx2() && saves(0xE6) && all(words_.seven_b, {16, 17, 30, 31}); }
  bool avx512vnni() const { return avx512() && all(words_.seven_c, {11}); }
  bool avx512vbmi() const { return avx512vnni() && all(words_.seven_c, {1}); }
  // AMX's products of bytes. Bits 17 and 18 of `saved`: the configuration and the data of tiles.
  bool amx() const { return avx512vbmi() && saves(0x60000) && all(words_.seven_d, {24, 25}); }
  // AMD's Zen 4 and later ones.
  bool zen4() const { return words_.vendor == kAuthenticAmd && avx512vbmi(); }

  // The instruction sets that there are kernels for, the best last.
  struct Isa {
    std::string_view name;
    bool (Processor::*has)() const;
  };
  bool runs(std::string_view isa) const {
    for (const Isa& known : kIsas)
      if (known.name == isa) return (this->*known.has)();
    return isa == "scalar";
  }
  // The best instruction set, if it is better than `isa`; otherwise "".
  std::string_view better_than(std::string_view isa) const {
    std::string_view best;
    for (const Isa& known : kIsas) {
      if ((this->*known.has)()) best = known.name;
      if (known.name == isa) best = {};
    }
    return best;
  }

 private:
  static constexpr unsigned kAuthenticAmd = 0x68747541;  // "Auth"
  bool saves(unsigned registers) const { return (words_.saved & registers) == registers; }
  static bool all(unsigned word, std::initializer_list<int> bits) {
    for (const int bit : bits)
      if (!(word >> bit & 1)) return false;
    return true;
  }
  static const Isa kIsas[6];
  Words words_;
};

inline constexpr Processor::Isa Processor::kIsas[6] = {
    {"avx2", &Processor::avx2},
    {"avxvnni", &Processor::avxvnni},
    {"avx512", &Processor::avx512},
    {"avx512vnni", &Processor::avx512vnni},
    {"avx512vbmi", &Processor::avx512vbmi},
    {"amx", &Processor::amx},
};

}  // namespace chaski
#endif
