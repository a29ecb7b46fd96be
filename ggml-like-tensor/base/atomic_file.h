// A file that is whole or not there: written under a temporary name in the same folder, synced,
// renamed by commit(). If the object dies before, the temporary file is removed and an older file
// of that name is untouched. Signals: see remove_temporaries_now. What a killed writer left behind
// is removed by the next writer of the same name, or taken over.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace chaski {

// What becomes of what a killed writer of the same name left.
enum class Leftover {
  remove,
  // The latest is this writer's temporary file, as it is. And this one's is left to others: unless
  // it is empty, neither an exception nor a signal removes it.
  adopt,
};

class AtomicFile {
 public:
  explicit AtomicFile(std::string path, Leftover leftover = Leftover::remove);  // throws Error(io)
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // at the end; throws Error(io) with path and reason
  void write(std::span<const std::byte> bytes);
  // over what is there; may be called from several threads
  void write_at(uint64_t offset, std::span<const std::byte> bytes);
  void pad_to(uint64_t offset);  // zeros
  void cut(uint64_t size);       // to so many bytes, of more
  uint64_t size() const { return size_; }
  const std::string& temporary() const { return temporary_; }
  // Why this one did not take over what is left; empty: it did, or there is nothing.
  const std::string& not_adopted() const { return not_adopted_; }
  void sync();    // all bytes on disk
  void commit();  // sync, rename over `path`, sync the folder

 private:
  void open_temporary();
  bool adopt(const std::string& name);

  std::string path_, temporary_, not_adopted_;
  const Leftover leftover_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// Whether a killed writer of this name left something.
bool has_leftover(const std::string& path);

// Throws Error(usage) if writing `out` would destroy `in`: same name, same inode (hard or symbolic
// link), `out` inside folder `in`, or `out` another part of a file in parts. Call it before
// anything is written.
void refuse_same_file(const std::string& in, const std::string& out);

// Async-signal-safe: removes the temporary files that are open now. For a signal handler that is
// about to end the program.
void remove_temporaries_now();

}  // namespace chaski
