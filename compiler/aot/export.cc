#include "compiler/aot/export.h"

#include <cstdio>
#include <cstring>
#include <map>

#include "compiler/aot/plan_text.h"
#include "compiler/aot/step.h"
#include "compiler/exec/entry.h"
#include "compiler/passes/loops.h"
#include "compiler/targets/cpu/print/print.h"
#include "compiler/targets/cpu/target.h"
#include "framework/io/file.h"
#include "framework/io/safetensors.h"
#include "framework/ir/text.h"

namespace weft::internal {
namespace {

// g++ reads a whole file before it applies a target pragma, so the macros that select instructions are set by hand.
constexpr struct {
  const char *arch, *macros[4];
} kTargets[kNumIsas] = {{"x86-64-v2", {}},
                        {"x86-64-v3", {"__AVX2__", "__FMA__", "__F16C__"}},
                        {"x86-64-v4", {"__AVX2__", "__FMA__", "__F16C__", "__AVX512F__"}}};

// The mark in the first line of each exported file and in the metadata of its values.
constexpr std::string_view kWriter = "written by Weft's aot_export.";
constexpr const char* kWriterKey = "writer";

// Names that a class in the exported file cannot have: the keywords, and names that the file and AotStep use.
constexpr std::string_view kTaken =
    " alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class "
    "co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype "
    "default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline "
    "int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public "
    "register reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch "
    "template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile "
    "wchar_t while xor xor_eq AotStep cell cells kData kGraph kKernels kPlan kValues kernels load main program "
    "run save set std weft assert errno EOF INFINITY int16_t int32_t int64_t int8_t linux NAN NULL ptrdiff_t size_t "
    "stderr stdin stdout uint16_t uint32_t uint64_t uint8_t unix ";

void check_names(const std::string& name, const AotOptions& options) {
  WEFT_CHECK(is_identifier(name), "aot_export: got the name '", name, "'; need a C++ identifier");
  WEFT_CHECK(kTaken.find(str_cat(' ', name, ' ')) == kTaken.npos, "aot_export: got the name '", name,
             "', which C++ or the exported file uses; need another one");
  WEFT_CHECK(name[0] != '_' && name.find("__") == name.npos, "aot_export: got the name '", name,
             "'; C++ reserves names that begin with _ or contain __; need another one");
  for (const char c : options.include_folder)
    WEFT_CHECK(static_cast<unsigned char>(c) >= ' ' && c != '"' && c != '\\' && c != 127,
               "aot_export: include_folder contains the character with the code ",
               static_cast<int>(static_cast<unsigned char>(c)), "; need a path for #include \"...\"");
}

// Throws if the file exists and this function did not write it.
void check_own(const std::string& path, bool values) {
  if (!io::exists(path)) return;
  bool own = false;
  if (values) {
    try {
      const io::SafetensorsFile file(path);
      const auto at = file.metadata().find(kWriterKey);
      own = at != file.metadata().end() && at->second == kWriter;
    } catch (const Error&) {  // is not of this format
    }
  } else {
    const std::string text = io::read_file(path);
    own = std::string_view(text).substr(0, text.find('\n')).find(kWriter) != std::string_view::npos;
  }
  WEFT_CHECK_AS(kFailedPrecondition, own, "aot_export: ", path,
                " exists, and aot_export did not write it; need another name or folder, or remove the file");
}

class Exporter {
 public:
  Exporter(const Entry& e, const std::string& name, const AotOptions& options)
      : e_(e), g_(*e.plan.graph), name_(name), options_(options) {}

  AotFiles run() {
    AotFiles files{path(".h"), path(".cc"), {}};
    collect_values();
    check_own(files.header, false);
    check_own(files.source, false);
    if (!views_.empty()) {
      files.values = path(".safetensors");
      check_own(files.values, true);
      io::write_safetensors(files.values, views_, {{kWriterKey, std::string(kWriter)}});
    }
    io::write_file_atomic(files.header, header());
    io::write_file_atomic(files.source, source(!views_.empty()));
    return files;
  }

 private:
  std::string path(const char* end) const { return io::resolve_path(options_.folder) + "/" + name_ + end; }

  // The initial values of the step's state: written into the text or into the file beside it.
  void collect_values() {
    int64_t bytes = 0;
    for (const Ref<Cell>& c : g_.cells) bytes += c->type.nbytes();
    const bool in_text = bytes <= options_.inline_bytes;
    for (size_t i = 0; i < g_.cells.size(); ++i) {
      NoGrad guard;
      values_.push_back(CellHandle(g_.cells[i]).value());
      const StridedView v = values_.back().view_for_kernel();
      if (in_text) {
        rows_ += str_cat("cell ", i, place(v.data, v.nbytes()), '\n');
      } else {
        views_.push_back({aot_cell_name(g_, i), v});
      }
    }
    for (size_t i = 0; i < g_.captured.size(); ++i) {
      const TensorImpl& t = g_.captured[i].get();
      int64_t elements = t.type.shape.numel() ? 1 : 0;
      for (int d = 0; d < t.type.shape.size() && elements; ++d) elements += (t.type.shape[d] - 1) * t.strides[d];
      rows_ += str_cat("captured ", i,
                       place(static_cast<const char*>(t.storage->data()) + t.offset, elements * itemsize(t.type.dtype)),
                       " strides ", t.strides, '\n');
    }
    for (size_t i = 0; i < g_.inputs.size(); ++i)
      rows_ += str_cat("argument ", i, " strides ", e_.key.layouts[i].strides, '\n');
  }

  // Appends bytes to the data and returns their place, as in " at 8 bytes 4".
  std::string place(const void* from, int64_t bytes) {
    const size_t at = data_.size();
    data_.resize(at + (bytes + 7) / 8);
    if (bytes) std::memcpy(&data_[at], from, bytes);
    return str_cat(" at ", 8 * at, " bytes ", bytes);
  }

  std::string types(bool results) const {
    std::string s;
    for (Value v : results ? g_.outputs : g_.inputs) s += str_cat(s.empty() ? "" : ", ", g_.type(v));
    return s.empty() ? "nothing" : s;
  }

  const char* result_type() const {
    return g_.outputs.empty() ? "void" : g_.outputs.size() == 1 ? "weft::Tensor" : "std::vector<weft::Tensor>";
  }

  std::string parameters(const char* type) const {
    std::string s;
    for (size_t i = 0; i < g_.inputs.size(); ++i) s += str_cat(i ? ", " : "", type, "a", i);
    return s;
  }

  std::string header() const {
    return str_cat("// ", name_, ": a step compiled ahead of time, ", kWriter,
                   " Link //compiler/aot:step.\n#pragma once\n#include \"compiler/aot/step.h\"\n\n/// (", types(false),
                   ") -> ", types(true), "; ", g_.cells.size(), " cells",
                   views_.empty() ? "" : str_cat(": load(\"", name_, ".safetensors\") first"), ".\nclass ", name_,
                   " final : public weft::AotStep {\n public:\n  ", name_, "();\n  ", result_type(), " operator()(",
                   parameters("const weft::Tensor& "), ");\n};\n");
  }

  std::string source(bool values_in_file) const {
    const Isa isa = selected_isa();
    std::string s =
        str_cat("// ", name_, ": a step compiled ahead of time, ", kWriter, "\n//   arguments  ", types(false),
                "\n//   results    ", types(true), "\n//   memory     ", e_.plan.peak_bytes(), " bytes at its peak, ",
                e_.plan.arena_bytes, " of them in the arena\n//   values     ",
                values_in_file ? str_cat(name_, ".safetensors") : std::string("below"),
                "\n// The graph and the plan are data of AotStep, which runs them; then come the kernels, for ", isa,
                ".\n", "#include \"", options_.include_folder.empty() ? "" : options_.include_folder + "/", name_,
                ".h\"\n\nnamespace {\n\n", "constexpr std::string_view kGraph = R\"weft(\n", g_.to_string(),
                ")weft\";\n\n", "constexpr std::string_view kPlan = R\"weft(", plan_to_text(e_.plan), ")weft\";\n\n",
                "constexpr std::string_view kValues = R\"weft(", rows_, ")weft\";\n\n");
    append_data(s);
    std::string table;
    append_kernels(s, isa, table);
    s += str_cat("const void* const kKernels[] = {", table.empty() ? "nullptr" : table,
                 "};\n\nweft::AotProgram program() {\n", "  return {\"", name_, "\", \"", isa,
                 "\", kGraph, kPlan, {kKernels, ", fused_kernels(operations_of(e_.plan)).size(),
                 "}, kValues, kData};\n}\n\n}  // namespace\n\n", name_, "::", name_, "() : AotStep(program()) {}\n\n",
                 result_type(), " ", name_, "::operator()(", parameters("const weft::Tensor& "), ") {\n");
    const std::string call =
        g_.inputs.empty() ? std::string("run({})") : str_cat("run(std::vector<weft::Tensor>{", parameters(""), "})");
    s += str_cat("  ", g_.outputs.empty() ? "" : "return ", call, g_.outputs.size() == 1 ? "[0]" : "", ";\n}\n");
    return s;
  }

  void append_data(std::string& s) const {
    s += "alignas(64) constexpr unsigned long long kData[] = {";
    char word[40];
    for (size_t i = 0; i < data_.size() + data_.empty(); ++i) {
      std::snprintf(word, sizeof word, "%s0x%llx,", i % 8 ? " " : "\n    ", data_.empty() ? 0 : data_[i]);
      s += word;
    }
    s += "\n};\n\n";
  }

  // Writes each kernel text once, however many launches use it.
  void append_kernels(std::string& s, Isa isa, std::string& table) const {
    const std::vector<const FusedKernel*> kernels = fused_kernels(operations_of(e_.plan));
    if (kernels.empty()) return;
    const auto& target = kTargets[static_cast<int>(isa)];
    // The floating-point rules of all kernels: no contraction, no reordering.
    s +=
        str_cat("#pragma GCC push_options\n#pragma GCC target(\"arch=", target.arch, ",prefer-vector-width=512\")\n",
                "#pragma GCC optimize(\"O2\", \"fp-contract=off\", \"no-math-errno\", \"no-trapping-math\", \"wrapv\", "
                "\"no-strict-aliasing\")\n#pragma GCC diagnostic push\n");
    for (const char* quiet : {"-Wpsabi", "-Wunused-variable", "-Wunused-but-set-variable", "-Wunused-function"})
      s += str_cat("#pragma GCC diagnostic ignored \"", quiet, "\"\n");
    for (const char* macro : {"__AVX2__", "__FMA__", "__F16C__", "__AVX512F__"}) {
      bool on = false;
      for (const char* m : target.macros) on |= m && !std::strcmp(m, macro);
      s += str_cat("#pragma push_macro(\"", macro, "\")\n#undef ", macro, "\n",
                   on ? str_cat("#define ", macro, " 1\n") : "");
    }
    s += str_cat("namespace kernels {\n", codegen::prelude(codegen::cpu()), '\n');
    std::map<std::string, std::string> symbols;  // content of the kernel -> symbol
    for (const FusedKernel* k : kernels) {
      const loop_ir::Kernel& kernel = k->lowered().kernel;
      auto [at, fresh] = symbols.try_emplace(kernel_key(kernel), str_cat(name_, "_", symbols.size(), "_", kernel.name));
      if (fresh) s += codegen::print(kernel, codegen::cpu(), {.symbol = at->second, .notes = true}) + '\n';
      table += str_cat("\n    reinterpret_cast<const void*>(kernels::", at->second, "),");
    }
    s += str_cat("}  // namespace kernels\n", codegen::undef_intrinsics());
    for (const char* macro : {"__AVX2__", "__FMA__", "__F16C__", "__AVX512F__"})
      s += str_cat("#pragma pop_macro(\"", macro, "\")\n");
    s += "#pragma GCC diagnostic pop\n#pragma GCC pop_options\n\n";
  }

  const Entry& e_;
  const Graph& g_;
  const std::string name_;
  const AotOptions& options_;
  std::vector<Tensor> values_;
  std::vector<io::NamedView> views_;
  std::string rows_;
  std::vector<unsigned long long> data_;
};

}  // namespace

AotFiles aot_export(const CompiledCore& core, const std::string& name, const AotOptions& options,
                    std::source_location loc) {
  LineScope line(loc);
  check_names(name, options);
  const Entry& own = current_entry(core, "aot_export");
  // An exported step has no loops: its plan is data.
  Entry unrolled;
  PassContext context;
  if ((unrolled.joint = own.joint ? unroll(*own.joint, context) : nullptr)) {
    unrolled.key = own.key;
    const PrepareOptions& how = own.operations->options();
    CompileOptions like{.tf32 = how.tf32};
    if (how.round_like_eager) like.numerics = "eager";
    static_cast<PreparedGraph&>(unrolled) = plan_joint(unrolled.joint, own.key.layouts, like, own.low_memory);
    lay_out(unrolled.plan);
  }
  const Entry& e = unrolled.joint ? unrolled : own;
  WEFT_CHECK_AS(kUnavailable, e.plan.device.type == DeviceType::kCpu, "aot_export: the step is planned for ",
                e.plan.device, "; need cpu");
  if (const Node* n = aot_unknown_op(*e.plan.graph))
    internal::fail(Code::kUnimplemented,
                   str_cat("aot_export: ", n->op->name, n->line.line ? str_cat(" at ", n->line) : std::string(),
                           " is not an op of Weft, and the exported step could not find its kernel; need a step of "
                           "Weft's ops, or an op that has a decomposition into them and no kernel"));
  return Exporter(e, name, options).run();
}

}  // namespace weft::internal
