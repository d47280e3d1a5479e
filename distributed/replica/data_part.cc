#include "distributed/replica/data_part.h"

#include <algorithm>

#include "framework/base/error.h"

namespace weft::dist {

DataPart part_at(const std::vector<control::ReplicaView>& history, int64_t step, int64_t place) {
  const auto next = std::ranges::upper_bound(history, step, {}, &control::ReplicaView::start);
  WEFT_CHECK_AS(kOutOfRange, next != history.begin(), "the views begin at step ",
                history.empty() ? 0 : history[0].start, "; need a step from there on, not ", step);
  const control::ReplicaView& view = next[-1];
  return {view.number, control::parts_before(history, step), std::ssize(view.members), place};
}

int64_t rows_of_part(int64_t batch, int64_t replicas) {
  WEFT_CHECK(batch % replicas == 0, "a batch of ", batch, " rows for ", replicas, " replicas; need a multiple of ",
             replicas, ", because each replica takes an equal part");
  return batch / replicas;
}

}  // namespace weft::dist
