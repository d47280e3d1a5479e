#include "framework/dispatch/rank/flight.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "framework/base/clock.h"
#include "framework/base/mutex.h"

namespace weft::flight {

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

ProcessStat process_stat(const std::string& pid) {
  const std::string line = first_line(str_cat("/proc/", pid, "/stat"));
  size_t at = line.rfind(')');  // the name of the program may have spaces
  if (at == line.npos || at + 2 >= line.size()) return {};
  const char state = line[at + 2];
  for (int field = 2; field < 22 && at != line.npos; ++field) at = line.find(' ', at + 1);
  return {state, at == line.npos ? 0 : std::strtoull(line.c_str() + at, nullptr, 10)};
}

namespace {

template <size_t N>
void copy_text(char (&to)[N], std::string_view from) {
  std::memset(to, 0, N);
  std::memcpy(to, from.data(), std::min(from.size(), N - 1));
}

int64_t clock_ns(clockid_t id) {
  timespec t{};
  clock_gettime(id, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// The rings of this process. Never destroyed: threads may write until the process ends.
struct Rings {
  Mutex mutex;
  pid_t pid = 0;  // the process that made them; a child of fork() has none
  std::vector<std::unique_ptr<RecordRing>> all;
  bool failed = false;
  ViewPlace place;
};
Rings& rings() {
  static auto* const r = new Rings;
  return *r;
}
std::atomic<bool> any{false};

template <class F>
void for_each(const F& f) {
  if (!any.load(std::memory_order_acquire)) return;
  Rings& r = rings();
  MutexLock lock(r.mutex);
  if (r.pid != getpid()) return;
  for (const auto& ring : r.all) f(*ring);
}

// Shows readers that the process runs. It takes no lock that a computing thread holds for long.
void heartbeat() {
  for (;;) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(kHeartbeat));
    for_each([](RecordRing& r) { r.beat(); });
  }
}

void at_exit(int code, void*) {
  for_each([&](RecordRing& r) { r.end(code); });
}

}  // namespace

uint64_t check_of(const Record& r) {
  uint64_t words[7];
  std::memcpy(words, &r, sizeof words);
  uint64_t h = 0x9e3779b97f4a7c15ULL;
  for (uint64_t w : words) h = std::rotl((h ^ w) * 0xff51afd7ed558ccdULL, 29);
  return h;
}

// Whether there is no file of this name, or a ring that may be replaced. A ring that was being made has no magic yet.
static bool is_ring_or_none(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT;
  char magic[sizeof kMagic] = {};
  const ssize_t n = read(fd, magic, sizeof magic);
  close(fd);
  constexpr char kZeros[sizeof kMagic] = {};
  return n == 0 || (n == sizeof magic &&
                    (std::memcmp(magic, kMagic, sizeof magic) == 0 || std::memcmp(magic, kZeros, sizeof magic) == 0));
}

std::string ring_name(int rank) { return str_cat("ring.", rank); }

RecordRing::RecordRing(const std::string& path, int rank, int size, uint32_t capacity)
    : bytes_(sizeof(Header) + capacity * sizeof(Record)), capacity_(capacity) {
  WEFT_CHECK_AS(kFailedPrecondition, is_ring_or_none(path), "flight recorder: ", path,
                " exists and is not a flight record; need another folder in ", kFolderVariable);
  // A process that still has the old file mapped keeps it.
  unlink(path.c_str());
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  WEFT_CHECK_AS(kFailedPrecondition, fd >= 0, "flight recorder: cannot make ", path, ": ", std::strerror(errno));
  // The room is reserved now, because a store could fail later.
  const int error = posix_fallocate(fd, 0, static_cast<off_t>(bytes_));
  void* const at = error ? MAP_FAILED : mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  const int reason = error ? error : errno;
  close(fd);
  if (at == MAP_FAILED) unlink(path.c_str());
  WEFT_CHECK_AS(kResourceExhausted, at != MAP_FAILED, "flight recorder: no room for ", path, " of ", bytes_,
                " bytes: ", std::strerror(reason));
  header_ = new (at) Header;
  records_ = reinterpret_cast<Record*>(static_cast<char*>(at) + sizeof(Header));
  Header& h = *header_;
  std::memset(static_cast<void*>(&h), 0, sizeof h);
  h.header_bytes = sizeof(Header), h.record_bytes = sizeof(Record), h.capacity = capacity;
  h.rank = rank, h.size = size, h.pid = getpid();
  h.process_start = process_stat("self").start;
  h.monotonic = h.alive = internal::now_ns(), h.real = clock_ns(CLOCK_REALTIME);
  char host[64] = {};
  gethostname(host, sizeof host - 1);
  copy_text(h.host, host);
  copy_text(h.boot, first_line("/proc/sys/kernel/random/boot_id"));
  std::memcpy(h.magic, kMagic, sizeof kMagic);  // last: a file with it is complete
}

RecordRing::~RecordRing() { munmap(header_, bytes_); }

void RecordRing::write(Record r) {
  const uint64_t at = std::atomic_ref(header_->next).fetch_add(1, std::memory_order_relaxed);
  r.sequence = at + 1;
  if (r.time == 0) r.time = internal::now_ns();
  r.check = check_of(r);
  std::memcpy(static_cast<void*>(records_ + at % capacity_), &r, sizeof r);
}

uint16_t RecordRing::communicator(std::string_view name) {
  Header& h = *header_;
  name = name.substr(0, sizeof h.communicators[0].name - 1);
  const uint32_t count = h.communicator_count;
  for (uint32_t i = 0; i < count; ++i)
    if (name == h.communicators[i].name) return static_cast<uint16_t>(i);
  if (count == kMaxCommunicators) return kMaxCommunicators - 1;
  copy_text(h.communicators[count].name, name);
  h.communicator_count = count + 1;
  return static_cast<uint16_t>(count);
}

Record RecordRing::start(uint16_t communicator, const CommRequest& request, int64_t bytes, const Record& step) {
  const bool transfer = request.kind == Collective::kSend || request.kind == Collective::kRecv;
  CommunicatorRow& row = header_->communicators[communicator];
  Record r = step;
  r.event = Event::kStart;
  r.number = static_cast<uint32_t>(++(transfer ? row.transfers : row.started));
  r.communicator = communicator;
  r.kind = request.kind, r.op = request.op;
  r.dtype = request.kind == Collective::kRecv ? request.out.dtype : request.in.dtype;
  r.bytes = bytes;
  r.site = request.site;
  r.peer = static_cast<uint16_t>(request.peer);
  r.time = internal::now_ns();
  write(r);
  return r;
}

void RecordRing::phase(Event event, Phase phase, uint16_t plan, uint32_t run, uint32_t position, uint32_t call) {
  write({.number = call, .position = position, .run = run, .plan = plan, .event = event, .phase = phase});
}

void RecordRing::fail(Code code, std::string_view why) {
  if (header_->failure[0] == 0) {
    copy_text(header_->failure, why);
    header_->failure_code = static_cast<int32_t>(code);
  }
  write({.event = Event::kFailed, .outcome = static_cast<uint8_t>(code)});
}

void RecordRing::set_mesh(std::string_view mesh) { copy_text(header_->mesh, mesh); }
void RecordRing::set_plan(uint64_t hash) {
  if (header_->plan == 0) header_->plan = hash;
}
void RecordRing::set_purpose(std::string_view text) { copy_text(header_->purpose, text); }
void RecordRing::set_view(const ViewPlace& place) {
  Header& h = *header_;
  copy_text(h.replica, place.replica);
  h.view = place.view, h.place = place.place, h.members = place.members;
  for (uint32_t i = 0; i < h.communicator_count; ++i)
    if (kReplicaAxis == h.communicators[i].name) h.sums_before = h.communicators[i].started;
}
void RecordRing::beat() { std::atomic_ref(header_->alive).store(internal::now_ns(), std::memory_order_relaxed); }
void RecordRing::end(int code) {
  beat();
  header_->code = code;
  header_->ended = 1;
}

const std::string& folder() {
  static const auto* const f = [] {
    const char* const text = std::getenv(kFolderVariable);
    return new std::string(text ? text : "");
  }();
  return *f;
}

RecordRing* ring(int rank, int size) {
  if (folder().empty()) return nullptr;
  Rings& r = rings();
  MutexLock lock(r.mutex);
  if (r.pid != getpid()) {
    for (auto& parents : r.all) static_cast<void>(parents.release());
    r.all.clear();
    r.pid = getpid();
    std::error_code ignored;  // then the ring cannot be made
    std::filesystem::create_directories(folder(), ignored);
    on_exit(at_exit, nullptr);
    std::thread(heartbeat).detach();
  }
  for (const auto& known : r.all)
    if (known->rank() == rank) return known.get();
  if (r.failed) return nullptr;
  try {
    r.all.push_back(std::make_unique<RecordRing>(folder() + "/" + ring_name(rank), rank, size));
    any.store(true, std::memory_order_release);
    r.all.back()->set_view(r.place);
    return r.all.back().get();
  } catch (const Error& e) {
    r.failed = true;
    internal::warn(str_cat(e.what(), "; nothing is recorded"));
    return nullptr;
  }
}

void set_view(const ViewPlace& place) {
  if (folder().empty()) return;
  {
    MutexLock lock(rings().mutex);
    rings().place = place;
  }
  for_each([&](RecordRing& r) { r.set_view(place); });
}

namespace {
std::atomic<const char*> current{""};
}

HostPhase::HostPhase(Phase phase) : phase_(phase), before_(current.exchange(to_string_view(phase).data())) {
  for_each([&](RecordRing& r) { r.phase(Event::kPhaseBegin, phase_); });
}
HostPhase::~HostPhase() {
  current.store(before_);
  for_each([&](RecordRing& r) { r.phase(Event::kPhaseEnd, phase_); });
}

const char* current_phase() { return current.load(); }

}  // namespace weft::flight
