// precision: number formats and their cost: errors of ops, values of a real training step out of range, loss
// curves, and log-probabilities of decoding against log-probabilities of training.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "framework/base/error.h"
#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "models/hf/families.h"
#include "models/train/set_fields.h"
#include "tools/precision/charts.h"
#include "tools/precision/format_table.h"
#include "tools/precision/op_errors.h"
#include "tools/precision/tensor_ranges.h"
#include "tools/precision/training.h"
#include "tools/profile/table.h"

namespace weft::precision {
namespace {

using io::OrderedJson;
using namespace profiler;
using TableLines = std::vector<std::vector<std::string>>;

struct PrecisionFlags {
  std::vector<std::string> show{"formats", "ops"};
  RunOptions run;
  ReinforceOptions reinforce;
  int64_t repeats = 100, tensors = 10;
  File json{File::Use::kWrite}, svg{File::Use::kWrite};
};

std::string share_text(int64_t part, int64_t all) {
  return part == 0 ? "0" : number_text(100 * static_cast<double>(part) / static_cast<double>(all)) + "%";
}

/// The output of all parts.
struct PageOutput {
  OrderedJson json;
  std::vector<draw::Chart> charts;
};

// Signals end the program at once, also within a long step: files are written at the end, each as a whole.
bool stop() { return output_closed(); }

void progress(const std::string& what, int64_t done, int64_t all) {
  if (done == all || done % std::max<int64_t>(1, all / 5) == 0)
    std::fprintf(stderr, "%s: %ld of %ld steps\n", what.c_str(), done, all);
}

void show_formats(PageOutput& out) {
  write_output(table_text(format_lines()) + "\n");
  out.json["formats"] = format_json();
  out.charts.push_back(format_chart());
}

void show_ops(const PrecisionFlags& o, PageOutput& out) {
  const std::vector<OpError> errors = op_errors(o.repeats, o.run.seed);
  TableLines lines{{"op", "format", "median", "99%", "max", "median, each rounded", "99%", "max", "overflowed"}};
  OrderedJson rows = OrderedJson::array();
  for (const OpError& e : errors) {
    lines.push_back({e.op, e.format, number_text(e.wide.median), number_text(e.wide.p99), number_text(e.wide.max)});
    if (e.narrow)
      lines.back().insert(lines.back().end(), {number_text(e.narrow->median), number_text(e.narrow->p99),
                                               number_text(e.narrow->max), fixed(100 * e.overflowed, 1) + "%"});
    rows.push_back(
        {{"op", e.op}, {"format", e.format}, {"median", e.wide.median}, {"p99", e.wide.p99}, {"max", e.wide.max}});
    if (e.narrow)
      rows.back().update({{"each_median", e.narrow->median},
                          {"each_p99", e.narrow->p99},
                          {"each_max", e.narrow->max},
                          {"each_overflowed", e.overflowed}});
  }
  write_output(str_cat("Relative error against f64. First operands and results are rounded, then the result of each ",
                       "scalar operation.\n", table_text(lines), "\n"));
  out.json["ops"] = std::move(rows);
  out.charts.push_back(op_chart(errors));
}

OrderedJson magnitudes_json(const Magnitudes& m) {
  OrderedJson j{{"elements", m.elements}, {"zeros", m.zeros}, {"nonfinite", m.nonfinite}};
  for (const auto& [name, l] : m.by_format)
    j["formats"][name] = {{"overflow", l.overflow}, {"underflow", l.underflow}, {"flushed", l.flushed}};
  return j;
}

/// Trains in f32 for the steps of the run. False if nobody reads the output.
bool trained(Training& t, const PrecisionFlags& o, const std::string& what) {
  for (int64_t i = 1; i <= o.run.steps && !stop(); ++i) {
    t.step();
    progress(what, i, o.run.steps);
  }
  return !stop();
}

void show_tensors(const PrecisionFlags& o, PageOutput& out) {
  Training t(o.run, {"f32"});
  if (!trained(t, o, "tensors")) return;
  const auto [tokens, targets] = t.next_batch();
  const std::vector<TensorRange> ranges = tensor_ranges(t.graph(), std::vector{tokens, targets});
  std::map<TensorKind, Magnitudes> totals;
  OrderedJson tensors = OrderedJson::array();
  for (const TensorRange& r : ranges) {
    totals[r.kind].add(r.magnitudes);
    OrderedJson j{{"kind", kind_name(r.kind)}, {"name", r.name}};
    j.update(magnitudes_json(r.magnitudes));
    tensors.push_back(std::move(j));
  }
  TableLines lines{{"kind", "format", "elements", "zero", "overflow", "underflow", "flushed to 0"}};
  for (const auto& [kind, m] : totals) {
    for (const std::string& f : counted_formats()) {
      const Losses& l = m.by_format.at(f);
      lines.push_back({kind_name(kind), f, str_cat(m.elements), share_text(m.zeros, m.elements),
                       share_text(l.overflow, m.elements), share_text(l.underflow, m.elements),
                       share_text(l.flushed, m.elements)});
    }
    out.json["tensors"]["totals"][kind_name(kind)] = magnitudes_json(m);
  }
  write_output(str_cat("Elements of one step after ", o.run.steps,
                       " steps of training in f32 that a format would lose. ",
                       "Underflow: below the least normal number.\n", table_text(lines), "\n"));
  out.json["tensors"]["tensors"] = std::move(tensors);
  // Tensors with one name are one row: the tensors of an expression, and the optimiser's tensors of all parameters.
  std::vector<TensorRange> named;
  for (const TensorRange& r : ranges) {
    const auto same = std::find_if(named.begin(), named.end(),
                                   [&](const TensorRange& n) { return n.kind == r.kind && n.name == r.name; });
    if (same == named.end()) {
      named.push_back(r);
    } else {
      same->magnitudes.add(r.magnitudes);
    }
  }
  for (const std::string& f : counted_formats()) {
    std::vector<const TensorRange*> worst;
    for (const TensorRange& r : named) worst.push_back(&r);
    const auto lost = [&](const TensorRange* r) {
      const Losses& l = r->magnitudes.by_format.at(f);
      return static_cast<double>(l.overflow + l.flushed) / static_cast<double>(r->magnitudes.elements);
    };
    std::stable_sort(worst.begin(), worst.end(), [&](auto* a, auto* b) { return lost(a) > lost(b); });
    TableLines rows{{str_cat(f, ": tensors that lose most"), "kind", "overflow", "flushed to 0"}};
    for (const TensorRange* r : worst) {
      if (lost(r) == 0 || rows.size() > static_cast<size_t>(o.tensors)) break;
      const Losses& l = r->magnitudes.by_format.at(f);
      rows.push_back({r->name, kind_name(r->kind), share_text(l.overflow, r->magnitudes.elements),
                      share_text(l.flushed, r->magnitudes.elements)});
    }
    if (rows.size() > 1) write_output(table_text(rows) + "\n");
  }
  for (draw::Chart& c : range_charts(totals)) out.charts.push_back(std::move(c));
}

void show_train(const PrecisionFlags& o, PageOutput& out) {
  std::vector<Curve> curves;
  TableLines lines{{"run", "first loss", "last loss", "mean difference to f32", "last 10 steps", "steps skipped"}};
  OrderedJson rows = OrderedJson::array();
  for (const PrecisionMode& mode : training_modes()) {
    Training t(o.run, mode);
    Curve c{mode.name, {}};
    for (int64_t i = 1; i <= o.run.steps && !stop(); ++i) {
      c.values.push_back(t.step());
      progress(str_cat("train ", mode.name), i, o.run.steps);
    }
    if (stop()) return;
    const size_t n = c.values.size(), tail = std::min<size_t>(n, 10);
    double apart = 0, last = 0;
    const std::vector<double>& f32 = curves.empty() ? c.values : curves[0].values;
    for (size_t i = 0; i < n; ++i) {
      apart += std::fabs(c.values[i] - f32[i]) / static_cast<double>(n);
      if (i >= n - tail) last += c.values[i] / static_cast<double>(tail);
    }
    lines.push_back({mode.name, fixed(c.values[0], 4), fixed(c.values.back(), 4), number_text(apart), fixed(last, 4),
                     str_cat(t.skipped())});
    rows.push_back({{"run", mode.name}, {"losses", c.values}, {"skipped", t.skipped()}});
    curves.push_back(std::move(c));
  }
  write_output(
      str_cat("Losses in nats; weights and optimiser in f32, f16 with loss scaling.\n", table_text(lines), "\n"));
  out.json["train"] = std::move(rows);
  out.charts.push_back(curve_chart("Loss by step", "loss (nats)", curves));
}

OrderedJson mismatch_json(const DecodingMismatch& m) {
  return {{"mean", m.mean}, {"max", m.max}, {"bias", m.bias}, {"ratio_99", m.ratio_99}};
}

void show_decode(const PrecisionFlags& o, Training& t, PageOutput& out) {
  const auto [tokens, targets] = t.next_batch();
  TableLines lines{{"dtype", "mean |difference|", "max", "bias", "99% of |ratio - 1|", "forward against f32"}};
  OrderedJson rows = OrderedJson::array();
  t.model().eval();
  std::vector<double> f32;
  for (const PrecisionMode& mode : dtype_modes()) {
    t.model().set_compute_dtype(mode.dtype == kFloat32 ? std::nullopt : std::optional(mode.dtype));
    const std::vector<double> forward = ForwardScorer(t.model())(tokens);
    if (f32.empty()) f32 = forward;
    const DecodingMismatch m = mismatch_of(forward, Decoder(t.model(), o.run.batch_size, o.run.seq_len).score(tokens)),
                           own = mismatch_of(f32, forward);
    lines.push_back({mode.name, number_text(m.mean), number_text(m.max), number_text(m.bias), number_text(m.ratio_99),
                     number_text(own.mean)});
    rows.push_back({{"dtype", mode.name}, {"forward_against_f32", mismatch_json(own)}});
    rows.back().update(mismatch_json(m));
  }
  t.model().set_compute_dtype(std::nullopt);
  write_output(str_cat("Log-probabilities of ", o.run.batch_size * (o.run.seq_len - 1), " tokens after ", o.run.steps,
                       " steps of training in f32: decoding with a KV cache less the forward pass (nats). Last: "
                       "mean |difference| of the forward pass to that in f32.\n",
                       table_text(lines), "\n"));
  out.json["decode"] = std::move(rows);
}

void show_reinforce(const PrecisionFlags& o, Training& t, PageOutput& out) {
  std::vector<Curve> rewards, mismatches, drifts;
  TableLines lines{{"dtype", "first reward", "last 10 rewards", "mean |difference|", "max", "last drift"}};
  OrderedJson rows = OrderedJson::array();
  for (const PrecisionMode& mode : dtype_modes()) {
    const std::vector<ReinforceStep> steps =
        reinforce(o.run, t.model(), mode, o.reinforce, [&](int64_t k, const ReinforceStep&) {
          progress(str_cat("reinforce ", mode.name), k + 1, o.reinforce.steps);
          return !stop();
        });
    if (stop()) return;
    Curve reward{mode.name, {}}, mismatch{mode.name, {}}, drift{mode.name, {}};
    double mean = 0, most = 0, last = 0;
    const size_t n = steps.size(), tail = std::min<size_t>(n, 10);
    for (size_t i = 0; i < n; ++i) {
      const ReinforceStep& s = steps[i];
      reward.values.push_back(s.reward), drift.values.push_back(s.drift);
      mismatch.values.push_back(std::max(s.mismatch.mean, 1e-9));
      mean += s.mismatch.mean / static_cast<double>(n);
      most = std::max(most, s.mismatch.max);
      if (i >= n - tail) last += s.reward / static_cast<double>(tail);
    }
    lines.push_back({mode.name, fixed(steps[0].reward, 3), fixed(last, 3), number_text(mean), number_text(most),
                     fixed(steps.back().drift, 3)});
    OrderedJson j{{"dtype", mode.name}};
    for (const ReinforceStep& s : steps)
      j["steps"].push_back({{"reward", s.reward}, {"drift", s.drift}, {"mismatch", mismatch_json(s.mismatch)}});
    rows.push_back(std::move(j));
    rewards.push_back(std::move(reward)), mismatches.push_back(std::move(mismatch)), drifts.push_back(std::move(drift));
  }
  write_output(str_cat("REINFORCE, ", o.reinforce.steps, " steps of ", o.reinforce.texts, " texts of ",
                       o.reinforce.length, " tokens; the reward is the share of vowels. Differences as above.\n",
                       table_text(lines), "\n"));
  out.json["reinforce"] = std::move(rows);
  out.charts.push_back(curve_chart("REINFORCE: reward", "share of vowels", rewards));
  out.charts.push_back(
      curve_chart("REINFORCE: mean |log p(drawn) - log p(forward)|; 1e-9 stands for 0", "nats", mismatches, true));
  out.charts.push_back(curve_chart("REINFORCE: drift from the start", "log p(now) - log p(start), nats", drifts));
}

// The parts of the program, in the order of kPartNames.
enum PageParts : unsigned {
  kFormats = 1,
  kOps = 2,
  kTensors = 4,
  kTrain = 8,
  kDecode = 16,
  kReinforce = 32,
  kAll = 63
};
constexpr unsigned kRuns = kTensors | kTrain | kDecode | kReinforce;  // the parts that train a model
const std::vector<std::string> kPartNames{"formats", "ops", "tensors", "train", "decode", "reinforce"};

PartFlags part_flags(PrecisionFlags& o) {
  return PartFlags(
      kPartNames,
      {{{"show", &o.show,
         "a list of formats, ops, tensors (values of a training step that formats lose), train (loss curves by dtype), "
         "decode (decoding with a KV cache against the forward pass) and reinforce"},
        kAll},
       {{"model", &o.run.model, str_cat("one of ", family_names())}, kRuns},
       {{"config", &o.run.config, "a configuration of the model; empty: its default"}, kRuns},
       {train::field_flag(o.run.fields), kRuns},
       {{"batch_size", &o.run.batch_size, "sequences of a step", {1, 1e6}}, kRuns},
       {{"seq_len", &o.run.seq_len, "tokens of a sequence", {2, 1e6}}, kRuns},
       {{"steps", &o.run.steps, "steps of training", {1, 1e9}}, kRuns},
       {{"lr", &o.run.lr, "learning rate of training", {0, 10, true}}, kRuns},
       {{"seed", &o.run.seed, "seed of weights, batches and operands"}, kRuns | kOps},
       {{"repeats", &o.repeats, "operands drawn for each op", {1, 1e6}}, kOps},
       {{"tensors", &o.tensors, "tensors listed for each format", {0, 1e6}}, kTensors},
       {{"reinforce_steps", &o.reinforce.steps, "steps of REINFORCE", {1, 1e9}}, kReinforce},
       {{"texts", &o.reinforce.texts, "texts of a step of REINFORCE", {2, 1e6}}, kReinforce},
       {{"text_len", &o.reinforce.length, "tokens of such a text", {2, 1e6}}, kReinforce},
       {{"json", &o.json, "also write everything to this file"}, kAll},
       {{"svg", &o.svg, "also draw charts to this file"}, kAll}});
}

int run(const PrecisionFlags& o, const PartFlags& flags) {
  unsigned parts = 0;
  if (o.show.empty()) usage_error(str_cat("--show: got ''; need some of ", kPartNames));
  for (const std::string& part : o.show) {
    const auto at = std::find(kPartNames.begin(), kPartNames.end(), part);
    if (at == kPartNames.end()) usage_error(str_cat("--show: got '", part, "'; need some of ", kPartNames));
    parts |= 1u << (at - kPartNames.begin());
  }
  flags.check(parts);
  const auto wanted = [parts](PageParts part) { return (parts & part) != 0; };
  if (parts & kRuns) {
    const int64_t context = context_of(o.run);
    if (wanted(kReinforce) && o.reinforce.length > context)
      usage_error(str_cat("--text_len is ", o.reinforce.length, "; need at most the context of the model, ", context));
    check_memory(o.run);
  }
  PageOutput out;
  if (wanted(kFormats)) show_formats(out);
  if (wanted(kOps)) show_ops(o, out);
  if (wanted(kTensors)) show_tensors(o, out);
  if (wanted(kTrain)) show_train(o, out);
  if (wanted(kDecode) || wanted(kReinforce)) {
    Training t(o.run, {"f32"});
    if (trained(t, o, "decode")) {
      if (wanted(kDecode)) show_decode(o, t, out);
      t.model().eval();
      if (wanted(kReinforce)) show_reinforce(o, t, out);
    }
  }
  if (stop()) return 0;
  if (o.json) io::write_file_atomic(o.json.path, io::write_json(out.json, 1) + "\n");
  if (o.svg) io::write_file_atomic(o.svg.path, draw::svg(out.charts));
  return 0;
}

}  // namespace
}  // namespace weft::precision

int main(int argc, char** argv) {
  weft::precision::PrecisionFlags o;
  const weft::PartFlags flags = weft::precision::part_flags(o);
  return weft::run_program(argc, argv, "Shows number formats and their cost.", flags.flags(), [&] {
    o.reinforce.seed = o.run.seed;
    return weft::precision::run(o, flags);
  });
}
