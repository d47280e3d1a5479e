// The text of report(): constants, passes, memory, kernels, launches, and optimisations that were not possible.
#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "compiler/exec/entry.h"
#include "compiler/loop_ir/fused.h"
#include "compiler/loop_ir/lower_group.h"
#include "compiler/passes/fusion/fuse_report.h"
#include "framework/base/switches.h"
#include "framework/base/units.h"
#include "ops/attention/mods/score_tiles.h"
#include "ops/attention/record.h"
#include "ops/core/creation.h"

namespace weft {

static std::string fixed(double v, int digits) {
  char s[48];
  std::snprintf(s, sizeof s, "%.*f", digits, v);
  return s;
}

std::string CompileStats::to_string() const {
  return str_cat(captures, " captures, ", plans, " plans (", plans_kept, " kept), ", compilations,
                 " kernels compiled, ", fixed(compile_seconds * 1e3, 1), " ms; ", kernels, " launches per step (",
                 copies, " copies); peak ", bytes_text(planned_peak_bytes), " planned, ",
                 bytes_text(measured_peak_bytes), " measured; ", cells, " cells, ", in_place_writes,
                 " written in place, ", fresh_writes, " to fresh storage");
}

namespace internal {
namespace {

class CompileReport {
 public:
  CompileReport(const Entry& e, const CompileOptions& options, const CompileStats& stats)
      : e_(e),
        r_(record_of(e, e.executable.get())),
        g_(*e.plan.graph),
        plan_(e.plan),
        options_(options),
        stats_(stats) {}

  std::string run() {
    head();
    constants();
    passes();
    memory();
    kernels();
    score_mods();
    launches();
    not_done();
    return std::move(out_);
  }

 private:
  template <class... A>
  void line(const A&... a) {
    out_ += str_cat(a...);
    out_ += '\n';
  }

  void head() {
    std::vector<std::string> args;
    for (const TensorType& t : e_.key.types) args.push_back(t.to_string());
    std::string list;
    for (const std::string& a : args) list += (list.empty() ? "" : ", ") + a;
    line("compiled for (", list, ")", e_.key.grad ? "" : " under NoGrad");
    line("  ", stats_.to_string());
    line("  capture ", fixed(e_.capture_ms, 2), " ms, passes ", fixed(e_.passes_ms, 2), " ms, plan ",
         fixed(e_.plan_ms, 2), " ms; numerics ", options_.numerics, options_.verify ? ", verified" : "");
    if (!e_.executable) return;
    if (const std::string runs = e_.executable->replay().to_string(); !runs.empty()) line("  ", runs);
    const LaunchCheck* check = e_.executable->check();
    if (const std::string compared = check ? check->to_string() : ""; !compared.empty()) line("  verify: ", compared);
  }

  // Host values that later calls do not read again.
  void constants() {
    line("host constants");
    const Graph& g = *e_.captured;
    std::map<std::pair<std::string, std::string>, int> seen;
    std::vector<std::pair<std::string, std::string>> order;
    for (int32_t id = 0; id < g.size(); ++id) {
      const Node& n = g.node(id);
      if (n.op != &constant_op) continue;
      std::string value;
      for (const auto& [k, v] : n.attrs.entries()) {
        if (k != "value") continue;
        if (const int64_t* i = std::get_if<int64_t>(&v)) value = str_cat(*i);
        if (const double* d = std::get_if<double>(&v)) value = str_cat(*d);
      }
      std::pair<std::string, std::string> key{value, n.line.to_string()};
      if (seen[key]++ == 0) order.push_back(key);
    }
    for (const auto& key : order)
      line("  ", key.first, key.second.empty() ? "" : " at ", key.second,
           seen[key] > 1 ? str_cat(" (", seen[key], " times)") : std::string());
    for (size_t i = 0; i < g.captured.size(); ++i)
      line("  tensor ", g.captured[i].type(), " closed over, ", bytes_text(g.captured[i].type().nbytes()));
    for (size_t i = 0; i < e_.flags.size(); ++i)
      line("  host flag ", i, " = ", e_.flags[i].second, " (another value captures again)");
    if (order.empty() && g.captured.empty() && e_.flags.empty()) line("  none");
  }

  void passes() {
    line("passes");
    for (const PassReport& p : e_.passes) {
      line("  ", p.to_string());
      for (const std::string& note : p.notes) line("    ", note);
    }
    for (const PassReport& p : e_.passes_to_plan) line("  ", p.to_string());
  }

  void memory() {
    line("memory");
    int64_t cells = 0, outputs = 0;
    for (size_t c = 0; c < plan_.cells.size(); ++c)
      if (plan_.cells[c].used) cells += accounted(g_.cells[c]->type.nbytes());
    for (int64_t b : plan_.output_blocks) outputs += accounted(b);
    line("  peak ", bytes_text(plan_.peak_bytes()), ": arena ", bytes_text(plan_.arena_bytes), " (most live at once ",
         bytes_text(plan_.live_bytes), "), cells ", bytes_text(cells), ", outputs ", bytes_text(outputs),
         ", constants ", bytes_text(plan_.folded_bytes));
    if (options_.memory_budget > 0) line("  budget ", bytes_text(options_.memory_budget));
    if (e_.low_memory) line("  to save memory, products compute expensive operands again instead of keeping them");
    if (const Rematerialisation& r = e_.remat; r.fits)
      line("  to fit the budget, ", r.copies, " nodes are computed again: ", fixed(r.flops * 1e-9, 3),
           " GFLOP more, about ", fixed(r.seconds * 1e3, 2), " ms; from forward to backward ", bytes_text(r.kept),
           " are kept instead of ", bytes_text(r.kept_before), "; the peak was ", bytes_text(r.peak_before));
    if (stats_.arena_bytes > plan_.arena_bytes)
      line("  the arena is shared with a plan that needs ", bytes_text(stats_.arena_bytes));
    line("  order of execution: ", e_.order);
    arena_at_peak();
  }

  // The largest buffers of the arena at the launch where the most bytes are live.
  void arena_at_peak() {
    if (r_.at_peak.empty()) return;
    line("  most of the arena is live at launch ", r_.peak_launch, ", ", describe(r_.launches[r_.peak_launch]), ": ",
         r_.at_peak.size(), " buffers, the largest:");
    for (size_t i = 0; i < std::min<size_t>(r_.at_peak.size(), 10); ++i) {
      const MemoryBlock& b = plan_.buffers[r_.at_peak[i]];
      line("  arena ", bytes_text(b.bytes), " at ", b.offset, ", launches ", b.first, " to ", b.last, ": ",
           r_.buffers[r_.at_peak[i]].owner);
    }
  }

  static std::string describe(const LaunchRecord& l) {
    std::string s = l.name;
    if (l.line.line) s += str_cat(" at ", l.line);
    if (!l.scope.empty()) s += str_cat(" in ", l.scope);
    return s;
  }

  // "at most": it depends on values and was not counted.
  static std::string flops_text(const Cost& c) { return str_cat(c.at_most ? "at most " : "", fixed(c.flops, 0)); }

  void launches() {
    line("launches (bytes, FLOPs)");
    for (size_t t = 0; t < r_.launches.size(); ++t) {
      const LaunchRecord& l = r_.launches[t];
      std::string types;
      for (const TensorType& type : l.results) types += str_cat(types.empty() ? "" : ", ", type);
      line("  ", t, ": ", describe(l), " -> ", types, l.in_place ? ", in place" : "", ", ", fixed(l.known().bytes, 0),
           ", ", flops_text(l.known()),
           l.measured_us > 0 ? str_cat(", ", fixed(l.measured_us, 1), " us") : std::string());
    }
    const Cost all = r_.sum().work;
    line("  total ", fixed(all.bytes, 0), " bytes, ", flops_text(all), " FLOPs");
  }

  static std::string time_text(double predicted_us, double measured_us) {
    std::string s = str_cat("predicted ", fixed(predicted_us, 1), " us");
    if (measured_us > 0)
      s += str_cat(", measured ", fixed(measured_us, 1), " us (", fixed(100 * predicted_us / measured_us, 0),
                   "% of the roofline)");
    return s;
  }

  // Each kernel once, with the user's ops; times are of one launch, predicted by bytes and FLOPs at measured rates.
  void kernels() {
    struct KernelRow {
      const Operation* operation;
      const Graph* body;
      StepRecord::WorkSum sum;
    };
    std::vector<KernelRow> rows;  // index: number of the kernel
    StepRecord::WorkSum fused, others;
    for (size_t t = 0; t < r_.launches.size(); ++t) {
      const LaunchRecord& l = r_.launches[t];
      (l.fused ? fused : others) += l;
      if (!l.fused) continue;
      if (static_cast<size_t>(l.kernel) == rows.size())
        rows.push_back({plan_.launches[t].operation.get(), &loop_ir::body_of(g_.node(plan_.launches[t].node)), {}});
      rows[l.kernel].sum += l;
    }
    line("time (rates measured here: ", fixed(r_.machine.bytes / 1e9, 1), " GB/s of copying, products ",
         fixed(r_.machine.products / 1e9, 0), " GFLOP/s in f32, ", fixed(r_.machine.products16 / 1e9, 0), " in bf16)");
    if (!rows.empty()) line("  fused kernels: ", time_text(fused.predicted_us, fused.measured_us));
    line("  other launches: ", time_text(others.predicted_us, others.measured_us));
    if (rows.empty()) return;
    line("kernels (", e_.load.kernels, " distinct texts, ", e_.load.compiled, " compiled, ", e_.load.from_disk,
         " from the cache on disk, ", fixed(e_.load.ms, 1), " ms)");
    if (e_.report && e_.report->after) line("  fusion: ", fusion_summary(*e_.report));
    fused_products();
    std::stable_sort(rows.begin(), rows.end(), [](const KernelRow& a, const KernelRow& b) {
      return std::max(a.sum.measured_us, a.sum.predicted_us) > std::max(b.sum.measured_us, b.sum.predicted_us);
    });
    const std::string dump = switch_value("WEFT_DUMP");
    for (const KernelRow& r : rows) {
      const std::string remark = r.operation->remark();
      const int launches = r.sum.launches;
      line("  ", r.operation->name() ? r.operation->name() : "fused", " x ", launches, ": ",
           bytes_text(r.sum.work.bytes / launches), ", ", fixed(r.sum.work.flops / launches / 1e6, 3), " MFLOP, ",
           time_text(r.sum.predicted_us / launches, r.sum.measured_us / launches), remark.empty() ? "" : ", ", remark,
           ": ", loop_ir::ops_text(*r.body, 6));
      if (!dump.empty())
        if (const std::string file = e_.operations->target().dump(*r.operation, dump); !file.empty())
          line("    source: ", dump, "/", file);
      if (const auto less = r.operation->rounds_less(); !less.empty()) {
        std::string ops;
        for (size_t k = 0; k < std::min<size_t>(less.size(), 4); ++k) ops += str_cat(k ? ", " : "", less[k]);
        if (less.size() > 4) ops += str_cat(" and ", less.size() - 4, " more");
        line("    rounds less often than eager: ", ops);
      }
    }
    for (const std::string& n : e_.load.notes) line("  ", n);
  }

  // How products that are fused with their neighbours run, where the device has several ways.
  void fused_products() {
    std::map<std::string, int> ways;
    for (const Launch& l : plan_.launches) {
      if (!l.op->is(kGroup) || l.operation->remark().empty()) continue;
      const Graph& body = loop_ir::body_of(g_.node(l.node));
      for (int32_t id = 0; id < body.size(); ++id)
        if (loop_ir::is_product(body.node(id))) ++ways[l.operation->remark()];
    }
    std::string text;
    for (const auto& [way, times] : ways) text += str_cat(text.empty() ? "" : ", ", times, " x ", way);
    if (!text.empty()) line("  fused products: ", text);
  }

  // AttentionOperands::fixed_tables of the node, if it is a backward, or of its backward in this step, if there is one.
  std::optional<int64_t> fixed_tables(const Node& n) const {
    if (n.op == &attention_backward_op) return AttentionOperands(n.attrs).fixed_tables;
    for (const Launch& l : plan_.launches) {
      if (l.op != &attention_backward_op) continue;
      const Attrs& back = g_.node(l.node).attrs;
      if (back.without("fixed_tables") == n.attrs) return AttentionOperands(back).fixed_tables;
    }
    return {};
  }

  // The score_mods of attention, which run inside its kernels on tile after tile.
  void score_mods() {
    std::vector<std::pair<std::string, int>> lines;
    for (const Launch& l : plan_.launches) {
      if (!l.op->is(kAttention)) continue;
      const Node& n = g_.node(l.node);
      if (!n.attrs.has("score")) continue;
      const AttentionOperands at(n.attrs);
      std::vector<TensorType> tables;
      for (int i = 0; i < at.score_tables; ++i) tables.push_back(l.in[static_cast<size_t>(at.score_first + i)].type);
      const Ref<Graph> mod = n.attrs.get<Ref<Graph>>("score");
      const SourceLine at_line = mod->node(mod->outputs[0]).line;
      const std::string text = str_cat(at_line.line ? str_cat("at ", at_line, ", ") : std::string(), "head dims ",
                                       l.in[0].type.shape[3], " and ", l.in[2].type.shape[3], ": ",
                                       l.in[0].type.dtype == kFloat64 ? "op by op, in f64"
                                       : describe_tile_mod            ? describe_tile_mod(mod, tables, fixed_tables(n))
                                                                      : "interpreted");
      auto known = std::find_if(lines.begin(), lines.end(), [&](const auto& x) { return x.first == text; });
      if (known == lines.end()) known = lines.insert(known, {text, 0});
      ++known->second;
    }
    if (lines.empty()) return;
    line("score_mods");
    for (const auto& [text, times] : lines) line("  x ", times, " ", text);
  }

  void not_done() {
    line("not done");
    const size_t before = out_.size();
    constexpr size_t kMost = 12;
    for (size_t i = 0; i < std::min(r_.missed.size(), kMost); ++i) line("  ", r_.missed[i].to_string());
    for (const std::string& n : plan_.notes) line("  ", n);
    if (stats_.fresh_writes > 0)
      line("  ", stats_.fresh_writes,
           " cells went to fresh storage in the last call: their old storage has another holder");
    for (const PassReport& p : e_.passes)
      if (p.disabled) line("  pass ", p.name, " is disabled");
    if (out_.size() == before) line("  nothing left out");
  }

  const Entry& e_;
  const StepRecord r_;
  const Graph& g_;
  const MemoryLayout& plan_;
  const CompileOptions& options_;
  const CompileStats& stats_;
  std::string out_;
};

}  // namespace

std::string report_of(const Entry& e, const CompileOptions& options, const CompileStats& stats) {
  return CompileReport(e, options, stats).run();
}

}  // namespace internal
}  // namespace weft
