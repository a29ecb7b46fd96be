#include "engine/shelf/hub.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>

#include "engine/shelf/http.h"
#include "engine/shelf/short_names.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/nearest.h"
#include "ggml-like-tensor/base/split_name.h"
#include "models/import/json_file.h"

namespace chaski {

namespace {

constexpr Hub kDefaultHub = {"https://huggingface.co", "hf.co"};
constexpr size_t kMaxNameBytes = 200;

struct HubFile {
  std::string name;  // may contain folders
  std::string sha256;
  uint64_t bytes = 0;
};

bool is_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Whether a shell or a terminal would interpret some character of the name.
bool has_odd_letters(const std::string& name) {
  for (size_t i = 0; i < name.size(); ++i) {
    const unsigned char c = name[i], before = i > 0 ? name[i - 1] : 0;
    if (c < 0x20 || c == 0x7f || (c > 0x7f && c < 0xa0 && (before == 0xc2 || before < 0x80)) ||
        std::string_view("$`\"';|&<>\\").find(char(c)) != std::string_view::npos)
      return true;
  }
  return false;
}

// Whether a name from the network may be used for a file below a local folder.
bool is_safe_path(const std::string& name) {
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    if (end == begin || name[begin] == '.' || end - begin > kMaxNameBytes) return false;
    begin = end + 1;
  }
  return !has_odd_letters(name);
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

bool is_one_file_model(const std::string& name) {
  return (name.ends_with(".gguf") || name.ends_with(".quipu")) &&
         file_name(name).find("mmproj") == std::string::npos;
}

bool belongs_to_folder(const std::string& name) {
  if (name.find('/') != std::string::npos) return false;
  return name.ends_with(".json") || name.ends_with(".jinja") || name == "tokenizer.model" ||
         name == "merges.txt" || name == "vocab.txt" ||
         (name.starts_with("model") && name.ends_with(".safetensors"));
}

std::string escaped_for_url(const std::string& path) {
  std::string text;
  for (const char c : path)
    text += is_letter(c) || std::string_view("-.~/").find(c) != std::string_view::npos
                ? std::string(1, c)
                : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  return text;
}

std::vector<HubFile> listed_files(const std::string& url, const std::string& text) {
  std::vector<HubFile> files;
  parse_json(url, text)["siblings"].each([&](const Json& one) {
    HubFile file{one["rfilename"].str(), one["lfs"]["sha256"].str(""), 0};
    if (one["size"].is_integer())
      file.bytes = uint64_t(std::max<int64_t>(0, one["size"].integer()));
    if (!is_sha256(file.sha256)) file.sha256.clear();
    if (is_safe_path(file.name)) files.push_back(std::move(file));
  });
  return files;
}

std::vector<std::string> split_path(const std::string& path) {
  std::vector<std::string> parts;
  std::istringstream in(path);
  for (std::string part; std::getline(in, part, '/');) parts.push_back(part);
  return parts;
}

// The part of `text` after the address of the hub; the text may be without https://. Nothing if it
// is no address on the hub.
std::optional<std::string> path_on_hub(const std::string& text) {
  const std::string all = host_of(text.substr(0, text.find_first_of("?#")));
  for (const std::string& host :
       {host_of(hub_address()), host_of(kDefaultHub.address), std::string(kDefaultHub.short_host)})
    if (!host.empty() && all.starts_with(host + "/")) return all.substr(host.size() + 1);
  return std::nullopt;
}

// The address of a file's page on the hub (OWNER/MODEL/blob/REVISION/FILE) as that of the file. An
// address of a file may be without https://. CHASKI_HUB=none leaves the host as it is.
std::string address_of_file(const std::string& text) {
  const auto path = path_on_hub(text);
  std::vector<std::string> parts = split_path(path.value_or(""));
  const bool bare = text.find("://") == std::string::npos;
  if (parts.size() < 5 || (parts[2] != "blob" && !(bare && parts[2] == "resolve"))) return text;
  parts[2] = "resolve";
  const std::string own = (bare ? "https://" : "") + text.substr(0, text.find("/" + *path));
  return fmt::format("{}/{}", hub_address().empty() ? own : hub_address(), fmt::join(parts, "/"));
}

// Refuses a page OWNER/MODEL/tree/REVISION/FOLDER that is not the whole model of the revision main.
void expect_whole_model(const std::string& text, const std::vector<std::string>& parts) {
  const std::string model = parts[0] + "/" + parts[1];
  if (parts[3] != "main")
    fail(Exit::usage,
         "{} is the page of the revision {}, but chaski downloads only main, expected {} or the "
         "address of a file",
         without_query(text), parts[3], model);
  if (parts.size() > 4)
    fail(Exit::usage,
         "{} is the page of a folder, expected {} (--file PATTERN chooses files, such as those "
         "of a folder)",
         without_query(text), model);
}

[[noreturn]] void refuse_name(const std::string& text) {
  std::vector<std::string> names;
  for (const ShortName& one : short_names()) names.emplace_back(one.name);
  const std::string likely = likely_name(text, names);
  if (!likely.empty())
    fail(Exit::usage, "{} is not the name of a model, did you mean {}?", text, likely);
  fail(Exit::usage,
       "{} is not the name of a model, expected OWNER/MODEL, OWNER/MODEL:QUANT, a URL or one of {}",
       without_query(text), fmt::join(names, ", "));
}

// OWNER/MODEL[:QUANT]
class HubName {
 public:
  static bool is_name(const std::string& part) {
    return !part.empty() && part[0] != '.' && std::all_of(part.begin(), part.end(), [](char c) {
      return is_letter(c) || c == '-' || c == '.';
    });
  }
  explicit HubName(const std::string& text) : text_(text) {
    const size_t slash = text.find('/'), colon = text.find(':');
    model_ = text.substr(0, colon);
    if (colon != std::string::npos) quant_ = text.substr(colon + 1);
    if (slash >= model_.size() || !is_name(model_.substr(0, slash)) ||
        !is_name(model_.substr(slash + 1)) || (colon != std::string::npos && quant_.empty()))
      refuse_name(text);
  }
  const std::string& model() const { return model_; }

  // The files of the model.
  std::vector<HubFile> chosen(const std::vector<HubFile>& all, const std::string& pattern) const {
    if (!pattern.empty()) return matching(all, pattern);
    std::vector<std::string> first;  // single-file models and first parts of split ones
    for (const HubFile& file : all)
      if (is_one_file_model(file.name) && names_of_parts(file.name)[0] == file.name &&
          (quant_.empty() || has_quant(file.name, quant_)))
        first.push_back(file.name);
    if (first.empty() && quant_.empty()) return folder(all);
    if (first.empty())
      fail(Exit::usage, "{} has no {}, expected {}", model_, quant_, model_names(all));
    if (first.size() > 1)
      std::erase_if(first, [&](const std::string& name) {
        return quant_.empty() && !has_quant(name, kPreferredQuant);
      });
    if (first.size() != 1)
      fail(Exit::usage, "{} has several models, expected --file with one of {}", text_,
           model_names(all));
    return parts(all, first[0]);
  }

 private:
  // All parts of the file, the first part last.
  std::vector<HubFile> parts(const std::vector<HubFile>& all, const std::string& name) const {
    std::vector<HubFile> files;
    for (const std::string& part : names_of_parts(name)) {
      const auto at = std::find_if(all.begin(), all.end(),
                                   [&](const HubFile& file) { return file.name == part; });
      if (at == all.end()) fail(Exit::io, "{}: the part {} of {} is missing", model_, part, name);
      files.insert(files.begin(), *at);
    }
    return files;
  }

  std::vector<HubFile> matching(const std::vector<HubFile>& all, const std::string& pattern) const {
    std::vector<HubFile> files;
    const auto is_chosen = [&](const std::string& name) {
      return std::any_of(files.begin(), files.end(),
                         [&](const HubFile& file) { return file.name == name; });
    };
    for (const HubFile& file : all)
      if (::fnmatch(pattern.c_str(), file.name.c_str(), 0) == 0 && !is_chosen(file.name))
        for (const HubFile& part : parts(all, file.name)) files.push_back(part);
    if (files.empty())
      fail(Exit::usage, "--file {}: {} has no such file, expected {}", pattern, model_,
           model_names(all));
    return files;
  }

  std::vector<HubFile> folder(const std::vector<HubFile>& all) const {
    std::vector<HubFile> files, config;
    bool tensors = false;
    for (const HubFile& file : all) {
      if (!belongs_to_folder(file.name)) continue;
      (file.name == "config.json" ? config : files).push_back(file);
      tensors = tensors || file.name.ends_with(".safetensors");
    }
    if (!tensors || config.empty())
      fail(Exit::usage, "{} has no model that chaski can read, expected GGUF files or safetensors",
           model_);
    files.push_back(config[0]);
    return files;
  }

  // The names of the available models, for an error message.
  static std::string model_names(const std::vector<HubFile>& all) {
    std::string names;
    for (const HubFile& file : all)
      if (is_one_file_model(file.name) && names_of_parts(file.name)[0] == file.name)
        names += (names.empty() ? "" : ", ") + file.name;
    return names.empty() ? "another name" : names;
  }

  std::string text_, model_, quant_;
};

RemoteModel model_of_url(const ModelWanted& wanted) {
  const Url url = read_url(wanted.what);
  const std::string name = file_name(url.path);
  if (name.size() > kMaxNameBytes)
    fail(Exit::usage, "{}: the name of the file has {} bytes, expected at most {}",
         without_query(wanted.what), name.size(), kMaxNameBytes);
  if (has_odd_letters(name))
    fail(Exit::usage,
         "{}: the name of the file has control characters, quotes or one of $`;|&<>\\, expected "
         "letters and digits",
         without_query(wanted.what));
  if (!is_safe_path(name))
    fail(Exit::usage, "{} does not name a file, expected https://HOST/FILE",
         without_query(wanted.what));
  RemoteModel model{{}, wanted.folder + "/" + names_of_parts(name)[0]};
  for (const std::string& part : names_of_parts(name)) {
    std::string at = wanted.what;
    if (part != name) {  // parts differ in "-00001-of-00003.gguf"
      const size_t tail = name.rfind("-of-") - 6, size = name.size() - tail;
      const size_t end = std::min(at.find_first_of("?#"), at.size()),
                   number = at.rfind(name.substr(tail), end);
      if (number == std::string::npos || number + size != end)
        fail(Exit::usage,
             "{} is one of several parts, expected a URL that ends in \"{}\" without escapes",
             without_query(wanted.what), name.substr(tail));
      at.replace(number, size, part.substr(tail));
    }
    model.files.insert(model.files.begin(), {at, wanted.folder + "/" + part, "", 0});
  }
  return model;
}

void expect_hub(const ModelWanted& wanted) {
  if (wanted.hub.empty())
    fail(Exit::usage,
         "{}: CHASKI_HUB=none forbids downloads from a hub, expected the address of a hub in "
         "CHASKI_HUB, or the URL of a file",
         wanted.what);
  try {
    read_url(wanted.hub);
  } catch (const Error& error) {
    fail(Exit::usage, "CHASKI_HUB: {}", error.what());
  }
}

RemoteModel model_of_short_name(const ModelWanted& wanted, const ShortName& name) {
  expect_hub(wanted);
  const std::string path = fmt::format("{}/{}/{}", wanted.folder, name.model, name.file);
  return {
      {{fmt::format("{}/{}/resolve/main/{}", wanted.hub, name.model, escaped_for_url(name.file)),
        path, name.sha256, name.bytes}},
      path};
}

RemoteModel model_of_hub(const ModelWanted& wanted, const FetchOptions& options) {
  const HubName name(wanted.what);
  expect_hub(wanted);
  const std::string& hub = wanted.hub;
  const std::string list = hub + "/api/models/" + name.model() + "?blobs=true",
                    text = fetch_text(list, options);
  if (options.stop && *options.stop) return {};
  RemoteModel model;
  const std::string folder = wanted.folder + "/" + name.model();
  for (const HubFile& file : name.chosen(listed_files(without_query(list), text), wanted.pattern))
    model.files.push_back({hub + "/" + name.model() + "/resolve/main/" + escaped_for_url(file.name),
                           folder + "/" + file.name, file.sha256, file.bytes});
  const std::string& last = model.files.back().path;
  model.path = is_one_file_model(last) ? last : folder;
  return model;
}

}  // namespace

bool has_quant(const std::string& name, const std::string& quant) {
  const auto same = [](unsigned char a, unsigned char b) {
    return std::tolower(a) == std::tolower(b);
  };
  for (auto at = name.begin();; ++at) {
    at = std::search(at, name.end(), quant.begin(), quant.end(), same);
    if (at == name.end()) return false;
    const auto end = at + long(quant.size());
    if ((at == name.begin() || !is_letter(at[-1])) && (end == name.end() || !is_letter(*end)))
      return true;
  }
}

Hub default_hub() { return kDefaultHub; }

std::string hub_address() {
  const char* set = std::getenv("CHASKI_HUB");
  std::string hub = set && *set ? set : std::string(kDefaultHub.address);
  while (hub.ends_with('/')) hub.pop_back();
  return hub == "none" ? "" : hub;
}

std::string ways_without_hub(const std::string& url) {
  const std::string hub = hub_address();
  if (hub.empty() || !url.starts_with(hub + "/")) return "";
  return ". Without this hub: CHASKI_HUB=https://HOST names another one, and a model file that is "
         "copied to this machine runs with -m FILE";
}

std::string host_of(std::string_view address) {
  const size_t scheme = address.find("://");
  return std::string(scheme == std::string_view::npos ? address : address.substr(scheme + 3));
}

std::string name_on_hub(const std::string& text) {
  const std::optional<std::string> path = path_on_hub(text);
  if (!path && text.find("://") != std::string::npos) return "";
  const std::vector<std::string> parts = split_path(path.value_or(text));
  const bool page = path && parts.size() >= 4 && parts[2] == "tree";
  if (page) expect_whole_model(text, parts);
  if (parts.size() != 2 && !page) return "";
  const std::string model = parts[1].substr(0, parts[1].find(':'));
  for (const char* ending : {".gguf", ".quipu", ".safetensors", ".bin"})
    if (model.ends_with(ending)) return "";
  return HubName::is_name(parts[0]) && HubName::is_name(model) ? parts[0] + "/" + parts[1] : "";
}

RemoteModel remote_model(const ModelWanted& given, const FetchOptions& options) {
  ModelWanted wanted = given;
  if (const std::string name = name_on_hub(given.what); !name.empty())
    wanted.what = name;
  else
    wanted.what = address_of_file(given.what);
  const bool is_url = wanted.what.find("://") != std::string::npos;
  if (is_url && !wanted.pattern.empty())
    fail(Exit::usage, "--file needs a name OWNER/MODEL, found a URL, which is a single file");
  const ShortName* short_name = wanted.pattern.empty() ? find_short_name(wanted.what) : nullptr;
  RemoteModel model = short_name ? model_of_short_name(wanted, *short_name)
                      : is_url   ? model_of_url(wanted)
                                 : model_of_hub(wanted, options);
  if (wanted.sha256.empty()) return model;
  if (model.files.size() > 1)
    fail(Exit::usage, "--sha256 is for a single file, but {} has {} files",
         without_query(wanted.what), model.files.size());
  for (RemoteFile& file : model.files) file.sha256 = wanted.sha256;
  return model;
}

}  // namespace chaski
