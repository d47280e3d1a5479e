#include "models/train/first_weights.h"

#include <algorithm>
#include <cstdio>

#include "distributed/launch/processes.h"
#include "framework/base/failure_report.h"
#include "models/train/run_text.h"
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

TrainState load_resumed(const Setup& setup, const std::map<std::string, std::string>& flags,
                        const std::string& tokenizer, const NamedCells& model, const NamedCells& optimizer,
                        bool later) {
  const std::string& folder = setup.resumed;
  if (!setup.other_origin.empty()) std::printf("note: %s\n", setup.other_origin.c_str());
  TrainState s = read_state(folder);
  // A checkpoint of an earlier version may lack fields.
  WEFT_CHECK(std::includes(setup.config.begin(), setup.config.end(), s.model.begin(), s.model.end()),
             state_path(folder), ": the checkpoint is of another model; use its --config (",
             s.run.count("config") ? s.run["config"] : "unknown", ")");
  if (!tokenizer.empty()) check_tokenizer(tokenizer, s, folder);
  const io::SafetensorsModel weights = open_tensors(folder, "model", s), moments = open_tensors(folder, "optimizer", s);
  print_new_values(s.run, flags);
  load_cells(weights, model, /*convert=*/false, later);
  load_cells(moments, optimizer, /*convert=*/false, later);
  return s;
}

}  // namespace weft::train
