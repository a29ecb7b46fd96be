// Downloads models, for `chaski pull` and for flags that name a model.
#pragma once
#include <string>
#include <vector>

#include "engine/shelf/fetch.h"
#include "engine/shelf/hub.h"
#include "engine/shelf/shelf.h"
#include "main/flags/flags.h"

namespace chaski {

// Downloads a file and shows a progress bar. Creates its folder.
FetchedFile fetch_with_bar(const RemoteFile& file, FetchOptions& options);
// refusal_of() the downloaded model. Throws Error(bad_file) if one of its files is cut short: the
// server has no more of it. Removes that file if it was downloaded now.
std::string refusal_of_fetched(const RemoteModel& model, const std::vector<FetchedFile>& fetched);
// A note that a file's part is kept after an interruption; nothing if it has no bytes.
void put_part_kept(const RemoteFile& file, const FetchedFile& stopped);

enum class Fetch { ask, now };
// The path of a model. Downloads it if it is not on this machine and `name` is a short name
// (short_names.h), or with Fetch::now any name of `chaski pull`. Fetch::ask asks before that on a
// terminal, and throws Error(io) elsewhere. Returns the name of a file as it is, and throws
// Error(io) for other words, with the nearest names of models.
std::string model_here(const std::string& name, Fetch how, WantedModel wanted);

}  // namespace chaski
