#include "distributed/launch/flight_folder.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "framework/dispatch/rank/flight.h"

namespace weft::dist {
namespace {

namespace fs = std::filesystem;

constexpr const char* kShared = "/dev/shm";
constexpr int64_t kPlanBytes = 4 << 20;  // approximate bytes of a rank's plans

constexpr std::string_view kPrefix = "weft-recorder-";  // prefix of folders that their launcher removes
constexpr std::string_view kKept = "weft-flight-";      // prefix of copies that stay

bool has_room(const char* folder, int64_t bytes) {
  struct statvfs s {};
  if (access(folder, W_OK) != 0 || statvfs(folder, &s) != 0) return false;
  return static_cast<double>(s.f_bavail) * static_cast<double>(s.f_frsize) > static_cast<double>(bytes);
}

}  // namespace

FlightFolder::FlightFolder(int processes) {
  if (const char* const given = std::getenv(flight::kFolderVariable); given && *given) {
    path_ = given;
    std::error_code ignored;
    fs::create_directories(path_, ignored);
    fs::remove(str_cat(path_, "/", diagnose::kVerdictName), ignored);  // removes the verdict of an earlier job
    return;
  }
  if (has_room(kShared, 2 * processes * (flight::kRingBytes + kPlanBytes))) own_ = LockedFolder(kShared, kPrefix);
  if (own_.path().empty()) own_ = LockedFolder(temporary_parent(), kPrefix);
  path_ = own_.path();
}

std::optional<diagnose::Diagnosis> FlightFolder::diagnose(const diagnose::DiagnosisOptions& options) const {
  try {
    if (path_.empty() || fs::is_empty(path_)) return {};
    return diagnose::diagnose(diagnose::read_job(path_), options);
  } catch (const std::exception&) {  // an error here must not hide the failure of the job
    return {};
  }
}

std::string FlightFolder::keep(const std::string& parent, const std::string& verdict) {
  try {
    if (path_.empty() || fs::is_empty(path_)) return "";
    std::string to = path_;
    if (!own_.path().empty()) {
      to = parent.empty() ? "" : new_folder(parent, kKept);
      if (to.empty()) to = new_folder(temporary_parent(), kKept);
      if (to.empty()) return "";
      fs::copy(path_, to, fs::copy_options::recursive);
    }
    std::ofstream(str_cat(to, "/", diagnose::kVerdictName)) << verdict << "\n";
    return to;
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace weft::dist
