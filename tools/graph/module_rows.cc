#include "tools/graph/module_rows.h"

#include <algorithm>
#include <memory>

#include "framework/ir/op_def.h"

namespace weft::tools {
namespace {

bool is_drawn(const Node& n) { return !n.inputs.empty() && !n.op->is(kView); }

struct ModuleScope {
  std::string name, path;
  std::vector<std::unique_ptr<ModuleScope>> inner;
  std::vector<int32_t> own, all;  // drawn nodes, ascending
};

// A module, or a run of ops of one module between its inner modules.
struct ModuleItem {
  std::string label;
  const ModuleScope* scope = nullptr;  // null: a run
  std::vector<int32_t> nodes;
  std::vector<ModuleItem> items;
  std::vector<const ModuleScope*> equal;  // later equal layers, which this row represents
};

bool is_number(const std::string& s) { return !s.empty() && s.find_first_not_of("0123456789") == s.npos; }

class ModuleRowBuilder {
 public:
  ModuleRowBuilder(const Graph& g, std::span<const Phase> phases)
      : g_(g), phases_(phases), place_(static_cast<size_t>(g.size()), -1) {
    for (int32_t id = 0; id < g.size(); ++id)
      if (is_drawn(g.node(id))) add(id);
    root_ = items_of(scopes_);
  }

  ModuleRows rows(int most) {
    int depth = 1;
    while (depth < kDeepest && count(root_, depth + 1) <= most) ++depth;
    out_.row.assign(static_cast<size_t>(g_.size()), -1);
    out_.repeated.assign(static_cast<size_t>(g_.size()), false);
    for (const ModuleItem& item : root_) place(item, depth - 1, 0);
    return std::move(out_);
  }

 private:
  static constexpr int kDeepest = 16;
  static constexpr size_t kMostRuns = 8;  // runs of one module

  void add(int32_t id) {
    ModuleScope* at = &scopes_;
    at->all.push_back(id);
    std::string_view left = g_.node(id).scope ? g_.node(id).scope : "";
    for (int depth = 0; !left.empty(); ++depth) {
      // Levels deeper than a page shows are one name.
      const size_t end = depth + 1 < kDeepest ? std::min(left.find_first_of("./"), left.size()) : left.size();
      const std::string name(left.substr(0, end));
      auto it = std::find_if(at->inner.begin(), at->inner.end(), [&](const auto& s) { return s->name == name; });
      if (it == at->inner.end()) {
        auto scope = std::make_unique<ModuleScope>();
        scope->name = name;
        scope->path = at->path.empty() ? name : str_cat(at->path, ".", name);
        it = at->inner.insert(it, std::move(scope));
      }
      at = it->get();
      at->all.push_back(id);
      left.remove_prefix(std::min(end + 1, left.size()));
    }
    at->own.push_back(id);
  }

  Phase phase(int32_t id) const { return phases_[id]; }

  // "model.cc:31"
  std::string label_of(int32_t id) const {
    const std::string line = g_.node(id).line.to_string();
    return line.empty() ? "ops" : line.substr(line.find_last_of('/') + 1);
  }

  // The ops of the scope without its own names: equal layers have equal signatures.
  std::string signature(const ModuleScope& s) {
    for (size_t k = 0; k < s.all.size(); ++k) place_[s.all[k]] = static_cast<int32_t>(k);
    std::string text;
    for (int32_t id : s.all) {
      const Node& n = g_.node(id);
      text += str_cat(n.op->name, " ", std::string_view(n.scope).substr(s.path.size()), static_cast<int>(phase(id)));
      for (const TensorType& t : n.outputs) text += t.to_string();
      for (Value v : n.inputs) {
        const int32_t from = source_of(g_, v);
        text += str_cat(" ", from < 0 ? -2 : place_[from]);
      }
      text += '\n';
    }
    for (int32_t id : s.all) place_[id] = -1;
    return text;
  }

  // Inner modules by their first node of forward, and runs of own nodes between them; then nodes outside forward.
  std::vector<ModuleItem> items_of(const ModuleScope& s) {
    std::vector<std::pair<int32_t, const ModuleScope*>> forward, others;
    for (const auto& inner : s.inner) {
      const auto is_forward = [&](int32_t id) { return phase(id) == Phase::kForward; };
      const auto first = std::find_if(inner->all.begin(), inner->all.end(), is_forward);
      const bool has = first != inner->all.end();
      (has ? forward : others).emplace_back(has ? *first : inner->all[0], inner.get());
    }
    std::sort(forward.begin(), forward.end());
    std::vector<ModuleItem> items;
    std::string last;  // the signature of the last layer
    size_t next = 0, runs = 0;
    std::vector<int32_t> later;
    for (int32_t id : s.own) {
      if (phase(id) != Phase::kForward) {
        later.push_back(id);
        continue;
      }
      for (; next < forward.size() && forward[next].first < id; ++next) add_module(*forward[next].second, items, last);
      if (items.empty() || (items.back().scope && runs < kMostRuns)) {
        items.push_back({.label = label_of(id)});
        ++runs;
        last.clear();
      }
      std::find_if(items.rbegin(), items.rend(), [](const ModuleItem& i) { return !i.scope; })->nodes.push_back(id);
    }
    for (; next < forward.size(); ++next) add_module(*forward[next].second, items, last);
    std::vector<ModuleItem> rest;
    last.clear();
    for (const auto& [id, inner] : others) add_module(*inner, rest, last);
    for (int32_t id : later) add_later(id, items, rest);
    std::stable_sort(rest.begin(), rest.end(),
                     [](const ModuleItem& a, const ModuleItem& b) { return a.nodes[0] < b.nodes[0]; });
    items.insert(items.end(), std::make_move_iterator(rest.begin()), std::make_move_iterator(rest.end()));
    return items;
  }

  // A gradient is in the row of the line that it belongs to.
  void add_later(int32_t id, std::vector<ModuleItem>& items, std::vector<ModuleItem>& rest) {
    const std::string label = label_of(id);
    for (std::vector<ModuleItem>* part : {&items, &rest})
      for (ModuleItem& item : *part)
        if (!item.scope && item.label == label) return item.nodes.push_back(id);
    rest.push_back({.label = label, .nodes = {id}});
  }

  void add_module(const ModuleScope& s, std::vector<ModuleItem>& items, std::string& last) {
    ModuleItem item{.label = s.path, .scope = &s, .nodes = s.all, .items = items_of(s)};
    const bool numbered =
        s.own.empty() && std::all_of(s.inner.begin(), s.inner.end(), [](const auto& i) { return is_number(i->name); });
    if (numbered) {  // "blocks" around "blocks.0" adds no information
      for (ModuleItem& inner : item.items) items.push_back(std::move(inner));
      last.clear();
      return;
    }
    std::string mine = is_number(s.name) ? signature(s) : std::string();
    if (!mine.empty() && mine == last) {
      items.back().equal.push_back(&s);
      items.back().label =
          str_cat(items.back().scope->path, " to ", s.name, ": ", items.back().equal.size() + 1, " equal layers");
      return;
    }
    last = std::move(mine);
    items.push_back(std::move(item));
  }

  // A module with nothing but one run is one row.
  static bool opens(const ModuleItem& item, int depth) {
    return depth > 0 && item.scope && !(item.items.size() == 1 && !item.items[0].scope);
  }

  static int count(const std::vector<ModuleItem>& items, int depth) {
    int rows = 0;
    for (const ModuleItem& item : items) rows += opens(item, depth - 1) ? count(item.items, depth - 1) : 1;
    return rows;
  }

  void place(const ModuleItem& item, int depth, int frames) {
    const int first = static_cast<int>(out_.labels.size());
    if (opens(item, depth)) {
      const size_t frame = out_.frames.size();
      out_.frames.push_back({item.label, first, first, frames});
      for (const ModuleItem& inner : item.items) place(inner, depth - 1, frames + 1);
      out_.frames[frame].last = static_cast<int>(out_.labels.size()) - 1;
    } else {
      for (int32_t id : item.nodes) out_.row[id] = first;
      out_.labels.push_back(item.label);
      out_.depths.push_back(frames);
    }
    for (const ModuleScope* s : item.equal)
      for (size_t k = 0; k < s->all.size(); ++k) {
        const auto id = static_cast<size_t>(s->all[k]);
        out_.row[id] = out_.row[item.nodes[k]];
        out_.repeated[id] = true;
      }
  }

  const Graph& g_;
  std::span<const Phase> phases_;
  std::vector<int32_t> place_;  // places of nodes in their scope, during signature()
  ModuleScope scopes_;
  std::vector<ModuleItem> root_;
  ModuleRows out_;
};

}  // namespace

int32_t source_of(const Graph& g, Value v) {
  const Node* n = &g.node(v);
  int32_t id = v.node;
  while (n->op->is(kView) && !n->inputs.empty()) {
    id = n->inputs[0].node;
    n = &g.node(id);
  }
  return is_drawn(*n) ? id : -1;
}

ModuleRows module_rows(const Graph& g, std::span<const Phase> phases, int most) {
  return ModuleRowBuilder(g, phases).rows(most);
}

}  // namespace weft::tools
