// Diloco: the training step of a program whose replicas train by themselves, and exchange outer gradients (outer.h,
// docs/elastic.md). Its loop is the loop of ReplicaStep:
//
//   dist::Diloco step(job, train_step, batch, {.mesh = mesh}, {.rows = 16, .cells = cells},
//                     {.every = 50, .steps = 1000});
//   while (step.enter()) {                             // false: all replicas have finished
//     if (step.exchanged() && step.position().step == 1000) {
//       if (step.writes()) ...                         // save the last checkpoint
//       step.finish();
//     } else if (const auto loss = step()) ...         // null: not made
//   }
//
// REPLICAS is set, so this process belongs to one replica of a group, or a journal is given.
#pragma once
#include <optional>
#include <source_location>
#include <tuple>
#include <utility>

#include "distributed/diloco/diloco_replica.h"
#include "distributed/placement/replica.h"
#include "distributed/replica/replica_step.h"

namespace weft::dist {

/// The part of Diloco that does not depend on the types of the step.
class DilocoLoop : public ReplicaLoop {
 public:
  /// The cells "outer.*". Checkpoints keep them: load them after the constructor.
  const NamedCells& outer_cells() const { return replica_.cells(); }
  /// Whether an exchange has ended, and the next training steps have not begun: the place for checkpoints and finish().
  /// After the last training step, whether all exchanges have ended.
  bool exchanged() const { return replica_.between(); }
  /// As ReplicaLoop::finish(). Throws FailedPrecondition unless exchanged().
  void finish();
  /// Bytes that this process has sent to other replicas.
  int64_t sent() const { return replica_.sent(); }

 protected:
  DilocoLoop(Job& job, const CompileOptions& compile, const ReplicaStepOptions& options, const OuterOptions& outer);
  bool enter_view() override;
  /// Whether the training step can be made now.
  bool begin();
  void made();
  int64_t first_row() const { return replica_.row(); }
  int64_t rows_now() const { return replica_.rows(); }
  CompileOptions own_options() const;
  /// Makes the step ready. Its world; null on one device.
  virtual World* ready_step() = 0;
  virtual CellShards own_shards(bool made) = 0;
  virtual void make(int64_t row) = 0;

  /// Does not exist: each replica makes its own steps.
  int64_t live() const = delete;

 private:
  World& prepare(int64_t) override { return *ready_step(); }
  CellShards shards(int64_t, bool made) override { return own_shards(made); }
  void take_position() { position_ = replica_.position(); }
  DilocoStep step();

  DilocoReplica replica_;
};

/// `Fn` and `Batch` are as for ReplicaStep: batch(first, rows) with options.rows rows. All trained cells of
/// options.cells are exchanged. `options.position` is of a checkpoint that was written after an exchange.
template <class Fn, class Batch>
class Diloco final : public DilocoLoop {
 public:
  /// Throws InvalidArgument if neither REPLICAS nor a journal is given, and for a mesh without replica.
  Diloco(Job& job, Fn fn, Batch batch, const CompileOptions& compile, const ReplicaStepOptions& options,
         const OuterOptions& outer, std::source_location loc = std::source_location::current())
      : DilocoLoop(job, compile, options, outer),
        batch_(std::move(batch)),
        step_(dist::compile(std::move(fn), own_options(), loc)) {}

  /// Makes the next training step of this replica, after enter(). Returns the result of the function, or null if the
  /// other replicas changed: then nothing has happened, and enter() follows. Throws the errors of the step.
  auto operator()() {
    using Result = decltype(call(0));
    static_assert(!std::is_void_v<Result>, "Diloco: the function returns nothing; need a value, such as the loss");
    std::optional<Result> result;
    try {
      if (!begin()) return result;
      result = call(first_row());
      made();
    } catch (const Error& e) {
      fail(e);
      throw;
    }
    return result;
  }

 private:
  auto call(int64_t row) {
    return std::apply([&](const auto&... in) { return step_(in...); }, batch_(row, rows_now()));
  }
  World* ready_step() override {
    std::apply([&](const auto&... in) { step_.prepare(in...); }, batch_(0, rows()));
    return own_options().mesh.size() > 1 ? &step_.world() : nullptr;
  }
  CellShards own_shards(bool made) override { return shards_of(step_, made); }
  void make(int64_t row) override { (void)call(row); }

  Batch batch_;
  Compiled<Fn> step_;
};

}  // namespace weft::dist
