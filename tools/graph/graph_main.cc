// graph: shows the graph of a training step, or the graphs that a program wrote with WEFT_DUMP.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "compiler/loop_ir/fused.h"
#include "compiler/onnx/export.h"
#include "distributed/distributed.h"
#include "framework/cli/cli.h"
#include "framework/dispatch/interpreter.h"
#include "framework/io/file.h"
#include "framework/ir/graph_reader.h"
#include "framework/ir/rewrite.h"
#include "models/data/readers/npy.h"
#include "ops/all_ops.h"
#include "tools/draw/page.h"
#include "tools/graph/graph_json.h"
#include "tools/graph/graph_texts.h"
#include "tools/graph/svg.h"
#include "tools/profile/record_file.h"
#include "tools/step/model_step.h"

namespace weft::tools {
namespace {

// In the order in which the page needs them.
constexpr const char* kScripts[] = {"layout_js",     "layout_data_js", "layout_tree_js", "layout_view_js",
                                    "page_js",       "page_colors_js", "page_draw_js",   "page_input_js",
                                    "page_panel_js", "page_search_js", "page_totals_js"};

struct GraphFlags {
  StepChoice step;
  bool step_given = false, onnx_given = false;  // flags of the step; --weights or --example
  File dump, record, out{File::Use::kWrite}, example{File::Use::kMakeFolder};
  std::string stage;
  std::string format = "text";
  std::string weights = "inline";
};

// The ops of all stages.
const OpTable& ops_of_steps() {
  static const OpTable table = [] {
    std::vector<const OpDef*> all(all_ops().begin(), all_ops().end());
    all.push_back(&loop_ir::fused_op);
    return OpTable(all);
  }();
  return table;
}

// The launch of a record that is not in a scheduled graph; null if all are.
const LaunchRecord* misfit(const StepRecord& record, const Graph& graph) {
  for (const LaunchRecord& l : record.launches) {
    const bool known = l.node >= 0 && l.node < graph.size();
    const Node* const n = known ? &graph.node(l.node) : nullptr;
    const bool same =
        n && (l.copy || (l.fused == n->op->is(kGroup) &&
                         std::equal(l.results.begin(), l.results.end(), n->outputs.begin(), n->outputs.end())));
    if (!same) return &l;
  }
  return nullptr;
}

// The graph of a file: text (.wir), or a message that --format proto wrote (.pb).
ShownGraph read_graph(const std::string& file) {
  const std::filesystem::path path(file);
  const bool message = path.extension() == ".pb";
  WEFT_CHECK_AS(kInvalidArgument, message || path.extension() == ".wir", "--dump: ", file,
                " is no graph; need a .wir file, a .pb file of --format proto, or a folder of .wir files");
  ShownGraph g{path.stem().string(), "", {}};
  try {
    g.graph = (message ? parse_graph_proto : parse_graph)(io::read_file(file), ops_of_steps());
  } catch (const Error& e) {
    throw Error(e.code(), str_cat("--dump needs a graph of WEFT_DUMP or --format proto: ", file, ": ", e.what()));
  }
  // Beside a scheduled graph, WEFT_DUMP writes the record of its step.
  const std::string record = std::filesystem::path(file).replace_extension(".record").string();
  if (!message && io::exists(record)) {
    const auto read = std::make_shared<const StepRecord>(profiler::read_record("dump", record));
    const LaunchRecord* const other = misfit(*read, *g.graph);
    WEFT_CHECK(!other, "--dump: ", record, ": launch '", other->name, "' of node ", other->node,
               " does not fit the graph beside it, which has ", g.graph->size(),
               " nodes; need the record of the same step");
    g.record = read;
    g.scheduled = true;
  }
  return g;
}

// Gives a record with measured times to the scheduled graphs of its step. It replaces the record that WEFT_DUMP wrote
// before the first run.
void add_record(const std::string& file, std::vector<ShownGraph>& graphs) {
  const auto record = std::make_shared<const StepRecord>(profiler::read_measured_record("record", file));
  bool fits = false;
  for (ShownGraph& g : graphs)
    if (g.scheduled && g.record->launches.size() == record->launches.size() && !misfit(*record, *g.graph)) {
      g.record = record;
      fits = true;
    }
  WEFT_CHECK(fits, "--record: the ", record->launches.size(), " launches of ", file,
             " fit no scheduled graph of --dump; need the record of a step of the run that wrote it");
}

// The graph of a file, or the graphs of a folder that WEFT_DUMP names, in the order in which they were written.
std::vector<ShownGraph> dumped(const std::string& from, const std::string& stage) {
  namespace fs = std::filesystem;
  std::error_code error;
  WEFT_CHECK_AS(kNotFound, fs::exists(from, error), "--dump: there is no file or folder '", from, "'");
  if (!fs::is_directory(from, error)) {
    if (!stage.empty()) usage_error("--stage chooses files of a folder, and --dump names one file; omit --stage");
    return {read_graph(from)};
  }
  std::vector<std::string> files;
  for (const fs::directory_entry& e : fs::directory_iterator(from, error))
    if (e.path().extension() == ".wir") files.push_back(e.path().string());
  WEFT_CHECK_AS(kNotFound, !error, "--dump: cannot read folder '", from, "': ", error.message());
  WEFT_CHECK_AS(kNotFound, !files.empty(), "--dump: no .wir files in '", from,
                "'; run the program with WEFT_DUMP=", from);
  std::sort(files.begin(), files.end());
  std::vector<ShownGraph> graphs;
  for (const std::string& file : files)
    if (fs::path(file).stem().string().find(stage) != std::string::npos) graphs.push_back(read_graph(file));
  WEFT_CHECK_AS(kNotFound, !graphs.empty(), "--stage: no file of '", from, "' has '", stage, "' in its name");
  return graphs;
}

constexpr std::pair<const char*, const char*> kStages[] = {
    {"captured", "The computation of the function, as recorded."},
    {"joint", "The computation of the whole step, with gradients, simplified."},
    {"partitioned", "The computation of rank 0 of the mesh, with its collectives."},
    {"fused", "Its kernels."},
    {"scheduled", "Its launches, in the order in which they run."},
};

ShownGraph stage_of(const ModelStep& step, const std::string& stage, std::shared_ptr<const StepRecord> record,
                    const dist::PlanReport& plan) {
  ShownGraph g{stage, "", make_ref<Graph>(step.compiled().graph(stage)), std::move(record), stage == "scheduled"};
  for (const auto& [name, note] : kStages)
    if (stage == name) g.note = note;
  if (stage == "joint") g.placements = plan.placements();
  return g;
}

std::string text_of(const std::vector<ShownGraph>& graphs, std::string (Graph::*print)() const) {
  std::string text;
  for (const ShownGraph& g : graphs) text += (*g.graph.*print)();
  return text;
}

std::string page_of(const std::string& title, const std::vector<ShownGraph>& graphs) {
  std::string script;
  for (const char* part : kScripts) script += str_cat(graph_texts(part), "\n");
  return make_page("Graph", graph_texts("page_html"), graph_texts("page_css"), script, graphs_json(title, graphs));
}

// One run of the forward pass: tokens.npy and logits.npy.
void write_example(const ForwardPass& pass, const std::string& folder) {
  io::make_folders(folder);
  const NoGrad guard;
  const Tensor tokens = randint(0, pass.model->vocab(), pass.graph->type(pass.graph->inputs[0]).shape);
  data::save_npy(tokens, folder + "/tokens.npy");
  data::save_npy(interpret(*pass.graph, {&tokens, 1})[0], folder + "/logits.npy");
}

// The forward pass of a model, or one graph of a program, as an ONNX model.
int write_onnx(const GraphFlags& o) {
  const std::map<std::string, OnnxWeights> kinds{
      {"inline", OnnxWeights::kInline}, {"external", OnnxWeights::kExternal}, {"none", OnnxWeights::kNone}};
  const auto kind = kinds.find(o.weights);
  if (kind == kinds.end()) usage_error(str_cat("--weights is '", o.weights, "'; need inline, external or none"));
  if (!o.out) usage_error("--format onnx needs --out FILE");
  if (!o.step.mesh.empty()) usage_error("--format onnx writes the graph of one device; leave out --mesh");
  const std::string& path = o.out.path;
  OnnxOptions options{.weights = kind->second};
  size_t bytes = 0;
  if (o.dump) {
    if (o.example) usage_error("--example needs a model; leave out --dump");
    const std::vector<ShownGraph> graphs = dumped(o.dump.path, o.stage);
    if (graphs.size() != 1) usage_error("--format onnx writes one graph; choose it with --stage");
    internal::verify_read(*graphs[0].graph, graphs[0].name.c_str());
    bytes = save_onnx(*graphs[0].graph, options, path);
  } else {
    if (!o.stage.empty()) usage_error("--format onnx writes the captured forward pass; leave out --stage");
    const ForwardPass pass = forward_pass(o.step);
    options.inputs = {"tokens"};
    options.outputs = {"logits"};
    if (o.example) write_example(pass, o.example.path);
    bytes = save_onnx(*pass.graph, options, path);
  }
  std::printf("%s: %zu bytes\n", path.c_str(), bytes);
  return 0;
}

// The files of a dump are read, and must not be replaced.
void check_out(const GraphFlags& o) {
  namespace fs = std::filesystem;
  if (!o.dump || !o.out) return;
  std::error_code none;
  const fs::path out = io::resolve_path(o.out.path), folder = io::resolve_path(o.dump.path);
  if (!fs::is_directory(folder, none) || !fs::exists(out, none)) return;
  const std::string kind = out.extension().string();
  if (fs::equivalent(out.parent_path().empty() ? fs::path(".") : out.parent_path(), folder, none) &&
      (kind == ".wir" || kind == ".record"))
    usage_error(str_cat("--out names a file of --dump: '", o.out.path, "'; need another file"));
}

int run(const GraphFlags& o) {
  const std::vector<std::string> formats{"text", "dot", "svg", "proto", "json", "html", "onnx"};
  if (std::find(formats.begin(), formats.end(), o.format) == formats.end())
    usage_error(str_cat("--format is '", o.format, "'; need one of ", formats));
  const bool timed = o.format == "html" || o.format == "json" || o.format == "svg";
  if (o.record && !timed)
    usage_error(str_cat("--format ", o.format, " shows no times; leave out --record, or choose html, json or svg"));
  if (o.dump && o.step_given) usage_error("--dump shows the graphs of a program; leave out the flags of a model");
  check_out(o);
  if (o.format == "onnx") return write_onnx(o);
  if (o.onnx_given) usage_error("--weights and --example need --format onnx");
  if (o.format == "html" && !o.out) usage_error("--format html needs --out FILE");
  if (o.record && !o.dump) usage_error("--record needs --dump, the graphs of the same run");
  std::vector<ShownGraph> graphs;
  std::string title;
  std::unique_ptr<ModelStep> step;
  if (o.dump) {
    graphs = dumped(o.dump.path, o.stage);
    if (o.record) add_record(o.record.path, graphs);
    title = o.dump.path;
    if (timed)  // costs are computed for graphs that follow the rules
      for (const ShownGraph& g : graphs) internal::verify_read(*g.graph, g.name.c_str());
  } else {
    step = std::make_unique<ModelStep>(o.step, Device::meta());
    step->prepare();
    title = step->title();
    const bool mesh = !o.step.mesh.empty();
    const auto record = std::make_shared<const StepRecord>(step->compiled().record());
    const dist::PlanReport plan = mesh ? step->compiled().plan() : dist::PlanReport();
    std::vector<std::string> stages;
    for (const auto& [name, note] : kStages)
      if (mesh || std::string_view(name) != "partitioned") stages.push_back(name);
    if (!o.stage.empty()) {
      if (std::find(stages.begin(), stages.end(), o.stage) == stages.end())
        usage_error(str_cat("--stage is '", o.stage, "'; need one of ", stages,
                            o.stage == "partitioned" ? "; partitioned needs --mesh" : ""));
      stages = {o.stage};
    } else if (o.format != "html" && o.format != "json") {
      stages = {"joint"};
    }
    for (const std::string& stage : stages) graphs.push_back(stage_of(*step, stage, record, plan));
  }
  if ((o.format == "proto" || o.format == "svg") && graphs.size() != 1)
    usage_error(str_cat("--format ", o.format, " writes one graph, and there are ", graphs.size(),
                        "; choose one with --stage, such as ", graphs.back().name));
  const std::string text = o.format == "html"   ? page_of(title, graphs)
                           : o.format == "json" ? graphs_json(title, graphs) + "\n"
                           : o.format == "svg"  ? graph_svg(str_cat(title, ": ", graphs[0].name), *graphs[0].graph,
                                                           graphs[0].scheduled ? graphs[0].record.get() : nullptr)
                           : o.format == "dot"  ? text_of(graphs, &Graph::to_dot)
                           : o.format == "text" ? text_of(graphs, &Graph::to_string)
                                                : graphs[0].graph->to_proto();
  if (!o.out) {
    write_output(text);
    return 0;
  }
  io::write_file_atomic(o.out.path, text);
  int64_t nodes = 0;
  for (const ShownGraph& g : graphs) nodes += g.graph->size();
  write_output(str_cat(o.out.path, ": ", graphs.size(), graphs.size() == 1 ? " graph, " : " graphs, ", nodes,
                       " nodes, ", text.size(), " bytes\n"));
  return 0;
}

}  // namespace
}  // namespace weft::tools

int main(int argc, char** argv) {
  weft::tools::GraphFlags o;
  weft::Flags flags = weft::tools::step_flags(o.step);
  for (weft::Flag& flag : flags) flag.given = &o.step_given;
  const weft::Flags others{
      {"dump", &o.dump,
       "show the graphs that a program wrote to this folder (WEFT_DUMP), or the graph of one file (.wir, or .pb of "
       "--format proto), instead of a model's"},
      {"record", &o.record,
       "with --dump, in html, json and svg: measured times of launches, from a file of StepRecord::to_proto() of the "
       "same run after four steps"},
      {"stage", &o.stage,
       "captured, joint, partitioned (with --mesh), fused or scheduled; with --dump: part of a file's name; empty: all "
       "in html and "
       "json, joint otherwise"},
      {"format", &o.format, "text, dot, svg, proto, json, html or onnx (the forward pass: tokens -> logits)"},
      {"out", &o.out, "write to this file instead of to standard output"},
      {"weights",
       &o.weights,
       "with onnx: inline, external (in OUT.data) or none (further inputs of the model)",
       {},
       &o.onnx_given},
      {"example",
       &o.example,
       "with onnx: a folder, made if there is none, for tokens.npy and logits.npy of one run of the model",
       {},
       &o.onnx_given},
  };
  flags.insert(flags.end(), others.begin(), others.end());
  return weft::run_program(argc, argv, "Shows the graph of a training step.", flags,
                           [&] { return weft::tools::run(o); });
}
