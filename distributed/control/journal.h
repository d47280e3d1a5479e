// The journal of a coordination service: a file with the changes of its state. A record is written before the replies
// of its event are sent, so that a service that was killed continues with all that its members know. Records are not
// forced to the disk: a crash of the host, which ends the members there as well, may lose the last ones. One file
// belongs to one run of a job. It has the values of keys, but not the token, and only its owner can read it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "distributed/control/state.h"

namespace weft::control {

class Journal {
 public:
  /// Opens the file, or makes it, and makes its changes in `state`, which is new. An incomplete last record is removed.
  /// Throws if the file is in use, belongs to another job, or is damaged before its last record.
  Journal(const std::string& path, ServiceState& state);
  ~Journal();
  Journal(const Journal&) = delete;

  /// Whether the file had changes when it was opened.
  bool continued() const { return continued_; }
  /// Writes one record. If that fails, warns, and writes nothing any more.
  void append(const std::vector<Change>& changes);
  /// Writes the file anew with the changes of the state alone, if it is several times as large as it was after the last
  /// time.
  void shorten(const ServiceState& state);

 private:
  void write(const std::string& records);

  std::string path_;
  int fd_ = -1;
  bool continued_ = false;
  int64_t size_ = 0, next_size_ = int64_t{16} << 20;
};

}  // namespace weft::control
