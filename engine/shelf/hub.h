// Which files a model is, on the network: those of a URL, or of a name OWNER/MODEL[:QUANT] on a
// hub. A hub answers /api/models/OWNER/MODEL with JSON whose "siblings" have "rfilename" and, asked
// for ?blobs=true, "size" and "lfs" with "sha256"; and /OWNER/MODEL/resolve/main/FILE with the
// file.
#pragma once
#include <string>
#include <vector>

#include "engine/shelf/fetch.h"

namespace chaski {

struct ModelWanted {
  std::string what;     // a URL or a name
  std::string hub;      // its URL; empty: there is none
  std::string folder;   // where models are to lie
  std::string sha256;   // of the one file; empty: as the hub says
  std::string pattern;  // of files of the hub, with * and ?; empty: what makes a model
};

struct RemoteModel {
  std::vector<RemoteFile> files;  // what makes a model of them comes last
  std::string path;               // of the model when all are there
};

// Throws Error(usage) for a name or pattern that fits nothing, or several models, and what
// fetch_text() throws.
RemoteModel remote_model(const ModelWanted& wanted, const FetchOptions& options);

}  // namespace chaski
