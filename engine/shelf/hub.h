// Finds the files of a model on the network, from a URL or a name OWNER/MODEL[:QUANT] on a hub. A
// hub serves a list of files as JSON at /api/models/OWNER/MODEL?blobs=true ("siblings" with
// "rfilename", "size" and "lfs": {"sha256"}), and a file at /OWNER/MODEL/resolve/main/FILE.
#pragma once
#include <string>
#include <vector>

#include "engine/shelf/fetch.h"

namespace chaski {

struct ModelWanted {
  std::string what;     // a URL or a name
  std::string hub;      // URL of the hub; empty: none
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

}  // namespace chaski
