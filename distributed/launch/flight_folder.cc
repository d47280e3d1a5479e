#include "distributed/launch/flight_folder.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "framework/dispatch/rank/flight.h"
#include "framework/io/mark.h"

namespace weft::dist {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPlanBytes = 4 << 20;  // approximate bytes of a rank's plans

constexpr std::string_view kPrefix = "weft-recorder-";  // prefix of folders that their launcher removes
constexpr std::string_view kKept = "weft-flight-";      // prefix of copies that stay

constexpr size_t kMostKept = 3;  // copies in one folder; older ones are removed

bool has_records(const std::string& folder) {
  if (folder.empty()) return false;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with("ring.")) return true;
  return false;
}

}  // namespace

FlightFolder::FlightFolder(int processes) {
  if (const char* const given = std::getenv(flight::kFolderVariable); given && *given) {
    path_ = given;
    std::error_code ignored;
    fs::create_directories(path_, ignored);
    if (io::has_mark(path_, diagnose::kVerdictName)) {  // the verdict of an earlier job
      fs::remove(str_cat(path_, "/", diagnose::kVerdictName), ignored);
      io::remove_mark(path_, diagnose::kVerdictName);
    }
    return;
  }
  own_ = quick_folder(kPrefix, 2 * processes * (flight::kRingBytes + kPlanBytes));
  path_ = own_.path();
}

std::optional<diagnose::Diagnosis> FlightFolder::diagnose(const diagnose::DiagnosisOptions& options) const {
  try {
    if (!has_records(path_)) return {};
    return diagnose::diagnose(diagnose::read_job(path_), options);
  } catch (const std::exception&) {  // an error here must not hide the failure of the job
    return {};
  }
}

std::string FlightFolder::keep(const std::string& parent, const std::string& verdict) {
  try {
    if (!has_records(path_)) return "";
    std::string to = path_;
    if (!own_.path().empty()) {
      to = parent.empty() ? "" : new_folder(parent, kKept);
      if (to.empty()) to = new_folder(temporary_parent(), kKept);
      if (to.empty()) return "";
      fs::copy(path_, to, fs::copy_options::recursive);
      io::remove_mark(to, fs::path(path_).filename());
      remove_left(fs::path(to).parent_path(), kKept, kMostKept);
    }
    const std::string file = str_cat(to, "/", diagnose::kVerdictName);
    if (fs::exists(file) || !io::set_mark(to, diagnose::kVerdictName)) return to;
    std::ofstream(file) << verdict << "\n";
    return to;
  } catch (const std::exception&) {
    return "";
  }
}

}  // namespace weft::dist
