#include "compiler/passes/fusion/fuse_report.h"

#include <algorithm>
#include <cctype>

#include "compiler/loop_ir/lower_group.h"
#include "framework/base/parse_number.h"
#include "framework/base/units.h"
#include "framework/ir/op_def.h"
#include "framework/ir/text.h"
#include "ops/core/products/dot.h"

namespace weft {
namespace {

std::string line_of(const Node& n) {
  return n.line.line ? str_cat(internal::base_name(n.line.file), ":", n.line.line) : std::string();
}

std::string name_of(const Graph& g, int32_t id) {
  const Node& n = g.node(id);
  const std::string line = line_of(n);
  return str_cat(n.op->name, " (%", id, line.empty() ? "" : ", ", line, ")");
}

int32_t group_of(const FusionReport& r, int32_t id, bool clones) {
  for (size_t i = 0; i < r.groups.size(); ++i) {
    const auto& x = r.groups[i];
    if (std::find(x.nodes.begin(), x.nodes.end(), id) != x.nodes.end()) return static_cast<int32_t>(i);
  }
  for (size_t i = 0; clones && i < r.groups.size(); ++i) {
    const auto& x = r.groups[i];
    if (std::find(x.clones.begin(), x.clones.end(), id) != x.clones.end()) return static_cast<int32_t>(i);
  }
  return -1;
}

bool together(const FusionGroup& x, int32_t a, int32_t b) {
  auto in = [&](int32_t id) {
    return std::find(x.nodes.begin(), x.nodes.end(), id) != x.nodes.end() ||
           std::find(x.clones.begin(), x.clones.end(), id) != x.clones.end();
  };
  return in(a) && in(b);
}

const FusionReport::Refused* refusal(const FusionReport& r, int32_t a, int32_t b) {
  for (const auto& x : r.refused)
    if ((x.a == a && x.b == b) || (x.a == b && x.b == a)) return &x;
  return nullptr;
}

Value root(const Graph& g, Value v) {
  while (g.node(v).op->view && !g.node(v).inputs.empty()) v = g.node(v).inputs[0];
  return v;
}

/// Bytes that groups a and b share: values of a that b reads, and values that both read.
double shared_bytes(const FusionReport& r, const FusionGroup& a, const FusionGroup& b, bool* direct) {
  const Graph& g = *r.before;
  std::vector<Value> x, y;
  for (const auto& [from, to] : {std::pair{&a, &x}, std::pair{&b, &y}})
    for (int32_t id : from->nodes) {
      for (Value v : g.node(id).inputs) to->push_back(root(g, v));
      for (size_t k = 0; k < g.node(id).outputs.size(); ++k) to->push_back({id, static_cast<int32_t>(k)});
    }
  for (auto* v : {&x, &y}) {
    std::sort(v->begin(), v->end());
    v->erase(std::unique(v->begin(), v->end()), v->end());
  }
  std::vector<Value> both;
  std::set_intersection(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(both));
  double bytes = 0;
  for (Value v : both) {
    bytes += static_cast<double>(g.type(v).nbytes());
    for (const FusionGroup* f : {&a, &b})
      *direct |= std::find(f->nodes.begin(), f->nodes.end(), v.node) != f->nodes.end();
  }
  return bytes;
}

int64_t points(const Graph& g, const FusionGroup& x) {
  int64_t n = 0;
  for (int32_t id : x.nodes) {
    for (const TensorType& t : g.node(id).outputs) n = std::max(n, t.shape.numel());
    if (g.node(id).op->is(kReduction))
      for (Value v : g.node(id).inputs) n = std::max(n, g.type(v).shape.numel());
  }
  return n;
}

/// The reason for a pair for which no join was tried.
std::string general_reason(const FusionReport& r, const FusionGroup& a, const FusionGroup& b, double* bytes) {
  const Graph& g = *r.before;
  bool direct = false;
  *bytes = shared_bytes(r, a, b, &direct);
  if (*bytes == 0) return "they share no data";
  auto library = [&](const FusionGroup& x) -> const Node* {
    for (int32_t id : x.nodes)
      if (!x.fused && !g.node(id).op->is(kPointwise) && !g.node(id).op->is(kReduction)) return &g.node(id);
    return nullptr;
  };
  auto product = [&](const FusionGroup& x) {
    for (int32_t id : x.nodes)
      if (loop_ir::is_product(g.node(id))) return true;
    return false;
  };
  if (product(a) && product(b)) return "both are products";
  if (product(a) || product(b)) {
    const FusionGroup &p = product(a) ? a : b, &other = product(a) ? b : a;
    for (int32_t id : p.nodes)
      if (loop_ir::is_product(g.node(id)))
        for (Value v : g.node(id).inputs)
          if (std::find(other.nodes.begin(), other.nodes.end(), root(g, v).node) != other.nodes.end())
            return "it feeds an operand of the product, which is packed for the matrix units";
    return "the product's epilogue would move more bytes than the group that reads it";
  }
  for (const FusionGroup* x : {&a, &b})
    if (const Node* n = library(*x)) return library_reason(*n);
  if (points(g, a) != points(g, b))
    return str_cat("they iterate over different points (", points(g, a), " and ", points(g, b), ")");
  return direct ? "a node between them needs the first and is needed by the second"
                : "they share few bytes compared with the bytes that each reads alone";
}

std::string sentence(const FusionReport& r, int32_t a, int32_t b) {
  const Graph& g = *r.before;
  for (const FusionGroup& x : r.groups)
    if (together(x, a, b))
      return str_cat(name_of(g, a), " and ", name_of(g, b), " are in one kernel: %", x.node, " of ",
                     x.nodes.size() + x.clones.size(), " ops, ", bytes_text(x.bytes), " through memory.");
  const int32_t i = group_of(r, a, true), j = group_of(r, b, true);
  for (const auto& [id, at] : {std::pair{a, i}, std::pair{b, j}})
    if (at < 0) return str_cat(name_of(g, id), " is not a launch: it is a view, a constant, or nothing needs it.");
  double bytes = 0;
  std::string reason;
  if (const auto* x = refusal(r, i, j)) {
    reason = x->reason;
    bytes = x->bytes;
  } else {
    reason = general_reason(r, r.groups[i], r.groups[j], &bytes);
  }
  std::string s = str_cat(name_of(g, a), " and ", name_of(g, b), " are not in one kernel: ", reason);
  if (bytes > 0) s += str_cat("; ", bytes_text(bytes), " are moved for it");
  return s + ".";
}

std::vector<int32_t> matching(const FusionReport& r, std::string_view text) {
  const Graph& g = *r.before;
  std::vector<int32_t> found;
  if (text.starts_with("%")) {
    if (const auto id = parse_number<int32_t>(text.substr(1), 0, g.size() - 1)) found.push_back(*id);
    return found;
  }
  std::string_view op = text, line;
  if (const size_t at = text.find(" at "); at != std::string_view::npos) {
    op = text.substr(0, at);
    line = text.substr(at + 4);
  } else if (text.find(':') != std::string_view::npos) {
    op = {};
    line = text;
  }
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (!op.empty() && op != n.op->name) continue;
    if (!line.empty() && line_of(n) != line && n.line.to_string() != line) continue;
    if (group_of(r, id, true) >= 0) found.push_back(id);
  }
  return found;
}

}  // namespace

std::string why(const FusionReport& r, int32_t a, int32_t b) {
  if (!r.before) return "nothing was fused.";
  for (int32_t id : {a, b})
    WEFT_CHECK(id >= 0 && id < r.before->size(), "why: got node %", id, "; need one of the ", r.before->size());
  return sentence(r, a, b);
}

std::string why(const FusionReport& r, std::string_view a, std::string_view b) {
  if (!r.before) return "nothing was fused.";
  const std::vector<int32_t> x = matching(r, a), y = matching(r, b);
  for (const auto& [text, found] : {std::pair{a, &x}, std::pair{b, &y}})
    WEFT_CHECK(!found->empty(), "why: no launch has '", text,
               "'; need %node, an op, file:line, or \"op at file:line\"");
  std::pair<int32_t, int32_t> best{x[0], y[0]};
  double most = -1;
  for (int32_t p : x)
    for (int32_t q : y) {
      if (p == q) continue;
      const int32_t i = group_of(r, p, true), j = group_of(r, q, true);
      double bytes = 0;
      if (i == j && i >= 0) {
        bytes = 1e300;
      } else if (const auto* refused = refusal(r, i, j)) {
        bytes = refused->bytes;
      }
      if (bytes > most) {
        most = bytes;
        best = {p, q};
      }
    }
  return sentence(r, best.first, best.second);
}

std::string library_reason(const Node& n) { return str_cat(n.op->name, " is a library call"); }

std::string fusion_summary(const FusionReport& r) {
  return str_cat(r.launches_before, " -> ", r.launches_after, " launches, ", bytes_text(r.bytes_before), " -> ",
                 bytes_text(r.bytes_after), " through memory");
}

}  // namespace weft
