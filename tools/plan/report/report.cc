#include "tools/plan/report/report.h"

#include <algorithm>
#include <cmath>

#include "framework/base/error.h"
#include "framework/base/units.h"
#include "framework/io/json.h"
#include "tools/profile/table.h"

namespace weft::planner {
namespace {

using namespace profiler;

constexpr double kTokens = 1e9;
constexpr size_t kRejectedRows = 8;

std::string name_of(DType t) { return t == kFloat32 ? "f32" : t == kBFloat16 ? "bf16" : "fp8"; }

// Shows all digits before the point of large numbers.
std::string whole_text(double n) { return n >= 1000 ? fixed(n, 0) : number_text(n); }

std::string setup_text(const Workload& s) {
  return str_cat(s.model.name, ": ", number_text(static_cast<double>(s.model.parameters()) / 1e9), " B parameters; ",
                 s.gpus, " x ", s.machine.name, ", nodes of ", s.machine.links.node, "; ", s.batch, " sequences of ",
                 s.sequence, " tokens (", number_text(s.tokens() / 1e6), " M)\nproducts ", name_of(s.products), " at ",
                 whole_text(s.peak_flops() / 1e12), " TFLOP/s, of which kernels reach ",
                 fixed(100 * s.machine.reached, 0), "%; ", bytes_text(s.usable_memory()), " usable of ",
                 bytes_text(s.machine.memory / s.sharing()), "\n");
}

// The rates and sizes of a GPU, measured values with the data sheet's values.
std::string machine_text(const Machine& m) {
  std::string text = "dense peaks in TFLOP/s: f32 " + whole_text(m.products / 1e12);
  for (auto [name, rate] : {std::pair(", tf32 ", m.products_tf32),
                            {", bf16 ", m.products16},
                            {", fp8 ", m.products8},
                            {", fp4 ", m.products4},
                            {", f64 ", m.products64}})
    if (rate > 0) text += name + whole_text(rate / 1e12);
  const auto rates = [&](const char* what, double measured, double theoretical) {
    if (measured <= 0) return;
    text += str_cat(what, whole_text(measured / 1e9), " GB/s");
    if (theoretical > 0) text += str_cat(" (data sheet ", whole_text(theoretical / 1e9), ")");
  };
  rates("; memory ", m.bytes, m.theoretical.bytes);
  rates("; links in a node ", m.links.inner_bus, m.theoretical.inner_bus);
  rates(", between nodes ", m.links.outer_bus, m.theoretical.outer_bus);
  rates(", to the host ", m.links.host_bus, 0);
  if (m.multiprocessors > 0) text += str_cat("; ", m.multiprocessors, " multiprocessors");
  if (m.l2 > 0) text += str_cat(", L2 ", bytes_text(m.l2));
  if (m.hbm_stacks > 0) text += str_cat(", ", m.hbm_stacks, " stacks of HBM");
  return text + "\n";
}

// The meaning of a word in plans; printed if a plan contains the word.
constexpr std::pair<const char*, const char*> kWords[] = {
    {" m", "mN: N microbatches, parts of a batch that run one after another"},
    {"replica",
     "replicaN: N replicas, each with the whole state and its part of the batch; if one dies, the others go on"},
    {" zero ", "zero 1: the state of the optimiser is split over dp; zero 0: each rank of dp has all of it"},
    {" gather ", "gather once: weights that fsdp splits are gathered once a step; gather each: for each microbatch"},
    {" recompute", "recompute: backward computes full layers again, else cheap values alone"}};

std::string legend_text(const Search& search, const Price& price) {
  std::string text;
  for (const auto& [word, line] : kWords)
    for (const PricedCandidate& p : search.best)
      if (p.candidate.text().find(word) != std::string::npos) {
        text += str_cat(line, "\n");
        break;
      }
  text +=
      "contention: compute's loss to hidden collectives, which use multiprocessors\n"
      "exposed: communication that compute waits for; hidden: communication beside compute; both as shares of the "
      "step\n";
  if (price.kw_per_gpu > 0)
    text += str_cat("kWh/1e9: energy of 10^9 tokens at ", number_text(price.kw_per_gpu), " kW a GPU\n");
  return text;
}

double hidden(const StepCost& c) { return std::max(0.0, c.communication - c.exposed()); }

io::OrderedJson limits_json(const Limits& l) {
  return {{"communication", l.communication},
          {"closed_form", l.closed_form},
          {"batch", l.batch},
          {"case", static_cast<int>(l.scale_case)}};
}

io::OrderedJson planned_json(const Workload& s, const PricedCandidate& p, const Price& price) {
  const Candidate& c = p.candidate;
  const StepCost& k = p.cost;
  const double rate = k.tokens_per_gpu_second(s);
  io::OrderedJson one{{"mesh", c.mesh()},
                      {"zero", c.zero},
                      {"schedule", c.pp > 1 ? c.schedule : ""},
                      {"stages_per_rank", c.stages_per_rank},
                      {"microbatches", c.microbatches},
                      {"recompute", c.full_recompute ? "full" : "cheap"},
                      {"step_seconds", k.step},
                      {"mfu", k.mfu(s)},
                      {"tokens_per_gpu_second", rate},
                      {"compute", k.compute},
                      {"update", k.update},
                      {"bubble", k.bubble},
                      {"contention", k.contention},
                      {"host", k.host},
                      {"exposed", k.exposed()},
                      {"exposed_tp", k.exposed_tp},
                      {"exposed_cp", k.exposed_cp},
                      {"exposed_ep", k.exposed_ep},
                      {"exposed_pp", k.exposed_pp},
                      {"exposed_data", k.exposed_data},
                      {"communication", k.communication},
                      {"replica_sums", k.replica_sums},
                      {"memory", k.memory()}};
  if (price.usd_per_gpu_hour > 0) one["usd_per_1e9_tokens"] = price.usd(rate);
  if (price.kw_per_gpu > 0) one["kwh_per_1e9_tokens"] = price.kwh(rate);
  return one;
}

}  // namespace

double Price::usd(double rate) const { return kTokens / rate / 3600 * usd_per_gpu_hour; }
double Price::kwh(double rate) const { return kTokens / rate / 3600 * kw_per_gpu; }

std::string plan_report(const Workload& s, const Search& search, const Price& price) {
  std::string text = setup_text(s) + machine_text(s.machine);
  if (s.between_replicas)
    text += str_cat("between replicas ", number_text(s.between_replicas->links.outer_bus / 1e9), " GB/s a GPU, ",
                    seconds_text(s.between_replicas->links.outer_hop), " a message\n");
  if (search.best.empty()) return text + nothing_fits(s, search) + "\n";
  std::vector<std::vector<std::string>> rows{
      {"plan", "step", "MFU", "tokens/s/GPU", "memory", "compute", "contention", "bubble", "exposed", "hidden"}};
  if (price.usd_per_gpu_hour > 0) rows[0].push_back("USD/1e9");
  if (price.kw_per_gpu > 0) rows[0].push_back("kWh/1e9");
  for (const PricedCandidate& p : search.best) {
    const StepCost& c = p.cost;
    const double rate = c.tokens_per_gpu_second(s);
    rows.push_back({p.candidate.text(), seconds_text(c.step), percent(c.mfu(s)), fixed(rate, 0), bytes_text(c.memory()),
                    percent((c.compute + c.update) / c.step), percent(c.contention / c.step),
                    percent(c.bubble / c.step), percent(c.exposed() / c.step), percent(hidden(c) / c.step)});
    if (price.usd_per_gpu_hour > 0) rows.back().push_back(fixed(price.usd(rate), 2));
    if (price.kw_per_gpu > 0) rows.back().push_back(fixed(price.kwh(rate), 2));
  }
  text += table_text(rows) + legend_text(search, price);
  const StepCost& best = search.best[0].cost;
  text += str_cat("best: exposed tp ", seconds_text(best.exposed_tp), ", cp ", seconds_text(best.exposed_cp), ", ep ",
                  seconds_text(best.exposed_ep), ", pp ", seconds_text(best.exposed_pp), ", gathers and reductions ",
                  seconds_text(best.exposed_data),
                  best.replica_sums > 0 ? str_cat("; sums over replicas ", seconds_text(best.replica_sums)) : "",
                  "; update ", seconds_text(best.update),
                  "; contention, for multiprocessors that hidden collectives use, ", seconds_text(best.contention),
                  best.host > 0 ? str_cat("; waits for the host ", seconds_text(best.host)) : "", "; memory: state ",
                  bytes_text(best.state), ", gathered ", bytes_text(best.gathered), ", kept ", bytes_text(best.kept),
                  ", working ", bytes_text(best.working), "\n");
  text += str_cat(search.candidates, " candidates: at least ", search.too_large, " do not fit, ", search.uneven,
                  " do not divide\nrejected\n");
  // The nearest plans that fit, and the nearest plans that do not fit.
  for (bool fits : {true, false}) {
    size_t shown = 0;
    for (const Rejected& r : search.rejected)
      if (r.fits == fits && shown < (fits ? kRejectedRows : kRejectedRows / 2)) {
        text += str_cat("  ", r.plan, ": ", r.why, "\n");
        ++shown;
      }
  }
  return text + str_cat("advice: ", advice(s, limits_of(s), search.best[0]), "\n");
}

std::string what_if_report(std::span<const Compared> all) {
  std::vector<std::vector<std::string>> rows{{"what if", "best plan", "step", "MFU", "tokens/s/GPU", "memory",
                                              "exposed", "bubble", "most GPUs that hide fsdp", "case"}};
  for (const auto& [what, search] : all) {
    const Workload& s = what.workload;
    const Limits limits = limits_of(s);
    std::vector<std::string>& row = rows.emplace_back(std::vector{what.change});
    if (search.best.empty()) {
      row.push_back(search.least_memory > 0 ? "fits nowhere" : "nothing divides");
      row.insert(row.end(), 6, "-");
    } else {
      const PricedCandidate& p = search.best[0];
      const StepCost& c = p.cost;
      row.insert(row.end(),
                 {p.candidate.text(), seconds_text(c.step), percent(c.mfu(s)), fixed(c.tokens_per_gpu_second(s), 0),
                  bytes_text(c.memory()), percent(c.exposed() / c.step), percent(c.bubble / c.step)});
    }
    row.insert(row.end(),
               {number_text(std::round(limits.communication)), str_cat(static_cast<int>(limits.scale_case))});
  }
  return table_text(rows) +
         "case: 1 within both limits of fsdp, 2 limited by the batch, 3 by communication, 4 by both\n";
}

std::string plan_json(const Workload& s, const Search& search, const Price& price, std::span<const Compared> what_if) {
  io::OrderedJson json{{"model", s.model.name},
                       {"parameters", s.model.parameters()},
                       {"machine", s.machine.name},
                       {"gpus", s.gpus},
                       {"batch", s.batch},
                       {"sequence", s.sequence},
                       {"usable_memory", s.usable_memory()},
                       {"candidates", search.candidates},
                       {"too_large", search.too_large}};
  const Limits limits = limits_of(s);
  json["limits"] = limits_json(limits);
  if (!search.best.empty()) json["limits"]["advice"] = advice(s, limits, search.best[0]);
  for (const PricedCandidate& p : search.best) json["plans"].push_back(planned_json(s, p, price));
  for (const Rejected& r : search.rejected)
    json["rejected"].push_back(
        {{"plan", r.plan}, {"fits", r.fits}, {"why", r.why}, {"step_seconds", r.step}, {"memory", r.memory}});
  for (const auto& [what, found] : what_if) {
    const Workload& w = what.workload;
    io::OrderedJson row{{"change", what.change}, {"gpus", w.gpus}, {"batch", w.batch}, {"sequence", w.sequence}};
    row["best"] = found.best.empty() ? io::OrderedJson() : planned_json(w, found.best[0], price);
    row["limits"] = limits_json(limits_of(w));
    json["what_if"].push_back(std::move(row));
  }
  return io::write_json(json, 1) + "\n";
}

std::string nothing_fits(const Workload& s, const Search& search) {
  if (search.least_memory == 0)
    return str_cat("no plan divides ", s.batch, " sequences of ", s.sequence, " tokens and the sizes of ", s.model.name,
                   " over ", s.gpus, " GPUs", search.uneven_why.empty() ? "" : ": ", search.uneven_why,
                   "; another --batch, --mesh, --schedule or --microbatches may");
  return str_cat(s.model.name, " fits nowhere: of ", search.candidates, " plans for ", s.gpus, " x ", s.machine.name,
                 " the smallest, ", search.least_plan, ", needs ", bytes_text(search.least_memory), " of ",
                 bytes_text(s.usable_memory()), "; use more GPUs or a smaller batch");
}

}  // namespace weft::planner
