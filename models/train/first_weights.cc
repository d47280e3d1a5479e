#include "models/train/first_weights.h"

#include <cstdio>

#include "distributed/launch/processes.h"
#include "framework/base/failure_report.h"
#include "models/weights/load.h"

namespace weft::train {

void load_first_weights(const Setup& setup, const NamedCells& model, bool later) {
  if (setup.hf) {
    std::vector<std::string> notes = setup.hf->config.notes(setup.hf->config_path());
    weights::load_weights(*setup.hf, model, dist::is_first() ? &notes : nullptr,
                          later ? weights::Values::kLater : weights::Values::kCopied);
    for (const std::string& note : notes)
      if (dist::is_first()) internal::warn(note);
  } else if (!setup.init_from.empty()) {
    load_cells(open_tensors(setup.init_from, "model", read_state(setup.init_from)), model, /*convert=*/true, later);
  } else {
    return;
  }
  std::printf("starting from the weights of %s\n", setup.origin.source.c_str());
}

}  // namespace weft::train
