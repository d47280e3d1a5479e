// Collectives in a world of one rank, where all but the ragged exchange are copies. distributed/ tests several ranks.
#include "ops/testing/reference.h"

namespace weft::testing {
namespace {

std::vector<RefResult> same(const RefCall& c) { return {{c.in[0].v, {}}}; }

std::vector<RefResult> rows(const RefCall& c) {
  RefResult r;
  const int64_t width = c.out[0].shape[0] ? c.out[0].shape.numel() / c.out[0].shape[0] : 0;
  for (int64_t i = 0; i < c.out[0].shape.numel(); ++i) r.v.push_back(i < c.in[2].v[0] * width ? c.in[0].v[i] : 0);
  return {r};
}

std::vector<RefResult> coordinate(const RefCall&) { return {{{0}, {}}}; }

}  // namespace

std::span<const RefRow> collective_references() {
  static const RefRow rows_[] = {{"all_reduce", same},      {"all_gather", same},
                                 {"reduce_scatter", same},  {"all_to_all", same},
                                 {"all_to_all_rows", rows}, {"permute_ranks", same},
                                 {"broadcast_ranks", same}, {"copy_to", same},
                                 {"stage_boundary", same},  {"rank_coordinate", coordinate},
                                 {"check_index", same}};
  return rows_;
}

}  // namespace weft::testing
