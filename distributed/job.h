// Programs whose ranks are processes: dist::Job, dist::is_first(), dist::ReplicaStep for replicas that may die, and
// dist::Diloco for replicas that exchange outer gradients.
#pragma once
#include "distributed/diloco/diloco.h"
#include "distributed/launch/job.h"
#include "distributed/launch/processes.h"
#include "distributed/replica/replica_step.h"
