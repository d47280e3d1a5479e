#include "compiler/aot/step.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "compiler/aot/plan_text.h"
#include "compiler/exec/run/executable.h"
#include "compiler/loop_ir/fused.h"
#include "compiler/targets/cpu/run/host_operation.h"
#include "framework/base/cpu.h"
#include "framework/dispatch/parameter.h"
#include "framework/dispatch/state/cell_access.h"
#include "framework/dispatch/state/state.h"
#include "framework/io/safetensors.h"
#include "framework/ir/rewrite.h"
#include "framework/ir/text_reader.h"
#include "ops/all_ops.h"
#include "ops/kernels/kernels.h"

namespace weft {

namespace internal {

std::unique_ptr<LaunchCheck> (*aot_check_for_test)() = nullptr;

std::string aot_cell_name(const Graph& g, size_t index) {
  const std::string& name = g.cells[index]->name;
  int64_t same = 0;
  for (const Ref<Cell>& c : g.cells) same += c->name == name;
  return name.empty() || same > 1 ? str_cat("cell.", index) : name;
}

namespace {

// Reads lines such as "cell 3 at 128 bytes 64" and "captured 0 at 0 bytes 64 strides [3, 1]", with places in the data,
// and "argument 0 strides [3, 1]".
class ValueReader : TextReader {
 public:
  explicit ValueReader(std::string_view text) : TextReader(text) {}

  struct ValueLine {
    std::string_view kind;
    int64_t index = 0, at = 0, bytes = 0;
    Shape strides;
  };
  bool next(ValueLine& r) {
    skip();
    if (pos_ >= text_.size()) return false;
    r = {};
    r.kind = word();
    if (r.kind != "cell" && r.kind != "captured" && r.kind != "argument") fail(quoted(r.kind), "a cell or a tensor");
    r.index = integer();
    if (r.kind != "argument") {
      keyword("at");
      r.at = integer();
      keyword("bytes");
      r.bytes = integer();
    }
    if (r.kind == "cell") return true;
    keyword("strides");
    expect('[');
    while (!take(']')) {
      if (!r.strides.empty()) expect(',');
      r.strides.push_back(integer());
    }
    return true;
  }
};

Isa isa_named(std::string_view name) {
  for (int i = 0; i < kNumIsas; ++i)
    if (to_string_view(static_cast<Isa>(i)) == name) return static_cast<Isa>(i);
  WEFT_CHECK(false, "aot: unknown instruction set '", name, "'");
}

const OpTable& replay_ops() {
  static const auto* table = [] {
    std::vector<const OpDef*> ops(all_ops().begin(), all_ops().end());
    ops.push_back(&loop_ir::fused_op);
    return new OpTable(ops);
  }();
  return *table;
}

Tensor tensor_over(const void* bytes, int64_t size, const TensorType& type, const Shape& strides) {
  auto* impl = new TensorImpl;
  Tensor t(impl);
  impl->type = type;
  impl->strides = strides;
  impl->storage = Storage::allocate(size, type.device);
  if (size) std::memcpy(impl->storage->data(), bytes, size);
  return t;
}

}  // namespace

const Node* aot_unknown_op(const Graph& g) {
  for (int32_t id = 0; id < g.size(); ++id) {
    const Node& n = g.node(id);
    if (replay_ops().find(n.op->name) != n.op) return &n;
    for (const auto& [name, value] : n.attrs.entries())
      if (const Ref<Graph>* body = std::get_if<Ref<Graph>>(&value))
        if (const Node* inside = aot_unknown_op(**body)) return inside;
  }
  return nullptr;
}

}  // namespace internal

using namespace internal;

struct AotStep::State {
  std::string name;
  MemoryLayout plan;
  SharedArena arena;
  std::vector<std::string> names;  // names of cells
  std::unique_ptr<Executable> executable;
  std::vector<TensorType> types;  // types of arguments
  std::vector<Shape> strides;
  std::atomic<bool> busy{false};

  Graph& graph() const { return *plan.graph; }
  Cell& cell(std::string_view wanted) const {
    const auto at = std::find(names.begin(), names.end(), wanted);
    WEFT_CHECK_AS(kNotFound, at != names.end(), name, ": there is no cell '", wanted, "'; need one of its ",
                  names.size(), " cells");
    return *graph().cells[at - names.begin()];
  }
};

AotStep::AotStep(const AotProgram& program) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.name = program.name;
  const Isa isa = isa_named(program.isa);
  WEFT_CHECK_AS(kUnavailable, isa <= best_isa(), s.name, ": its kernels need ", isa, "; this processor has ",
                best_isa(), ": export it for that");
  try {
    s.plan = plan_from_text(program.plan, parse_graph(program.graph, replay_ops()), program.kernels);
  } catch (const Error& e) {
    throw Error(e.code(), str_cat(s.name, ": another version of Weft wrote it: ", e.what()));
  }
  Graph& g = s.graph();
  for (size_t i = 0; i < g.cells.size(); ++i) s.names.push_back(aot_cell_name(g, i));
  for (Value v : g.inputs) s.types.push_back(g.type(v));
  s.strides.resize(s.types.size());
  ValueReader values(program.values);
  for (ValueReader::ValueLine r; values.next(r);) {
    const auto* bytes = reinterpret_cast<const char*>(program.data.data()) + r.at;
    if (r.kind == "argument") {
      s.strides.at(r.index) = r.strides;
    } else if (r.kind == "cell") {
      Cell& c = *g.cells.at(r.index);
      c.value = tensor_over(bytes, r.bytes, c.type, contiguous_strides(c.type.shape));
    } else {
      Tensor& t = g.captured.at(r.index);
      t = tensor_over(bytes, r.bytes, t.type(), r.strides);
    }
  }
}

AotStep::~AotStep() = default;

std::vector<std::string> AotStep::cells() const { return state_->names; }

Tensor AotStep::cell(std::string_view name) const {
  const Cell& c = state_->cell(name);
  WEFT_CHECK_AS(kFailedPrecondition, held_value(c, "cell").defined(), state_->name, ": cell '", name,
                "' has no value yet; load() them");
  return CellHandle(Ref<Cell>(const_cast<Cell*>(&c))).value().detach();
}

void AotStep::set(std::string_view name, const Tensor& value) {
  Cell& c = state_->cell(name);
  WEFT_CHECK(value.defined() && value.type() == c.type, state_->name, ": cell '", name, "' is ", c.type, "; got ",
             value.defined() ? value.type().to_string() : "an undefined tensor");
  CellHandle(Ref<Cell>(&c)).set(value);
}

void AotStep::load(const std::string& path) {
  const Graph& g = state_->graph();
  const io::SafetensorsFile file(path);
  std::vector<Tensor> values;
  for (size_t i = 0; i < g.cells.size(); ++i) {
    const TensorType& type = g.cells[i]->type;
    const io::TensorInfo& info = file.at(state_->names[i]);
    WEFT_CHECK(info.dtype == type.dtype && info.shape == type.shape, state_->name, ": ", path, ": '", info.name,
               "' is ", TensorType{info.dtype, {}, info.shape}, "; need ", type);
    std::vector<std::byte> bytes(static_cast<size_t>(info.nbytes()));
    file.read(info.name, 0, info.nbytes(), bytes.data());
    values.push_back(tensor_over(bytes.data(), info.nbytes(), type, contiguous_strides(type.shape)));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const CellOwner own(*g.cells[i], "load");
    g.cells[i]->value = values[i];
    g.cells[i]->torn = false;
  }
}

void AotStep::save(const std::string& path) const {
  std::vector<Tensor> values;
  std::vector<io::NamedView> views;
  for (const std::string& name : state_->names) values.push_back(cell(name));
  for (size_t i = 0; i < values.size(); ++i) views.push_back({state_->names[i], values[i].view_for_kernel()});
  io::write_safetensors(path, views);
}

std::vector<Tensor> AotStep::run(std::span<const Tensor> args) {
  State& s = *state_;
  WEFT_CHECK(args.size() == s.types.size(), s.name, ": got ", args.size(), " arguments; need ", s.types.size());
  std::vector<Tensor> in(args.begin(), args.end());
  for (size_t i = 0; i < in.size(); ++i) {
    WEFT_CHECK(in[i].defined() && !in[i].is_traced(), s.name, ": argument ", i, " holds no memory; need ", s.types[i]);
    WEFT_CHECK(in[i].type() == s.types[i], s.name, ": argument ", i, " is ", in[i].type(), "; it was exported for ",
               s.types[i]);
    if (in[i].strides() == s.strides[i] || in[i].numel() == 0) continue;
    Tensor t = tensor_over(nullptr, 0, s.types[i], s.strides[i]);
    int64_t last = 0;
    for (int d = 0; d < t.dim(); ++d) last += (s.types[i].shape[d] - 1) * s.strides[i][d];
    const_cast<TensorImpl&>(t.get()).storage =
        Storage::allocate((last + 1) * itemsize(s.types[i].dtype), s.types[i].device);
    kernels::cast_copy(in[i].view_for_kernel(), t.view_for_kernel());
    in[i] = t;
  }
  const Graph& g = s.graph();
  for (size_t i = 0; i < g.cells.size(); ++i)
    WEFT_CHECK_AS(kFailedPrecondition, g.cells[i]->value.defined() || !s.plan.cells[i].read, s.name, ": cell '",
                  s.names[i], "' has no value yet; load() the file that was exported with it first");
  WEFT_CHECK_AS(kFailedPrecondition, !s.busy.exchange(true, std::memory_order_acquire), s.name,
                ": it is already running on another thread; need one call at a time");
  struct Done {
    std::atomic<bool>& busy;
    ~Done() { busy.store(false, std::memory_order_release); }
  } done{s.busy};
  if (!s.executable) {
    ExecutableOptions how{.target = &host_target()};
    if (aot_check_for_test) how.check = aot_check_for_test();
    s.executable = std::make_unique<Executable>(s.plan, s.arena, std::move(how));
  }
  return s.executable->run(in);
}

}  // namespace weft
