// How far data parallelism goes, in closed form: the arithmetic by which a mesh is chosen before any graph exists. For
// choosing a mesh by hand; machine_test.cc holds it to published figures. No pass reads it.
#pragma once
#include <cstdint>

namespace weft::dist {

/// Seconds in which a rank's link carries fully sharded parameters of `bytes_each`: gathered twice, gradients scattered
/// once.
double fsdp_comm_seconds(double parameters, double bytes_each, double link_bandwidth);
/// Seconds of 6 operations for each parameter and token (forward 2, backward 4; Kaplan et al. 2020) over `gpus`.
double train_compute_seconds(double parameters, double tokens, double flops, double gpus);
/// Ranks up to which compute hides fully sharded communication of 2-byte values: tokens * bandwidth / flops. Whatever
/// the parameters.
double fsdp_comm_limit(double tokens, double link_bandwidth, double flops);
/// Ranks up to which each has a sequence of its own.
double fsdp_batch_limit(double tokens, double sequence);

enum class ScaleCase : uint8_t {
  kFsdp = 1,   // within both limits
  kBatch = 2,  // too few sequences: split them (cp, tp); a pipeline does not help
  kComm = 3,   // too much communication: pp, or tp between nodes
  kBoth = 4,   // cp or tp with pp, or tp between nodes
};
ScaleCase scale_case(double gpus, double tokens, double sequence, double link_bandwidth, double flops);

/// Bytes that a rank sends to other ranks in one dispatch of its tokens to k experts of 2-byte rows; a layer has four
/// such exchanges: dispatch and combine, forward and backward.
double dispatch_bytes(double tokens, double k, double dim, double ep);
/// How many times longer the slowest of the ranks computes than if each had as many rows; `shares` of rows sum to 1.
double expert_skew(const double* shares, int ranks);
/// Seconds below which no number of ranks brings a step: collectives that wait for each other.
double latency_floor(double layers, double collectives_each, double latency);

}  // namespace weft::dist
