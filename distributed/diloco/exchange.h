// The exchange of one fragment among replicas: the weighted average of their outer gradients, with equal bits on all.
// Each replica owns an equal share of the values, in whole blocks of the wire. It gets the share of all others, sums in
// f32 in the order of the replicas, and sends the average, encoded once more, to all. Each message has a checksum.
#pragma once
#include <span>
#include <vector>

#include "distributed/diloco/wire.h"
#include "framework/dispatch/rank/communicator.h"

namespace weft::dist {

/// A collective of the ranks of `replicas`. Adds the bytes for other ranks to `sent`. Throws if a rank fails, at the
/// deadline, and DataLoss for damaged messages.
std::vector<float> exchange(Communicator& replicas, OuterWire wire, std::span<const float> d, int64_t weight,
                            Work::Deadline deadline, int64_t& sent);

/// The result of exchange() for replicas with these outer gradients and weights, by place.
std::vector<float> average_of(OuterWire wire, std::span<const std::vector<float>> d, std::span<const int64_t> weights);

}  // namespace weft::dist
