// The flags of a run, as its checkpoints keep them for a run that resumes.
#include "models/train/options.h"

namespace weft::train {

std::string flag_lines(TrainOptions o, const std::string& before) {
  o.microbatches = o.asked_microbatches;
  TrainOptions defaults;
  const Flags flags = train_flags(o), plain = train_flags(defaults);
  std::string lines;
  for (size_t i = 0; i < flags.size(); ++i) {
    const std::string& name = flags[i].name;
    bool chosen_again = false;
    for (const char* own : {"checkpoint_dir", "resume", "replay", "restarts", "memory_every", "memory_dir", "metrics",
                            "log_dir", "profile_out", "save_plan", "outer_rows"})
      chosen_again |= name == own;
    const std::string text = flag_text(flags[i]);
    if (!chosen_again && !same_value(flags[i], plain[i]) && text.find('\n') == text.npos)
      lines += str_cat("--", name, "=", text, "\n");
  }
  // The last line with a name counts; lines of --set add up.
  std::string kept;
  for (size_t at = 0; at < before.size();) {
    const size_t end = std::min(before.find('\n', at), before.size());
    const std::string line = before.substr(at, end - at), start = line.substr(0, line.find('=') + 1);
    at = end + 1;
    if (start.empty() || ("\n" + lines).find("\n" + (start == "--set=" ? line + "\n" : start)) == lines.npos)
      kept += line + "\n";
  }
  return kept + lines;
}

bool is_same_flag(const std::string& name, const std::string& a, const std::string& b) {
  TrainOptions first, second;
  const Flags flags = train_flags(first), others = train_flags(second);
  for (size_t i = 0; i < flags.size(); ++i)
    if (flags[i].name == name && set_flag(flags[i], a) && set_flag(others[i], b))
      return same_value(flags[i], others[i]);
  return a == b;
}

}  // namespace weft::train
