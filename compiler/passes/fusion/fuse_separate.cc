#include "compiler/passes/fusion/fuse_separate.h"

#include <algorithm>
#include <map>
#include <set>

#include "framework/ir/op_def.h"
#include "ops/core/indexing/view.h"

namespace weft::fusion {
namespace {

// A value that more than one launch uses. Pairs of launches connect its uses; to connect all of them would save all of
// its traffic.
struct SharedValue {
  double bytes = 0;                 // bytes of its write
  int32_t writer = -1;              // group; -1: an argument, a cell, or a value that every kernel computes itself
  bool pinned = false;              // it is in memory in any case
  std::map<int32_t, double> reads;  // bytes by group
  std::map<int32_t, int32_t> part;  // group -> another group that it is connected to, or itself
  size_t parts = 0;

  bool uses(int32_t group) const { return writer == group || reads.count(group); }
  int32_t root(int32_t group) {
    while (part.at(group) != group) group = part.at(group);
    return group;
  }
};

class Separate {
 public:
  Separate(const FusionGraph& g, const FusionReport& r) : g_(g), r_(r), group_(static_cast<size_t>(g.size()), -1) {
    for (size_t i = 0; i < r.groups.size(); ++i)
      for (int32_t id : r.groups[i].nodes) group_[static_cast<size_t>(id)] = static_cast<int32_t>(i);
    for (size_t i = 0; i < r.groups.size(); ++i) add_reads(static_cast<int32_t>(i));
    values_of_.resize(r.groups.size());
    for (auto& [v, shared] : values_) {
      for (const auto& [group, bytes] : shared.reads) shared.part[group] = group;
      if (shared.writer >= 0) shared.part[shared.writer] = shared.writer;
      shared.parts = shared.part.size();
      for (const auto& [group, other] : shared.part) values_of_[static_cast<size_t>(group)].push_back(&shared);
    }
  }

  std::vector<FusionReport::Refused> run() {
    std::vector<FusionReport::Refused> all = r_.refused;
    add_library_pairs(all);
    for (FusionReport::Refused& x : all) x.bytes = saved(x);
    const auto more = [](const FusionReport::Refused& x, const FusionReport::Refused& y) { return x.bytes > y.bytes; };
    std::stable_sort(all.begin(), all.end(), more);
    for (FusionReport::Refused& x : all) x.bytes = take(x);
    std::erase_if(all, [](const FusionReport::Refused& x) { return x.bytes == 0; });
    std::stable_sort(all.begin(), all.end(), more);
    return all;
  }

 private:
  void add_reads(int32_t i) {
    const FusionGroup& x = r_.groups[static_cast<size_t>(i)];
    std::set<int32_t> own(x.nodes.begin(), x.nodes.end());
    own.insert(x.clones.begin(), x.clones.end());
    for (int32_t id : own)
      for (const Read& read : g_.reads(id)) {
        if (own.count(read.value.node)) continue;
        SharedValue& v = values_[read.value];
        v.writer = group_[static_cast<size_t>(read.value.node)];
        v.bytes = static_cast<double>(g_.bytes(read.value));
        v.pinned = g_.pinned(read.value);
        double& bytes = v.reads[i];
        bytes = std::max(bytes, static_cast<double>(g_.bytes_read(read)));
      }
  }

  // A library call, and a kernel of generated code without a product that computes an operand or reads a result. The
  // plan may let kernels write their parts of a concat's result, so that it moves nothing.
  bool library(int32_t i) const {
    const FusionGroup& x = r_.groups[static_cast<size_t>(i)];
    if (x.nodes.size() != 1 || g_.role(x.nodes[0]) != Role::kLibrary) return false;
    const OpDef* op = g_.graph().node(x.nodes[0]).op;
    return !op->is(kCollective) && op != &concat_op;
  }
  bool generated(int32_t i) const {
    const std::vector<int32_t>& nodes = r_.groups[static_cast<size_t>(i)].nodes;
    return std::all_of(nodes.begin(), nodes.end(),
                       [&](int32_t id) { return g_.role(id) == Role::kPointwise || g_.role(id) == Role::kReduction; });
  }

  void add_library_pairs(std::vector<FusionReport::Refused>& all) const {
    std::set<std::pair<int32_t, int32_t>> known;
    for (const FusionReport::Refused& x : all) known.insert({x.a, x.b});
    for (const auto& [v, shared] : values_)
      for (const auto& [reader, bytes] : shared.reads) {
        const int32_t writer = shared.writer;
        if (writer < 0) continue;
        const bool calls = library(writer) && generated(reader), called = generated(writer) && library(reader);
        if (!(calls || called) || !known.insert(std::minmax(writer, reader)).second) continue;
        const int32_t to = reader_of(v, reader), call = calls ? v.node : to;
        all.push_back(
            {std::min(writer, reader), std::max(writer, reader), v.node, to, library_reason(g_.graph().node(call)), 0});
      }
  }

  // A node of the group that reads the value.
  int32_t reader_of(Value v, int32_t group) const {
    for (int32_t i : g_.readers(v.node))
      if (g_.read(i).value == v && group_[static_cast<size_t>(g_.read(i).node)] == group) return g_.read(i).node;
    return r_.groups[static_cast<size_t>(group)].nodes.back();
  }

  static double read_bytes(const SharedValue& v, const FusionReport::Refused& x) {
    return v.reads.at(v.writer == x.b || !v.reads.count(x.b) ? x.a : x.b);
  }

  // The bytes that one launch instead of the two would save, if the other launches stay.
  double saved(const FusionReport::Refused& x) const {
    double bytes = 0;
    for (const SharedValue* v : values_of_[static_cast<size_t>(x.a)]) {
      if (!v->uses(x.b)) continue;
      bytes += read_bytes(*v, x);
      if (v->writer >= 0 && !v->pinned && v->part.size() == 2) bytes += v->bytes;
    }
    return bytes;
  }

  // The part of these bytes that no earlier pair counts. The pair that connects the last use also counts the write.
  double take(const FusionReport::Refused& x) {
    double bytes = 0;
    for (SharedValue* v : values_of_[static_cast<size_t>(x.a)]) {
      if (!v->uses(x.b)) continue;
      const int32_t a = v->root(x.a), b = v->root(x.b);
      if (a == b) continue;
      v->part[b] = a;
      bytes += read_bytes(*v, x);
      if (--v->parts == 1 && v->writer >= 0 && !v->pinned) bytes += v->bytes;
    }
    return bytes;
  }

  const FusionGraph& g_;
  const FusionReport& r_;
  std::vector<int32_t> group_;  // index: node
  std::map<Value, SharedValue> values_;
  std::vector<std::vector<SharedValue*>> values_of_;  // index: group
};

}  // namespace

void list_separate(const FusionGraph& g, FusionReport& r) { r.separate = Separate(g, r).run(); }

}  // namespace weft::fusion
