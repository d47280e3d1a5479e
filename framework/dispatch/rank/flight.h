// The flight recorder: the last collectives and host phases of each rank, in a file that outlives its process, however
// the process ends. A ring of fixed records is mapped; writing one is a few stores. //tools:diagnose reads the files.
//
// A file is a Header and then a ring of Records. Record number s (from 1) is in slot (s - 1) % capacity. Each record
// has a check word, so that a reader skips one that was being written. Times are nanoseconds of the monotonic clock.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "framework/base/error.h"
#include "framework/dispatch/rank/communicator.h"

namespace weft::flight {

/// The environment variable with the folder of the records. Without it, nothing is recorded.
inline constexpr const char* kFolderVariable = "JOB_FLIGHT";

enum class Event : uint8_t { kNone, kStart, kWait, kEnd, kPhaseBegin, kPhaseEnd, kFailed };
inline constexpr int kNumEvents = 7;

/// The activity of a host. kStep: a run of a compiled step.
enum class Phase : uint8_t { kStep, kPlan, kLoader, kEvaluation, kCheckpoint };
inline constexpr int kNumPhases = 5;
constexpr std::string_view to_string_view(Phase p) {
  constexpr std::string_view k[] = {"step", "plan", "loader", "evaluation", "checkpoint"};
  return k[static_cast<int>(p)];
}

/// The first line of a file; "" without one.
std::string first_line(const std::string& path);

/// The state of a process in /proc/PID/stat.
struct ProcessStat {
  char state = 0;      // 'R', 'T' (stopped), ...; 0: there is no such process
  uint64_t start = 0;  // in ticks after the system's start
};
/// `pid`: a number, or "self".
ProcessStat process_stat(const std::string& pid);

struct Record {
  uint64_t sequence = 0;       // number of the record on this rank, from 1; 0: none
  int64_t time = 0;            // ns
  uint64_t site = 0;           // CommRequest::site
  int64_t bytes = 0;           // as CollectiveRecord counts them
  uint32_t number = 0;         // number among the collectives or the transfers of this communicator, from 1; where a
                               // run of a step begins, number of the call of this step
  uint32_t position = 0;       // number of collectives that this run of the step has started before
  uint32_t run = 0;            // number of compiled steps that this rank has run, with this one; 0: outside of steps
  uint16_t plan = 0;           // number of the compiled step, from 1; 0: none
  uint16_t communicator = 0;   // row of Header::communicators
  Event event = Event::kNone;  // the byte of a file may have any value
  Collective kind = Collective::kBarrier;
  DType dtype = kFloat32;
  ReduceOp op = ReduceOp::kSum;
  uint8_t outcome = 0;  // 0 or a Code, for kEnd and kFailed
  Phase phase = Phase::kStep;
  uint16_t peer = 0;   // peer of a transfer, or root of a broadcast
  uint64_t check = 0;  // check_of()
};
static_assert(sizeof(Record) == 64 && std::is_trivially_copyable_v<Record>);

uint64_t check_of(const Record& r);

struct CommunicatorRow {
  char name[48];  // mesh dimensions, "dp,tp"; filled up with zeros
  uint64_t started, transfers;
};

/// The communicator between equal ranks of live replicas.
inline constexpr std::string_view kReplicaAxis = "replica";

/// The place of a replica in a view of live replicas.
struct ViewPlace {
  std::string replica;  // its name
  int64_t view = 0;     // 0: none
  uint32_t place = 0, members = 0;
};

inline constexpr int kMaxCommunicators = 96;
inline constexpr char kMagic[8] = {'W', 'F', 'L', 'I', 'G', 'H', 'T', '1'};

struct Header {
  char magic[8];
  uint32_t header_bytes, record_bytes, capacity, communicator_count;
  int32_t rank, size, pid;
  int32_t ended;            // 1: exit() was called
  int32_t code;             // code of exit()
  int32_t failure_code;     // Code of `failure`
  uint64_t process_start;   // start of the process, as in /proc/PID/stat
  int64_t monotonic, real;  // both clocks at the same moment
  int64_t alive;            // time of the last heartbeat of the process, one every kHeartbeat
  uint64_t next;            // records begun
  uint64_t plan;            // hash of the first plan
  char host[64], boot[40], mesh[64];
  char failure[512];  // why the rank failed; empty: it has not
  char purpose[256];  // the host's call that is a collective of all ranks, as "save at a.cc:3"; empty: none
  CommunicatorRow communicators[kMaxCommunicators];
  char replica[32];         // name of the replica whose job this is; empty: none
  int64_t view;             // its view of live replicas; 0: none
  uint32_t place, members;  // the replica's place in the view; the view's replicas
  uint64_t sums_before;     // collectives over kReplicaAxis that the rank started before the view
};
static_assert(sizeof(Header) % 64 == 0 && std::is_trivially_copyable_v<Header>);

inline constexpr int64_t kHeartbeat = 50'000'000;  // ns
inline constexpr uint32_t kCapacity = 4096;        // records of a ring
inline constexpr int64_t kRingBytes = sizeof(Header) + int64_t{kCapacity} * sizeof(Record);

/// The name of a rank's file in the folder.
std::string ring_name(int rank);

/// The writer of one rank's file. Several threads may call it, but only one at a time starts collectives.
class RecordRing {
 public:
  /// Makes the file, in place of one with this name. Throws if there is no room for it.
  RecordRing(const std::string& path, int rank, int size, uint32_t capacity = kCapacity);
  ~RecordRing();
  RecordRing(const RecordRing&) = delete;

  int rank() const { return header_->rank; }
  /// Writes a record: sets its sequence and check.
  void write(Record r);
  /// The row of a communicator; makes it at the first call. Rows are few: a full table gives the last one.
  uint16_t communicator(std::string_view name);
  /// Writes and returns the record of a collective that starts now; later events of the collective are copies of it.
  /// `step` has the plan, run and position.
  Record start(uint16_t communicator, const CommRequest& request, int64_t bytes, const Record& step = {});
  void phase(Event event, Phase phase, uint16_t plan = 0, uint32_t run = 0, uint32_t position = 0, uint32_t call = 0);
  /// A number for a run of a step.
  uint32_t new_run() { return ++runs_; }
  /// Records why the rank failed.
  void fail(Code code, std::string_view why);
  void set_mesh(std::string_view mesh);
  void set_plan(uint64_t hash);
  void set_purpose(std::string_view text);
  void set_view(const ViewPlace& place);
  void beat();
  /// Records that the process ends by exit(code).
  void end(int code);

 private:
  Header* header_ = nullptr;
  Record* records_ = nullptr;
  size_t bytes_ = 0;
  uint32_t capacity_ = 0;
  std::atomic<uint32_t> runs_{0};
};

/// The folder of the records, or empty.
const std::string& folder();
/// The ring of a rank of this process, made at the first call with its folder; null if nothing is recorded. A folder
/// that cannot be written is a warning.
RecordRing* ring(int rank, int size);
/// Sets the view of all rings of this process, also of later ones. No step runs.
void set_view(const ViewPlace& place);
/// A phase of the host, on all ranks of this process, while the object exists.
class HostPhase {
 public:
  explicit HostPhase(Phase phase);
  ~HostPhase();
  HostPhase(const HostPhase&) = delete;

 private:
  const Phase phase_;
  const char* const before_;
};
/// The phase that the host of this process is in, from a string literal; empty: none.
const char* current_phase();

}  // namespace weft::flight
