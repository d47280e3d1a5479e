// Plan: a user's choices for the placement of a step on a mesh. The rest follows from the names of the mesh dimensions.
// Each option belongs to a strategy, whose OptionRow (options.h) has its allowed values and its help.
#pragma once
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace weft::dist {

struct Strategy;

/// A tensor along one mesh dimension: split, or a copy on every rank.
struct Placement {
  int dim = -1;  // the dim that is split; -1: replicated
  friend bool operator==(const Placement&, const Placement&) = default;
};
constexpr Placement Shard(int dim) { return {dim}; }
constexpr Placement Replicate() { return {}; }

/// Gives parameters whose name matches `pattern` (* stands for any text) these placements along mesh dimensions.
struct PlanRule {
  std::string pattern;
  std::vector<std::pair<std::string, Placement>> placements;
};

struct Plan {
  std::vector<PlanRule> rules = {};
  int zero = -1;
  std::string wire = "f32";
  bool sequence = true;
  std::string cp = "allgather";
  std::string cp_layout = "auto";
  std::string pipeline = "1f1b";
  std::string stages = "auto";
  std::string pipeline_gather = "once";
  double expert_room = 0;
  bool keep_gathered = false;
  std::vector<const Strategy*> strategies = {};                // your own, asked after the strategies of strategies.cc
  std::vector<std::pair<std::string, std::string>> more = {};  // their options: name and value
  bool choose = false;                                         // automatic(): the cost model chooses the options above
  int world = 0;                                               // automatic(world): and the mesh

  Plan() = default;
  Plan(std::initializer_list<PlanRule> r) : rules(r) {}
  /// The fastest of the known plans for this mesh and step that fits the memory limit.
  static Plan automatic() {
    Plan p;
    p.choose = true;
    return p;
  }
  /// The same over all meshes of `world` ranks. Needs options without a mesh.
  static Plan automatic(int world) {
    Plan p = automatic();
    p.world = world;
    return p;
  }
};

}  // namespace weft::dist
