#include "main/terminal/text_editor.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "engine/session/engine.h"
#include "main/terminal/output.h"

namespace chaski {

namespace {

std::string text_editor() {
  for (const char* editor : {std::getenv("VISUAL"), std::getenv("EDITOR")})
    if (editor && *editor) return editor;
  return "";
}

// In quotes for the shell.
std::string quoted(const std::string& path) {
  std::string out;
  for (const char c : path) out += c == '\'' ? "'\\''" : std::string(1, c);
  return "'" + out + "'";
}

// A file that only the user may read; removed at the end.
class TextFile {
 public:
  explicit TextFile(const std::string& text) {
    std::error_code none;
    path_ = std::filesystem::temp_directory_path(none).string() + "/chaski-XXXXXX.txt";
    const int fd = ::mkstemps(path_.data(), 4);
    if (fd < 0) fail(Exit::io, "{}: cannot be created: {}", path_, std::strerror(errno));
    const bool written = ::write(fd, text.data(), text.size()) == ssize_t(text.size());
    const int error = errno;
    if (::close(fd) == 0 && written) return;
    ::unlink(path_.c_str());
    fail(Exit::io, "{}: cannot be written: {}", path_, std::strerror(error));
  }
  TextFile(const TextFile&) = delete;
  ~TextFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace

bool has_text_editor() { return !text_editor().empty(); }

std::string edited_text(const std::string& text) {
  const std::string editor = text_editor();
  if (editor.empty())
    fail(Exit::usage, "no text editor is set, expected its name in the variable VISUAL or EDITOR");
  const TextFile file(text + "\n");
  // system() ignores Ctrl-C meanwhile: it belongs to the editor.
  const int status = std::system((editor + " " + quoted(file.path())).c_str());
  if (status == -1) fail(Exit::io, "{}: cannot be started: {}", editor, std::strerror(errno));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    fail(Exit::io, "{}: ended with status {}, so nothing is changed", editor,
         WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  std::string edited = read_text(file.path());
  edited.erase(edited.find_last_not_of("\r\n") + 1);
  return edited;
}

}  // namespace chaski
