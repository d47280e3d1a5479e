// The journal of a service: a file with the changes of its state as records. A record is written before the replies of
// its event are sent, so that a restarted service has all state that its members have seen. Records are not synced to
// disk: a crash of the host may lose the last records. One file belongs to one run. It contains the values of keys but
// no token, and only its owner can read it.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace weft::control {

class Journal {
 public:
  /// Makes the changes of one record. Returns "", or why they do not fit the state.
  using Commit = std::function<std::string(const std::string& record)>;

  /// Opens or creates the file with this title, which names the run, and commits its records. Removes an incomplete
  /// last record with a warning: its writer was killed. Throws if the file is in use, has another title, or is damaged
  /// before its last record. `keeps_history`: if a write fails, the file keeps its records; otherwise it becomes empty.
  /// `earlier`: for a new run. A file whose title begins with this text is of an earlier run, and is replaced.
  Journal(const std::string& path, const std::string& title, const Commit& commit, bool keeps_history = false,
          const std::string& earlier = {});
  ~Journal();
  Journal(const Journal&) = delete;

  /// Whether the file had records when it was opened.
  bool continued() const { return continued_; }
  /// Writes one record. If the write fails, warns, and writes no more records.
  void append(const std::string& record);
  /// Whether the file is several times as large as after the last rewrite().
  bool is_long() const { return fd_ >= 0 && size_ >= next_size_; }
  /// Replaces the records of the file.
  void rewrite(const std::vector<std::string>& records);

 private:
  void write(const std::string& records);

  std::string path_, title_;
  const bool keeps_history_;
  int fd_ = -1;
  bool continued_ = false;
  int64_t size_ = 0, next_size_ = int64_t{16} << 20;
};

/// Commits the records of a journal, which its service may be writing: an incomplete last record is left out with a
/// warning. Returns the title. Changes nothing. Throws DataLoss, naming the file, if it is no journal, or damaged
/// before its last record.
std::string read_journal(const std::string& path, const Journal::Commit& commit);

}  // namespace weft::control
