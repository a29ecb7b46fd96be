// Finds the files of a model on the network. The model is a URL, a short name (short_names.h), or a
// name OWNER/MODEL[:QUANT] on a hub, which may be written as the address of the model's page. A hub
// serves a list of files as JSON at /api/models/OWNER/MODEL?blobs=true ("siblings" with
// "rfilename", "size" and "lfs": {"sha256"}), and a file at /OWNER/MODEL/resolve/main/FILE.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "engine/shelf/fetch.h"

namespace chaski {

// The hub that is used if CHASKI_HUB names none. Its short host forwards to the address.
struct Hub {
  std::string_view address, short_host;
};
Hub default_hub();

// The address of the hub that CHASKI_HUB names, or of the default one. Empty for CHASKI_HUB=none.
std::string hub_address();
// The end of a message about an address that cannot be reached: what can be done if it is on the
// hub; else empty.
std::string ways_without_hub(const std::string& url);
// An address without "https://", for messages.
std::string host_of(std::string_view address);

struct ModelWanted {
  std::string what;  // a URL or a name
  std::string hub = hub_address();
  std::string folder;   // where to write models
  std::string sha256;   // of the only file; empty: from the hub
  std::string pattern;  // for files on the hub, with * and ?; empty: all files of the model
};

struct RemoteModel {
  std::vector<RemoteFile> files;  // the file that makes the model complete comes last
  std::string path;               // of the model after the download
};

// Throws Error(usage) for a name or pattern that matches nothing or several models, and the errors
// of fetch_text().
RemoteModel remote_model(const ModelWanted& wanted, const FetchOptions& options);

// OWNER/MODEL[:QUANT] if the text has this form, or is the address of a model's page with or
// without https://; else "". Throws Error(usage) for the page of a folder, or of another revision
// than main.
std::string name_on_hub(const std::string& text);
// Whether the name of a file or folder contains `quant` as a whole word, ignoring case.
bool has_quant(const std::string& name, const std::string& quant);
constexpr const char* kPreferredQuant = "Q4_K_M";  // as in other programs

}  // namespace chaski
