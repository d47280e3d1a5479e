// Graphs as the JSON that the page of tools/graph reads.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "compiler/exec/record/record.h"
#include "framework/ir/graph.h"

namespace weft::tools {

/// A graph to show, with the known facts of its step.
struct ShownGraph {
  std::string name;  // "joint", "12_fused_cse"
  std::string note;  // a sentence about the graph; may be empty
  Ref<Graph> graph;
  std::shared_ptr<const StepRecord> record = {};  // the step's record; null: not known
  bool scheduled = false;                         // the record's launches run `graph`
  std::vector<std::string> placements = {};       // index: node; or none
};

/// {"title": ..., "graphs": [...]}: texts are stored once and named by index. Each graph has "scopes", "lines", "ops",
/// "types"; "nodes": [op, scope, line, phase, [types], [[node, result]]]; "class" by node; "labels" of cells and
/// arguments by node; "details" of nodes: attributes, cost, times, "kernel", and "why" a node is not in another node's
/// kernel; "kernels": their code; "missed": MissedRecord::to_string(); "outputs" and "writes".
std::string graphs_json(const std::string& title, const std::vector<ShownGraph>& graphs);

}  // namespace weft::tools
