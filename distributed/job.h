// Programs whose ranks are processes: dist::Job, dist::is_first().
#pragma once
#include "distributed/launch/job.h"
#include "distributed/launch/processes.h"
