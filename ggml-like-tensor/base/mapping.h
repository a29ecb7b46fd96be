// A file mapped read-only. For writing see atomic_file.h.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace chaski {

class Mapping {
 public:
  // Throws Error(io) if the file cannot be opened or mapped, Error(memory) if there is no address
  // space left for it, Error(bad_file) if it is empty or not a regular file.
  static std::shared_ptr<const Mapping> open(const std::string& path);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }
  // Removes the pages from this process's memory. Later reads get them from the system's cache. May
  // be called from any thread, also while others read.
  void drop_pages() const;
  // Asks the system to cache and map a part of the file in huge pages (2 MB). Linux does so for
  // what it reads from now on if the file system has large folios (ext4 from 6.16 on, xfs, btrfs);
  // parts that are cached already keep their pages. A read from the disk then brings megabytes, so
  // this suits parts that are read whole.
  void prefer_huge_pages(std::span<const std::byte> part) const;
  // A descriptor of the same file, for reads that bypass the system's cache if the file system
  // allows that (O_DIRECT). -1 if the file at path() cannot be opened or is another one by now.
  int open_again() const;
  // The size, times, inode and device of the file when it was mapped. At least one of them changes
  // when the file is written to.
  const std::string& state() const { return state_; }

 private:
  explicit Mapping(const std::string& path) : path_(path) {}
  std::string path_, state_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The first bytes of a file: `most`, or all if it is shorter. Throws as Mapping::open does, except
// that the file may be empty.
std::string beginning_of(const std::string& path, size_t most);

// Async-signal-safe: the path (safe for a terminal) of the file that is mapped at `address`; null
// if there is none. For the handler of SIGBUS, which is raised when a file has become shorter than
// its mapping or the disk fails.
const char* mapped_file_at(const void* address);

}  // namespace chaski
