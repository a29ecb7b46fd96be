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
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/sha256.h"
#include "ggml-like-tensor/file/value_io.h"
#include "models/import/gguf/gguf.h"

namespace chaski {

namespace fs = std::filesystem;

namespace {

constexpr int kMostTries = 3;             // in a row that bring nothing
constexpr uint64_t kSmall = 1 << 20;      // so little is fetched again to be compared
constexpr size_t kMostListed = 16 << 20;  // of a list
constexpr size_t kFirstBytes = 9;         // tell a model

uint64_t number_at(std::string_view text) {
  uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

[[noreturn]] void refuse_status(const std::string& url, const HttpAnswer& answer) {
  const std::string where = without_query(url);
  if (answer.status == 401 || answer.status == 403)
    fail(Exit::io, "{}: the server refuses it ({}), expected --token-file FILE with a key to it",
         where, answer.status);
  if (answer.status == 404 || answer.status == 410)
    fail(Exit::io, "{}: is not there ({})", where, answer.status);
  fail(Exit::io, "{}: the server answers {}, expected 200", where, answer.status);
}

class Fetch {
 public:
  Fetch(const RemoteFile& file, const FetchOptions& options)
      : file_(file),
        options_(options),
        part_(file.path + ".part"),
        tag_(part_ + ".tag"),
        kept_tag_(file.path + ".tag") {}
  ~Fetch() {
    if (ours_ && size_ == 0) drop_part();
    if (fd_ >= 0) ::close(fd_);
  }
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;

  FetchedFile run() {
    if (!file_.sha256.empty() && is_there()) return there_;
    if (!stopped()) open_part();
    for (int tries = 0; tries < kMostTries;) {
      if (stopped()) return {size_, fetched_, "", false, true};
      const uint64_t before = fetched_;
      const HttpAnswer answer = request();
      take_sum(answer);
      if (there_.bytes > 0) return drop_part(), there_;
      if (answer.end == HttpAnswer::End::stopped || answer.end == HttpAnswer::End::enough)
        return {size_, fetched_, "", false, true};
      if (answer.status == 416 && size_ > 0 && !std::exchange(refused_, true)) {
        if (is_all_of_it(answer)) {
          if (is_there()) return drop_part(), there_;
          if (!stopped()) return finish();
        }
        anew_ = true;
        wait(++tries);
        continue;
      }
      if (answer.status == 0 && fetched_ == 0)
        fail(Exit::io, "{}: cannot be fetched: {}", without_query(file_.url), answer.why);
      if (answer.status != 0 && answer.status != 200 && answer.status != 206)
        refuse_status(file_.url, answer);
      if (answer.end == HttpAnswer::End::whole && (total_ == 0 || size_ == total_)) return finish();
      why_ = answer.why.empty() ? "the connection ended" : answer.why;
      if (!can_go_on()) break;
      tries = fetched_ > before ? 0 : tries + 1;
      if (tries < kMostTries) wait(std::max(tries, 1));
    }
    fail(Exit::io, "{}: cut off at {} of {} bytes: {}{}", without_query(file_.url), size_, total_,
         why_, can_go_on() ? "; the same command goes on from there" : "");
  }

 private:
  bool stopped() const { return options_.stop && *options_.stop; }

  // Whether the file is there as the server has it: by its sum or, where none is known, by what
  // stands beside it since it came. Another file of its name is refused. False when stopped.
  bool is_there() {
    std::error_code none;
    const uint64_t size = fs::file_size(file_.path, none);
    if (none || size == 0) return false;
    const int fd = ::open(file_.path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail(Exit::io, "{}: {}", file_.path, std::strerror(errno));
    const std::string expected = sum().empty() ? sum_kept_of(version_) : sum();
    Sha256 hash;
    const bool read = !expected.empty() && add_to(hash, fd, size);
    ::close(fd);
    if (stopped()) return false;
    const std::string own = hash.finish();
    if (sum().empty() && !(read && own == expected))
      fail(Exit::usage,
           "{} is there already, and nothing says that it is the one of {}, expected --sha256 HEX, "
           "another --to FOLDER or no such file",
           file_.path, without_query(file_.url));
    if (!(read && own == expected))
      fail(Exit::usage,
           "{} is there already with the sum {}, expected {} of {}, another --to FOLDER or no such "
           "file",
           file_.path, own, expected, without_query(file_.url));
    there_ = {size, 0, own, !sum().empty(), false};
    return true;
  }

  // Of the file that came from this URL as this version, by the three lines of FILE.tag. Or empty.
  std::string sum_kept_of(const std::string& version) const {
    std::ifstream in(kept_tag_);
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
        fail(Exit::io, "{}: another chaski fetches it", part_);
      if (::fstat(fd_, &st) != 0) fail(Exit::io, "{}: {}", part_, std::strerror(errno));
      // Who had the lock may have given the file its name, or dropped it, since it was opened.
      if (::stat(part_.c_str(), &now) == 0 && now.st_dev == st.st_dev && now.st_ino == st.st_ino)
        break;
      ::close(std::exchange(fd_, -1));
    }
    std::ifstream in(tag_);
    if (st.st_size > 0 && !in)
      fail(Exit::usage, "{}: is not chaski's, for it has no {} beside it, expected no such file",
           part_, tag_);
    std::string url;
    std::getline(in, version_), std::getline(in, url);
    if (!url.empty() && url != without_query(file_.url)) version_.clear();
    size_ = uint64_t(st.st_size), ours_ = true;
    if (!can_go_on() || !add_to(hash_, fd_, size_)) anew_ = true;
  }

  // Without a name for this version of the file, only a sum shows that two parts are of one.
  bool can_go_on() const { return !version_.empty() || !sum().empty(); }
  const std::string& sum() const { return file_.sha256.empty() ? server_sum_ : file_.sha256; }

  void begin_again() {
    hash_ = {}, size_ = 0, anew_ = false;
    if (::ftruncate(fd_, 0) != 0) fail(Exit::io, "{}: {}", part_, std::strerror(errno));
  }

  void drop_part() {
    ::unlink(tag_.c_str());
    ::unlink(part_.c_str());
  }

  HttpAnswer request() {
    HttpRequest request{file_.url, options_.token, {}};
    if (size_ > 0 && !anew_) {
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

  // The head of the answer. False if the file is there already.
  bool begin(const HttpAnswer& answer) {
    take_sum(answer);
    const std::string name = fs::path(file_.path).extension();
    if (answer.field("content-type").starts_with("text/html") && name != ".html")
      fail(Exit::io,
           "{}: is a page to look at, expected the file itself (a hub has it at /resolve/, where "
           "the page has /blob/)",
           without_query(file_.url));
    if (answer.status == 206) {
      const std::string range = answer.field("content-range");  // bytes 5-99/100
      if (anew_ || !range.starts_with(fmt::format("bytes {}-", size_)))
        fail(Exit::io, "{}: the server sends \"{}\", expected {}", without_query(file_.url), range,
             anew_ ? "the whole file" : fmt::format("the rest from byte {} on", size_));
      total_ = number_at(range.substr(std::min(range.find('/'), range.size() - 1) + 1));
      if (total_ <= size_ && !range.ends_with("/*"))
        fail(Exit::io,
             "{}: the server sends \"{}\", expected a total of more than the {} bytes of {}",
             without_query(file_.url), range, size_, part_);
    } else {
      if (size_ > 0)
        options_.notice(fmt::format(
            "{}: begins again: the server has another version, or sends no parts", file_.path));
      begin_again();
      total_ = number_at(answer.field("content-length"));
    }
    if (file_.bytes > 0 && total_ > 0 && total_ != file_.bytes)
      fail(Exit::io, "{}: has {} bytes, expected {} as it is listed", without_query(file_.url),
           total_, file_.bytes);
    if (total_ == 0) total_ = file_.bytes;
    keep_version(answer);
    compares_ = sum().empty() && total_ > 0 && total_ < kSmall && sum_kept_of(version_).empty();
    if (!compares_ && (is_there() || stopped())) return false;
    expect_room();
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

  void expect_room() const {
    struct statvfs disk;
    if (total_ <= size_ || ::statvfs(part_.c_str(), &disk) != 0) return;
    const uint64_t room = uint64_t(disk.f_bavail) * disk.f_frsize;
    if (room < total_ - size_)
      fail(Exit::io, "{}: {} more bytes are needed, and the disk has room for {}", part_,
           total_ - size_, room);
  }

  void write(std::string_view bytes) {
    if (total_ > 0 && size_ + bytes.size() > total_)
      fail(Exit::io, "{}: sends more than {} bytes, expected so many", without_query(file_.url),
           total_);
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
    if (!looked_at_ && size_ >= kFirstBytes) expect_model();
    if (options_.progress) options_.progress(size_, total_);
  }

  // Of what has the name of a model, by its first bytes, before the rest comes.
  void expect_model() {
    looked_at_ = true;
    const std::string name = fs::path(file_.path).extension();
    if (name != ".gguf" && name != ".quipu" && name != ".safetensors") return;
    char first[kFirstBytes];
    const ssize_t n = ::pread(fd_, first, sizeof first, 0);
    const std::string_view begins(first, size_t(std::max<ssize_t>(n, 0)));
    // safetensors: the length of a JSON object, and the object
    if (begins.starts_with(kGgufMagic) || begins.starts_with(kQuipuMagic) ||
        (begins.size() == kFirstBytes && begins.back() == '{'))
      return;
    drop_part();
    fail(Exit::bad_file,
         "{}: is no model, for it begins with \"{}\": expected a GGUF, .quipu or safetensors file; "
         "nothing of it is kept",
         without_query(file_.url), escaped(begins));
  }

  // Whether a 416 ("bytes */100") says that nothing is missing.
  bool is_all_of_it(const HttpAnswer& answer) const {
    const std::string range = answer.field("content-range");
    return range.starts_with("bytes */") && number_at(range.substr(8)) == size_ &&
           (file_.bytes == 0 || file_.bytes == size_) &&
           (!sum().empty() || version_of(answer) == version_);
  }

  FetchedFile finish() {
    if (size_ == 0)
      fail(Exit::io, "{}: is empty, expected a file of more than 0 bytes",
           without_query(file_.url));
    expect_model();
    const std::string own = hash_.finish();
    if (!sum().empty() && own != sum()) {
      drop_part();
      fail(Exit::bad_file, "{}: what came has the sum {}, expected {}; it was removed",
           without_query(file_.url), own, sum());
    }
    const bool proven = !sum().empty();
    if (compares_) {
      server_sum_ = own;  // what is there must be the same
      if (is_there()) return drop_part(), FetchedFile{size_, fetched_, own, false, false};
      if (stopped()) return {size_, fetched_, "", false, true};
    }
    if (!proven && !version_.empty()) write_tag(kept_tag_, own);
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
  const std::string part_, tag_, kept_tag_;
  int fd_ = -1;
  bool ours_ = false;     // the part: locked, and a chaski began it
  bool anew_ = false;     // what the part has is not gone on with
  bool refused_ = false;  // a range, once
  bool compares_ = false;
  bool looked_at_ = false;  // its first bytes
  Sha256 hash_;             // of the part
  uint64_t size_ = 0;       // of the part
  uint64_t total_ = 0;      // 0: not known
  uint64_t fetched_ = 0;
  std::string version_;  // an entity tag or a date
  std::string server_sum_, why_;
  FetchedFile there_;
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
          fail(Exit::io, "{}: has more than {} bytes, expected a list of files", without_query(url),
               kMostListed);
        text += bytes;
        return true;
      },
      options.stop);
  if (answer.end == HttpAnswer::End::stopped) return "";
  if (answer.status == 0)
    fail(Exit::io, "{}: cannot be fetched: {}", without_query(url), answer.why);
  if (answer.status != 200) refuse_status(url, answer);
  if (answer.end != HttpAnswer::End::whole)
    fail(Exit::io, "{}: cut off: {}", without_query(url), answer.why);
  return text;
}

}  // namespace chaski
