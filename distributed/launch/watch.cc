#include "distributed/launch/watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "framework/base/clock.h"

namespace weft::dist {
namespace {

using flight::Event;
using flight::Record;

constexpr int64_t kEvery = 500'000'000, kPatience = 2'000'000'000;  // ns
constexpr int kMostAlike = 3;                                       // limit of the reports about one rank in one phase

struct Tail {
  std::optional<Record> record, next;
};

// Reads a rank's record with this number (0: its last record), and the next record.
Tail read_tail(const std::string& path, uint64_t sequence) {
  Tail tail;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return tail;
  flight::Header h;
  const auto record = [&](uint64_t s) -> std::optional<Record> {
    Record r;
    const auto at = static_cast<off_t>(sizeof h + (s - 1) % h.capacity * sizeof r);
    const bool good = pread(fd, static_cast<void*>(&r), sizeof r, at) == sizeof r && r.sequence == s &&
                      r.check == flight::check_of(r);
    return good ? std::optional(r) : std::nullopt;
  };
  if (pread(fd, static_cast<void*>(&h), sizeof h, 0) == sizeof h && h.capacity > 0 && h.next > 0) {
    if (sequence == 0) sequence = h.next;
    tail.record = record(sequence);
    tail.next = record(sequence + 1);
  }
  close(fd);
  return tail;
}

bool waits(const Record& r) { return r.event == Event::kWait || r.event == Event::kStart; }

std::string seconds_text(int64_t ns) { return formatted("%.1f s", static_cast<double>(ns) * 1e-9); }

}  // namespace

std::optional<std::string> Watch::look(bool last) {
  const int64_t now = internal::now_ns();
  if ((now < next_ && !last) || deadlock_ || folder_.path().empty()) return {};
  next_ = now + kEvery;
  try {
    if (waiting_)
      if (const auto text = end(); text || !waiting_) return text;
    return begin();
  } catch (const std::exception&) {  // a watch does not end a job
    return {};
  }
}

std::optional<std::string> Watch::begin() {
  WaitingRank longest;
  bool all = true;
  const int64_t now = internal::now_ns();
  for (const auto& file : std::filesystem::directory_iterator(folder_.path())) {
    const std::string name = file.path().filename();
    if (!name.starts_with("ring.")) continue;
    const std::optional<Record> last = read_tail(file.path(), 0).record;
    if (!last || !waits(*last) || now - last->time < kPatience) {
      all = false;
      continue;
    }
    if (longest.path.empty() || last->time < longest.record.time) longest = {file.path(), *last};
  }
  if (longest.path.empty() || (waiting_ && !all)) return {};
  // Finished waits are not reported.
  const auto d = folder_.diagnose({.patience = static_cast<double>(kPatience) * 1e-9, .slow = 1e9});
  using diagnose::Fault;
  // These faults end the job at once.
  if (!d || d->fault == Fault::kNone || d->fault == Fault::kDead || d->fault == Fault::kFailed ||
      d->fault == Fault::kStopped)
    return {};
  if (all && (d->fault == Fault::kNeverEntered || d->fault == Fault::kExtra || d->fault == Fault::kMismatched)) {
    deadlock_ = d;
    return {};
  }
  if (waiting_) return {};  // reported
  longest.late = d->rank;
  const int reports = ++reported_[{d->rank, d->detail}];
  longest.shown = reports <= kMostAlike;
  waiting_ = longest;
  if (!longest.shown) return {};
  return str_cat("the job waits: ", d->verdict(),
                 reports == kMostAlike ? "; more waits like this one are not reported" : "");
}

std::optional<std::string> Watch::end() {
  const Tail tail = read_tail(waiting_->path, waiting_->record.sequence);
  if (tail.record && !tail.next) return {};
  const WaitingRank over = *std::exchange(waiting_, {});
  if (!over.shown || !tail.next || tail.next->outcome != 0) return {};
  return str_cat("the job goes on: rank ", over.late, " came after ", seconds_text(tail.next->time - over.record.time));
}

}  // namespace weft::dist
