// ModelShape: the sizes that determine the cost of a transformer. It is read from the model itself: parameters from its
// modules, products and attention from its captured forward graph (capture_shape.cc). The model is a preset of a family
// in models/, or follows from the config.json of Hugging Face's transformers (models/weights/config.h).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/nn/config_map.h"

namespace weft::planner {

/// A product of tokens with a weight. Products that read one value are one product with the sum of their columns.
struct Product {
  /// How tensor parallelism splits the weight: not (its result decides which expert a token takes), by columns of a
  /// whole value, or by rows of a value that is split.
  enum Split : uint8_t { kWhole, kColumns, kRows } split = kColumns;
  int stage = 0;  // products by columns and the products by rows after them; each stage gathers and scatters once
  int64_t in = 0, out = 0;
  int64_t rows = 1;       // for each token: 1, or the number of experts that a token takes
  int64_t experts = 0;    // number of weights; 0: one weight for all tokens
  int64_t kv = 0;         // the part of `out` that is keys and values of attention
  bool attended = false;  // kRows: attention comes before it
  bool bias = false;      // each column of the result has a bias (kv)
  double weights() const;
};

/// Elementwise work between products, as one kernel: the elements that it reads and writes for each token.
struct Move {
  double read = 0, written = 0;
  bool linear = false;  // backward does not read the values again
};

/// Equal layers.
struct Block {
  int64_t layers = 1;
  int64_t parameters = 0;  // parameters of one layer
  std::vector<Product> products;
  std::vector<Move> moves;
  int64_t attended = 0;  // columns of queries that attention reads
  int64_t experts() const;
  int64_t expert_parameters() const;
  /// The parameters that multiply a token.
  double multiplying_parameters() const;
};

struct ModelShape {
  std::string name;    // name of the preset or file
  std::string family;  // family in models/, or of the model that a file is like
  int64_t vocab = 0, context = 0, dim = 0, heads = 0, kv_heads = 0, head_dim = 0;
  bool tied = false;               // the head shares the embedding
  int64_t positions = 0;           // rows of a learned table
  int64_t outer = 0;               // parameters outside the layers and the tables of tokens
  std::vector<Block> blocks = {};  // in order

  int64_t layers() const;
  int64_t experts() const;  // experts of a layer; 0: none
  int64_t top_k() const;
  int64_t table_parameters() const { return vocab * dim; }
  int64_t parameters() const;
  int64_t expert_parameters() const;  // parameters of all layers
  /// The parameters that multiply a token: without embedding look-ups, positions, norms and biases, and only chosen
  /// experts.
  double multiplying_parameters() const;
  /// The share of the parameters that a token uses: 1 without experts.
  double used_share() const;
  /// Model FLOPs of a training step for each token of causal sequences (models/nn/transformer/model_flops.h).
  double training_flops(int64_t length) const;
  /// Bytes of the keys and values of one token, with elements of `bytes`.
  double kv_bytes(double bytes) const;
  /// The model with its first `n` layers, or with more layers like its last.
  ModelShape with_layers(int64_t n) const;
  /// The model with `n` heads of keys and values.
  ModelShape with_kv_heads(int64_t n) const;
};

/// The shape of a configuration of a family. Throws InvalidArgument for another family or configuration.
ModelShape shape_of(const std::string& name, const std::string& family, const nn::ConfigMap& config);
/// The shape of a preset of any family, with other values of some fields. Throws InvalidArgument, naming the presets,
/// for another name.
ModelShape preset_shape(const std::string& name, const nn::ConfigMap& fields = {});
std::vector<std::string> preset_names();
/// The shape of the model of a config.json. Reads only the fields that change costs. Throws InvalidArgument, naming
/// `what` and the field, for other models and sizes.
ModelShape hf_shape(std::string_view text, const std::string& what);

}  // namespace weft::planner
