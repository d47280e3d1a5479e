#include "compiler/targets/cuda/run/graph_step.h"

#include <algorithm>
#include <cstdint>

#include "compiler/targets/cuda/run/fused_operation.h"
#include "framework/base/switches.h"
#include "framework/cuda/device_allocator.h"

namespace weft::cuda {
namespace {

// If addresses change in every run and kernels cannot get new parameters, a capture costs more than queueing.
constexpr int kMostCapturesInARow = 4;

constexpr size_t kLeast = 4;        // operations of a batch: with fewer, compiling its kernel does not pay
constexpr size_t kFarthest = 1000;  // calls between two calls of a unit

const DeviceOperation& operation_of(const StepCall& c) { return static_cast<const DeviceOperation&>(*c.operation); }

int64_t scratch_of(const DeviceOperation& o) { return internal::round_to_256(o.workspace_bytes()); }

// The memory that calls read and write, as ranges of addresses.
struct Touched {
  struct AddressRange {
    uintptr_t from, to;
  };
  std::vector<AddressRange> reads, writes;

  static void add(std::vector<AddressRange>& list, const StridedView& v) {
    if (v.numel() == 0) return;
    int64_t low = 0, high = 0;
    for (int d = 0; d < v.shape.size(); ++d) {
      const int64_t last = (v.shape[d] - 1) * v.strides[d];
      (last < 0 ? low : high) += last;
    }
    const auto at = reinterpret_cast<uintptr_t>(v.data);
    const int64_t size = itemsize(v.dtype);
    list.push_back({at + low * size, at + (high + 1) * size});
  }
  void add(const Touched& o) {
    reads.insert(reads.end(), o.reads.begin(), o.reads.end());
    writes.insert(writes.end(), o.writes.begin(), o.writes.end());
  }
  bool conflicts(const Touched& o) const {
    const auto meet = [](const std::vector<AddressRange>& a, const std::vector<AddressRange>& b) {
      for (const AddressRange& x : a)
        for (const AddressRange& y : b)
          if (x.from < y.to && y.from < x.to) return true;
      return false;
    };
    return meet(writes, o.writes) || meet(writes, o.reads) || meet(reads, o.writes);
  }
};

Touched touched_by(const StepCall& c, bool workspace) {
  Touched t;
  for (const StridedView& v : c.in) Touched::add(t.reads, v);
  for (const StridedView& v : c.out) Touched::add(t.writes, v);
  const int64_t bytes = operation_of(c).workspace_bytes();
  if (workspace && c.workspace && bytes > 0) {
    const auto at = reinterpret_cast<uintptr_t>(*c.workspace);
    t.writes.push_back({at, at + bytes});
  }
  return t;
}

}  // namespace

GraphStep::GraphStep(Gpu& gpu, std::vector<StepCall> calls, std::vector<int32_t*> bad, bool graphs)
    : gpu_(gpu), calls_(std::move(calls)), bad_(std::move(bad)), graphs_(graphs && !gpu.synchronous()) {
  for (const StepCall& c : calls_) graphs_ &= operation_of(c).capturable();
}
GraphStep::~GraphStep() {
  graph_.reset();
  if (scratch_) gpu_.allocator().deallocate(scratch_, scratch_bytes_);
}

Addresses GraphStep::addresses_of(size_t call, SmallVec<void*, 8>* memory) const {
  const StepCall& c = calls_[call];
  for (const StridedView& v : c.in) memory->push_back(v.data);
  for (const StridedView& v : c.out) memory->push_back(v.data);
  const std::span<void* const> all(memory->data(), memory->size());
  return {all.first(c.in.size()), all.subspan(c.in.size()), c.workspace ? *c.workspace : nullptr, bad_[call]};
}

void GraphStep::enqueue(size_t call, Stream& stream) const {
  SmallVec<void*, 8> memory;
  operation_of(calls_[call]).enqueue(addresses_of(call, &memory), stream, calls_[call].node->line);
}

void GraphStep::enqueue(const CaptureUnit& unit, Stream& stream) const {
  if (unit.calls.size() == 1) return enqueue(unit.calls[0], stream);
  // Calls that moved to the unit need other workspaces: the plan's workspaces are free only at the calls' own places.
  std::vector<SmallVec<void*, 8>> memory(unit.calls.size());
  std::vector<BatchOperation::BatchMember> members;
  char* scratch = static_cast<char*>(scratch_);
  for (size_t i = 0; i < unit.calls.size(); ++i) {
    const StepCall& c = calls_[unit.calls[i]];
    Addresses at = addresses_of(unit.calls[i], &memory[i]);
    at.workspace = scratch;
    scratch += scratch_of(operation_of(c));
    members.push_back({&operation_of(c), at, c.node->line});
  }
  if (unit.batch) return unit.batch->enqueue(members, stream);
  for (const BatchOperation::BatchMember& m : members) m.operation->enqueue(m.at, stream, m.line);
}

void GraphStep::queue_all() {
  for (at_ = 0; at_ < calls_.size(); ++at_) enqueue(at_, gpu_.stream());
}

std::vector<void*> GraphStep::addresses_of(const CaptureUnit& unit) const {
  std::vector<void*> all;
  for (size_t call : unit.calls) {
    const StepCall& c = calls_[call];
    for (const StridedView& v : c.in) all.push_back(v.data);
    for (const StridedView& v : c.out) all.push_back(v.data);
    all.push_back(c.workspace ? *c.workspace : nullptr);
  }
  return all;
}

// A call joins the last unit with its key, unless that unit or a later unit touches memory written by the call, or
// writes memory read by the call.
std::vector<GraphStep::CaptureUnit> GraphStep::make_units() const {
  std::vector<CaptureUnit> units;
  std::vector<Touched> touched;  // index: unit
  std::map<int, size_t> open;
  for (size_t i = 0; i < calls_.size(); ++i) {
    const StepCall& c = calls_[i];
    const int key = keys_[i];
    Touched now = touched_by(c, key < 0);
    if (const auto it = open.find(key); key >= 0 && it != open.end() && i - units[it->second].calls[0] < kFarthest) {
      bool free = true;
      for (size_t u = it->second; u < units.size() && free; ++u) free = !now.conflicts(touched[u]);
      if (free) {
        units[it->second].calls.push_back(i);
        touched[it->second].add(now);
        continue;
      }
    }
    if (key >= 0) {
      open[key] = units.size();
      now = touched_by(c, true);  // the first of a unit may stay alone, with the plan's workspace
    }
    units.push_back({{i}, nullptr});
    touched.push_back(std::move(now));
  }
  return units;
}

void GraphStep::find_keys() {
  const bool on = !switch_has("WEFT_CUDA", "nobatch");
  std::map<std::string, int> numbers;
  for (const StepCall& c : calls_) {
    const std::string key = on ? batch_key(operation_of(c)) : "";
    keys_.push_back(key.empty() ? -1 : numbers.try_emplace(key, static_cast<int>(numbers.size())).first->second);
  }
}

void GraphStep::prepare_units() {
  if (keys_.empty()) find_keys();
  units_ = make_units();
  int64_t bytes = 0;
  std::vector<DeviceOperation*> missing;
  for (CaptureUnit& u : units_) {
    if (u.calls.size() == 1) continue;
    int64_t all = 0;
    for (size_t call : u.calls) all += scratch_of(operation_of(calls_[call]));
    bytes = std::max(bytes, all);
    if (u.calls.size() < kLeast) continue;
    const DeviceOperation& first = operation_of(calls_[u.calls[0]]);
    auto& batch = batches_[keys_[u.calls[0]]];
    if (!batch) batch = std::make_unique<BatchOperation>(first);
    u.batch = batch.get();
    if (!batch->compiled()) missing.push_back(batch.get());
  }
  if (!missing.empty()) load(gpu_, missing);
  if (bytes > scratch_bytes_) {
    if (scratch_) gpu_.allocator().deallocate(scratch_, scratch_bytes_);
    scratch_ = nullptr;
    scratch_ = gpu_.allocator().allocate(bytes);
    scratch_bytes_ = bytes;
  }
}

void GraphStep::capture() {
  prepare_units();
  captured_.assign(units_.size(), {});
  // Use a separate stream: other threads may queue work on the GPU's stream meanwhile, which is not part of the step.
  Stream side(gpu_);
  const auto work = [&] {
    for (size_t i = 0; i < units_.size(); ++i) {
      at_ = units_[i].calls[0];
      Captured& c = captured_[i];
      const GraphReplay::Position before = GraphReplay::position(side);
      enqueue(units_[i], side);
      const GraphReplay::Position after = GraphReplay::position(side);
      c.kernel = before.kernels;
      c.kernels = after.kernels - before.kernels;
      c.renameable = after.operations - before.operations == static_cast<size_t>(c.kernels);
      c.addresses = addresses_of(units_[i]);
    }
  };
  if (!graph_) {
    graph_.emplace(GraphReplay::capture(side, work));
    ++counts_.captures;
  } else if (graph_->recapture(side, work)) {
    ++counts_.recaptures;
  } else {
    ++counts_.captures;
  }
}

// Gives new parameters to the kernels whose addresses changed. False if that is not possible.
bool GraphStep::rename() {
  std::vector<size_t> moved;
  bool several = false;
  for (size_t i = 0; i < units_.size(); ++i) {
    several |= units_[i].calls.size() > 1;
    if (addresses_of(units_[i]) == captured_[i].addresses) continue;
    if (!captured_[i].renameable) return false;
    moved.push_back(i);
  }
  // If addresses change, calls between two calls of a unit may touch its memory.
  if (several && !moved.empty() && make_units() != units_) return false;
  for (size_t i : moved) {
    at_ = units_[i].calls[0];
    Captured& c = captured_[i];
    if (!graph_->rename(c.kernel, c.kernels, [&] { enqueue(units_[i], gpu_.stream()); })) return false;
    c.addresses = addresses_of(units_[i]);
    counts_.renamed += c.kernels;
  }
  return true;
}

void GraphStep::run(bool moved) {
  // Do not capture the first run: in it libraries choose algorithms, and cells get their own storage.
  if (!graphs_ || runs_++ == 0) {
    ++counts_.queued;
    queue_all();
    return;
  }
  if (!graph_ || (moved && !rename())) {
    if (captures_in_a_row_ == kMostCapturesInARow) {
      graphs_ = false;
      graph_.reset();
      ++counts_.queued;
      queue_all();
      return;
    }
    ++captures_in_a_row_;
    capture();
  } else {
    captures_in_a_row_ = 0;
  }
  ++counts_.replays;
  graph_->launch(gpu_.stream());
}

}  // namespace weft::cuda
