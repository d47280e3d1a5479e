#include "models/train/memory.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <span>
#include <sstream>
#include <string_view>
#include <utility>

#include "distributed/launch/free_memory.h"
#include "distributed/launch/held_memory.h"
#include "distributed/launch/processes.h"
#include "framework/base/error.h"
#include "framework/base/units.h"
#include "framework/dispatch/rank/first_process.h"
#include "framework/dispatch/rank/flight.h"
#include "framework/io/checksum.h"
#include "framework/io/file.h"
#include "framework/io/mark.h"
#include "models/train/checkpoint.h"
#include "models/train/job.h"

namespace weft::train {
namespace {

constexpr std::string_view kOfARun = "weft-";  // the beginning of the names of folders of runs

// The folder that the launcher of this process holds; "": none. A folder without a mark is a user's.
std::string held_folder() {
  const char* const held = std::getenv(dist::kMemoryVariable);
  return held && io::has_mark(held, io::base_name(held)) ? held : "";
}
bool is_held(const std::string& folder) { return io::folder_of(folder) == held_folder(); }

void need_own(const std::string& folder) {
  struct stat s {};
  const bool own = ::lstat(folder.c_str(), &s) != 0 ||
                   (S_ISDIR(s.st_mode) && s.st_uid == ::geteuid() && (s.st_mode & (S_IWGRP | S_IWOTH)) == 0);
  WEFT_CHECK_AS(kFailedPrecondition, own, "--memory_dir: ", folder,
                " is not a folder that this user alone may write to; move it away, or name another folder");
}

std::string run_of(const std::string& dir) { return std::filesystem::absolute(dir).lexically_normal().string(); }

// The file with the step of the newest checkpoint on disk that the run with these states knows (-1: there is none), and
// with the folder of the run. If another checkpoint is the newest, a run without states made it, or somebody removed
// the known one. The states then do not follow from it. States in a folder that somebody renamed are of another run.
std::string saved_path(const std::string& folder) { return folder + "/saved"; }
std::string saved_text(const std::string& dir, int64_t saved) { return str_cat(saved, " ", run_of(dir)); }
bool knows_checkpoint(const std::string& folder, const std::string& dir, int64_t saved) {
  const std::string path = saved_path(folder);
  return io::exists(path) && io::read_file(path, int64_t{1} << 16) == saved_text(dir, saved);
}

// The step of the newest checkpoint on disk, as the first process sees it: another host may see an old list of a shared
// folder. A collective.
int64_t newest_of_first(const std::string& dir) {
  int64_t newest = -1;
  internal::on_first_process("looking for checkpoints", [&] { newest = newest_step(dir); });
  return std::stoll(value_of_first(str_cat(newest)));
}

// Makes the folder of a run. It needs room for two states, which have `bytes` together; states that are there will be
// replaced. The parts of a state that a killed process left are removed first, because they take room.
void make_folder(const std::string& folder, int64_t bytes) {
  const auto check = [&](bool made) {
    if (!made)
      internal::fail(Code::kFailedPrecondition,
                     str_cat("--memory_dir: cannot make '", folder, "': ", io::errno_text(errno)));
  };
  io::make_folders(io::folder_of(folder));
  check(::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST);
  need_own(folder);  // another user may have made it since memory_folder()
  io::remove_leftovers(folder);
  struct statvfs room {};
  check(::statvfs(folder.c_str(), &room) == 0);
  if (is_held(folder)) {
    const int64_t free = dist::free_memory(), need = bytes - dist::HeldMemory::bytes(held_folder());
    WEFT_CHECK_AS(kResourceExhausted, free < 0 || free >= need, "--memory_every: this host has ",
                  bytes_text(static_cast<double>(free)), " of free memory; need ",
                  bytes_text(static_cast<double>(need)), " for two states of the run");
    return;
  }
  if (!io::is_in_memory(folder))
    internal::warn(str_cat("--memory_dir: ", folder, " is on a disk, so states take the time of checkpoints; need a ",
                           "folder in memory, such as /dev/shm"));
  const double free = static_cast<double>(room.f_bavail) * static_cast<double>(room.f_frsize);
  const double need = static_cast<double>(bytes / 2 * std::max<int64_t>(0, 2 - count_checkpoints(folder)));
  WEFT_CHECK_AS(kResourceExhausted, free >= need, "--memory_dir: ", folder, " has room for ", bytes_text(free),
                "; need ", bytes_text(need), " for two states of the run");
}

// Throws in all processes if hosts share the folder: one would replace the states of another. A collective.
void check_own_memory(const std::string& folder) {
  dist::Processes* const job = dist::Processes::current();
  if (!job || job->on_one_host()) return;
  const std::string what = "looking for --memory_dir";
  std::optional<io::AtomicFile> made;  // never committed, so its destructor removes it
  const auto make = [&] {
    if (!job->is_first_on_host()) return std::string();
    return made.emplace(unseen_path(folder)).temporary();
  };
  const std::vector<std::string> paths = job->on_all(what, make);
  job->on_all(what, [&] {
    for (size_t p = 0; p < paths.size(); ++p) {
      const int rank = static_cast<int>(p) * job->count();
      WEFT_CHECK_AS(kFailedPrecondition, paths[p].empty() || job->is_on_this_host(rank) || !io::exists(paths[p]),
                    "--memory_dir: the hosts of rank ", rank, " and rank ", job->first(), " share '", folder,
                    "'; need a folder in memory of each host");
    }
    return std::string();
  });
}

// Makes room for the next state: removes all states but the newest. Returns the files in memory that get the tensors of
// the model and of the optimizer: two of the launcher's four have the newest state. None in --memory_dir.
std::vector<std::string> room_for_state(const std::string& folder) {
  remove_old_checkpoints(folder, /*newest=*/-1, 1);
  if (!is_held(folder)) return {};
  const std::string held = held_folder();
  // A launcher may have started another run before; this one takes its files.
  for (const std::string& name : io::list_folder(held))
    if (name.starts_with(kOfARun) && name != io::base_name(folder)) io::remove_folder_at_once(held + "/" + name);
  std::error_code ignored;
  const auto of_newest = std::filesystem::read_symlink(latest_checkpoint(folder) + "/model.safetensors", ignored);
  const int first = of_newest == dist::HeldMemory::file(held, 0) ? 2 : 0;
  return {dist::HeldMemory::file(held, first), dist::HeldMemory::file(held, first + 1)};
}

}  // namespace

std::string memory_folder(const std::string& memory_dir, const std::string& dir) {
  const std::string in = memory_dir.empty() ? held_folder() : io::resolve_path(memory_dir);
  if (in.empty()) return "";
  // A run finds its own states only.
  const std::string run = run_of(dir);
  const std::string folder = str_cat(in, "/", kOfARun, io::base_name(run), "-", io::hex64(io::checksum(run)));
  need_own(folder);
  return folder;
}

void MemorySaver::begin(const CheckpointSaver::Content& c) {
  step_ = c.state.step;
  for (const NamedCells* cells : {&c.model, &c.optimizer})
    for (const auto& [name, cell] : *cells) host_bytes_ += 2 * cell.type().nbytes();
  internal::on_each_host("preparing the memory of states", [&] {
    make_folder(setup_.memory, host_bytes_);
    while (newest_step(setup_.memory) > step_) io::remove_folder_at_once(latest_checkpoint(setup_.memory));
  });
  check_own_memory(setup_.memory);
  saved_ = newest_of_first(setup_.dir);
}

bool MemorySaver::due(int64_t step) {
  if (setup_.memory.empty() || save_ || cannot_keep_) return false;
  if (setup_.memory_every > 0) return step - step_ >= setup_.memory_every;
  const double now = now_seconds();
  if (since_ < 0) since_ = now;
  return now - since_ > interval_;
}

void MemorySaver::save(const CheckpointSaver::Content& c, int64_t saved) {
  const flight::HostPhase phase(flight::Phase::kCheckpoint);
  step_ = c.state.step;
  since_ = now_seconds();
  stall_ = 0;
  go_on([&] {
    const auto room = [&] {
      io::write_file_atomic(saved_path(setup_.memory), saved_text(setup_.dir, std::max(saved_, saved)));
      return room_for_state(setup_.memory);
    };
    save_ = begin_checkpoint(setup_.memory, c.state, c.model, c.optimizer, /*keep=*/0, /*lock=*/nullptr, c.about,
                             AsyncSave::Pace::kYield, room);
  });
}

void MemorySaver::end() {
  if (save_) go_on([this] { save_->wait(); });
  if (setup_.memory.empty()) return;
  internal::on_each_host("removing states in memory", [this] {
    if (!io::is_folder(setup_.memory)) return;
    try {
      io::remove_leftovers(setup_.memory);
      remove_old_checkpoints(setup_.memory, /*newest=*/-1, 0);
      ::unlink(saved_path(setup_.memory).c_str());
      ::rmdir(setup_.memory.c_str());
    } catch (const Error& e) {  // the checkpoints of the run are complete
      internal::warn(str_cat("states in memory are not removed: ", e.what()));
    }
  });
}

void MemorySaver::failed(const Error& error) {
  cannot_keep_ = error.code() == Code::kFailedPrecondition;
  if (dist::is_first() && !std::exchange(warned_, true))
    internal::warn(str_cat("step ", step_, " is not kept in memory: ", error.what(), "; training goes on"));
}

void MemorySaver::completed(const AsyncSave& save) {
  // About 2 % of the time: steps are up to 10 % slower while threads write.
  interval_ = std::max(0.5, 50 * (stall_ + 0.1 * save.seconds()));
}

// The step of the newest state in memory, if a run resumes from it; else -1. `saved`: of the newest checkpoint on disk.
static int64_t step_in_memory(const std::string& dir, const std::string& memory, int64_t saved) {
  const int64_t kept = memory.empty() ? -1 : newest_step(memory);
  return kept >= std::max<int64_t>(0, saved) && knows_checkpoint(memory, dir, saved) ? kept : -1;
}

std::string newest_state(const std::string& dir, const std::string& memory) {
  return latest_checkpoint(step_in_memory(dir, memory, newest_step(dir)) >= 0 ? memory : dir);
}

namespace {

// The files of a folder, with the names and sizes that all processes need.
struct StateFiles {
  std::vector<std::pair<std::string, int64_t>> files;

  static StateFiles in(const std::string& folder) {
    StateFiles all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      if (entry.is_regular_file())
        all.files.emplace_back(std::filesystem::relative(entry.path(), folder).string(), io::file_size(entry.path()));
    return all;
  }
  std::string text() const {
    std::string text;
    for (const auto& [name, size] : files) text += str_cat(size, " ", name, "\n");
    return text;
  }
  static StateFiles of(const std::string& text) {
    StateFiles all;
    std::istringstream lines(text);
    int64_t size = 0;
    for (std::string name; lines >> size && lines.get() && std::getline(lines, name);)
      all.files.emplace_back(name, size);
    return all;
  }
  int64_t bytes() const {
    int64_t all = 0;
    for (const auto& [name, size] : files) all += size;
    return all;
  }
};

// Keeps the first error of this process until all collectives are complete.
class DelayedError {
 public:
  /// Calls fn if `mine`, and if there is no error yet.
  void operator()(bool mine, const std::function<void()>& fn) {
    if (!mine || error_) return;
    try {
      fn();
    } catch (const Error& e) {
      error_ = e;
    }
  }
  void fail() const {
    if (error_) throw *error_;
  }

 private:
  std::optional<Error> error_;
};

}  // namespace

void share_newest_state(const std::string& dir, const std::string& memory) {
  constexpr int64_t kPiece = 16 << 20;
  const std::string what = "sharing the newest state in memory";
  dist::Processes* const job = dist::Processes::current();
  if (!job || memory.empty() || job->on_one_host()) return;
  const int64_t saved = newest_of_first(dir);
  std::vector<int64_t> steps;  // by process
  for (const std::string& step : job->on_all(what, [&] { return str_cat(step_in_memory(dir, memory, saved)); }))
    steps.push_back(std::stoll(step));
  const auto newest = std::max_element(steps.begin(), steps.end());
  if (*newest < 0 || std::ranges::count(steps, *newest) == std::ssize(steps)) return;
  const auto donor = static_cast<int>(newest - steps.begin());
  const int64_t own = steps[static_cast<size_t>(job->process())];
  const bool gives = job->process() == donor, takes = job->is_first_on_host() && own < *newest;
  const std::string path = str_cat(memory, "/step_", *newest);
  const auto list = [&] { return gives ? StateFiles::in(path).text() : ""; };
  const StateFiles state = StateFiles::of(job->on_all(what, list)[static_cast<size_t>(donor)]);
  DelayedError work;
  std::optional<io::AtomicFolder> folder;
  const auto agree = [&] {
    job->on_all(what, [&] {
      work.fail();
      return std::string();
    });
  };
  work(takes, [&] {
    // States that do not follow from the checkpoint would seem to, beside the copy. One older state may stay.
    while (own < 0 && newest_step(memory) >= 0) io::remove_folder_at_once(latest_checkpoint(memory));
    remove_old_checkpoints(memory, /*newest=*/-1, 1);
    make_folder(memory, 2 * state.bytes());
    folder.emplace(path);
  });
  std::vector<std::byte> bytes(static_cast<size_t>(kPiece));
  for (const auto& [name, size] : state.files) {
    std::optional<io::MappedFile> from;
    std::optional<io::AtomicFile> to;
    work(gives, [&] { from.emplace(path + "/" + name, /*reads=*/true); });
    work(takes, [&] {
      io::make_folders(io::folder_of(folder->path(name)));
      to.emplace(folder->path(name));
    });
    for (int64_t at = 0; at < size; at += kPiece) {
      const std::span<std::byte> piece(bytes.data(), static_cast<size_t>(std::min(kPiece, size - at)));
      work(gives, [&] { from->read(at, piece); });
      job->broadcast(donor, {piece.data(), kUInt8, {std::ssize(piece)}, {1}});
      work(takes, [&] { to->write(piece); });
    }
    work(takes, [&] { to->commit(); });
  }
  agree();  // a state with a part that could not be read must not get its name
  work(takes, [&] {
    folder->commit();
    io::write_file_atomic(saved_path(memory), saved_text(dir, saved));
  });
  agree();
  if (dist::is_first())
    std::printf("state %s is copied from the host of rank %d\n", path.c_str(), donor * job->count());
}

}  // namespace weft::train
