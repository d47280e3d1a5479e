#include "tools/plan/candidate.h"

#include "framework/base/error.h"

namespace weft::planner {

static std::string part(const char* name, int size) { return size > 1 ? str_cat(name, size, ",") : std::string(); }

std::string Candidate::mesh() const {
  std::string s = part("replica", replica) + part("pp", pp) + part("dp", dp) + part("fsdp", fsdp) + part("ep", ep) +
                  part("cp", cp) + part("tp", tp);
  if (!s.empty()) s.pop_back();
  return s;
}

std::string Candidate::text() const {
  std::string s = mesh().empty() ? std::string("one rank") : mesh();
  if (dp > 1 && fsdp == 1) s += str_cat(" zero ", zero);
  if (pp > 1)
    s += str_cat(" ", schedule,
                 stages_per_rank > 1 && schedule == "interleaved_1f1b" ? str_cat(":", stages_per_rank) : "");
  if (microbatches > 1) s += str_cat(" m", microbatches);
  if (pp > 1 && zero == 3) s += gather_once ? " gather once" : " gather each";
  if (full_recompute) s += " recompute";
  return s;
}

}  // namespace weft::planner
