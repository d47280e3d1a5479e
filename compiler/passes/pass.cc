#include "compiler/passes/pass.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "framework/base/mutex.h"
#include "framework/base/switches.h"
#include "framework/ir/op_def.h"
#include "framework/ir/rewrite.h"

namespace weft {
namespace {

/// The disabled names. Checks that each exists.
std::set<std::string, std::less<>> disabled_names(std::span<const Pass> passes, const PassOptions& options) {
  std::set<std::string, std::less<>> known, required, off;
  for (std::span<const Pass> list : {passes, options.known})
    for (const Pass& p : list) (p.required ? required : known).insert(p.name);
  auto add = [&](std::string_view name, const char* from) {
    if (name.empty()) return;
    if (name == "all") return off.insert(known.begin(), known.end());
    std::vector<std::string> names(known.begin(), known.end());
    WEFT_CHECK(known.contains(name), from, ": got '", name,
               required.contains(name) ? "', which later stages need; need all or some of " : "'; need all or some of ",
               names);
    off.emplace(name);
  };
  std::string names = switch_value("WEFT_DISABLE");
  for (size_t at = 0; at < names.size();) {
    size_t end = std::min(names.find(',', at), names.size());
    add(std::string_view(names).substr(at, end - at), "WEFT_DISABLE");
    at = end + 1;
  }
  for (const std::string& name : options.disable) add(name, "disable");
  return off;
}

/// Numbers the files of one process in the order in which they are written.
class Dump {
 public:
  Dump() : folder_(switch_value("WEFT_DUMP")) {
    if (folder_.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    WEFT_CHECK(!error, "WEFT_DUMP: cannot make folder '", folder_, "': ", error.message());
    remove_earlier();
  }
  // Returns the file's path without its ending; empty: nothing is dumped.
  std::string write(const Graph& g, std::string_view what) const {
    if (folder_.empty()) return {};
    static std::atomic<int> next{0};
    std::string file;
    do {
      const int n = next++;
      file = str_cat(n < 10 ? "0" : "", n, "_", g.stage, "_", what);
    } while (is_of_another(file));
    const std::string name = str_cat(folder_, "/", file), path = name + ".wir";
    std::ofstream(index(), std::ios::app) << file << "\n";
    std::ofstream out(path);
    out << g.to_string();
    out.close();
    WEFT_CHECK(out.good(), "WEFT_DUMP: cannot write '", path, "'");
    return name;
  }

 private:
  // The names, without their endings, of the files that a process has written here: only those are removed or replaced.
  std::string index() const { return folder_ + "/.weft_dump"; }
  std::vector<std::string> listed() const {
    std::ifstream in(index());
    std::vector<std::string> names;
    std::string line;
    if (!std::getline(in, line)) return names;
    WEFT_CHECK(line == kTitle, "WEFT_DUMP: ", index(), " is not the list of earlier files; need another folder");
    while (std::getline(in, line))
      if (line.find('/') == line.npos) names.push_back(line);
    return names;
  }
  bool is_of_another(const std::string& file) const {
    std::error_code error;
    const auto there = [&](const char* ending) {
      return std::filesystem::exists(std::filesystem::symlink_status(str_cat(folder_, "/", file, ending), error));
    };
    if (!there(".wir") && !there(".record")) return false;
    const std::vector<std::string> own = listed();
    return std::find(own.begin(), own.end(), file) == own.end();
  }
  // Numbered files of another process would mix with this process's files.
  void remove_earlier() const {
    static Mutex mutex;
    static auto* const seen = new std::set<std::string>;  // folders of this process
    const MutexLock lock(mutex);
    if (!seen->insert(folder_).second) return;
    std::error_code error;
    for (const std::string& name : listed())
      for (const char* ending : {".wir", ".record"})
        std::filesystem::remove(str_cat(folder_, "/", name, ending), error);
    std::ofstream(index()) << kTitle << "\n";
  }

  static constexpr std::string_view kTitle = "files of WEFT_DUMP; the next run removes them";
  std::string folder_;
};

class Stopwatch {
 public:
  double ms() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void finish(PassReport r, long debug, std::vector<PassReport>* reports) {
  if (debug >= 2) std::fprintf(stderr, "weft: pass %s\n", r.to_string().c_str());
  if (reports) reports->push_back(std::move(r));
}

int32_t side_effects(const Graph& g) {
  int32_t n = 0;
  for (int32_t id = 0; id < g.size(); ++id) n += g.node(id).op->is(kSideEffect);
  return n;
}

}  // namespace

bool PassContext::enabled(std::string_view part) const {
  return std::find(disabled.begin(), disabled.end(), part) == disabled.end();
}

PassSteps::PassSteps(const PassOptions& options)
    : off_(disabled_names({}, options)), report_(options.report), debug_(switch_int("WEFT_DEBUG")) {}

bool PassSteps::run(const char* name, FunctionRef<void()> step) {
  PassReport r{.name = name, .disabled = off_.contains(name)};
  if (!r.disabled) {
    const Stopwatch watch;
    step();
    r.ms = watch.ms();
  }
  const bool ran = !r.disabled;
  finish(std::move(r), debug_, report_);
  return ran;
}

std::string dump_graph(const Graph& g, std::string_view pass) { return Dump().write(g, pass); }

std::string PassReport::to_string() const {
  if (disabled) return str_cat(name, "  disabled");
  char time[32];
  std::snprintf(time, sizeof time, "%.2f", ms);
  if (nodes_before == 0) return str_cat(name, "  ", time, " ms");  // not a function of one graph
  if (!changed) return str_cat(name, "  ", time, " ms  unchanged");
  return str_cat(name, "  ", time, " ms  ", nodes_before, " -> ", nodes_after, " nodes");
}

void verify_same_interface(const Graph& before, const Graph& after) {
  auto need = [](const char* what, size_t got, size_t want) {
    WEFT_BUG_IF(got != want, "verify: ", what, ": got ", got, "; need ", want, ", as before the pass");
  };
  auto types = [&](const char* what, const std::vector<Value>& x, const std::vector<Value>& y) {
    need(what, y.size(), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const TensorType &a = before.type(x[i]), &b = after.type(y[i]);
      WEFT_BUG_IF(a.dtype != b.dtype || !(a.shape == b.shape), "verify: ", what, ' ', i, ": got ", b, "; need ", a,
                  ", as before the pass");
    }
  };
  types("inputs", before.inputs, after.inputs);
  types("outputs", before.outputs, after.outputs);
  need("writes", after.writes.size(), before.writes.size());
  std::set<const Cell*> written;
  for (const CellWrite& w : before.writes) written.insert(before.cells[w.cell].get());
  for (const CellWrite& w : after.writes)
    WEFT_BUG_IF(!written.contains(after.cells[w.cell].get()), "verify: writes: got one of cell \"",
                after.cells[w.cell]->name, "\"; need the writes from before the pass");
  WEFT_BUG_IF(side_effects(after) < side_effects(before), "verify: side effects: got ", side_effects(after),
              "; need at least ", side_effects(before), ", as before the pass");
}

Ref<Graph> run_passes(Ref<Graph> graph, std::span<const Pass> passes, const PassOptions& options) {
  const auto off = disabled_names(passes, options);
  const long level = switch_int("WEFT_VERIFY_IR"), debug = switch_int("WEFT_DEBUG");
  const Dump dump;
  const Ref<Graph> start = graph;
  dump.write(*graph, "start");
  if (level >= 1) verify(*graph);

  for (const Pass& pass : passes) {
    if (!pass.run) continue;
    PassReport r{.name = pass.name, .nodes_before = graph->size(), .nodes_after = graph->size()};
    r.disabled = !pass.required && off.contains(pass.name);
    if (!r.disabled) {
      Ref<Graph> next;
      PassContext context{.facts = options.facts, .disabled = {off.begin(), off.end()}, .fusion = options.fusion};
      const Stopwatch watch;
      try {
        next = pass.run(*graph, context);
        r.ms = watch.ms();
        r.notes = std::move(context.notes);
        r.changed = next && !structurally_equal(*graph, *next);
        if (r.changed && (level >= 2 || (level == 1 && next->stage != graph->stage))) {
          verify(*next);
          verify_same_interface(*graph, *next);
        }
      } catch (const Error& e) {
        if (next) dump.write(*next, str_cat(pass.name, "_broken"));
        if (e.code() != Code::kInternal) throw;  // an error of the program, as eager calls report it
        internal::fail(e.code(), str_cat("pass ", pass.name, ": ", e.what()));
      }
      if (r.changed) {
        graph = std::move(next);
        r.nodes_after = graph->size();
        dump.write(*graph, pass.name);
      }
    }
    finish(std::move(r), debug, options.report);
  }
  if (level >= 1 && graph != start) {
    verify(*graph);
    verify_same_interface(*start, *graph);
  }
  return graph;
}

}  // namespace weft
