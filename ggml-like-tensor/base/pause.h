// What a thread does between two checks of a value that another thread will change.
#pragma once

namespace chaski {

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace chaski
