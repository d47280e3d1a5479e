
#include "distributed/pipeline/schedules.h"
#include "framework/base/error.h"
#include "framework/io/json.h"
#include "tools/pipeline/schedules.h"
#include "tools/profile/table.h"

namespace weft::tools {
namespace {

using dist::pipeline::Action;

/// The actions of a rank: for each, the idle time before it, if any, and a letter, 'A' + 4 x chunk + kind. The kind
/// determines its time; the number of equal letters before it is its microbatch.
std::string rank_text(const Scheduled& s, size_t rank) {
  std::string text;
  double at = 0;
  const auto& list = s.table.ranks[rank];
  for (size_t i = 0; i < list.size(); ++i) {
    const auto [begin, end] = s.run.spans[rank][i];
    if (begin - at > 1e-9 * s.makespan()) text += profiler::number_text(begin - at, 7);
    text += static_cast<char>('A' + 4 * s.chunk_of(list[i].stage) + static_cast<int>(list[i].kind));
    at = end;
  }
  return text;
}

}  // namespace

std::string page_json(const PipelineChoice& c, int most_ranks, int most_microbatches) {
  WEFT_CHECK(c.forward.size() == 1 && c.input.size() == 1 && c.weight.size() == 1,
             "pipeline: the page varies the number of stages; need one time each of F, I and W");
  WEFT_CHECK(c.stages_per_rank <= 6, "pipeline: got ", c.stages_per_rank,
             " stages per rank for a page; need 6 or fewer");
  io::OrderedJson json{{"ranks", c.ranks},
                       {"microbatches", c.microbatches},
                       {"chosen", c.schedules},
                       {"most_ranks", most_ranks},
                       {"most_microbatches", most_microbatches},
                       {"times", {c.forward[0], c.input[0], c.weight[0], c.input[0] + c.weight[0]}},
                       {"wire", c.wire}};
  for (const std::string& name : dist::pipeline::schedule_names()) {
    io::OrderedJson tables = io::OrderedJson::array();  // indices: ranks, then microbatches
    int chunks = 1;
    for (int p = 1; p <= most_ranks; ++p) {
      io::OrderedJson row = io::OrderedJson::array();
      for (int m = 1; m <= most_microbatches; ++m) {
        PipelineChoice at = c;
        at.ranks = p;
        at.microbatches = m;
        std::string why;
        if (!exists(at, name, why)) {
          row.push_back(nullptr);
          continue;
        }
        const Scheduled s = scheduled(at, name);
        chunks = s.chunks;
        std::string ranks;
        for (size_t r = 0; r < s.table.ranks.size(); ++r) ranks += (r ? " " : "") + rank_text(s, r);
        row.push_back({s.makespan(), s.run.idle(), s.run.idle_inside(), s.efficiency(), s.peak(), ranks});
      }
      tables.push_back(row);
    }
    json["schedules"].push_back({{"name", name}, {"chunks", chunks}, {"tables", tables}});
  }
  return io::write_json(json);
}

}  // namespace weft::tools
