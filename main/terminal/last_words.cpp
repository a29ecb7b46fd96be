// When memory runs out, the new handler ends the program at once, wherever operator new was called:
// in a worker thread, in a noexcept function, or in a stream that would catch the exception and
// write half a line. Large allocations are checked before and refused with an Error; this handler
// is for small ones, and unwinding would save nothing.
#include "main/terminal/last_words.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>

#include "engine/machine/temporaries.h"
#include "main/terminal/output.h"
#include "main/terminal/signals.h"
#include "main/terminal/wrapped.h"

namespace chaski {

namespace {

constexpr std::string_view kNoMemory = "not enough memory";

// The message. Longer ones are cut.
char line[16 << 10];

// A PartingLine that a signal handler can read. While one is set, the handler reads the other.
struct Parting {
  char file[PATH_MAX], if_there[4 << 10], otherwise[4 << 10];
} partings[2];
std::atomic<const Parting*> parting = nullptr;
static_assert(std::atomic<const Parting*>::is_always_lock_free);

template <size_t N>
void copy_into(char (&to)[N], const std::string& text) {
  to[text.copy(to, N - 1)] = '\0';
}

void write_to_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno != EINTR) break;
    if (n > 0) text.remove_prefix(size_t(n));
  }
}

bool is_memory(const std::system_error& error) {
  return error.code() == std::errc::not_enough_memory ||
         error.code() == std::errc::resource_unavailable_try_again;  // threads
}

[[noreturn]] void on_no_memory() { end_now(Exit::memory, {kNoMemory}); }

// Called when an exception leaves a noexcept function or a thread. If there is no current
// exception, there was probably no memory to create it.
[[noreturn]] void on_terminate() {
  if (std::current_exception()) {
    restore_and_remove();
    ::_exit(put_exception());
  }
  void* probe = std::malloc(1024);
  if (!probe) on_no_memory();
  std::free(probe);
  restore_and_remove();
  put_last_line(Exit::io, {"bug: std::terminate was called without an exception"});
  std::abort();
}

// Runs before the constructors of static objects, which allocate memory too.
[[gnu::constructor(101)]] void set_handlers() {
  std::set_new_handler(on_no_memory);
  std::set_terminate(on_terminate);
}

}  // namespace

int put_last_line(Exit code, std::initializer_list<std::string_view> parts) {
  static std::atomic_flag said;
  while (said.test_and_set()) ::pause();  // another thread is ending the program
  size_t size = 0;
  const auto add = [&size](std::string_view part) {
    size += escape(part, line + size, sizeof line - 1 - size);
  };
  // On a terminal, the error begins a new line if text was being printed.
  if (line_is_open() && ::isatty(STDOUT_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1)
    write_to_stderr("\n");
  add("chaski: error: ");
  for (const std::string_view part : parts) add(part);
  line[size++] = '\n';
  write_to_stderr({line, size});
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
    return put_last_line(Exit::io, {"bug: an exception of an unknown type"});
  }
}

void set_parting_line(const PartingLine& given) {
  Parting& next = partings[parting == partings ? 1 : 0];
  // On a terminal the line replaces a progress bar.
  const std::string front = stderr_is_terminal() ? "\r\033[K" : "";
  const auto whole = [&](const std::string& text) {
    return text.empty() ? "" : front + wrapped_for_stderr("chaski: note: " + text) + "\n";
  };
  copy_into(next.file, given.file);
  copy_into(next.if_there, whole(given.if_there));
  copy_into(next.otherwise, whole(given.otherwise));
  parting = &next;
}

void put_parting_line() {
  if (const Parting* p = parting)
    write_to_stderr(*p->file && ::access(p->file, F_OK) == 0 ? p->if_there : p->otherwise);
}

void end_now(Exit code, std::initializer_list<std::string_view> parts) {
  restore_and_remove();
  ::_exit(put_last_line(code, parts));
}

}  // namespace chaski
