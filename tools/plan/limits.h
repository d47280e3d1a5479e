// The limits of data parallelism in closed form: arithmetic for choosing a mesh by hand, before any graph exists.
// limits_test.cc compares it with published figures. No pass reads it.
#pragma once
#include <cstdint>

namespace weft::planner {

/// The largest number of ranks for which compute hides fully sharded communication of 2-byte values: tokens * bandwidth
/// / flops. It does not depend on the number of parameters.
double fsdp_comm_limit(double tokens, double link_bandwidth, double flops);
/// The largest number of ranks with at least one sequence each.
double fsdp_batch_limit(double tokens, double sequence);

enum class ScaleCase : uint8_t {
  kFsdp = 1,   // within both limits
  kBatch = 2,  // too few sequences: split them (cp, tp); a pipeline does not help
  kComm = 3,   // too much communication: pp, or tp between nodes
  kBoth = 4,   // cp or tp with pp, or tp between nodes
};
/// The case of `gpus` ranks against both limits.
ScaleCase scale_case(double gpus, double comm_limit, double batch_limit);

/// Bytes that a rank sends to other ranks when it dispatches its tokens, as 2-byte rows, to k experts. A layer has four
/// such exchanges: dispatch and combine, in forward and in backward.
double dispatch_bytes(double tokens, double k, double dim, double ep);
/// The slowest rank's compute time relative to equal shares. `shares` are the ranks' shares of the rows and sum to 1.
double expert_skew(const double* shares, int ranks);
/// The least seconds of a step on any number of ranks, since its collectives wait for each other.
double latency_floor(double layers, double collectives_each, double latency);

}  // namespace weft::planner
