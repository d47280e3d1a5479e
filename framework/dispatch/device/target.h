// Target: the one interface between Weft and a kind of device. A target owns memory and copies, prepares operations for
// types and layouts, compiles their kernels, runs eager calls and replays the operations of a step. Collectives are
// operations too. A new device is one Target that weft.cc registers. The executor has no code for a single device.
// Eager dispatch has code for the CPU only: it calls the CPU's kernels itself.
#pragma once
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/ir/graph.h"
#include "framework/ir/op_def.h"
#include "framework/tensor/storage.h"

namespace weft {

/// Choices of a whole step or program that change the results of its operations.
struct PrepareOptions {
  bool round_like_eager = false;  // fused 16-bit ops round where eager ops do (numerics = "eager")
  bool tf32 = false;              // f32 products may round their operands to 11 bits
  friend bool operator==(const PrepareOptions&, const PrepareOptions&) = default;
};

/// An op, or a fused group of ops, prepared once for types and layouts. Its target runs it any number of times, each
/// with its own addresses. Runs may overlap if each has its own workspace.
class Operation {
 public:
  virtual ~Operation() = default;
  /// Name of its kernel for reports and traces; null: it has no kernel of its own.
  virtual const char* name() const { return nullptr; }
  /// Bytes of scratch memory that one run needs.
  virtual int64_t workspace_bytes() const { return 0; }
  /// Whether result `out` may have the address of operand `in`. Both have the same dtype and layout.
  virtual bool may_overwrite(int in, int out) const {
    static_cast<void>(in), static_cast<void>(out);
    return false;
  }
  /// Whether Target::compile has nothing left to do for it.
  virtual bool compiled() const { return true; }
  /// "op at file:line" of each 16-bit result that the operation keeps in f32, where eager ops round it.
  virtual std::span<const std::string> rounds_less() const { return {}; }
  /// One phrase about its kernel for reports ("interpreted"); empty: nothing to say.
  virtual std::string remark() const { return {}; }
  /// The code of its kernels for people: loop IR on the CPU, CUDA C++ on a GPU; empty for a kernel of an op's record.
  virtual std::string text() const { return {}; }
  /// The operations that it runs, which Target::compile must be given too.
  virtual std::span<const std::shared_ptr<Operation>> operations() const { return {}; }
};

/// The calls of a loop's body with places instead of addresses, planned once and run for each iteration.
struct LoopCalls {
  /// An address in iteration t: a base plus `offset` plus t * `step` bytes.
  struct Place {
    enum Base : uint8_t {
      kOperand,    // operand `index` of the loop
      kResult,     // result `index`
      kCarried,    // the value of carry `index` before the iteration
      kCarry,      // its value after the iteration
      kWorkspace,  // the loop's scratch memory
    } base = kWorkspace;
    int32_t index = 0;
    int64_t offset = 0, step = 0;
  };
  struct Call {
    std::shared_ptr<Operation> operation;
    SmallVec<Place, 4> in, out;  // places of the call's views
    int64_t workspace = -1;      // offset into the scratch memory; -1: none
    const Node* node = nullptr;  // node of `body`
  };
  struct Carry {
    StridedView value;  // contiguous
    // Offset into the scratch memory: the carry alternates between this place and the result. -1: each iteration
    // computes the carry in place, in the result.
    int64_t spare = 0;
    bool starts_here = false;  // the operand is contiguous and need not be copied first; not if `spare` is -1
    // The stacked result that is the carry's value before (`shifted`) or after each iteration, so that its elements are
    // the carry's places and no call writes it. -1: there is none. Otherwise the carry has no spare place.
    int32_t stacked = -1;
    bool shifted = false;
  };
  Ref<Graph> body;
  std::vector<Call> setup, calls;  // `setup` runs once ahead of the iterations
  std::vector<StridedView> views;  // views of the operands and results of `setup`, then `calls`, in order
  std::vector<Carry> carries;      // the first operands and results
  int64_t length = 0;
  bool reverse = false;
  int32_t go_on = -1;     // the carry that stops all changes of carries once it is false; -1: none
  int64_t workspace = 0;  // bytes of scratch memory
};

/// An error of one op of an operation, with the node of the op.
struct FailedNode : Error {
  FailedNode(const Error& e, const Node& n) : Error(e.code(), e.what()), node(n) {}
  const Node& node;
};

/// How closely the first results of an operation must agree with its ops, run one by one on the CPU.
struct Agreement {
  enum AgreementKind : uint8_t {
    kReference,  // the operation is the op that defines the result
    kBits,       // every bit, any NaN being equal to any other
    kBounds,     // the error bounds of compiler/verify/error_bounds.h
    kNone,       // no bound is known
  } kind = kReference;
  double operand_error = 0;  // kBounds: relative error of a product's operands (tf32)
  bool approximate = false;  // kBounds: functions of f32 are the approximations of GPUs
};

/// One operation of a step. The views keep their place; a run reads the addresses that they have then.
struct StepCall {
  const Operation* operation = nullptr;
  std::span<const StridedView> in, out;
  void* const* workspace = nullptr;  // null: none
  const Node* node = nullptr;        // gives the user's line and scope
};

/// The operations of a step, in order, on one device.
class Replay {
 public:
  virtual ~Replay() = default;
  /// Runs or queues all calls. `moved`: a view may have another address than in the last run.
  virtual void run(bool moved) = 0;
  /// Runs or queues one call after another, with `before(i)` ahead of call i and `before(number of calls)` at the end.
  virtual void run_by_one(const std::function<void(size_t)>& before) = 0;
  /// Runs the calls one by one and passes the microseconds of each to `after(i, us)`: right after call i where a run
  /// ends before it returns, else after all calls.
  virtual void run_timed(const std::function<void(size_t, double)>& after) = 0;
  /// The call that was being run or queued: the call that an exception belongs to.
  virtual size_t at() const = 0;
  /// Whether a run is slower when an address differs from the last run, so that moving buffers are better copied to a
  /// fixed place.
  virtual bool wants_fixed_addresses() const { return false; }
  /// One line about the runs so far for reports; empty: nothing to say.
  virtual std::string to_string() const { return {}; }
};

struct ReplayOptions {
  bool captured = true;           // replay as one unit where the device can (CUDA graph)
  std::vector<Ref<Cell>> writes;  // cells that become torn if queued work fails
  int32_t commit_point = -1;      // the call before which `agree` runs; -1: none
  std::function<void()> agree;    // all ranks of a mesh agree that they can write their cells, or it throws on all
  /// If set, is called in the handler of an exception of a call before commit_point that is none of `collectives`. If
  /// it returns true, the run makes only its `collectives`, for which other ranks wait, and `agree` throws.
  std::function<bool()> holds;
  std::vector<bool> collectives;  // index: call
};

/// Copies queued by HostRead.
struct QueuedRead {
  virtual ~QueuedRead() = default;
  virtual bool done() const = 0;
  /// Waits, and fills the memory that was named. Throws the errors that the device found in work queued before the
  /// read.
  virtual void wait() = 0;
};

/// The result of Target::compile.
struct LoadReport {
  int64_t kernels = 0;   // distinct kernels of the operations, by their text
  int64_t compiled = 0;  // kernels compiled now
  int64_t from_disk = 0;
  double ms = 0;
  std::vector<std::string> notes;  // limitations: no compiler, no cache folder
};

struct LoadOptions {
  std::string cache = {};         // folder of compiled kernels, or "off"; empty: the default
  bool faults_are_errors = true;  // a kernel that the compiler rejects is an error; else it is interpreted
};

/// The requirements of a device on plans.
struct TargetLimits {
  bool synchronous = true;        // a run ends before it returns, and the host reads its results in place
  int64_t buffer_alignment = 64;  // each buffer of a plan starts at a multiple of this number of bytes
  int64_t address_alignment = 1;  // the same for arguments, cells and captured tensors
  int64_t row_alignment = 1;  // bytes; products are faster if the rows of their matrices start at such multiples, so
                              // plans pad the rows of values in the arena. 1: no padding
  bool prologues = true;      // products can compute an operand while they pack it
  bool loops = false;         // Target::repeat runs loops; else each iteration has operations of its own
};

/// Thrown by Target::prepare where a fused body cannot be one operation for these layouts.
struct CannotLower {
  Ref<Graph> body;
  std::string why;
};

/// A kind of device. All functions are thread-safe.
class Target : public DeviceMemory {
 public:
  virtual TargetLimits limits() const { return {}; }
  /// Whether results of such a node may be strided, their last dim dense (parts of a concatenation).
  virtual bool may_spread(const Node& n) const {
    static_cast<void>(n);
    return false;
  }
  /// Whether `op` is cheap to prepare, so that no cache keeps it.
  virtual bool prepares_at_once(const OpDef& op) const {
    static_cast<void>(op);
    return false;
  }
  /// The operation of a node with operands and results of these layouts. Addresses are not read; they will be multiples
  /// of `alignment` bytes. Throws CannotLower for a fused node,
  /// Unavailable naming the op where the device has no kernel.
  virtual std::shared_ptr<Operation> prepare(Device device, const OpDef& op, const Attrs& attrs,
                                             std::span<const StridedView> in, std::span<const StridedView> out,
                                             int alignment, const PrepareOptions& options) = 0;
  /// A loop over prepared operations, where limits().loops.
  virtual std::shared_ptr<Operation> repeat(LoopCalls) {
    WEFT_BUG_IF(true, "this device runs no loops (TargetLimits::loops)");
  }
  /// Compiles the missing kernels of these operations, all at once.
  virtual LoadReport compile(Device device, std::span<const std::shared_ptr<Operation>> operations,
                             const LoadOptions& options) = 0;
  /// Runs one eager op. Operands and results are on `device`; `line` is the user's, where known.
  virtual void run_now(const KernelCall& call, Device device, SourceLine line) = 0;
  /// The calls of a step, which outlive the replay; the operations are compiled.
  virtual std::unique_ptr<Replay> replay(Device device, std::span<const StepCall> calls, ReplayOptions options) = 0;
  /// Queues copies of contiguous values to contiguous memory of the host; null: the device only copies while it waits.
  virtual std::unique_ptr<QueuedRead> queue_read(Device device, std::span<const StridedView> from,
                                                 std::span<const StridedView> to) {
    static_cast<void>(device), static_cast<void>(from), static_cast<void>(to);
    return {};
  }
  virtual Agreement agreement(const Operation& operation, const Node& n, const PrepareOptions& options) const {
    static_cast<void>(operation), static_cast<void>(n), static_cast<void>(options);
    return {};
  }
  /// Writes a program that shows a wrong first result, and returns "reproduction: FILE"; empty: there is none.
  /// `in`, `want`: contiguous operands and right results on the CPU.
  virtual std::string write_reproduction(const Operation& operation, const Graph& body, std::span<const Tensor> in,
                                         std::span<const Tensor> want) const {
    static_cast<void>(operation), static_cast<void>(body), static_cast<void>(in), static_cast<void>(want);
    return {};
  }
  /// Writes the kernel's source to `folder` (WEFT_DUMP) and returns the file's name; empty: there is none.
  virtual std::string dump(const Operation& operation, const std::string& folder) const {
    static_cast<void>(operation), static_cast<void>(folder);
    return {};
  }
  /// Names the memory at an address of the device, for its message of "out of memory".
  virtual void set_name(Device device, const void* p, const std::string& name) {
    static_cast<void>(device), static_cast<void>(p), static_cast<void>(name);
  }
};

/// The target of a device type; the CPU's for meta, whose steps are planned for it. Throws Unavailable "WHO: ..." where
/// none is registered.
Target& target_of(DeviceType type, const char* who);
/// Makes `target` (kept by the caller) serve a device type; returns the target that it replaces.
Target* register_target(DeviceType type, Target* target);

}  // namespace weft
