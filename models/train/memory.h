// States in memory: checkpoints in a folder in memory of the host, from which processes that were killed go on. The
// launcher holds the memory (distributed/launch/held_memory.h), or it is a folder in --memory_dir.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/train/checkpoint_saver.h"
#include "models/train/options.h"

namespace weft::train {

/// Keeps the newest two states of a run in memory, whole on each host. Its functions are collectives, as in
/// CheckpointSaver.
class MemorySaver final : public RunningSave {
 public:
  /// `setup` must outlive this.
  explicit MemorySaver(const Setup& setup) : setup_(setup) {}

  /// Prepares the memory, before the first step. Only if there is a Setup::memory.
  void begin(const CheckpointSaver::Content& content);
  /// Since begin(): bytes of memory of the host that the states need; 0: none are kept.
  int64_t host_bytes() const { return host_bytes_; }
  /// Whether a state is due after `step`, which begins now: the first process's answer counts. While a state is
  /// written, none is due.
  bool due(int64_t step);
  /// Begins to write a state, which threads do. An error becomes a warning. `saved`: CheckpointSaver::saved().
  void save(const CheckpointSaver::Content& content, int64_t saved);
  /// Ends the state that is being written, after the last checkpoint. Removes the states.
  void end();

 private:
  void failed(const Error& error) override;
  void completed(const AsyncSave& save) override;

  const Setup& setup_;
  double since_ = -1;      // when the newest state began
  double interval_ = 0.5;  // auto: seconds between states
  int64_t host_bytes_ = 0;
  int64_t saved_ = -1;        // the newest checkpoint on disk at the start, as the first process sees it
  bool cannot_keep_ = false;  // an error that the next state would have too
  bool warned_ = false;
};

/// The folder of the states of the run whose checkpoints are in `dir`: in `memory_dir`, or else in the folder that the
/// launcher of this process holds. Empty: there is none. Throws FailedPrecondition if other users can write to it.
std::string memory_folder(const std::string& memory_dir, const std::string& dir);

/// Copies the newest state in memory that follows from the newest checkpoint in `dir` to the hosts that lack it, as a
/// host that has joined the job has none. A collective; throws in all processes.
void share_newest_state(const std::string& dir, const std::string& memory);

/// The checkpoint to resume from: the newest state in `memory`, or the newest checkpoint in `dir` if this is newer or
/// the states do not follow from it. "" if there is none.
std::string newest_state(const std::string& dir, const std::string& memory);

}  // namespace weft::train
