// SaveInParts: the processes of a job write one set of safetensors files together. Each writes the bytes of its own
// shards, so none has more than these in memory. The files have the bytes that one device writes.
//
// begin() and join() are collectives: every process calls them, also one whose part has failed, and all throw the same
// error. The work on files after each of them may run on another thread, because the values are held. AsyncSave
// (async.h) makes these calls.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/dispatch/parameter.h"
#include "framework/dispatch/rank/first_process.h"
#include "framework/io/safetensors_parts.h"

namespace weft {

class SaveInParts {
 public:
  /// kOne: the files are in one folder, which all processes see. kEachHost: the processes of each host write the same
  /// files in a folder of their host, whose first process takes the place of the job's first one. Each host needs all
  /// shards (PartedValue::own_parts).
  enum class Folders : uint8_t { kOne, kEachHost };
  /// `what` names the collectives, as "saving a checkpoint"; errors of values begin with `before`, as "save: ".
  SaveInParts(std::string what, std::string before, Folders folders = Folders::kOne);
  ~SaveInParts();
  /// Adds a file with the values of these cells, or several files: as SafetensorsLayout. `path` is relative to the
  /// folder of begin(), or whole if that is "".
  void add(const std::string& path, const std::vector<std::pair<std::string, CellHandle>>& cells,
           io::Metadata metadata = {}, int64_t max_file_bytes = INT64_MAX);
  void add(const std::string& path, const std::map<std::string, Tensor>& values, io::Metadata metadata = {});
  /// kWaited: values of a device are on the host when begin() returns, so an error of the device comes before a file is
  /// made. kQueued: their copies are queued in the order of the device's work.
  enum class Copies : uint8_t { kWaited, kQueued };
  /// Holds the values, so later steps write to other memory, and makes the files under temporary names. `folder` is
  /// called in the first process, and returns the folder of the files. Processes with different tensors, placements or
  /// metadata are an error, and so is a file that another SaveInParts writes.
  void begin(const std::function<std::string()>& folder, Copies copies = Copies::kWaited);
  /// Call it in `folder` of begin(). `files` has a file for each call of add(), which gets its bytes (io::AtomicFile).
  /// New files get the bytes if `files` is empty, or without this call.
  void set_memory(const std::vector<std::string>& files);
  /// Writes the part of this process to disk, and drops the values. join() throws its errors. On any thread; calls
  /// `pause` after each 128 KiB or less.
  void write(const std::function<void()>& pause = {}) noexcept;
  /// Sends the checksums of all parts to the first process, when all parts are written.
  void join();
  /// Gives the files their names. In the first process, after join(), on any thread.
  void name_files();
  /// Since write(): seconds until the queued copies of devices had arrived, an upper bound of the delay of the devices.
  double copy_seconds() const { return copy_seconds_; }
  const std::string& what() const { return what_; }
  /// Since begin(): the job, or null.
  internal::JobProcesses* job() const { return job_; }
  /// Since begin(): whether this process makes and names the files.
  bool is_first() const { return !job_ || first_ == job_->process(); }

 private:
  struct Files;
  std::vector<std::pair<std::string, std::string>> hold_values(Copies copies);
  std::string report() const;

  const std::string what_, before_;
  const Folders folders_;
  std::vector<std::unique_ptr<Files>> all_;
  internal::JobProcesses* job_ = nullptr;  // since begin(): the job of its thread; write() may run on another one
  int first_ = 0;                          // since begin(): the process that makes the files of this one
  bool one_host_ = true;                   // since begin(): the processes that write these files are on this host
  int64_t bytes_ = 0;                      // bytes that write() has written
  double copy_seconds_ = 0;
  std::optional<Error> error_;        // error of write()
  std::vector<std::string> reports_;  // since join(): the reports of all processes
};

}  // namespace weft
