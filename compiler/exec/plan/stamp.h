// A plan made of parts: a part is planned once, and its launches are in the plan as often as the step runs it, each
// time with other operands and results. So the time to plan does not depend on how often a part runs, and a step stays
// one flat list of launches.
#pragma once
#include <set>
#include <span>
#include <vector>

#include "compiler/exec/plan/plan.h"

namespace weft::internal {

/// The outputs of a drafted plan that need a copy. Each other output fills an output block of its own.
std::set<size_t> shared_outputs(const MemoryLayout& plan);
/// A graph with copies of these outputs in their place.
Ref<Graph> with_copies(const Graph& g, const std::set<size_t>& outputs);

/// The memory of an operand or a result of a part.
struct StampPlace {
  enum StampKind : uint8_t {
    kBlock,     // a block of the plan's arena
    kArgument,  // an argument of the plan
    kOutput,    // a result of the plan
  } kind = kBlock;
  int32_t index = 0;
  int64_t offset = 0;  // bytes into it
};

class Stamper {
 public:
  /// A plan with the cells and captured tensors of `like`, which all parts share, for arguments of these types.
  Stamper(const Graph& like, std::span<const TensorType> arguments, Operations& operations);

  /// The nodes of all parts, once each, in the order in which they were added.
  const Graph& graph() const { return *plan_.graph; }
  /// Reserves memory that nothing else uses during the step. Returns the number of the block.
  int32_t add_block(int64_t bytes);
  /// Adds a part that is planned and laid out, and without shared_outputs(). `operands`: by input of the part, a value
  /// of graph(). Returns the number of the part.
  int32_t add_part(const MemoryLayout& part, std::span<const Value> operands);
  /// The results of a part in graph().
  std::span<const Value> results(int32_t part) const { return parts_[static_cast<size_t>(part)].results; }
  /// Adds a node that is run by itself: a collective. Returns its id in graph().
  int32_t add_node(Node node);

  /// The number of launches of a part. reserve() makes room for `launches` launches in the plan.
  size_t launches_of(int32_t part) const { return parts_[static_cast<size_t>(part)].plan.launches.size(); }
  void reserve(size_t launches) { plan_.launches.reserve(launches); }
  /// Appends the launches of a part. `in` by operand, `out` by result.
  void run(int32_t part, std::span<const StampPlace> in, std::span<const StampPlace> out);
  void run_node(int32_t node, std::span<const StampPlace> in, std::span<const StampPlace> out);
  /// The number of launches so far.
  int32_t launches() const { return static_cast<int32_t>(plan_.launches.size()); }

  /// The plan. `outputs`: by result of the step, its value in graph(); launches wrote it to StampPlace::kOutput.
  MemoryLayout finish(std::span<const Value> outputs);

 private:
  struct StampedPart {
    MemoryLayout plan;
    std::vector<int32_t> nodes;  // node of the part -> node of graph()
    std::vector<Value> results;
    std::vector<int32_t> outputs;     // output block -> result
    int32_t folded = -1;              // buffer
    std::vector<int32_t> workspaces;  // buffers of the whole plan, by buffer of the part; -1: none
  };

  int32_t add_buffer(Home home, int32_t index, int64_t bytes);
  int32_t shared_buffer(Home home, int32_t index, int64_t bytes);
  BufferPlace place(const StampPlace& p, const TensorType& type, const Shape& strides);
  BufferPlace place(const StampedPart& part, const BufferPlace& p, std::span<const StampPlace> in,
                    std::span<const StampPlace> out);
  Launch stamped(StampedPart& part, const Launch& l, std::span<const StampPlace> in, std::span<const StampPlace> out);

  Operations& operations_;
  MemoryLayout plan_;
  Graph& graph_;
  std::vector<StampedPart> parts_;
  std::vector<int32_t> blocks_;                       // buffers
  std::vector<std::vector<int32_t>> shared_;          // home, index -> buffer, or -1
  std::vector<int32_t> cell_nodes_, captured_nodes_;  // nodes of graph(), or -1
  int32_t scratch_ = -1;                              // buffer: memory of parts while they run
};

}  // namespace weft::internal
