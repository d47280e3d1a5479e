// The mesh dimension `replica`: the outermost one, and one axis. A replica has the ranks of the rest of the mesh.
#pragma once
#include "distributed/placement/spec.h"

namespace weft::dist {

/// The axis of `replica`; -1: the mesh has at most one replica.
int replica_axis(const Mesh& mesh);
/// Whether the mesh has the dimension, also with one replica.
inline bool has_replicas(const Mesh& mesh) { return mesh.find("replica") != nullptr; }
/// The number of replicas.
int replica_count(const Mesh& mesh);
/// The mesh of one replica.
Mesh replica_mesh(const Mesh& mesh);
/// The mesh with `live` replicas in place of its own number.
Mesh with_replicas(const Mesh& mesh, int64_t live);
/// A spec that no dim and no pending sum of splits over `replica`, as a spec on the mesh of one replica.
Spec spec_in_replica(const Mesh& mesh, const Spec& spec);

}  // namespace weft::dist
