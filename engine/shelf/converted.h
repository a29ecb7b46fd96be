// Converted models in the cache folder, so that a model in another format is converted only once.
// The first start converts it in memory and answers, while a thread writes the result as a .quipu
// file. Later starts map that file.
//
//   converted/SUM-BYTES-PROGRAM.weights   the .quipu file of a model whose files have this XXH3-128
//                                         and size, written by this build (this_program.h)
//   converted/PATH.from                   of a model's path: the path, the state of its files, and
//                                         the name above. The time of this file is the last use.
//   converted/PATH.lock                   locked while a process converts the model
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/shelf/keep_converted.h"
#include "engine/shelf/model_file.h"
#include "engine/shelf/verify.h"

namespace chaski {

// The kept file of one model.
class ConvertedModel {
 public:
  using Notice = std::function<void(const std::string& line)>;

  ConvertedModel(std::string model, KeepConverted most);
  // Waits until the file is written. Prints a notice if this takes longer than a second, and one if
  // the write failed.
  ~ConvertedModel();
  ConvertedModel(const ConvertedModel&) = delete;
  ConvertedModel& operator=(const ConvertedModel&) = delete;

  // Maps the kept file, under the path of the model. Null if there is none. Removes a damaged file,
  // with a notice.
  std::shared_ptr<const Weights> find(Verify how, int threads, const Notice& notice);
  // Like find(). If there is no file, it takes the lock, so that the caller converts the model and
  // calls keep(); see will_keep(). Calls `waits` once and waits while another process writes the
  // file of the same model, but not longer than some seconds without a write.
  std::shared_ptr<const Weights> find_or_lock(Verify how, int threads, const Notice& notice,
                                              const std::function<void()>& waits);
  bool will_keep() const { return lock_ >= 0; }
  // Why the model is not kept; empty if it is, or if it need not be said: the disk, the limit and
  // the folder are named once in a process.
  const std::string& why_not() const { return why_not_; }
  // Writes the converted model in a thread. A failure is reported to `notice` at the end.
  void keep(std::shared_ptr<const Weights> weights, Notice notice);
  void wait();  // until the file is written

 private:
  bool lock(const std::function<void()>& waits);
  void unlock();
  bool fits();
  std::string name_by_state() const;
  std::string name_by_sum() const;
  bool find_names(std::string& by_state, std::string& name);
  void write(const std::shared_ptr<const Weights>& weights);

  const std::string model_;
  const KeepConverted most_;
  std::vector<std::string> files_;  // of the model; empty if it is not one that is kept
  std::string path_, state_;        // canonical path of the model, and state of its files
  uint64_t bytes_ = 0;              // of its files
  std::string why_not_, failure_;
  int lock_ = -1;
  std::future<void> writing_;
  Notice notice_;
};

// A model as an engine opens it, without locking or converting: the kept file, or else the model's
// own files. `tokenizer` as for open_model().
OpenModel open_as_kept(const std::string& model, const std::string& tokenizer, KeepConverted most,
                       const ConvertedModel::Notice& notice);

// Size, times and inode of the files of any model in one line; empty if one of them is missing.
std::string state_of_model(const std::string& model);

// For `chaski cache`.
struct KeptModel {
  std::string file, source;  // source: path of the model, empty if it is not known
  uint64_t bytes = 0;
  std::chrono::system_clock::time_point used;
};
std::string converted_folder();  // empty if there is no cache folder
// The last used first.
std::vector<KeptModel> kept_models();
uint64_t most_converted(KeepConverted most);  // the limit in bytes
// Removes all kept files, but not those that are being written. Throws Error(io).
void drop_kept_models();

}  // namespace chaski
