// For tests: collectives with random types, shapes, strides and counts. A case follows from its seed alone, so every
// process makes the same case, with its operands for every rank.
#pragma once
#include <memory>
#include <random>
#include <vector>

#include "framework/dispatch/rank/communicator.h"

namespace weft::testing {

/// The operands of one rank: requests refer to these buffers.
struct RankOperands {
  std::vector<char> in, out;            // contents before the collective
  StridedView in_view, out_view;        // `data` is null; offsets are below
  int64_t in_begin = 0, out_begin = 0;  // offset of the first element, in bytes
  bool same = false;                    // out is in
  std::vector<int64_t> send, recv;
  CommRequest request;  // the request without views and counts
  bool takes_part = true;
};

/// One collective of `n` ranks.
std::vector<RankOperands> random_collective(uint64_t seed, int n);

/// A collective in progress, with its buffers.
struct Started {
  std::shared_ptr<char> in, out;
  int64_t out_bytes = 0;
  Ref<Work> work;
};
Started start(Communicator& c, const RankOperands& o);

}  // namespace weft::testing
