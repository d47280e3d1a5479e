// The folder of a job's flight records (framework/dispatch/rank/flight.h), as its launcher sees it.
#pragma once
#include <optional>
#include <string>

#include "distributed/diagnose/diagnosis.h"
#include "distributed/launch/locked_folder.h"

namespace weft::dist {

class FlightFolder {
 public:
  /// The folder that JOB_FLIGHT names in this process, or else a new one. A new folder is in /dev/shm, where records
  /// cause no disk traffic, if the records of `processes` fit there, else in TMPDIR. The destructor removes a new
  /// folder; keep() copies its records before that.
  explicit FlightFolder(int processes);

  const std::string& path() const { return path_; }
  /// The diagnosis of the current records; nothing if there are none. Never throws.
  std::optional<diagnose::Diagnosis> diagnose(const diagnose::DiagnosisOptions& options = {}) const;
  /// Copies the records into a new folder in `parent`, or in TMPDIR if it is empty or cannot be written, and writes
  /// `verdict` beside them, for //tools:diagnose; returns its path, or nothing if there are no records. Removes all but
  /// the newest copies there. Never throws.
  std::string keep(const std::string& parent, const std::string& verdict);

 private:
  LockedFolder own_;  // empty if JOB_FLIGHT names the folder
  std::string path_;
};

}  // namespace weft::dist
