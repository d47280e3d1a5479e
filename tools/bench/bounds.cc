#include "tools/bench/bounds.h"

#include "framework/io/json.h"
#include "tools/bench/report.h"
#include "tools/measure.h"

namespace weft::bench {

Machine measure_machine() {
  tools::Facts facts;
  tools::add_measured(facts);
  const io::Json json = io::parse_json(facts.to_json(), "facts")["measured"];
  auto best = [&](const std::string& name) {
    for (const char* threads : {"_all_cores", "_1_thread"})
      if (auto it = json.find(name + threads); it != json.end() && it->is_number()) return it->get<double>();
    return kNone;
  };
  return {.bytes = best("copy") * 1e9, .products = best("gemm_f32") * 1e9, .products16 = best("gemm_bf16") * 1e9};
}

}  // namespace weft::bench
