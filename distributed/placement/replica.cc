#include "distributed/placement/replica.h"

#include "framework/base/error.h"

namespace weft::dist {

// The name of a dimension as the constructor of Mesh reads it.
static std::string text_of(const Mesh::Dim& d) { return d.over.empty() ? d.name : str_cat(d.name, "(", d.over, ")"); }

int replica_axis(const Mesh& mesh) {
  const Mesh::Dim* d = mesh.find("replica");
  return d && d->size > 1 ? d->axes[0] : -1;
}

int replica_count(const Mesh& mesh) {
  const Mesh::Dim* d = mesh.find("replica");
  return d ? d->size : 1;
}

Mesh replica_mesh(const Mesh& mesh) {
  if (!has_replicas(mesh)) return mesh;
  std::vector<std::pair<std::string, int>> dims;
  for (const Mesh::Dim& d : mesh.dims())
    if (d.name != "replica") dims.emplace_back(text_of(d), d.size);
  return Mesh(dims);
}

Mesh with_replicas(const Mesh& mesh, int64_t live) {
  std::vector<std::pair<std::string, int>> dims;
  for (const Mesh::Dim& d : mesh.dims())
    dims.emplace_back(text_of(d), d.name == "replica" ? static_cast<int>(live) : d.size);
  return Mesh(dims);
}

Spec spec_in_replica(const Mesh& mesh, const Spec& spec) {
  const int replica = replica_axis(mesh);
  if (replica < 0) return spec;
  WEFT_BUG_IF(spec.splits(replica) || spec.is_pending(replica), "replica: ", to_string(mesh, spec));
  // The axis is the first one.
  Spec s = spec;
  for (DimSpec& dim : s.dims)
    for (Seg& seg : dim)
      for (Axes* axes : {&seg.axes, &seg.experts})
        for (int8_t& a : *axes) --a;
  for (Pending& p : s.pending) --p.axis;
  return s;
}

}  // namespace weft::dist
