// A file mapped read-only. Not for writing: see atomic_file.h.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace chaski {

class Mapping {
 public:
  // Throws Error(io) if the file cannot be opened or mapped, Error(bad_file) if it is empty or not
  // a regular file.
  static std::shared_ptr<const Mapping> open(const std::string& path);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  Mapping(std::string path, const std::byte* data, size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}
  std::string path_;
  const std::byte* data_;
  size_t size_;
};

}  // namespace chaski
