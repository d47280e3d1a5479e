// CompileOptions: how a function is compiled, for one device and for a mesh. Plain data: every stage from the trainer's
// flags to the planner reads this one struct.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/ref.h"
#include "framework/dispatch/rank/communicator.h"
#include "framework/mesh/mesh.h"
#include "framework/mesh/plan.h"
#include "framework/tensor/dtype.h"

namespace weft {

struct CompileOptions;
class Graph;

namespace dist {
struct CommunicationOptions;
}

namespace internal {
/// The error if no plan fits the memory budget. Unlike other planning errors, it is the same in every call.
class OverBudget : public Error {
 public:
  using Error::Error;
  /// Throws it for `message`, with the place in the user's program.
  [[noreturn]] static void fail(const std::string& message) {
    try {
      internal::fail(Code::kResourceExhausted, message);
    } catch (const Error& error) {
      throw OverBudget(error.code(), error.what());
    }
  }
};

class PartitionedStep;
/// Plans the joint graph of one capture for the mesh of `options`. Allocates nothing. Throws if the plan does not fit.
using Partitioner = std::unique_ptr<PartitionedStep> (*)(const Ref<Graph>& joint, const CompileOptions& options);
}  // namespace internal

struct CompileOptions {
  dist::Mesh mesh = {};                // the ranks that run the step; more than one needs dist::compile
  dist::Plan plan = {};                // how the step is placed on the mesh
  bool enabled = true;                 // false: fn runs eagerly, in the same random step
  std::optional<DType> autocast = {};  // bf16 or f16: fn is called under Autocast (framework/dispatch/state/state.h)
  int64_t memory_budget = 0;      // bytes of one rank; a step that needs more is an error before it runs; 0: no limit
  std::string numerics = "fast";  // "eager": the bits of eager. "fast": chains of 16-bit values round less often, and
                                  // attention and linear + cross-entropy found in the graph sum in their own order
  bool verify_numerics = false;   // sums give the same bits on one device and on any mesh, slowly; numerics are eager
  bool verify = false;  // one CPU: compare each plan's first results and writes with the reference, bit for bit;
                        // on CUDA and on a mesh each launch with its ops, products within bounds
  int64_t check_capture =
      0;  // number of calls after which the function is traced again: host values that changed since the
          // capture are an error that names them; 0: never
  int64_t max_plans = 32;  // plans kept for calls with other argument types, the least recently used first out
  bool tf32 = false;       // CUDA: f32 products on tensor cores, of operands rounded to 11 bits
  bool cuda_graph = true;  // CUDA: the step is captured once and replayed as one launch; also WEFT_CUDA=nograph
  std::vector<std::string> disable = {};  // passes to leave out, or "all"
  std::string kernel_cache = {};          // folder of compiled kernels, or "off"; empty: compiler/jit/jit.h's default
  std::shared_ptr<const dist::CommunicationOptions> communication = {};  // null: the defaults of overlap/arrange.h
  std::vector<std::string> forbid = {};  // "allgather@dp:activations": plans with such a collective are errors
  std::string machine = "cpu";           // Plan::automatic() chooses for it: compiler/cost/machine/machine_file.h
  double timeout = kDefaultTimeout;      // seconds that a rank waits for the others before the step fails
  internal::Partitioner partitioner = nullptr;  // set by dist::compile
};

}  // namespace weft
