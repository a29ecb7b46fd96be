#include "main/flags/fetch_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/session/engine.h"  // for Error
#include "engine/shelf/http.h"
#include "engine/shelf/hub.h"
#include "engine/shelf/model_file.h"
#include "engine/shelf/shelf.h"
#include "engine/shelf/short_names.h"
#include "main/flags/values.h"
#include "main/terminal/output.h"
#include "main/terminal/progress.h"
#include "main/terminal/signals.h"

namespace chaski {

namespace fs = std::filesystem;

namespace {

// Reads a line byte by byte, because the chat reads the lines after it.
std::string line_of_terminal() {
  std::string line;
  for (char c = 0; c != '\n';) {
    const ssize_t n = ::read(STDIN_FILENO, &c, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return "no";  // the input ended without an answer
    if (c != '\n') line += c;
  }
  return line;
}

bool agrees(const ShortName& model) {
  const std::string question = fmt::format("{} is not on this machine. Download {} from {}? [Y/n] ",
                                           model.name, model.about(), host_of(hub_address()));
  (void)!::write(STDERR_FILENO, question.data(), question.size());
  const std::string answer = line_of_terminal();
  return answer.empty() || answer[0] == 'y' || answer[0] == 'Y';
}

// Creates a folder and those above it. Removes those of them that are empty at the end.
class NewFolders {
 public:
  explicit NewFolders(const fs::path& folder) {
    std::error_code none;
    for (fs::path at = folder; !at.empty() && !fs::exists(at, none); at = at.parent_path())
      created_.push_back(at);
    if (fs::create_directories(folder, none); none)
      fail(Exit::io, "{}: cannot create this folder: {}", folder.string(), none.message());
  }
  ~NewFolders() {
    for (const fs::path& folder : created_)
      if (::rmdir(folder.c_str()) != 0) break;
  }
  NewFolders(const NewFolders&) = delete;
  NewFolders& operator=(const NewFolders&) = delete;

 private:
  std::vector<fs::path> created_;  // the deepest first
};

std::string fetch_model(const std::string& name, bool says_so) {
  const Interruption interruption(Interruption::Scope::program);
  FetchOptions options;
  options.stop = &interruption.requested();
  options.notice = [](const std::string& line) { put_notice(line); };
  ModelWanted wanted;
  wanted.what = name, wanted.folder = first_folder_of_shelf();
  const RemoteModel model = remote_model(wanted, options);
  std::vector<FetchedFile> fetched;
  if (says_so && !model.path.empty())
    put_notice(fmt::format("downloads {} from {}", name, host_of(hub_address())));
  for (const RemoteFile& file : model.files) {
    const FetchedFile done = fetch_with_bar(file, options);
    fetched.push_back(done);
    if (!done.stopped) continue;
    put_part_kept(file, done);
    break;
  }
  if (interruption.signal() != 0) end_by_signal(interruption.signal());
  refusal_of_fetched(model, fetched);
  return model.path;
}

void refuse_cut_short(const RemoteModel& model, const std::vector<FetchedFile>& fetched,
                      const CutShort& error) {
  for (size_t i = 0; i < model.files.size() && i < fetched.size(); ++i) {
    if (model.files[i].path != error.file) continue;
    const bool mine = fetched[i].fetched > 0;
    if (mine)
      for (const char* ending : {"", ".tag"}) ::unlink((error.file + ending).c_str());
    fail(Exit::bad_file, "{}: the server's file is cut short: {}{}",
         without_query(model.files[i].url), error.found,
         mine ? "; removed it" : fmt::format("; {} is the same", error.file));
  }
}

}  // namespace

FetchedFile fetch_with_bar(const RemoteFile& file, FetchOptions& options) {
  const NewFolders folders(fs::path(file.path).parent_path());
  std::optional<ProgressBar> bar;
  const std::string name = fs::path(file.path).filename();
  options.progress = [&](uint64_t done, uint64_t total) {
    if (!bar) bar.emplace(ProgressScale{double(total) / 1e6, "MB"});
    bar->show({name, done, total});
  };
  return fetch_file(file, options);
}

std::string refusal_of_fetched(const RemoteModel& model, const std::vector<FetchedFile>& fetched) {
  try {
    expect_runnable(open_model(model.path, "").source);
    return "";
  } catch (const CutShort& error) {
    refuse_cut_short(model, fetched, error);
    return error.what();
  } catch (const Error& error) {
    return error.what();
  }
}

void put_part_kept(const RemoteFile& file, const FetchedFile& stopped) {
  if (stopped.bytes > 0)
    put_notice(fmt::format("{}.part has {} bytes; run the same command again to continue",
                           file.path, stopped.bytes));
}

std::string model_here(const std::string& name, Fetch how, WantedModel wanted) {
  std::error_code none;
  if (name.empty() || fs::exists(name, none)) return name;
  const ShortName* known = find_short_name(name);
  if (how == Fetch::now)
    if (const FoundModel found = find_model(name, NameMatch::whole); !found.path.empty())
      return found.path;
  if (known) known->expect_runnable();
  if (how == Fetch::now) return fetch_model(name, true);
  if (!known) return refuse_unknown_model(name, wanted), name;
  if (!stdin_is_terminal() || !stderr_is_terminal()) refuse_missing_model(*known);
  if (!agrees(*known))
    refuse_missing_model(known->name,
                         fmt::format("chaski pull {} downloads it later", known->name));
  return fetch_model(known->name, false);
}

}  // namespace chaski
