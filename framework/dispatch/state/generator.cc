#include "framework/dispatch/state/generator.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/dispatch/state/state.h"
#include "framework/dispatch/state/torn.h"

namespace weft {

using internal::thread_state;

namespace {
Tensor scalar_i64(int64_t v) { return Tensor::from_vector<int64_t>({v}, Shape{}); }
std::atomic<int64_t> implicit_ordinal{0};

Tensor scalar_i64(int64_t v, Device device) {
  Tensor host = scalar_i64(v);
  if (device.type == DeviceType::kCpu) return host;
  if (device.type == DeviceType::kMeta) return Tensor::empty({kInt64, device, Shape{}});
  DeviceMemory* memory = device_memory(device.type);
  WEFT_CHECK_AS(kUnavailable, memory, "random numbers: no backend for device ", device);
  Tensor t = Tensor::empty({kInt64, device, Shape{}});
  memory->copy(host.view_for_kernel(), Device::cpu(), t.view_for_kernel(), device);
  return t;
}

struct DeviceGenerator {
  Generator generator;
  Tensor outside;  // the step number used by ops outside any step
};
struct Generators {
  Mutex mutex;
  int64_t seed WEFT_GUARDED_BY(mutex) = 0;
  std::map<std::pair<DeviceType, int>, std::unique_ptr<DeviceGenerator>> all WEFT_GUARDED_BY(mutex);
};
Generators& generators() {
  static auto* g = new Generators;
  return *g;
}

Device home_of(Device d) { return d.type == DeviceType::kCpu ? Device::cpu() : d; }

DeviceGenerator& of_device(Device wanted) {
  const Device device = home_of(wanted);
  Generators& g = generators();
  MutexLock lock(g.mutex);
  auto& own = g.all[{device.type, device.index}];
  if (!own)
    own.reset(
        new DeviceGenerator{{Buffer(scalar_i64(g.seed, device), "rng.seed"), Buffer(scalar_i64(1, device), "rng.step")},
                            scalar_i64(0, device)});
  return *own;
}
}  // namespace

Generator& default_generator(Device device) { return of_device(device).generator; }

void manual_seed(uint64_t seed) {
  default_generator();
  Generators& g = generators();
  std::vector<std::pair<Device, Generator*>> all;
  {
    MutexLock lock(g.mutex);
    g.seed = static_cast<int64_t>(seed);
    for (auto& [key, own] : g.all)
      if (key.first != DeviceType::kMeta)  // its numbers have no values
        all.emplace_back(Device(key.first, key.second), &own->generator);
  }
  for (auto& [device, generator] : all) {
    generator->seed.set(scalar_i64(static_cast<int64_t>(seed), device));
    generator->step.set(scalar_i64(1, device));
  }
  implicit_ordinal = 0;
}

RandomKey next_random_key(Device device) {
  DeviceGenerator& own = of_device(device);
  Generator& g = own.generator;
  if (!thread_state.capture) check_not_torn(g.step.cell());  // ops outside steps do not read it
  RandomKey k;
  k.seed = g.seed.value();
  if (internal::StepScope* s = thread_state.step) {
    k.step = g.step.value();
    k.op_id = s->ordinal++;
    const Device home = home_of(device);
    if (std::find(s->used_on.begin(), s->used_on.end(), home) == s->used_on.end()) s->used_on.push_back(home);
  } else {
    k.step = own.outside;
    k.op_id = implicit_ordinal.fetch_add(1);
  }
  k.seed = internal::SeedScope::changed(k.seed);
  return k;
}

namespace internal {
SeedScope::SeedScope(SeedChange change) : change_(std::move(change)), outer_(std::exchange(thread_state.seeds, this)) {}
SeedScope::~SeedScope() { thread_state.seeds = outer_; }
Tensor SeedScope::apply(const Tensor& seed) const { return change_(outer_ ? outer_->apply(seed) : seed); }
Tensor SeedScope::changed(const Tensor& seed) { return thread_state.seeds ? thread_state.seeds->apply(seed) : seed; }

// Declared in generator_state.h.
int64_t random_ops_outside() { return implicit_ordinal.load(); }
void set_random_ops_outside(int64_t count) { implicit_ordinal = count; }

bool is_generator_state(const Cell& c) {
  Generators& g = generators();
  MutexLock lock(g.mutex);
  return std::any_of(g.all.begin(), g.all.end(), [&](const auto& entry) {
    const Generator& own = entry.second->generator;
    return &own.seed.cell() == &c || &own.step.cell() == &c;
  });
}

void forget_generators(DeviceType type) {
  Generators& g = generators();
  MutexLock lock(g.mutex);
  std::erase_if(g.all, [&](const auto& entry) { return entry.first.first == type; });
}

EagerStep::EagerStep() : saved_(thread_state.step) { thread_state.step = &scope_; }
EagerStep::~EagerStep() { thread_state.step = saved_; }
}  // namespace internal

}  // namespace weft
