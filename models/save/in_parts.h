// SaveInParts: the processes of a job write one set of safetensors files together. Each writes the bytes of its own
// shards, so none has more than these in memory. The files have the bytes that one device writes.
//
// begin() and commit() are collectives: every process calls them, also one whose part has failed, and all throw the
// same error. Between them, write() may run on another thread, because it holds the values.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/dispatch/parameter.h"
#include "framework/io/safetensors_parts.h"

namespace weft {

class SaveInParts {
 public:
  /// `what` names the collectives, as "saving a checkpoint"; errors of values begin with `before`, as "save: ".
  SaveInParts(std::string what, std::string before);
  ~SaveInParts();
  /// Adds a file with the values of these cells, or several files: as SafetensorsLayout. `path` is relative to the
  /// folder of begin(), or whole if that is "".
  void add(const std::string& path, const std::vector<std::pair<std::string, CellHandle>>& cells,
           io::Metadata metadata = {}, int64_t max_file_bytes = INT64_MAX);
  void add(const std::string& path, const std::map<std::string, Tensor>& values, io::Metadata metadata = {});
  /// Holds the values, so later steps write to other memory, and makes the files under temporary names. `folder` is
  /// called in the first process, and returns the folder of the files. Processes with different tensors, placements or
  /// metadata are an error.
  void begin(const std::function<std::string()>& folder);
  /// Writes the part of this process to disk, and drops the values. commit() throws its errors.
  void write() noexcept;
  /// Gives the files their names when all parts are written, then calls `finish` in the first process.
  void commit(const std::function<void()>& finish = {});

 private:
  struct Files;
  std::vector<std::pair<std::string, std::string>> hold_values();
  std::string report() const;

  const std::string what_, before_;
  std::vector<std::unique_ptr<Files>> all_;
  int64_t bytes_ = 0;           // bytes that write() has written
  std::optional<Error> error_;  // error of write()
};

}  // namespace weft
