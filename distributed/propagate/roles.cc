#include "distributed/propagate/roles.h"

#include <algorithm>

#include "distributed/placement/rule.h"
#include "ops/core/core.h"

namespace weft::dist {
namespace {

using RoleDim = std::vector<RoleSeg>;

// Cuts a dim into factors of these sizes. Parts that do not align get no role.
std::vector<RoleDim> cut_roles(const RoleDim& dim, const std::vector<int64_t>& sizes) {
  RoleDim left(dim.rbegin(), dim.rend());
  std::vector<RoleDim> out;
  for (int64_t size : sizes) {
    RoleDim part;
    while (size > 1 && !left.empty()) {
      RoleSeg s = left.back();
      left.pop_back();
      if (s.extent <= size && size % s.extent == 0) {
        part.push_back(s);
        size /= s.extent;
      } else if (s.extent % size == 0) {
        part.push_back({size, s.role});
        left.push_back({s.extent / size, s.role});
        size = 1;
      } else {
        left.clear();
      }
    }
    if (size > 1) part = {{size, 0}};
    if (part.empty()) part = {{1, 0}};
    out.push_back(part);
  }
  return out;
}

RoleDim joined(const RoleDim& dim) {
  RoleDim out;
  for (const RoleSeg& s : dim) {
    if (s.extent == 1 && dim.size() > 1) continue;
    if (!out.empty() && out.back().role == s.role) {
      out.back().extent *= s.extent;
    } else {
      out.push_back(s);
    }
  }
  if (out.empty()) out.push_back({1, 0});
  return out;
}

bool has_role(const RoleDim& d) {
  return std::any_of(d.begin(), d.end(), [](const RoleSeg& s) { return s.role != 0; });
}

}  // namespace

std::vector<ValueRoles> find_roles(const Graph& g) {
  std::vector<ValueRoles> all(static_cast<size_t>(g.size()));
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (n.outputs.empty()) continue;
    const Shape& shape = n.outputs[0].shape;
    ValueRoles& roles = all[id];
    for (int64_t e : shape) roles.push_back({{e, 0}});
    if (is_argument(n)) {
      if (shape.size() > 0) roles[0][0].role = 'b';
      if (shape.size() > 1) roles[1][0].role = 't';
      continue;
    }
    if (n.inputs.empty()) continue;
    const Rule rule = rule_of(g, n);
    std::vector<RoleDim> factors(rule.map.factors.size());
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      if (n.inputs[i].index != 0) continue;
      const ValueRoles& from = all[n.inputs[i].node];
      for (size_t d = 0; d < from.size(); ++d) {
        const auto& parts = rule.map.in[i][d];
        if (parts.empty()) continue;
        std::vector<int64_t> sizes;
        for (int f : parts) sizes.push_back(rule.map.factors[f].size);
        const std::vector<RoleDim> cuts = cut_roles(from[d], sizes);
        for (size_t k = 0; k < parts.size(); ++k) {
          RoleDim& to = factors[parts[k]];
          if (!has_role(to)) to = cuts[k];
        }
        if (n.op->placing == Placing::kSlice && has_role(from[d]) && from[d].size() == 1)
          roles[d] = {{shape[static_cast<int>(d)], from[d][0].role}};
      }
    }
    for (size_t d = 0; d < roles.size(); ++d) {
      RoleDim now;
      for (int f : rule.map.out[0][d]) {
        const RoleDim& part = factors[f];
        if (part.empty()) {
          now.push_back({rule.map.factors[f].size, 0});
        } else {
          now.insert(now.end(), part.begin(), part.end());
        }
      }
      if (!now.empty() && has_role(now)) roles[d] = joined(now);
    }
  }
  return all;
}

}  // namespace weft::dist
