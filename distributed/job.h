// Programs whose ranks are processes: dist::Job, dist::is_first(), and dist::ReplicaStep for replicas that may die.
#pragma once
#include "distributed/launch/job.h"
#include "distributed/launch/processes.h"
#include "distributed/replica/replica_step.h"
