// The parts of the data that live replicas take. The batch of a mesh with R replicas has R equal parts. A step of a
// view takes one part for each of its members, in the order of the data. So each sample is in exactly one committed
// step: a step that is not committed, or is cancelled, is made again from the same position.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "distributed/control/group/view.h"

namespace weft::dist {

/// The part of one replica in a step.
struct DataPart {
  int64_t view = 0;   // number of the view that makes the step
  int64_t first = 0;  // parts that all earlier steps took
  int64_t live = 1;   // replicas of the step: it takes the parts from `first` to first + live - 1
  int64_t place = 0;  // place of this replica in the view: its part is first + place
};

/// The part of the replica at `place` in a step, by the views that made its state (control::history_of). Throws
/// OutOfRange for a step before the first view.
DataPart part_at(const std::vector<control::ReplicaView>& history, int64_t step, int64_t place);

/// The rows of a part, if the batch of `replicas` replicas has `batch` rows. Throws InvalidArgument if it cannot be
/// divided.
int64_t rows_of_part(int64_t batch, int64_t replicas);

}  // namespace weft::dist
