#include "engine/shelf/fetch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>
#include <vector>

#include "engine/shelf/http.h"
#include "engine/shelf/hub.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/sha256.h"
#include "ggml-like-tensor/file/value_io.h"
#include "models/import/gguf/gguf.h"

namespace chaski {

namespace fs = std::filesystem;

namespace {

constexpr int kMostTries = 3;             // consecutive tries without a new byte
constexpr uint64_t kSmallFile = 1 << 20;  // bytes; smaller files are downloaded again to compare
constexpr size_t kMostListed = 16 << 20;  // bytes of a list of files
constexpr size_t kFirstBytes = 9;         // enough to recognise a model file

uint64_t number_at(std::string_view text) {
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

[[noreturn]] void refuse_status(const std::string& url, const HttpAnswer& answer) {
  const std::string where = without_query(url);
  if (answer.status == 401 || answer.status == 403)
    fail(Exit::io,
         "{}: the server denies access ({}), expected --token-file FILE with an access token",
         where, answer.status);
  if (answer.status == 404 || answer.status == 410)
    fail(Exit::io, "{} does not exist on the server ({})", where, answer.status);
  fail(Exit::io, "{}: the server answers with status {}, expected 200", where, answer.status);
}

class Fetch {
 public:
  Fetch(const RemoteFile& file, const FetchOptions& options)
      : file_(file),
        options_(options),
        part_(file.path + ".part"),
        tag_(part_ + ".tag"),
        file_tag_(file.path + ".tag") {}
  ~Fetch() {
    if (owns_part_ && size_ == 0) remove_part();
    if (fd_ >= 0) ::close(fd_);
  }
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;

  FetchedFile run() {
    if (!file_.sha256.empty() && exists_complete()) return existing_;
    if (!stopped()) open_part();
    for (int tries = 0; tries < kMostTries;) {
      if (stopped()) return {size_, fetched_, "", false, true};
      const uint64_t before = fetched_;
      const HttpAnswer answer = request();
      take_sum(answer);
      if (existing_.bytes > 0) return remove_part(), existing_;
      if (answer.end == HttpAnswer::End::stopped || answer.end == HttpAnswer::End::enough)
        return {size_, fetched_, "", false, true};
      if (answer.status == 416 && size_ > 0 && !std::exchange(range_refused_, true)) {
        if (part_is_complete(answer)) {
          if (exists_complete()) return remove_part(), existing_;
          if (!stopped()) return finish();
        }
        restart_ = true;
        wait(++tries);
        continue;
      }
      if (answer.status == 0 && fetched_ == 0)
        fail(Exit::io, "{}: cannot be downloaded: {}{}", without_query(file_.url), answer.why,
             ways_without_hub(file_.url));
      if (answer.status != 0 && answer.status != 200 && answer.status != 206)
        refuse_status(file_.url, answer);
      if (answer.end == HttpAnswer::End::whole && (total_ == 0 || size_ == total_)) return finish();
      why_ = answer.why.empty() ? "the connection ended" : answer.why;
      if (!can_continue()) break;
      tries = fetched_ > before ? 0 : tries + 1;
      if (tries < kMostTries) wait(std::max(tries, 1));
    }
    fail(Exit::io, "{}: only {} of {} bytes were downloaded: {}{}", without_query(file_.url), size_,
         total_, why_, can_continue() ? "; run the same command again to continue" : "");
  }

 private:
  bool stopped() const { return options_.stop && *options_.stop; }

  // Whether the complete file exists already. Compares its checksum with the known one, or else
  // with the one in FILE.tag. Refuses a different file with this name. Returns false when stopped.
  bool exists_complete() {
    std::error_code none;
    const uint64_t size = fs::file_size(file_.path, none);
    if (none || size == 0) return false;
    const int fd = ::open(file_.path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail(Exit::io, "{}: {}", file_.path, std::strerror(errno));
    const std::string expected = sum().empty() ? stored_sum_for(version_) : sum();
    Sha256 hash;
    const bool read = !expected.empty() && add_to(hash, fd, size);
    ::close(fd);
    if (stopped()) return false;
    const std::string own = hash.finish();
    if (sum().empty() && !(read && own == expected))
      fail(Exit::usage,
           "{} already exists, and no checksum shows that it is {}; give --sha256 HEX or another "
           "--to "
           "FOLDER, or remove the file",
           file_.path, without_query(file_.url));
    if (!(read && own == expected))
      fail(
          Exit::usage,
          "{} already exists with the checksum {}, expected {} for {}; give another --to FOLDER or "
          "remove the file",
          file_.path, own, expected, without_query(file_.url));
    existing_ = {size, 0, own, !sum().empty(), false};
    return true;
  }

  // The checksum in FILE.tag, if its first two lines are this version and this URL; else empty.
  std::string stored_sum_for(const std::string& version) const {
    std::ifstream in(file_tag_);
    std::string own, url, sum;
    std::getline(in, own), std::getline(in, url), std::getline(in, sum);
    return !version.empty() && own == version && url == without_query(file_.url) ? sum : "";
  }

  bool add_to(Sha256& hash, int fd, uint64_t size) const {
    std::vector<std::byte> bytes(1 << 20);
    for (uint64_t at = 0; at < size;) {
      if (stopped()) return false;
      if (options_.progress) options_.progress(at, std::max(size, file_.bytes));
      const ssize_t n =
          ::pread(fd, bytes.data(), std::min<uint64_t>(bytes.size(), size - at), off_t(at));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      hash.add({bytes.data(), size_t(n)});
      at += uint64_t(n);
    }
    return true;
  }

  void open_part() {
    struct stat st, now;
    for (;;) {
      fd_ = ::open(part_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
      if (fd_ < 0) fail(Exit::io, "{}: cannot be written: {}", part_, std::strerror(errno));
      if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        fail(Exit::io, "{}: another chaski process is downloading it", part_);
      if (::fstat(fd_, &st) != 0) fail(Exit::io, "{}: {}", part_, std::strerror(errno));
      // The previous owner of the lock may have renamed or removed the part since it was opened.
      if (::stat(part_.c_str(), &now) == 0 && now.st_dev == st.st_dev && now.st_ino == st.st_ino)
        break;
      ::close(std::exchange(fd_, -1));
    }
    std::ifstream in(tag_);
    if (st.st_size > 0 && !in)
      fail(Exit::usage, "{} was not written by chaski, because there is no {}; remove it", part_,
           tag_);
    std::string url;
    std::getline(in, version_), std::getline(in, url);
    if (!url.empty() && url != without_query(file_.url)) version_.clear();
    size_ = uint64_t(st.st_size), owns_part_ = true;
    if (!can_continue() || !add_to(hash_, fd_, size_)) restart_ = true;
  }

  // Continuing needs a version or a checksum to show that both parts belong to one file.
  bool can_continue() const { return !version_.empty() || !sum().empty(); }
  const std::string& sum() const { return file_.sha256.empty() ? server_sum_ : file_.sha256; }

  void truncate_part() {
    hash_ = {}, size_ = 0, restart_ = false;
    if (::ftruncate(fd_, 0) != 0) fail(Exit::io, "{}: {}", part_, std::strerror(errno));
  }

  void remove_part() {
    ::unlink(tag_.c_str());
    ::unlink(part_.c_str());
  }

  HttpAnswer request() {
    GetRequest request{file_.url, options_.token, {}};
    if (size_ > 0 && !restart_) {
      request.fields.push_back(fmt::format("Range: bytes={}-", size_));
      if (!version_.empty()) request.fields.push_back("If-Range: " + version_);
    }
    bool begun = false;
    return http_get(
        request,
        [&](const HttpAnswer& answer, std::string_view bytes) {
          if (!std::exchange(begun, true) && !begin(answer)) return false;
          write(bytes);
          return true;
        },
        options_.stop);
  }

  void take_sum(const HttpAnswer& answer) {
    std::string sum = answer.field("x-linked-etag");
    std::erase(sum, '"');
    if (is_sha256(sum)) server_sum_ = sum;
  }

  // Reads the head of the answer. Returns false if the file exists already.
  bool begin(const HttpAnswer& answer) {
    take_sum(answer);
    const std::string name = fs::path(file_.path).extension();
    if (answer.field("content-type").starts_with("text/html") && name != ".html")
      fail(Exit::io,
           "{} is a web page, expected the file itself (on a hub, replace /blob/ in the URL with "
           "/resolve/)",
           without_query(file_.url));
    if (answer.status == 206) {
      const std::string range = answer.field("content-range");  // bytes 5-99/100
      if (restart_ || !range.starts_with(fmt::format("bytes {}-", size_)))
        fail(Exit::io, "{}: the server sends \"{}\", expected {}", without_query(file_.url), range,
             restart_ ? "the whole file" : fmt::format("the bytes from {} on", size_));
      total_ = number_at(range.substr(std::min(range.find('/'), range.size() - 1) + 1));
      if (total_ <= size_ && !range.ends_with("/*"))
        fail(Exit::io,
             "{}: the server sends \"{}\", expected a total of more than the {} bytes of {}",
             without_query(file_.url), range, size_, part_);
    } else {
      if (size_ > 0)
        options_.notice(fmt::format(
            "{}: starts again, because the server has another version or sends no ranges",
            file_.path));
      truncate_part();
      total_ = number_at(answer.field("content-length"));
    }
    if (file_.bytes > 0 && total_ > 0 && total_ != file_.bytes)
      fail(Exit::io, "{} has {} bytes, but the hub lists {}", without_query(file_.url), total_,
           file_.bytes);
    if (total_ == 0) total_ = file_.bytes;
    keep_version(answer);
    compare_after_ =
        sum().empty() && total_ > 0 && total_ < kSmallFile && stored_sum_for(version_).empty();
    if (!compare_after_ && (exists_complete() || stopped())) return false;
    expect_disk_space();
    return true;
  }

  void keep_version(const HttpAnswer& answer) {
    version_ = version_of(answer);
    write_tag(tag_, "");
  }

  static std::string version_of(const HttpAnswer& answer) {
    const std::string etag = answer.field("etag");
    return etag.starts_with('"') ? etag : answer.field("last-modified");
  }

  void write_tag(const std::string& path, const std::string& sum) const {
    std::ofstream out(path, std::ios::trunc);
    out << version_ << "\n" << without_query(file_.url) << "\n" << sum << std::flush;
    if (!out) fail(Exit::io, "{}: cannot be written: {}", path, std::strerror(errno));
  }

  void expect_disk_space() const {
    struct statvfs disk;
    if (total_ <= size_ || ::statvfs(part_.c_str(), &disk) != 0) return;
    const uint64_t room = uint64_t(disk.f_bavail) * disk.f_frsize;
    if (room < total_ - size_)
      fail(Exit::io, "{}: needs {} more bytes, but the disk has only {} free", part_,
           total_ - size_, room);
  }

  void write(std::string_view bytes) {
    if (total_ > 0 && size_ + bytes.size() > total_)
      fail(Exit::io, "{}: the server sends more than the announced {} bytes",
           without_query(file_.url), total_);
    hash_.add(std::as_bytes(std::span(bytes)));
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), off_t(size_));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0)
        fail(Exit::io, "{}: cannot be written: {} (has {} of {} bytes)", part_,
             std::strerror(n < 0 ? errno : EIO), size_, total_);
      size_ += uint64_t(n), fetched_ += uint64_t(n);
      bytes.remove_prefix(size_t(n));
    }
    if (!begin_checked_ && size_ >= kFirstBytes) expect_model();
    if (options_.progress) options_.progress(size_, total_);
  }

  // Checks the first bytes of a file named as a model, before the rest is downloaded.
  void expect_model() {
    begin_checked_ = true;
    const std::string name = fs::path(file_.path).extension();
    if (name != ".gguf" && name != ".quipu" && name != ".safetensors") return;
    char first[kFirstBytes];
    const ssize_t n = ::pread(fd_, first, sizeof first, 0);
    const std::string_view begins(first, size_t(std::max<ssize_t>(n, 0)));
    // safetensors: 8 bytes with the length of a JSON object, then the object
    if (begins.starts_with(kGgufMagic) || begins.starts_with(kQuipuMagic) ||
        (begins.size() == kFirstBytes && begins.back() == '{'))
      return;
    remove_part();
    fail(Exit::bad_file,
         "{} is not a model, because it begins with \"{}\"; expected a GGUF, .quipu or safetensors "
         "file; removed it",
         without_query(file_.url), escaped(begins));
  }

  // Whether a 416 answer ("bytes */100") means that the part is complete.
  bool part_is_complete(const HttpAnswer& answer) const {
    const std::string range = answer.field("content-range");
    return range.starts_with("bytes */") && number_at(range.substr(8)) == size_ &&
           (file_.bytes == 0 || file_.bytes == size_) &&
           (!sum().empty() || version_of(answer) == version_);
  }

  FetchedFile finish() {
    if (size_ == 0) fail(Exit::io, "{} is an empty file", without_query(file_.url));
    expect_model();
    const std::string own = hash_.finish();
    if (!sum().empty() && own != sum()) {
      remove_part();
      fail(Exit::bad_file, "{}: the downloaded file has the checksum {}, expected {}; removed it",
           without_query(file_.url), own, sum());
    }
    const bool proven = !sum().empty();
    if (compare_after_) {
      server_sum_ = own;  // exists_complete() compares an existing file with the new one
      if (exists_complete()) return remove_part(), FetchedFile{size_, fetched_, own, false, false};
      if (stopped()) return {size_, fetched_, "", false, true};
    }
    if (!proven && !version_.empty()) write_tag(file_tag_, own);
    if (::fsync(fd_) != 0 || ::rename(part_.c_str(), file_.path.c_str()) != 0)
      fail(Exit::io, "{}: cannot be written: {}", file_.path, std::strerror(errno));
    ::unlink(tag_.c_str());
    return {size_, fetched_, own, proven, false};
  }

  void wait(int seconds) const {
    for (int i = 0; i < 10 * seconds && !stopped(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }

  const RemoteFile& file_;
  const FetchOptions& options_;
  const std::string part_, tag_, file_tag_;
  int fd_ = -1;
  bool owns_part_ = false;      // the part is locked, and chaski wrote it
  bool restart_ = false;        // download from byte 0 on, not from the end of the part
  bool range_refused_ = false;  // the server has refused a range once
  bool compare_after_ = false;  // small file without a checksum: compare it after the download
  bool begin_checked_ = false;  // the first bytes are checked
  Sha256 hash_;                 // of the part
  uint64_t size_ = 0;           // bytes of the part
  uint64_t total_ = 0;          // bytes of the file; 0: unknown
  uint64_t fetched_ = 0;
  std::string version_;  // an entity tag or a date
  std::string server_sum_, why_;
  FetchedFile existing_;
};

}  // namespace

bool is_sha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

FetchedFile fetch_file(const RemoteFile& file, const FetchOptions& options) {
  return Fetch(file, options).run();
}

std::string fetch_text(const std::string& url, const FetchOptions& options) {
  std::string text;
  const HttpAnswer answer = http_get(
      {url, options.token, {}},
      [&](const HttpAnswer&, std::string_view bytes) {
        if (text.size() + bytes.size() > kMostListed)
          fail(Exit::io, "{} has more than {} bytes, too many for a list of files",
               without_query(url), kMostListed);
        text += bytes;
        return true;
      },
      options.stop);
  if (answer.end == HttpAnswer::End::stopped) return "";
  if (answer.status == 0)
    fail(Exit::io, "{}: cannot be downloaded: {}{}", without_query(url), answer.why,
         ways_without_hub(url));
  if (answer.status != 200) refuse_status(url, answer);
  if (answer.end != HttpAnswer::End::whole)
    fail(Exit::io, "{}: the connection ended early: {}", without_query(url), answer.why);
  return text;
}

}  // namespace chaski
