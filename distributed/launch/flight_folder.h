// The folder of a job's flight records (framework/dispatch/flight.h), as its launcher sees it.
#pragma once
#include <optional>
#include <string>

#include "distributed/diagnose/diagnosis.h"

namespace weft::dist {

/// The folder for temporary files: TMPDIR, or /tmp.
std::string temporary_parent();

class FlightFolder {
 public:
  /// The folder that JOB_FLIGHT names in this process, or else a new one: in /dev/shm, where records cost no disk
  /// traffic, if there is room for those of so many processes, else in TMPDIR. Then it also removes the new folders of
  /// launchers of this user that were killed.
  explicit FlightFolder(int processes);
  /// Removes a new folder; keep() copies its records before that.
  ~FlightFolder();
  FlightFolder(const FlightFolder&) = delete;

  const std::string& path() const { return path_; }
  /// What the records say now; nothing if there are none. Never throws.
  std::optional<diagnose::Diagnosis> diagnose(const diagnose::DiagnosisOptions& options = {}) const;
  /// Copies the records into a new folder in `parent`, or in TMPDIR if it is empty or cannot be written; returns its
  /// path, or nothing if there are no records. Never throws.
  std::string keep(const std::string& parent);

 private:
  std::string path_;
  bool own_ = false;
  int lock_ = -1;  // of a new folder: the launcher lives
};

}  // namespace weft::dist
