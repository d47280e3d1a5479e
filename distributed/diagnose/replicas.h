// Diagnosis of replicas that train together: the replica for which the others wait. The ranks of all replicas make
// equal sums in a view, so the replica that has started the fewest is behind.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "distributed/diagnose/diagnosis.h"

namespace weft::dist::diagnose {

struct ReplicaDiagnosis {
  std::string name;  // the replica's name; without one, its folder's
  int64_t view = 0;  // its latest view; 0: it had none
  Diagnosis job;     // the diagnosis of its own ranks
};

struct ReplicasDiagnosis {
  std::vector<std::string> sentences;  // the first one says whether replicas wait, and for which one
  int awaited = -1;                    // index of this replica; -1: none
  std::vector<ReplicaDiagnosis> replicas;

  /// The sentences, and then the diagnosis of each replica.
  std::string to_string() const;
  std::string to_json() const;
};

/// `jobs`: for each replica, the name of its folder and its records. A replica that is not in the newest view was taken
/// for dead, or has not joined yet: nobody waits for it.
ReplicasDiagnosis diagnose_replicas(const std::vector<std::pair<std::string, TracedJob>>& jobs,
                                    const DiagnosisOptions& options = {});

}  // namespace weft::dist::diagnose
