#include "distributed/diagnose/planned.h"

#include "framework/base/hash.h"
#include "framework/io/json.h"
#include "framework/mesh/mesh.h"
#include "framework/tensor/dtype.h"

namespace weft::dist::diagnose {
namespace {

constexpr int kMaxRanks = 1 << 20;

template <class E>
E named(std::string_view name, int count, std::string_view what) {
  for (int i = 0; i < count; ++i)
    if (to_string_view(static_cast<E>(i)) == name) return static_cast<E>(i);
  WEFT_CHECK(false, what, ": got the unknown name '", name, "'");
  return {};
}

PlannedRow read_row(const io::Json& j, std::string_view what) {
  PlannedRow r;
  const auto text = [&](const char* key) { return io::json_get<std::string>(j, key, what); };
  r.kind = named<Collective>(text("kind"), kNumCollectives, what);
  r.axes = text("axes");
  r.dtype = named<DType>(text("dtype"), kNumDTypes, what);
  r.op = named<ReduceOp>(text("op"), 4, what);
  r.bytes = io::json_get<int64_t>(j, "bytes", what);
  r.site = static_cast<uint64_t>(io::json_get<int64_t>(j, "site", what));
  r.phase = text("phase"), r.what = text("what"), r.line = text("line"), r.why = text("why");
  return r;
}

}  // namespace

std::string planned_name(int first_rank, int number) { return str_cat("plan.", number, ".", first_rank, ".json"); }

std::string to_json(const PlannedStep& step) {
  io::OrderedJson j;
  j["number"] = step.number;
  j["mesh"] = step.mesh;
  j["hash"] = static_cast<int64_t>(step.hash);
  for (const auto& [rank, program] : step.program_of) j["ranks"].push_back({rank, program});
  j["programs"] = io::OrderedJson::array();
  for (const std::vector<PlannedRow>& rows : step.programs) {
    io::OrderedJson list = io::OrderedJson::array();
    for (const PlannedRow& r : rows)
      list.push_back({{"kind", to_string_view(r.kind)},
                      {"axes", r.axes},
                      {"dtype", to_string_view(r.dtype)},
                      {"op", to_string_view(r.op)},
                      {"bytes", r.bytes},
                      {"site", static_cast<int64_t>(r.site)},
                      {"phase", r.phase},
                      {"what", r.what},
                      {"line", r.line},
                      {"why", r.why}});
    j["programs"].push_back(std::move(list));
  }
  return io::write_json(j);
}

PlannedStep parse_planned(std::string_view text, std::string_view what) {
  const io::Json j = io::parse_json(text, what);
  PlannedStep s;
  const int64_t number = io::json_get<int64_t>(j, "number", what);
  WEFT_CHECK(number >= 1 && number <= 0xffff, what, ": number is ", number, "; need 1 to 65535");
  s.number = static_cast<int>(number);
  s.mesh = io::json_get<std::string>(j, "mesh", what);
  try {
    const Mesh mesh = Mesh::parse(s.mesh, {});
    WEFT_CHECK(mesh.size() <= kMaxRanks, "the mesh has ", mesh.size(), " ranks; need at most ", kMaxRanks);
  } catch (const Error& e) {
    throw Error(e.code(), str_cat(what, ": ", e.what()));
  }
  s.hash = static_cast<uint64_t>(io::json_get<int64_t>(j, "hash", what));
  const io::Json &ranks = io::json_member(j, "ranks", what), &programs = io::json_member(j, "programs", what);
  WEFT_CHECK(ranks.is_array() && programs.is_array(), what, ": ranks and programs need to be lists");
  for (const io::Json& list : programs) {
    WEFT_CHECK(list.is_array(), what, ": a program needs to be a list");
    s.programs.emplace_back();
    for (const io::Json& row : list) s.programs.back().push_back(read_row(row, what));
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

}  // namespace weft::dist::diagnose
