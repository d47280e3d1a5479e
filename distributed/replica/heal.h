// Healing: replicas without the state of a view take it from the replicas that have it. Equal ranks of the replicas
// exchange their shards. Each donor sends an equal share of the bytes to each joiner. So a joiner's time is its bytes
// over its bandwidth, if there is a donor for each joiner.
//
// Nothing of a joiner changes here: it gets new tensors, each block of which has the checksum of its donor. So a joiner
// that had a state needs memory for its cells twice, until it adopts the new values (state_parts.h) or drops them. A
// joiner that has just started has no values yet, and needs memory once. A donor copies nothing: it must not write its
// values in place before it returns. Steps write to other memory while somebody holds the values.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "framework/dispatch/rank/communicator.h"
#include "framework/tensor/tensor.h"

namespace weft::dist {

/// A shard of the state on one rank.
struct StatePart {
  std::string name;    // name of the cell
  std::string layout;  // type of the cell and its placement on the mesh of one replica
  TensorType type;     // type of the shard
  Tensor value = {};   // a donor's value, row-major, on the CPU
};

/// The state that a joiner has got.
struct HealedState {
  std::vector<Tensor> values;  // index: part
  std::string record;          // the donors' record
};

/// Sends or takes a state. A collective of the ranks of `replicas`, which are equal ranks of the replicas of a view, by
/// place. heals[p]: place p is a joiner; there are donors too. `parts` is in one order on all ranks, and `record` is
/// the part of a donor's state that is in no cell. The result is empty on donors. Throws, and nothing is healed on this
/// rank, if a rank fails, the deadline passes or bytes are damaged. Before bytes of the state move, all ranks throw one
/// error if the names, types or layouts of their parts differ, or the records of donors. `from_first`: the states of
/// donors differ, and the first one gives its own.
HealedState heal(Communicator& replicas, const std::vector<bool>& heals, std::span<const StatePart> parts,
                 const std::string& record, Work::Deadline deadline, bool from_first = false);

}  // namespace weft::dist
