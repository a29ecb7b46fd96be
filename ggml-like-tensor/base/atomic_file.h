// A file that is either complete or not there. It is written under a temporary name in the same
// folder, synced, and renamed by commit(). If the object is destroyed before that, the temporary
// file is removed and an older file of that name is unchanged. remove_temporaries_now is for
// signals. The temporary file of a killed writer is removed or continued by the next writer of the
// same name.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace chaski {

// What happens to the temporary file of a killed writer of the same name.
enum class Leftover {
  remove,
  // This writer continues the latest one. Its own file is kept for later writers too: an exception
  // or a signal does not remove it, unless it is empty.
  adopt,
};

// usual: the permissions of the file that is replaced; a new file has those of the umask.
// owner_only: 0600, from the first byte on.
enum class Permissions { usual, owner_only };

class AtomicFile {
 public:
  // Throws Error(io).
  explicit AtomicFile(std::string path, Leftover leftover = Leftover::remove,
                      Permissions permissions = Permissions::usual);
  AtomicFile(std::string path, Permissions permissions)
      : AtomicFile(std::move(path), Leftover::remove, permissions) {}
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // appends; throws Error(io) with path and reason
  void write(std::span<const std::byte> bytes);
  // overwrites existing bytes; may be called from several threads
  void write_at(uint64_t offset, std::span<const std::byte> bytes);
  void pad_to(uint64_t offset);  // appends zeros
  void cut(uint64_t size);       // shortens the file to `size` bytes
  uint64_t size() const { return size_; }
  const std::string& temporary() const { return temporary_; }
  // The reason why a temporary file was not continued; empty if it was or if there is none.
  const std::string& not_adopted() const { return not_adopted_; }
  void sync();  // brings all bytes to disk
  // Asks the system to remove the synced bytes from its cache, so that the next reader gets them
  // from the disk. Some file systems ignore it.
  void drop_cached() const;
  void commit();  // sync, rename over `path`, sync the folder

 private:
  void open_temporary();
  bool adopt(const std::string& name);

  std::string path_, temporary_, not_adopted_;
  const Leftover leftover_;
  const Permissions permissions_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// A folder for files. A new folder is removed again if the object is destroyed before keep(), or by
// remove_temporaries_now(), unless it has other files. An existing folder is used and stays.
class AtomicFolder {
 public:
  explicit AtomicFolder(const std::string& path);  // throws Error(io)
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  void keep();

 private:
  std::string path_;  // empty: it stays
};

// Throws Error(usage) if writing `out` would destroy `in`: same name, same inode (hard or symbolic
// link), `out` inside folder `in`, or `out` another part of a file in several parts. Call it before
// anything is written.
void refuse_same_file(const std::string& in, const std::string& out);

// Async-signal-safe: removes the open temporary files and new folders. For a signal handler that
// ends the program.
void remove_temporaries_now();

}  // namespace chaski
