// The action table of a pipeline schedule: for each rank its actions in order. Generators (schedules.h) and files
// (table_text.h) make tables, check.h checks whether a table can run, and simulate.h computes its time.
// A stage is one piece of the model's depth, on one rank; a microbatch is one part of the batch.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::dist::pipeline {

enum class ActionKind : uint8_t {
  kForward,   // F
  kInput,     // I: the gradient of the stage's inputs
  kWeight,    // W: the gradient of the stage's weights
  kBackward,  // B: I and W in one
  kSend,      // starts to send the stage's result to a later stage, or the gradient of its input to an earlier stage
  kRecv,      // is ready to receive the value; actions that read it wait for it
  kGather,    // gathers the stage's sharded weights
  kRelease,   // frees the gathered weights
  kReduce,    // sums the stage's accumulated gradients over its data-parallel ranks
};
constexpr int kKinds = 9;
/// The largest number of actions in a table: a bound for memory, far above any use.
constexpr int kMostActions = 1 << 24;

/// The name in files and messages: F, I, W, B, SEND, RECV, GATHER, RELEASE, REDUCE.
std::string_view to_string_view(ActionKind kind);
/// Whether it is F, I, W or B.
constexpr bool computes(ActionKind kind) { return kind <= ActionKind::kBackward; }
/// Whether it is SEND or RECV.
constexpr bool transfers(ActionKind kind) { return kind == ActionKind::kSend || kind == ActionKind::kRecv; }

struct Action {
  ActionKind kind = ActionKind::kForward;
  /// Runs together with the next action of the rank: both begin when both can, and the results of both come at the end.
  /// Both actions must compute. For kernels that overlap the communication of one with the computation of the other.
  bool with_next = false;
  int stage = 0;
  int microbatch = -1;  // -1 for GATHER, RELEASE and REDUCE
  int peer = -1;        // SEND and RECV: the other stage

  /// "F of stage 1, microbatch 3", "SEND from stage 1 to 2, microbatch 3".
  std::string to_string() const;
  friend bool operator==(const Action&, const Action&) = default;
};

struct Table {
  std::vector<std::vector<Action>> ranks;
  std::vector<int> rank_of_stage;
  int microbatches = 0;

  int stages() const { return static_cast<int>(rank_of_stage.size()); }
  friend bool operator==(const Table&, const Table&) = default;
};

/// Stage `to` reads a value that stage `from` computed; the gradient crosses it backwards. `from` is below `to`.
struct StageLink {
  int from = 0;
  int to = 0;
  friend auto operator<=>(const StageLink&, const StageLink&) = default;
};

/// Which stages exchange values, indexed by stage. A link has a number: its place in all().
class StageLinks {
 public:
  /// Each stage reads the one before it.
  explicit StageLinks(int stages);
  /// Throws on a link to an earlier stage, a link to a stage that does not exist, and a repeated link.
  StageLinks(int stages, std::vector<StageLink> links);

  int stages() const { return static_cast<int>(first_output_.size()) - 1; }
  /// All links, ordered by `from`, then by `to`.
  const std::vector<StageLink>& all() const { return links_; }
  int size() const { return static_cast<int>(links_.size()); }
  const StageLink& operator[](int link) const { return links_[link]; }
  /// The number of the link between two stages; -1 if there is none.
  int find(int from, int to) const;
  /// The numbers of the links that end at a stage.
  std::span<const int> inputs(int stage) const;
  /// The numbers of the links that begin at a stage run from first_output(stage) to first_output(stage + 1) - 1.
  int first_output(int stage) const { return first_output_[stage]; }

 private:
  std::vector<StageLink> links_;
  std::vector<int> first_output_, first_input_, inputs_;
};

}  // namespace weft::dist::pipeline
