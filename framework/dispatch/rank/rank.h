// RankContext: the identity of the current thread among ranks. Kernels of collectives find their communicators, timeout
// and works in progress here, without code for a single transport. One thread at a time uses a context.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/dispatch/rank/communicator.h"
#include "framework/dispatch/rank/flight.h"
#include "framework/tensor/device.h"

namespace weft {

/// One collective as a rank started it.
struct CollectiveRecord {
  Collective kind = Collective::kBarrier;
  std::string axes;
  DType dtype = kFloat32;
  int64_t bytes = 0;  // size of this rank's operand or result, the larger one; all-to-all: the smaller one
  uint64_t site = 0;
  friend bool operator==(const CollectiveRecord&, const CollectiveRecord&) = default;
  /// "all_gather tp f32 1024 bytes".
  std::string to_string() const;
};

/// Sums over all collectives of one kind and axes.
struct CollectiveTotal {
  int64_t count = 0;
  int64_t bytes = 0;
  double wait_seconds = 0;  // in wait(); includes this rank's own copying and reducing
  double late_seconds = 0;  // share of wait_seconds before all ranks had started the collective
  int communicator = -1;    // its number in the flight recorder; -1: not known yet
};

/// Seconds in which a rank waited for collectives and computed nothing.
struct WaitedSeconds {
  double all = 0;
  double late = 0;  // the part before the last rank had started the collective; the rest moved data
};

class RankContext {
 public:
  using Totals = std::map<std::pair<Collective, std::string>, CollectiveTotal>;

  RankContext(int rank, int size, Device device) : rank_(rank), size_(size), device_(device) {}
  virtual ~RankContext();
  RankContext(const RankContext&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  Device device() const { return device_; }
  /// The communicator of the ranks that differ from this one only along these mesh dimensions: "tp", "dp,cp" (major
  /// first), "world" for all ranks. Throws NotFound for unknown names.
  virtual Communicator& communicator(const std::string& axes) = 0;

  /// The context of the current thread, or null.
  static RankContext* current();
  /// Same as current(); throws FailedPrecondition, naming `op`, if there is none.
  static RankContext& require(const char* op);

  /// How long a collective may wait for its peers.
  std::chrono::nanoseconds timeout = std::chrono::seconds(kDefaultTimeout);
  /// Whether records() are kept.
  bool recording = false;
  /// Where collectives are recorded for diagnosis, or null.
  flight::RecordRing* flight = nullptr;
  /// If set, gets for each collective that this rank starts the sum of the 64-bit words of its operand. Operands with
  /// gaps between elements are left out.
  std::vector<uint64_t>* operand_sums = nullptr;
  using Requests = std::vector<std::pair<std::string, CommRequest>>;  // requests by mesh dimensions
  /// For tests of faults: the requests that this rank starts and records in place of a collective. The rank waits for
  /// all but the last at once. If the list is empty, it starts nothing and finds the collective done.
  std::function<Requests(const std::string& axes, const CommRequest& request)> fault;
  /// Begins a run of the compiled step with this number: the next collectives are recorded as the step's collectives.
  void begin_step(uint16_t plan);
  void end_step();
  /// The collectives started since clear_statistics(), in order.
  const std::vector<CollectiveRecord>& records() const { return records_; }
  const Totals& totals() const { return totals_; }
  void clear_statistics();
  /// Since clear_statistics().
  WaitedSeconds waited() const;

  /// Starts a collective and waits for it; throws its error.
  void run(const std::string& axes, const CommRequest& request);
  /// Starts a collective; finish(site) waits for it. Throws if one is in progress at this site.
  void start(const std::string& axes, const CommRequest& request);
  /// Waits for the collective started at this site; throws its error, or FailedPrecondition if there is none.
  void finish(uint64_t site);
  /// A barrier of all ranks, between the operations of a step that may fail and the first write to a cell: returns on
  /// all ranks or throws on all. It is counted in totals(), but is not one of the plan's collectives: not in records().
  void agree();
  /// Drops the collective started at this site, if it is in progress: it fails on its other ranks too.
  void drop(uint64_t site) { works_.erase(site); }
  /// A site that no collective of this rank has had.
  uint64_t new_site() { return kOwnSites + own_sites_++; }
  /// Number of collectives started and not yet finished.
  size_t under_way() const { return works_.size(); }
  /// Drops all works in progress, so that they fail on their other ranks too. For a rank that unwinds.
  void abandon() { works_.clear(); }

 private:
  struct UnderWay {
    Ref<Work> work;  // null: a fault has left it out
    Totals::value_type* total;
    flight::Record started;  // without a recorder: empty
  };
  UnderWay begin(const std::string& axes, const CommRequest& request);
  UnderWay launch(Totals::value_type& total, const CommRequest& request, int64_t bytes);
  UnderWay launch_faulty(Totals::value_type& total, const CommRequest& request);
  void wait(const UnderWay& w);

  int rank_, size_;
  uint64_t own_sites_ = 0;
  Device device_;
  flight::Record step_;                 // plan, run and position of the next collective
  std::map<uint16_t, uint32_t> calls_;  // key: plan
  std::map<uint64_t, UnderWay> works_;  // key: site
  std::vector<CollectiveRecord> records_;
  Totals totals_;
};

/// Makes a context the current one of this thread during its lifetime.
class ScopedRank {
 public:
  explicit ScopedRank(RankContext& context);
  ~ScopedRank();
  ScopedRank(const ScopedRank&) = delete;

 private:
  RankContext* previous_;
};

}  // namespace weft
