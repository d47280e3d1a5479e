// The predicted seconds, bytes and FLOPs of one layer on one rank for one microbatch. Every time comes from
// compiler/cost, like the partitioner's times (roofline, waves of products, collectives); the layer's products and
// elementwise work come from the captured model (shape.h).
#pragma once
#include "compiler/cost/collective_seconds.h"
#include "tools/plan/candidate.h"

namespace weft::planner {

/// Nodes that a group of `ranks` ranks spans; its members are `stride` ranks apart.
int nodes_spanned(int ranks, int stride, int node);

/// Bytes of an f32 weight that an update makes, and of a gradient that ranks reduce.
inline constexpr double kMasterBytes = 4;

/// One layer of a rank for one microbatch: seconds, bytes, FLOPs, numbers of parameters.
struct Layer {
  double forward = 0, input = 0, weight = 0;  // seconds of compute
  double tp_forward = 0, tp_backward = 0;     // exposed seconds
  double cp_forward = 0, cp_backward = 0, ep_forward = 0, ep_backward = 0;
  double hidden_forward = 0, hidden_backward = 0;  // seconds of these collectives that products or attention hide
  double contended = 0;                            // part of the hidden seconds that uses multiprocessors
  double forward_bytes = 0, backward_bytes = 0;    // bytes of these collectives
  double flops = 0;                                // FLOPs of products in forward alone
  double kept = 0, input_bytes = 0;                // bytes kept for backward; bytes of the input alone
  double dense = 0, experts = 0;                   // parameters that the rank uses

  double parameters() const { return dense + experts; }
  double exposed_forward() const { return tp_forward + cp_forward + ep_forward; }
  double exposed_backward() const { return tp_backward + cp_backward + ep_backward; }
  double forward_seconds() const { return forward + exposed_forward(); }
  double input_seconds() const { return input + exposed_backward(); }
};

/// The prices of one candidate's layers.
class Costs {
 public:
  /// `workload` and `candidate` must outlive this object. Their sizes may not divide: see check_divides().
  Costs(const Workload& workload, const Candidate& candidate);
  /// Throws InvalidArgument, in one clause, for sizes of the model or the batch that do not divide over the candidate.
  void check_divides() const;

  double tokens() const { return tokens_; }    // tokens of a rank in a microbatch
  double stream() const { return stream_; }    // bytes of its activations between layers, not cut by tp
  double element() const { return element_; }  // bytes

  Layer layer(const Block& block) const;
  Layer head() const;       // logits, loss and their gradients
  Layer embedding() const;  // rows of the table; each rank has its part of the vocabulary

  double collective(Collective kind, double bytes, int ranks, int stride) const;
  /// Seconds to gather the parameters of a layer, to reduce its gradients, and to send activations to the next stage.
  double gather_seconds(const Layer& layer) const;
  double reduce_seconds(const Layer& layer) const;
  double send_seconds() const;
  /// Bytes of a layer's gradients that a rank sums over replicas once a step, after the sums inside its replica, and
  /// their seconds.
  double replica_bytes(const Layer& layer) const;
  double replica_seconds(const Layer& layer) const;
  /// Seconds that compute loses to collectives that run beside it for `hidden` seconds. async_tp sends parts of
  /// products as copies, which need no multiprocessors.
  double contention(double hidden) const;

  /// Ranks that share the state of dense parameters, and of experts.
  int state_group() const { return c_.zero == 3 ? c_.fsdp * c_.cp * c_.ep : c_.dp * c_.cp * c_.ep; }
  int expert_group() const { return c_.zero == 3 ? c_.fsdp : c_.dp; }
  /// Whether every microbatch, not only the last, reduces its gradients.
  bool reduces_each() const { return c_.zero == 3 && c_.pp == 1; }

 private:
  double product(double m, double n, double k, double count = 1, bool head = false) const;
  double move(double read, double written) const;
  double scaled(double elements) const;
  double beside(double seconds, double product, double& hidden) const;
  double behind(double seconds, double product, Layer& layer) const;
  double linear(Layer& layer, double rows, double in, double out, double count) const;
  double product_of(Layer& layer, const Block& block, const Product& product) const;
  void attention(Layer& layer, double tokens, double q, double kv) const;

  const Workload& s_;
  const Candidate& c_;
  const ModelShape& m_;
  double element_, tokens_, stream_;
};

/// All kinds of layers with the embedding and the head.
struct LayerCosts {
  Layer embedding, head;
  std::vector<std::pair<Layer, int64_t>> kinds;  // in order, with the number of layers
  size_t largest_kind = 0;
  bool tied;
  LayerCosts(const Workload& workload, const Costs& costs);
  int64_t layers() const;
  const Layer& at(int64_t layer) const;
  /// The layer whose model has the most parameters.
  const Layer& largest() const { return kinds[largest_kind].first; }
};

}  // namespace weft::planner
