// A folder of files that may be lost, with a limit of bytes: those that were used least recently
// are removed. A file's time of modification is that of its last use. Several programs may share
// the folder; each counts the files of all. Thread-safe.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace chaski {

// Sets the time of the last use to now. Does nothing if the file cannot be changed.
void mark_used(const std::string& path);

// Creates a folder that only this user may read. Its parent must exist. Takes the permissions of
// others away from a folder that exists. Throws Error(io) if it belongs to another user, or is a
// symbolic link or a file.
void make_private_folder(const std::string& path);

// Removes the files in this folder whose names end with one of `endings`, and the temporary files
// that killed programs left of them. Leaves sub-folders alone.
void remove_files_of(const std::string& folder, const std::vector<std::string>& endings);

class BoundedFolder {
 public:
  // Its files are those in sub-folders of `folder` whose names end with one of `endings`, and
  // temporary files of such names. No other file is ever removed.
  BoundedFolder(std::string folder, std::vector<std::string> endings, uint64_t most_bytes);

  // Removes files until `more` bytes fit, of two files of one time the one whose name is greater.
  // Also removes temporary files of programs that were killed. False if `more` is over the limit.
  bool make_room(uint64_t more);
  // A file of this size was written. Counts it without reading the folder again.
  void add(uint64_t bytes);
  // Removes a file of the folder, if it is there.
  void remove(const std::string& path);

  // No call waits for the disk to return them.
  struct Facts {
    uint64_t bytes = 0, most_bytes = 0;
    int64_t removed = 0;  // by make_room(), without temporary files
  };
  Facts facts() const;

 private:
  struct File;
  std::vector<File> list();
  bool fits(uint64_t more) const;

  const std::string folder_;
  const std::vector<std::string> endings_;
  std::mutex reading_;        // of the thread that reads the folder and removes files
  mutable std::mutex mutex_;  // guards what follows, and is never held while the disk works
  Facts facts_;               // most_bytes is constant
  int added_ = 0;             // files, since the folder was read
  uint64_t added_bytes_ = 0;
};

}  // namespace chaski
