// A run with --diloco: its flags and its messages (distributed/diloco).
#pragma once
#include <cstdint>
#include <string>

#include "distributed/diloco/diloco_replica.h"
#include "framework/cli/cli.h"
#include "models/train/options.h"

namespace weft::train {

/// --diloco and the flags that begin with outer_.
Flags diloco_flags(TrainOptions& options);
/// Restarts for replicas with --diloco that this process starts, if none are given: they need a launcher of their own.
void restart_diloco(TrainOptions& options);
/// Sets Setup::outer. Throws UsageError for flags that do not fit.
void settle_diloco(Setup& setup, const TrainOptions& options);
/// The line before the first step: the bytes by the closed form.
std::string diloco_text(const Setup& setup, const TrainOptions& options, int64_t parameters);
/// The line after the last step: the bytes that this replica has sent. A collective of its processes.
std::string sent_text(const dist::DilocoReplica& diloco);

}  // namespace weft::train
