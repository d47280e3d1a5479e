#include "distributed/diagnose/planned.h"

#include "framework/base/hash.h"
#include "framework/io/fields/json_fields.h"
#include "framework/mesh/mesh.h"
#include "framework/tensor/dtype.h"

namespace weft {

static constexpr int count_of(Collective) { return kNumCollectives; }
static constexpr int count_of(ReduceOp) { return 4; }

namespace dist::diagnose {

constexpr int kMaxRanks = 1 << 20;

template <class V>
void fields(V& v, PlannedRow& r) {
  v("kind", r.kind), v("axes", r.axes), v("dtype", r.dtype), v("op", r.op), v("bytes", r.bytes);
  v("site", reinterpret_cast<int64_t&>(r.site)), v("phase", r.phase), v("what", r.what), v("line", r.line);
  v("why", r.why);
}

template <class V>
void fields(V& v, PlannedStep& s) {
  v("number", s.number, {.least = 1, .most = 0xffff}), v("mesh", s.mesh);
  v("hash", reinterpret_cast<int64_t&>(s.hash));
}

std::string planned_name(int first_rank, int number) { return str_cat("plan.", number, ".", first_rank, ".json"); }

std::string to_json(const PlannedStep& step) {
  io::OrderedJson j = io::json_of(step);
  for (const auto& [rank, program] : step.program_of) j["ranks"].push_back({rank, program});
  j["programs"] = io::json_of(step.programs);
  return io::write_json(j);
}

PlannedStep parse_planned(std::string_view text, std::string_view what) {
  const io::Json j = io::parse_json(text, what);
  PlannedStep s;
  io::read_fields(s, j, std::string(what), {"ranks", "programs"});
  try {
    const Mesh mesh = Mesh::parse(s.mesh, {});
    WEFT_CHECK(mesh.size() <= kMaxRanks, "the mesh has ", mesh.size(), " ranks; need at most ", kMaxRanks);
  } catch (const Error& e) {
    throw Error(e.code(), str_cat(what, ": ", e.what()));
  }
  const io::Json &ranks = io::json_member(j, "ranks", what), &programs = io::json_member(j, "programs", what);
  WEFT_CHECK(ranks.is_array() && programs.is_array(), what, ": ranks and programs need to be lists");
  for (const io::Json& list : programs) {
    WEFT_CHECK(list.is_array(), what, ": a program needs to be a list");
    std::vector<PlannedRow>& rows = s.programs.emplace_back();
    for (const io::Json& row : list) io::read_fields(rows.emplace_back(), row, std::string(what));
  }
  for (const io::Json& pair : ranks) {
    const bool numbers =
        pair.is_array() && pair.size() == 2 && pair[0].is_number_integer() && pair[1].is_number_integer();
    WEFT_CHECK(numbers, what, ": an entry of ranks needs to be [rank, program]");
    const auto rank = pair[0].get<int64_t>(), program = pair[1].get<int64_t>();
    WEFT_CHECK(rank >= 0 && rank < kMaxRanks && program >= 0 && program < static_cast<int64_t>(s.programs.size()), what,
               ": ranks has [", rank, ", ", program, "]; need a rank and the number of a program");
    s.program_of[static_cast<int>(rank)] = static_cast<int>(program);
  }
  return s;
}

}  // namespace dist::diagnose
}  // namespace weft
