#include "ops/all_ops.h"

#include "framework/autodiff/grad.h"
#include "ops/attention/record.h"
#include "ops/composite/math/accumulate.h"
#include "ops/core/collectives/collective.h"
#include "ops/core/core.h"
#include "ops/core/functions/loop.h"
#include "ops/core/indexing/moe.h"
#include "ops/core/products/conv.h"
#include "ops/core/products/exact.h"
#include "ops/core/products/linear_cross_entropy.h"
#include "ops/core/products/window.h"
#include "ops/core/products/winograd.h"
#include "ops/core/reductions/softmax.h"
#include "ops/core/round_to.h"

namespace weft {

namespace {

std::vector<const OpDef*>& registered() {
  static auto* wings = new std::vector<const OpDef*>;
  return *wings;
}
bool complete = false;  // all_ops() has returned the list

}  // namespace

void register_ops(std::span<const OpDef* const> family) {
  WEFT_BUG_IF(complete, "register_ops() after all_ops()");
  registered().insert(registered().end(), family.begin(), family.end());
}

std::span<const OpDef* const> all_ops() {
  static const auto* all = [] {
    auto* v = new std::vector<const OpDef*>;
    for (auto family : {pointwise_ops(),
                        creation_ops(),
                        view_ops(),
                        window_ops(),
                        reduce_ops(),
                        dot_ops(),
                        conv_ops(),
                        winograd_ops(),
                        index_ops(),
                        misc_ops(),
                        rounding_ops(),
                        collective_ops(),
                        softmax_ops(),
                        linear_cross_entropy_ops(),
                        moe_ops(),
                        exact_ops(),
                        attention_ops(),
                        loop_ops(),
                        accumulate_ops(),
                        autodiff_ops(),
                        std::span<const OpDef* const>(registered())})
      v->insert(v->end(), family.begin(), family.end());
    complete = true;
    return v;
  }();
  return *all;
}

const OpTable& op_table() {
  static const auto* table = new OpTable(all_ops());
  return *table;
}

}  // namespace weft
