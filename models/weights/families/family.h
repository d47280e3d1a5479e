// Tables of the models of other programs: fields of config.json and of GGUF, and names of tensors. Each family has a
// file.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/nn/config_map.h"

namespace weft::weights {

class ConfigFile;

/// A field of config.json that is a field of the configuration.
struct Field {
  const char* hf;  // "a|b": either name
  const char* weft;
  const char* otherwise = nullptr;  // the value if the file has none; "=FIELD" of the configuration; null: it needs one
  const char* gguf = nullptr;       // "block_count": the key llama.block_count of a GGUF file; null: it has none
  /// The names in `hf`.
  std::vector<std::string> names() const;
};

/// A field of config.json that may be missing, null, or one of these values: other values change results.
struct Refused {
  const char* hf;
  const char* allowed;  // texts of JSON, separated by |; "": none
  bool cost = false;    // other values change costs too
  /// Throws InvalidArgument "PLACE is VALUE; need ..." for another value.
  void check(const std::string& value, const std::string& place) const;
};

/// A model_type of config.json.
struct Kind {
  const char* model_type = nullptr;
  std::vector<Field> fields = {};
  std::vector<std::pair<const char*, const char*>> fixed = {};  // fields of the configuration that the type decides
  std::vector<Refused> refused = {};
  double rope_theta = 0;                       // if the file has none; 0: no rotary positions
  std::optional<int64_t> sliding_window = {};  // if the file lacks the field; null is no window
  // Sets the fields that no row describes.
  void (*finish)(const ConfigFile& file, nn::ConfigMap& config) = nullptr;
  bool plan_only = false;             // its costs are known, its weights are not
  const char* model_class = nullptr;  // the class of transformers, for config.json
  const char* gguf = nullptr;         // general.architecture of its GGUF files; null: it has none
  bool gguf_permuted = false;         // GGUF stores the rows of queries and keys as the layouts k...Permuted
};

/// How a tensor of a file is stored in a cell. H heads, G key-value heads, R = H / G, D the size of a head; the rows of
/// a qkv weight are [G, R + 2, D].
enum class Layout : uint8_t {
  kSame,
  kTransposed,  // [in, out] of GPT-2's Conv1D
  kQ,
  kK,
  kV,  // rows [H, D], [G, D], [G, D] of the rows of qkv
  kQPermuted,
  kKPermuted,      // the same, but the rows of a head are [D / 2, 2]: GGUF's order of rotary pairs
  kQkvTransposed,  // columns [3, H, D] of Conv1D
  kQkv,            // rows [3, H, D]
  kExpert,         // [out, in] of expert {e}, transposed
  kExpertsGate,
  kExpertsUp,  // rows [0, F) or [F, 2 F) of [E, 2 F, in], transposed
  kExperts,    // [E, out, in], transposed
};

/// A tensor of a file, and the cell that it is a part of. Names may contain {} (the layer), {e} (the expert) and
/// {a|b} (either name).
struct Row {
  const char* weft;
  const char* hf;
  Layout layout = Layout::kSame;
  const char* gguf = nullptr;        // the name in a GGUF file, whose layout gguf_layout() gives; null: it has none
  const char* model_type = nullptr;  // model_type of the files that are written with this name; null: all; "": none
};

/// The model_types that a program of Weft runs.
struct Family {
  const char* program;  // "llama": //models/llama
  std::vector<Kind> kinds;
  std::vector<Row> rows;             // the first row is the embedding of tokens
  std::vector<const char*> ignored;  // tensors that follow from the configuration
  // Fields of the configuration that only training reads, and the fields of config.json that they are written to.
  std::vector<Field> training;
  const char* prefix = "model.";         // prefix of the names of tensors in files of transformers, without the head's
  const char* settings = "config.json";  // where the sizes are, for errors
};

/// The layout of a tensor in a GGUF file: linear layers are [out, in], and experts are in one tensor.
Layout gguf_layout(Layout layout, bool permuted);
/// A family whose rows have the names and layouts of GGUF files. It lives forever.
const Family& gguf_family(const Family& family, const Kind& kind);

/// All families, by program.
std::span<const Family* const> families();
const Family& gpt2_family();
const Family& llama_family();
const Family& moe_family();

}  // namespace weft::weights
