// Plan: what a user may say about how a step is laid over a mesh. Everything unsaid follows from the names of the
// mesh's dimensions.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::dist {

/// Along one mesh dimension a tensor is a copy on every rank, or split.
struct Placement {
  int dim = -1;  // that is split; -1: replicated
  friend bool operator==(const Placement&, const Placement&) = default;
};
constexpr Placement Shard(int dim) { return {dim}; }
constexpr Placement Replicate() { return {}; }

/// Parameters whose name matches `pattern` (* stands for any text) lie so along these mesh dimensions.
struct PlanRule {
  std::string pattern;
  std::vector<std::pair<std::string, Placement>> placements;
};

inline constexpr std::string_view kCpKinds[] = {"allgather", "ring", "ulysses"};
inline constexpr std::string_view kCpLayouts[] = {"auto", "contiguous", "headtail", "documents"};

struct Plan {
  std::vector<PlanRule> rules = {};
  int zero = -1;         // ZeRO stage 0 to 3 of the data dimensions; -1: 3 over fsdp if the mesh has it, else 0
  bool sequence = true;  // tensor parallelism splits the residual stream over the sequence (Korthikanti et al. 2022)
  std::string cp = "allgather";  // attention over a split sequence: allgather, ring or ulysses
  // contiguous; headtail: equal work under a causal mask; documents: equal work of documents packed in a row, whose ids
  // the mask of attention compares; auto: headtail where it can be, which is without sequence parallelism
  std::string cp_layout = "auto";
  double expert_room =
      0;  // rows that a rank takes for its experts, in average shares; more is an error. 0: all there could be
  bool keep_gathered = false;  // backward uses what forward gathered: less communication, more memory
  bool choose = false;         // automatic(): options above are chosen by the cost model
  int world = 0;               // automatic(world): the mesh, too

  Plan() = default;
  Plan(std::initializer_list<PlanRule> r) : rules(r) {}
  /// The cheapest of the plans known for this mesh and step, within the memory there is.
  static Plan automatic() {
    Plan p;
    p.choose = true;
    return p;
  }
  /// The same over all meshes of `world` ranks, where no mesh is given.
  static Plan automatic(int world) {
    Plan p = automatic();
    p.world = world;
    return p;
  }
};

}  // namespace weft::dist
