// The journal of a coordination service: a file with the changes of its state. A record is written before the replies
// of its event are sent, so that a restarted service has all state that its members have seen. Records are not synced
// to disk: a crash of the host, which also ends the members there, may lose the last records. One file belongs to one
// run of a job. It contains the values of keys but no token, and only its owner can read it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "distributed/control/service/state.h"

namespace weft::control {

class Journal {
 public:
  /// Opens or creates the file, and applies its changes to `state`, which is new. Removes an incomplete last record.
  /// Throws if the file is in use, belongs to another job, or is damaged before its last record.
  Journal(const std::string& path, ServiceState& state);
  ~Journal();
  Journal(const Journal&) = delete;

  /// Whether the file had changes when it was opened.
  bool continued() const { return continued_; }
  /// Writes one record. If the write fails, warns, and writes no more records.
  void append(const std::vector<Change>& changes);
  /// Rewrites the file with only the changes of the current state, once it is several times as large as after the last
  /// rewrite.
  void shorten(const ServiceState& state);

 private:
  void write(const std::string& records);

  std::string path_;
  int fd_ = -1;
  bool continued_ = false;
  int64_t size_ = 0, next_size_ = int64_t{16} << 20;
};

}  // namespace weft::control
