// See last_words.h. Where memory ends, operator new ends the program from the new handler, wherever
// it is called: in a worker thread, in a library's noexcept function, in a stream that would
// swallow the exception and hand on half a line. Large needs are asked for before and refused by an
// Error with numbers; this is for the small ones, and there is nothing to be saved by unwinding.
#include "main/terminal/last_words.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>

#include "engine/machine/temporaries.h"
#include "main/terminal/signals.h"

namespace chaski {

namespace {

constexpr std::string_view kNoMemory = "not enough memory";

// A path and a few words; what is longer is cut.
char line[16 << 10];

bool is_memory(const std::system_error& error) {
  return error.code() == std::errc::not_enough_memory ||
         error.code() == std::errc::resource_unavailable_try_again;  // threads
}

[[noreturn]] void on_no_memory() { end_now(Exit::memory, {kNoMemory}); }

// An exception left a noexcept function or a thread. Without one it is the exception itself that
// found no memory: then none is left.
[[noreturn]] void on_terminate() {
  if (std::current_exception()) {
    restore_and_remove();
    ::_exit(put_exception());
  }
  void* probe = std::malloc(1024);
  if (!probe) on_no_memory();
  std::free(probe);
  restore_and_remove();
  put_last_line(Exit::io, {"bug: the program was ended without an exception"});
  std::abort();
}

// Before the constructors of static objects, which take memory too.
[[gnu::constructor(101)]] void set_handlers() {
  std::set_new_handler(on_no_memory);
  std::set_terminate(on_terminate);
}

}  // namespace

int put_last_line(Exit code, std::initializer_list<std::string_view> parts) {
  static std::atomic_flag said;
  while (said.test_and_set()) ::pause();  // another thread has the last word
  size_t size = 0;
  const auto add = [&size](std::string_view part) {
    size += escape(part, line + size, sizeof line - 1 - size);
  };
  add("chaski: error: ");
  for (const std::string_view part : parts) add(part);
  line[size++] = '\n';
  for (size_t at = 0; at < size;) {
    const ssize_t n = ::write(STDERR_FILENO, line + at, size - at);
    if (n < 0 && errno != EINTR) break;
    if (n > 0) at += size_t(n);
  }
  return int(code);
}

int put_exception() {
  try {
    throw;
  } catch (const Error& error) {
    return put_last_line(error.code, {error.what()});
  } catch (const std::bad_alloc&) {
    return put_last_line(Exit::memory, {kNoMemory});
  } catch (const std::system_error& error) {
    return put_last_line(is_memory(error) ? Exit::memory : Exit::io, {error.what()});
  } catch (const std::exception& error) {
    return put_last_line(Exit::io, {error.what()});
  } catch (...) {
    return put_last_line(Exit::io, {"bug: an exception of no known type"});
  }
}

void end_now(Exit code, std::initializer_list<std::string_view> parts) {
  restore_and_remove();
  ::_exit(put_last_line(code, parts));
}

}  // namespace chaski
