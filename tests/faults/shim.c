// An LD_PRELOAD library that makes the N-th call fail, to imitate a machine in trouble. `make
// faults` (drive.py) and tests/cli/faults_test.cpp set the variables:
//   FAULT_ALLOC=N        the N-th malloc, calloc, realloc or aligned allocation finds no memory;
//   FAULT_FOR_EVER=1     and so do all after it
//   FAULT_CALL=read:N:5  the N-th call of this name returns -1 with errno 5 (once, or for ever)
//   FAULT_KILL=write:N   SIGKILL instead of the N-th call of this name
//   FAULT_SIGNAL=poll:N:2  signal 2 is raised right before the N-th call of this name
//   FAULT_UNWIND=1       std::set_new_handler does nothing, so that running out of memory is an
//                        exception: this tests how bad_alloc unwinds through the program
//   FAULT_DISK=N         file systems have N free bytes
//   FAULT_COUNT=FILE     at the end, writes the number of allocations and of each call to FILE
//   FAULT_PEAK=FILE      at the end, writes the most resident memory of this program to FILE, in kB:
//                        the rusage of a child counts what its parent had, too
// Calls that the C library makes internally are not seen.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

static atomic_long allocations;
static long fail_allocation, for_ever;

#define CALLS(X) \
  X(open) X(read) X(pread) X(write) X(pwrite) X(mmap) X(fstat) X(ftruncate) X(fallocate) \
  X(fsync) X(close) X(rename) X(pthread_create) X(poll) X(flock)
enum {
#define ID(name) id_##name,
  CALLS(ID) kCalls
};
static const char* const names[] = {
#define NAME(name) #name,
    CALLS(NAME)};
static atomic_long counts[kCalls];
static int call_to_fail = -1, call_errno, call_to_kill = -1, call_to_signal = -1, signal_sent;
static long fail_at, kill_at, signal_at;

static long number(const char* name) {
  const char* text = getenv(name);
  return text ? atol(text) : 0;
}

// Parses "name:N" or "name:N:errno".
static int call_of(const char* variable, long* at, int* error) {
  const char* text = getenv(variable);
  if (!text) return -1;
  const size_t length = strcspn(text, ":");
  for (int i = 0; i < kCalls; ++i)
    if (strlen(names[i]) == length && !strncmp(names[i], text, length)) {
      *at = atol(text + length + 1);
      const char* second = strchr(text + length + 1, ':');
      if (error && second) *error = atoi(second + 1);
      return i;
    }
  return -1;
}

__attribute__((constructor(101))) static void read_settings(void) {
  for_ever = number("FAULT_FOR_EVER");
  call_to_fail = call_of("FAULT_CALL", &fail_at, &call_errno);
  call_to_kill = call_of("FAULT_KILL", &kill_at, NULL);
  call_to_signal = call_of("FAULT_SIGNAL", &signal_at, &signal_sent);
}

// The first allocations happen before any constructor runs.
static int no_memory(void) {
  static atomic_int known;
  if (!atomic_load(&known)) {
    fail_allocation = number("FAULT_ALLOC");
    for_ever = number("FAULT_FOR_EVER");
    atomic_store(&known, 1);
  }
  const long n = atomic_fetch_add(&allocations, 1) + 1;
  if (!fail_allocation || n < fail_allocation || (n > fail_allocation && !for_ever)) return 0;
  errno = ENOMEM;
  return 1;
}

void* malloc(size_t n) { return no_memory() ? NULL : __libc_malloc(n); }
void* calloc(size_t n, size_t size) { return no_memory() ? NULL : __libc_calloc(n, size); }
void* realloc(void* p, size_t n) { return no_memory() ? NULL : __libc_realloc(p, n); }
void* memalign(size_t to, size_t n) { return no_memory() ? NULL : __libc_memalign(to, n); }
void* aligned_alloc(size_t to, size_t n) { return no_memory() ? NULL : __libc_memalign(to, n); }
int posix_memalign(void** p, size_t to, size_t n) {
  if (no_memory()) return ENOMEM;
  return (*p = __libc_memalign(to, n)) ? 0 : ENOMEM;
}

static int fails(int call) {
  const long n = atomic_fetch_add(&counts[call], 1) + 1;
  if (call == call_to_kill && n == kill_at) kill(getpid(), SIGKILL);
  if (call == call_to_signal && n == signal_at) raise(signal_sent);
  if (call != call_to_fail || n < fail_at || (n > fail_at && !for_ever)) return 0;
  errno = call_errno;
  return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define SHIM(result, name, parameters, arguments, failed)      \
  result name parameters {                                     \
    static __typeof__(&name) real;                             \
    if (!real) real = REAL(name);                              \
    return fails(id_##name) ? (result)(failed) : real arguments; \
  }

// Writes to stderr never fail, because the test reads them.
ssize_t write(int fd, const void* bytes, size_t n) {
  static __typeof__(&write) real;
  if (!real) real = REAL(write);
  return fd != 2 && fails(id_write) ? -1 : real(fd, bytes, n);
}
SHIM(ssize_t, read, (int fd, void* to, size_t n), (fd, to, n), -1)
SHIM(ssize_t, pread, (int fd, void* to, size_t n, off_t at), (fd, to, n, at), -1)
SHIM(ssize_t, pwrite, (int fd, const void* from, size_t n, off_t at), (fd, from, n, at), -1)
SHIM(void*, mmap, (void* at, size_t n, int protection, int flags, int fd, off_t offset),
     (at, n, protection, flags, fd, offset), MAP_FAILED)
SHIM(int, fstat, (int fd, struct stat* st), (fd, st), -1)
SHIM(int, ftruncate, (int fd, off_t n), (fd, n), -1)
SHIM(int, fallocate, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n), -1)
SHIM(int, fsync, (int fd), (fd), -1)
SHIM(int, close, (int fd), (fd), -1)
SHIM(int, poll, (struct pollfd * of, nfds_t n, int ms), (of, n, ms), -1)
SHIM(int, flock, (int fd, int how), (fd, how), -1)
SHIM(int, rename, (const char* from, const char* to), (from, to), -1)

int statvfs(const char* path, struct statvfs* out) {
  static __typeof__(&statvfs) real;
  if (!real) real = REAL(statvfs);
  const int result = real(path, out);
  if (result == 0 && getenv("FAULT_DISK"))
    out->f_bavail = (fsblkcnt_t)number("FAULT_DISK") / out->f_frsize;
  return result;
}

int open(const char* path, int flags, ...) {
  static __typeof__(&open) real;
  if (!real) real = REAL(open);
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return fails(id_open) ? -1 : real(path, flags, mode);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* how, void* (*run)(void*), void* with) {
  static __typeof__(&pthread_create) real;
  if (!real) real = REAL(pthread_create);
  return fails(id_pthread_create) ? call_errno : real(thread, how, run, with);
}

void* _ZSt15set_new_handlerPFvvE(void (*handler)(void)) {
  typedef void* (*Set)(void (*)(void));
  if (getenv("FAULT_UNWIND")) return NULL;
  return ((Set)dlsym(RTLD_NEXT, "_ZSt15set_new_handlerPFvvE"))(handler);
}

__attribute__((destructor)) static void write_counts(void) {
  const char* path = getenv("FAULT_COUNT");
  if (!path) return;
  FILE* out = fopen(path, "w");
  if (!out) return;
  fprintf(out, "alloc %ld\n", atomic_load(&allocations));
  for (int i = 0; i < kCalls; ++i) fprintf(out, "%s %ld\n", names[i], atomic_load(&counts[i]));
  fclose(out);
}

__attribute__((destructor)) static void write_peak(void) {
  const char* path = getenv("FAULT_PEAK");
  FILE* in = path ? fopen("/proc/self/status", "r") : NULL;
  FILE* out = in ? fopen(path, "w") : NULL;
  char line[256];
  long kilobytes;
  while (out && fgets(line, sizeof line, in))
    if (sscanf(line, "VmHWM: %ld", &kilobytes) == 1) fprintf(out, "%ld\n", kilobytes);
  if (out) fclose(out);
  if (in) fclose(in);
}
