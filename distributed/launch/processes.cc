#include "distributed/launch/processes.h"

#include <cstring>

#include "framework/dispatch/flight.h"
#include "framework/dispatch/state.h"

namespace weft::dist {
namespace {

std::unique_ptr<Processes>& job() {
  static auto* const job = new std::unique_ptr<Processes>;
  return *job;
}

}  // namespace

Processes::Processes(Store& store, int size, int first, int count, std::chrono::nanoseconds timeout)
    : size_(size), first_(first), count_(count), timeout_(timeout) {
  WEFT_CHECK(count >= 1 && size % count == 0 && first % count == 0, "processes: got ranks ", first, " to ",
             first + count - 1, " of ", size, "; need an equal number for each process");
  for (int r = first; r < first + count; ++r) flight::ring(r, size);
  std::vector<int> local, firsts;
  for (int r = first; r < first + count; ++r) local.push_back(r);
  for (int r = 0; r < size; r += count) firsts.push_back(r);
  SharedWorldOptions options;
  options.timeout = timeout;
  world_ = std::make_unique<SharedWorld>(store, size, local, options);
  hosts_ = world_->communicators("processes", firsts)[0];
}

Processes::~Processes() {
  hosts_ = {};
  world_.reset();
}

Processes* Processes::current() { return job().get(); }
void Processes::set_current(std::unique_ptr<Processes> next) { job() = std::move(next); }

Tensor Processes::broadcast(int root, const TensorType& type, const Tensor& mine) {
  const bool gives = root == process();
  const Tensor out = gives ? mine.contiguous() : Tensor::empty(type);
  CommRequest r{.kind = Collective::kBroadcast, .peer = root, .site = kOwnSites};
  r.in = r.out = out.view_for_kernel();
  run(r);
  return out;
}

void Processes::run(CommRequest request) {
  flight::Ring* const ring = flight::ring(first_, size_);
  flight::Record record;
  const auto write = [&](flight::Event event, uint8_t outcome) {
    if (!ring) return;
    record.event = event;
    record.outcome = outcome;
    record.time = 0;
    ring->write(record);
  };
  if (ring)
    record = ring->start(ring->communicator("processes"), request, request.in.numel() * itemsize(request.in.dtype));
  const Ref<Work> work = hosts_->start(request);
  write(flight::Event::kWait, 0);
  const auto error = work->wait(std::chrono::steady_clock::now() + timeout_);
  write(flight::Event::kEnd, error ? static_cast<uint8_t>(error->code()) : uint8_t{0});
  if (error) throw *error;
}

void Processes::barrier() { run({}); }

bool Processes::from_first(bool mine) {
  CommRequest r{.kind = Collective::kBroadcast, .site = kOwnSites};
  r.in = r.out = {&mine, kBool, {}, {}};
  run(r);
  return mine;
}

std::string Processes::from_first(const std::string& mine) {
  NoGrad guard;
  const auto bytes = [&](int64_t n, const void* data) {
    Tensor t = Tensor::empty({kUInt8, Device::cpu(), {n}});
    if (data) std::memcpy(t.view_for_kernel().data, data, static_cast<size_t>(n));
    return t;
  };
  int64_t n = static_cast<int64_t>(mine.size());
  const Tensor length = broadcast(0, {kUInt8, Device::cpu(), {sizeof n}}, bytes(sizeof n, &n));
  std::memcpy(&n, length.view_for_kernel().data, sizeof n);
  const Tensor text = broadcast(0, {kUInt8, Device::cpu(), {n}}, process() == 0 ? bytes(n, mine.data()) : Tensor());
  return {static_cast<const char*>(text.view_for_kernel().data), static_cast<size_t>(n)};
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
