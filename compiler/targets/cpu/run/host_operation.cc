#include "compiler/targets/cpu/run/host_operation.h"

#include "framework/base/clock.h"
#include "ops/kernels/kernels.h"

namespace weft::internal {
namespace {

// The kernel of an op record.
class KernelOperation final : public HostOperation {
 public:
  KernelOperation(const OpDef& op, const Attrs& attrs, std::span<const StridedView> in,
                  std::span<const StridedView> out)
      : op_(op), attrs_(attrs), workspace_(op.workspace ? op.workspace(attrs, in, out) : 0) {
    // Elementwise kernels read each element before they write it.
    const bool pointwise = op.is(kPointwise) && op.scalar >= 0;
    if (out.size() != 1 || (!pointwise && !op.is(kInPlace))) return;
    for (size_t i = 0; i < (pointwise ? in.size() : 1); ++i)
      if (i < in.size() && i < 64 && in[i].shape == out[0].shape) overwrites_ |= uint64_t{1} << i;
  }
  int64_t workspace_bytes() const override { return workspace_; }
  bool may_overwrite(int in, int) const override { return in < 64 && (overwrites_ >> in & 1); }
  void run(std::span<const StridedView> in, std::span<const StridedView> out, void* workspace) const override {
    op_.kernel({op_, attrs_, in, out, workspace});
  }

 private:
  const OpDef& op_;
  const Attrs attrs_;
  const int64_t workspace_;
  uint64_t overwrites_ = 0;  // operands that the result may overwrite
};

class HostReplay final : public Replay {
 public:
  HostReplay(std::span<const StepCall> calls, ReplayOptions options) : calls_(calls), options_(std::move(options)) {
    for (const StepCall& c : calls_) operations_.push_back(static_cast<const HostOperation*>(c.operation));
  }
  void run(bool) override {
    held_ = false;
    for (at_ = 0; at_ < calls_.size(); ++at_) {
      agree();
      call();
    }
    agree();
  }
  void run_by_one(const std::function<void(size_t)>& before) override {
    held_ = false;
    for (at_ = 0; at_ < calls_.size(); ++at_) {
      if (!held_) before(at_);
      agree();
      call();
    }
    agree();
    before(at_);
  }
  void run_timed(const std::function<void(size_t, double)>& after) override {
    held_ = false;
    for (at_ = 0; at_ < calls_.size(); ++at_) {
      agree();
      const double start = now_us();
      call();
      if (!held_) after(at_, now_us() - start);
    }
    agree();
  }
  size_t at() const override { return at_; }

 private:
  // It runs after the last call too: a rank that writes nothing agrees as well.
  void agree() const {
    if (static_cast<int32_t>(at_) == options_.commit_point) options_.agree();
  }
  void call() {
    const bool collective = at_ < options_.collectives.size() && options_.collectives[at_];
    if (held_ && !collective) return;
    const StepCall& c = calls_[at_];
    try {
      operations_[at_]->run(c.in, c.out, c.workspace ? *c.workspace : nullptr);
    } catch (...) {
      if (collective || static_cast<int32_t>(at_) >= options_.commit_point || !options_.holds || !options_.holds())
        throw;
      held_ = true;
    }
  }

  const std::span<const StepCall> calls_;
  const ReplayOptions options_;
  std::vector<const HostOperation*> operations_;  // operations of the calls
  size_t at_ = 0;
  bool held_ = false;  // a call has thrown, and the exception is held
};

}  // namespace

Allocator& HostTarget::allocator(Device device) { return Allocator::of(device); }
void HostTarget::copy(const StridedView& from, Device, const StridedView& to, Device) { kernels::cast_copy(from, to); }

// A record's kernel needs no preparation but the size of its workspace.
bool HostTarget::prepares_at_once(const OpDef& op) const { return !op.is(kGroup); }

std::shared_ptr<Operation> HostTarget::prepare(Device, const OpDef& op, const Attrs& attrs,
                                               std::span<const StridedView> in, std::span<const StridedView> out, int,
                                               const PrepareOptions&) {
  WEFT_CHECK_AS(kUnavailable, op.kernel, op.name, ": this program has no compiler for a group of ops; need //:weft");
  return std::make_shared<KernelOperation>(op, attrs, in, out);
}

void HostTarget::run_now(const KernelCall& call, Device device, SourceLine) {
  Ref<Storage> scratch;
  if (call.op.workspace)
    if (const int64_t bytes = call.op.workspace(call.attrs, call.in, call.out); bytes > 0)
      scratch = Storage::allocate(bytes, device);
  call.op.kernel({call.op, call.attrs, call.in, call.out, scratch ? scratch->data() : nullptr});
}

std::unique_ptr<Replay> HostTarget::replay(Device, std::span<const StepCall> calls, ReplayOptions options) {
  return std::make_unique<HostReplay>(calls, std::move(options));
}

HostTarget& host_target() {
  static auto* t = new HostTarget;
  return *t;
}

}  // namespace weft::internal
