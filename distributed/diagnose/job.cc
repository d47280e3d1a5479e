#include "distributed/diagnose/job.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "framework/base/clock.h"
#include "framework/base/one_line.h"
#include "framework/base/parse_number.h"
#include "framework/io/file.h"

namespace weft::dist::diagnose {
namespace {

using flight::Header;
using flight::Record;

constexpr int kMaxRanks = 1 << 16;
constexpr int64_t kLatest = int64_t{1} << 61;  // ns, in 2043
constexpr int64_t kMaxRing = 64 << 20, kMaxPlan = 256 << 20, kMaxVerdict = 64 << 10;

// A text in a file: up to its zero, without control characters.
std::string text_of(const char* at, size_t size) {
  std::string text(at, strnlen(at, size));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = '?';
  return text;
}
template <size_t N>
std::string text_of(const char (&field)[N]) {
  return text_of(field, N);
}

bool valid(const Record& r, size_t communicators) {
  return r.check == flight::check_of(r) && static_cast<int>(r.event) > 0 &&
         static_cast<int>(r.event) < flight::kNumEvents && static_cast<int>(r.kind) < kNumCollectives &&
         static_cast<int>(r.dtype) < kNumDTypes && static_cast<int>(r.op) < 4 &&
         static_cast<int>(r.phase) < flight::kNumPhases &&
         (r.event > flight::Event::kEnd || r.communicator < communicators) && r.time >= 0 && r.time < kLatest;
}

// The state of a ring's process on this host.
ProcessState look_at(const RankTrace& t) {
  const auto [state, start] = flight::process_stat(str_cat(t.pid));
  if (state == 0 || start == 0 || start != t.process_start) return ProcessState::kGone;
  if (state == 'T' || state == 't') return ProcessState::kStopped;
  return state == 'Z' || state == 'X' ? ProcessState::kGone : ProcessState::kRuns;
}

// "ring.3": 3; "plan.1.3.json": nothing.
std::optional<int> ring_rank(const std::string& name) {
  constexpr std::string_view prefix = "ring.";
  if (!name.starts_with(prefix)) return {};
  return parse_number<int>(std::string_view(name).substr(prefix.size()), 0, kMaxRanks - 1);
}

}  // namespace

const std::vector<PlannedRow>* TracedJob::rows(int plan, int rank) const {
  const auto it = plans.find({plan, rank});
  if (it == plans.end()) return nullptr;
  return &it->second->programs[it->second->program_of.at(rank)];
}

RankTrace parse_ring(std::string_view bytes, std::string_view what) {
  WEFT_CHECK(bytes.size() >= sizeof(Header), what, ": has ", bytes.size(), " bytes; need a header of ", sizeof(Header));
  auto h = std::make_unique<Header>();
  std::memcpy(static_cast<void*>(h.get()), bytes.data(), sizeof(Header));
  WEFT_CHECK(std::memcmp(h->magic, flight::kMagic, sizeof h->magic) == 0, what, ": is not a flight record");
  WEFT_CHECK(h->header_bytes == sizeof(Header) && h->record_bytes == sizeof(Record), what, ": is of another version");
  WEFT_CHECK(h->size >= 1 && h->size <= kMaxRanks && h->rank >= 0 && h->rank < h->size && h->pid > 0, what,
             ": is of rank ", h->rank, " of ", h->size, ", process ", h->pid, "; need a rank of a job");
  WEFT_CHECK(h->communicator_count <= flight::kMaxCommunicators, what, ": has ", h->communicator_count,
             " communicators; need at most ", flight::kMaxCommunicators);
  RankTrace t;
  t.rank = h->rank, t.size = h->size, t.pid = h->pid;
  t.host = text_of(h->host), t.boot = text_of(h->boot), t.mesh = text_of(h->mesh), t.failure = text_of(h->failure);
  t.purpose = text_of(h->purpose);
  t.process_start = h->process_start, t.plan = h->plan;
  t.failure_code = h->failure_code;
  t.monotonic = std::clamp<int64_t>(h->monotonic, 0, kLatest), t.real = std::clamp<int64_t>(h->real, 0, kLatest);
  t.alive = std::clamp<int64_t>(h->alive, 0, kLatest);
  t.ended = h->ended != 0, t.code = h->code;
  for (uint32_t c = 0; c < h->communicator_count; ++c) {
    t.communicators.push_back(text_of(h->communicators[c].name));
    t.started.push_back(h->communicators[c].started);
    if (t.communicators.back() == flight::kReplicaAxis) t.sums = h->communicators[c].started;
  }
  t.view = {.replica = text_of(h->replica), .view = h->view, .place = h->place, .members = h->members};
  t.sums -= std::min(t.sums, h->sums_before);

  const size_t slots = std::min<size_t>(h->capacity, (bytes.size() - sizeof(Header)) / sizeof(Record));
  t.damaged += h->capacity - slots;
  std::vector<Record> all;
  for (size_t i = 0; i < slots; ++i) {
    Record r;
    std::memcpy(static_cast<void*>(&r), bytes.data() + sizeof(Header) + i * sizeof(Record), sizeof r);
    if (r.sequence == 0 && r.check == 0) continue;  // never written
    if (valid(r, t.communicators.size()) && (r.sequence - 1) % h->capacity == i) {
      all.push_back(r);
    } else {
      ++t.damaged;
    }
  }
  std::sort(all.begin(), all.end(), [](const Record& a, const Record& b) { return a.sequence < b.sequence; });
  // Keeps the last records without a gap.
  size_t first = all.size();
  while (first > 0 && (first == all.size() || all[first - 1].sequence + 1 == all[first].sequence)) --first;
  t.records.assign(all.begin() + static_cast<ptrdiff_t>(first), all.end());
  if (!t.records.empty()) t.lost = t.records[0].sequence - 1;
  return t;
}

TracedJob read_job(const std::string& folder, bool look) {
  TracedJob job;
  std::map<int, RankTrace> found;
  for (const std::string& name : io::list_folder(folder)) {
    const std::string path = folder + "/" + name;
    try {
      if (const auto rank = ring_rank(name)) {
        RankTrace t = parse_ring(io::read_file(path, kMaxRing), path);
        WEFT_CHECK(t.rank == *rank, path, ": is of rank ", t.rank);
        if (t.damaged > 1)  // one record may have been incomplete when it was read
          job.notes.push_back(str_cat(path, ": ", t.damaged, " records are damaged and left out"));
        found[*rank] = std::move(t);
      } else if (name.starts_with("plan.") && name.ends_with(".json")) {
        const auto plan = std::make_shared<const PlannedStep>(parse_planned(io::read_file(path, kMaxPlan), path));
        for (const auto& [r, program] : plan->program_of) job.plans[{plan->number, r}] = plan;
      } else if (name == kVerdictName) {
        const std::string text = io::read_file(path, kMaxVerdict);
        job.verdict = one_line(text.substr(0, text.find('\n')));
      }
    } catch (const Error& e) {
      job.notes.push_back(e.what());
    }
  }
  WEFT_CHECK(!found.empty(), folder, ": has no flight record that can be read; need files ring.RANK",
             job.notes.empty() ? "" : "; ", job.notes.empty() ? "" : job.notes[0]);
  for (const auto& [rank, t] : found) job.size = std::max({job.size, rank + 1, t.size});
  job.ranks.resize(static_cast<size_t>(job.size));
  for (int r = 0; r < job.size; ++r) job.ranks[r].rank = r;
  for (auto& [rank, t] : found) job.ranks[rank] = std::move(t);

  const std::string boot = flight::first_line("/proc/sys/kernel/random/boot_id");
  char host[64] = {};
  gethostname(host, sizeof host - 1);
  for (RankTrace& t : job.ranks) {
    if (!look || !t.present() || t.boot != boot || t.host != host) continue;
    t.state = look_at(t);
    if (t.state != ProcessState::kGone) job.now = internal::now_ns();
  }
  return job;
}

}  // namespace weft::dist::diagnose
