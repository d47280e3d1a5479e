#include "distributed/launch/processes.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <sstream>

#include "distributed/comm/gloo/world.h"
#include "distributed/comm/shared/world.h"
#include "distributed/comm/world_checks.h"
#include "framework/base/actor.h"
#include "framework/base/failure_report.h"
#include "framework/base/hash.h"
#include "framework/base/one_line.h"
#include "framework/base/origin.h"
#include "framework/dispatch/rank/flight.h"
#include "framework/dispatch/rank/rank.h"
#include "framework/dispatch/state/stored_value.h"

namespace weft::dist {
namespace {

// The thread of the job's steps; null: there was no step, or the thread has ended.
constinit std::atomic<const void*> step_thread{nullptr};

// A thread-local of each thread that has run a step: its destructor runs when the thread ends.
struct EndOfThread {
  ~EndOfThread() {
    const void* me = weft::internal::actor();
    step_thread.compare_exchange_strong(me, nullptr);
  }
};

std::unique_ptr<Processes>& job() {
  static auto* const job = new std::unique_ptr<Processes>;
  return *job;
}

// The first process on the host of each process. Each process writes its host to the store.
std::vector<int> first_on_hosts(Store& store, const std::vector<int>& firsts, int first, Store::Deadline deadline) {
  const auto key = [](int r) { return str_cat("processes/host_of_rank_", r); };
  store.set(key(first), internal::own_network());
  std::map<std::string, int> known;
  std::vector<int> all;
  for (const int r : firsts)
    all.push_back(known.emplace(store.get(key(r), deadline), static_cast<int>(all.size())).first->second);
  return all;
}

// "; at model.cc:3", the user's line, or nothing.
std::string place_text() {
  const SourceLine* const line = weft::internal::origin.line;
  return weft::internal::origin_text(line ? *line : SourceLine(), "");
}

// "NAME is X on rank 1 and Y on rank 0", from the first lines "NAME\tVALUE" that differ.
std::string difference(const std::string& a, int rank_a, const std::string& b, int rank_b) {
  std::istringstream texts[2] = {std::istringstream(a), std::istringstream(b)};
  std::string names[2], values[2];
  do
    for (int i : {0, 1}) {
      names[i] = values[i] = "";
      std::getline(texts[i], names[i], '\t');
      std::getline(texts[i], values[i]);
    }
  while (names[0] == names[1] && values[0] == values[1]);
  if (names[0] == names[1])
    return str_cat(names[0], " is ", values[0], " on rank ", rank_a, " and ", values[1], " on rank ", rank_b);
  for (int i : {0, 1}) names[i] = names[i].empty() ? "nothing" : str_cat(names[i], " (", values[i], ")");
  return str_cat("rank ", rank_a, " has ", names[0], " where rank ", rank_b, " has ", names[1]);
}

}  // namespace

Processes::Processes(Store& store, int size, int first, int count, std::chrono::nanoseconds timeout,
                     const std::string& transport, const std::string& address)
    : size_(size), first_(first), count_(count), timeout_(timeout) {
  WEFT_CHECK(count >= 1 && size % count == 0 && first % count == 0, "processes: got ranks ", first, " to ",
             first + count - 1, " of ", size, "; need an equal number for each process");
  for (int r = first; r < first + count; ++r) flight::ring(r, size);
  std::vector<int> local, firsts;
  for (int r = first; r < first + count; ++r) local.push_back(r);
  for (int r = 0; r < size; r += count) firsts.push_back(r);
  WEFT_CHECK(transport == "auto" || transport == "shared" || transport == "gloo", "processes: got the transport '",
             transport, "'; need auto, shared or gloo");
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  hosts_of_ = transport == "shared" ? std::vector<int>(firsts.size()) : first_on_hosts(store, firsts, first, deadline);
  if (transport != "gloo" && on_one_host()) {
    SharedWorldOptions options;
    options.timeout = timeout;
    world_ = make_shared_world(store, size, local, options);
  } else {
    GlooWorldOptions options;
    options.timeout = timeout;
    if (const char* given = std::getenv("JOB_ADDRESS")) options.address = given;
    if (const char* given = std::getenv("JOB_INTERFACE")) options.interface = given;
    if (options.address.empty() && options.interface.empty()) options.address = address;
    world_ = make_gloo_world(store, size, local, options);
  }
  hosts_ = world_->communicators("processes", firsts)[0];
}

Processes::~Processes() {
  hosts_ = {};
  world_.reset();
}

Processes* Processes::current() { return job().get(); }
void Processes::set_current(std::unique_ptr<Processes> next) {
  using Job = weft::internal::JobProcesses;
  weft::internal::set_job_processes(next ? []() -> Job* { return RankContext::current() ? nullptr : current(); }
                                         : static_cast<Job* (*)()>(nullptr));
  weft::internal::set_replacement_check(next ? [](const std::string& what) { current()->check_thread(what); }
                                             : static_cast<void (*)(const std::string&)>(nullptr));
  job() = std::move(next);
  step_thread = nullptr;
}

void Processes::broadcast(int root, const StridedView& data) {
  run({.kind = Collective::kBroadcast, .in = data, .out = data, .peer = root, .site = kOwnSites});
}

void Processes::max(const StridedView& data) {
  run({.kind = Collective::kAllReduce, .op = ReduceOp::kMax, .in = data, .out = data, .site = kOwnSites});
}

void Processes::take_thread(std::string_view what) {
  if (RankContext::current()) return;
  thread_local const EndOfThread end;
  const void* none = nullptr;
  step_thread.compare_exchange_strong(none, weft::internal::actor());
  check_thread(what);
}

void Processes::check_thread(std::string_view what) const {
  const void* const of_steps = step_thread.load();
  WEFT_CHECK_AS(kFailedPrecondition, !of_steps || of_steps == weft::internal::actor() || RankContext::current(), what,
                ": got a call of another thread; need the thread that runs the steps of the job, because each "
                "process would order the calls of two threads differently; read and set values there between two "
                "steps, and pass tensors to other threads");
}

void Processes::free_thread() { step_thread = nullptr; }

void Processes::run(CommRequest request) {
  check_thread("a collective of the job");
  flight::RecordRing* const ring = flight::ring(first_, size_);
  flight::Record record;
  const auto write = [&](flight::Event event, uint8_t outcome) {
    if (!ring) return;
    record.event = event;
    record.outcome = outcome;
    record.time = 0;
    ring->write(record);
  };
  if (ring) record = ring->start(ring->communicator("processes"), request, request.in.nbytes());
  const Ref<Work> work = hosts_->start(request);
  write(flight::Event::kWait, 0);
  const auto error = work->wait(std::chrono::steady_clock::now() + timeout_);
  write(flight::Event::kEnd, error ? static_cast<uint8_t>(error->code()) : uint8_t{0});
  if (error) throw *error;
}

void Processes::check_equal(const std::string& what, const Facts& mine, const std::string& need) {
  std::string text;
  for (const auto& [name, value] : mine) text += str_cat(one_line(name, 400), "\t", one_line(value, 400), "\n");
  uint64_t hash = hash_text(text);
  std::vector<uint64_t> all(static_cast<size_t>(size_ / count_));
  std::string texts[2];
  int odd = -1, common = 0;  // processes
  collective(what, [&] {
    run({.kind = Collective::kAllGather,
         .in = {&hash, kInt64, {1}, {1}},
         .out = {all.data(), kInt64, {static_cast<int64_t>(all.size())}, {1}},
         .site = kOwnSites});
    const auto count = [&](uint64_t n) { return std::count(all.begin(), all.end(), n); };
    const auto most = std::max_element(all.begin(), all.end(), [&](auto a, auto b) { return count(a) < count(b); });
    const auto other = std::find_if(all.begin(), all.end(), [&](uint64_t n) { return n != *most; });
    if (other == all.end()) return;
    odd = static_cast<int>(other - all.begin()), common = static_cast<int>(most - all.begin());
    texts[0] = from(odd, text), texts[1] = from(common, text);
  });
  if (odd < 0) return;
  const std::string found = difference(texts[0], odd * count_, texts[1], common * count_);
  fail_on_all(Error(Code::kFailedPrecondition, str_cat(found, "; need ", need, place_text())));
}

void Processes::barrier() { run({}); }

void Processes::collective(const std::string& what, const std::function<void()>& fn) {
  const auto set_purpose = [&](const std::string& text) {
    for (int r = first_; r < first_ + count_; ++r)
      if (flight::RecordRing* const ring = flight::ring(r, size_)) ring->set_purpose(text);
  };
  check_thread(what);
  const std::string place = place_text();
  set_purpose(str_cat(what, place.empty() ? "" : place.substr(1)));
  try {
    const weft::internal::NoOrigin within;  // the place is appended once
    fn();
  } catch (const Error& e) {  // the flight record keeps the purpose for the diagnosis
    if (follows(e.code())) throw;
    if (e.code() == Code::kResourceExhausted) {  // this process has no memory: the other processes do not matter
      set_purpose("");
      throw Error(e.code(), str_cat(what, ": ", e.what(), place));
    }
    const std::string text = str_cat(what, " is a collective: call it on all ranks (save, state_dict and item too), ",
                                     "not under if (is_first()); ", e.what());
    throw Error(e.code(), text + place);
  }
  set_purpose("");
}

std::string failure_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return str_cat(static_cast<int>(e.code()), " ", e.what());
  } catch (const std::exception& e) {
    return str_cat(static_cast<int>(Code::kInternal), " ", e.what());
  }
  return "";
}

Error error_in(const std::string& failure) {
  return {static_cast<Code>(std::atoi(failure.c_str())), failure.substr(failure.find(' ') + 1)};
}

void Processes::on_first(const std::string& what, const std::function<void()>& fn) {
  check_thread(what);
  std::string failure;
  if (process() == 0) {
    const flight::HostPhase phase(flight::Phase::kCheckpoint);  // the others wait
    failure = failure_of(fn);
  }
  collective(what, [&] { failure = from_first(failure); });
  if (!failure.empty()) fail_on_all(error_in(failure));
}

std::vector<std::string> Processes::on_all(const std::string& what, const std::function<std::string()>& fn) {
  check_thread(what);
  std::string result;
  const std::string failure = failure_of([&] { result = fn(); });
  std::vector<std::string> all;
  collective(what, [&] { all = gather(failure.empty() ? "+" + result : "-" + failure); });
  for (std::string& text : all) {
    const bool failed = text[0] == '-';
    text.erase(0, 1);
    if (failed) fail_on_all(error_in(text));
  }
  return all;
}

bool Processes::any(const std::string& what, bool mine) {
  uint8_t word = mine;
  collective(what, [&] { max({&word, kUInt8, {1}, {1}}); });
  return word != 0;
}

// All processes get this error. A process that ends first would hide it from the others.
void Processes::fail_on_all(const Error& cause) {
  try {
    barrier();
  } catch (const Error&) {
  }
  throw cause;
}

bool Processes::from_first(bool mine) {
  broadcast(0, {&mine, kBool, {}, {}});
  return mine;
}

std::string Processes::from_first(const std::string& mine) { return from(0, mine); }

std::string Processes::from(int process, const std::string& mine) {
  auto size = static_cast<int64_t>(mine.size());
  broadcast(process, {&size, kInt64, {}, {}});
  std::string text = mine;
  text.resize(static_cast<size_t>(size));
  broadcast(process, {text.data(), kUInt8, {size}, {1}});
  return text;
}

std::vector<std::string> Processes::gather(const std::string& mine) {
  std::vector<std::string> all;
  for (int p = 0; p < size_ / count_; ++p) all.push_back(from(p, mine));
  return all;
}

bool is_local(int rank) {
  const Processes* p = Processes::current();
  return !p || p->owns(rank);
}

bool is_first() {
  const Processes* p = Processes::current();
  return !p || p->process() == 0;
}

}  // namespace weft::dist
