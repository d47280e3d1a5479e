// CompileOptions::check_capture: traces a compiled function again and compares the graph with the graph of its plans.
#include <bit>
#include <cstring>

#include "compiler/exec/entry.h"
#include "framework/ir/text.h"

namespace weft::internal {
namespace {

constexpr const char* kFix =
    "pass it as an argument (a call may pass a number where the function takes a Tensor) or keep it in a Buffer";

std::string at_line(const Node& n) { return n.line.line ? str_cat(" at ", n.line) : std::string(); }

std::string text_of(const AttrValue& v) {
  if (const int64_t* i = std::get_if<int64_t>(&v)) return str_cat(*i);
  if (const double* d = std::get_if<double>(&v)) return str_cat(*d);
  if (const bool* b = std::get_if<bool>(&v)) return *b ? "true" : "false";
  if (const DType* t = std::get_if<DType>(&v)) return std::string(to_string_view(*t));
  if (const std::string* s = std::get_if<std::string>(&v)) return quoted(*s);
  if (const Shape* s = std::get_if<Shape>(&v)) return str_cat(*s);
  return "a graph";
}

std::string name_of(const Cell& c) {
  return str_cat(c.name.empty() ? str_cat("a ", c.is_parameter ? "parameter" : "buffer") : str_cat("'", c.name, "'"),
                 " ", c.type);
}

bool same_number(const AttrValue& a, const AttrValue& b) {
  const double *x = std::get_if<double>(&a), *y = std::get_if<double>(&b);
  return x && y ? std::bit_cast<uint64_t>(*x) == std::bit_cast<uint64_t>(*y) : a == b;
}

// Small tensors are often made of host numbers; large ones are data.
constexpr int64_t kMostCompared = 1 << 20;

bool same_values(const Tensor& a, const Tensor& b) {
  const TensorImpl &x = a.get(), &y = b.get();
  if (x.storage.get() == y.storage.get() && x.offset == y.offset && x.strides == y.strides) return true;
  if (!x.storage || !y.storage || x.type.nbytes() > kMostCompared) return true;
  NoGrad guard;
  const Tensor v = on_host(a).contiguous(), w = on_host(b).contiguous();
  return std::memcmp(v.view_for_kernel().data, w.view_for_kernel().data, static_cast<size_t>(x.type.nbytes())) == 0;
}

class CaptureComparison {
 public:
  CaptureComparison(const Graph& was, const Graph& now) : was_(was), now_(now) {}

  void run() {
    for (int32_t id = 0; id < was_.size() && id < now_.size(); ++id) compare(was_.node(id), now_.node(id));
    if (was_.size() != now_.size()) {
      const bool more = now_.size() > was_.size();
      const Node& n = more ? now_.node(was_.size()) : was_.node(now_.size());
      fail(str_cat("the function ", more ? "now also calls " : "no longer calls ", n.op->name, at_line(n)));
    }
    if (was_.outputs != now_.outputs || was_.writes != now_.writes)
      fail("the function returns or writes other values than when it was captured");
  }

 private:
  [[noreturn]] static void fail(const std::string& what) {
    internal::fail(Code::kFailedPrecondition,
                   str_cat("compile: check_capture: ", what,
                           "; values that the host decides or computes are fixed at capture: ", kFix));
  }
  [[noreturn]] static void frozen(const std::string& what, const Node& n, const std::string& was,
                                  const std::string& now) {
    fail(str_cat(what, at_line(n), " was ", was, " when the function was captured and is ", now, " now"));
  }

  void compare(const Node& a, const Node& b) {
    if (a.op != b.op || a.inputs != b.inputs || a.no_grad != b.no_grad)
      fail(str_cat("the function called ", a.op->name, at_line(a), " when it was captured and now calls ", b.op->name,
                   at_line(b)));
    const auto x = a.attrs.entries(), y = b.attrs.entries();
    for (size_t i = 0; i < x.size() || i < y.size(); ++i) {
      if (i >= x.size() || i >= y.size() || x[i].first != y[i].first)
        fail(str_cat(b.op->name, at_line(b), " has other attributes than when the function was captured"));
      if (same_number(x[i].second, y[i].second)) continue;
      const Ref<Graph>*f = std::get_if<Ref<Graph>>(&x[i].second), *g = std::get_if<Ref<Graph>>(&y[i].second);
      if (f && g) {
        CaptureComparison(**f, **g).run();
        continue;
      }
      const bool constant = std::strcmp(a.op->name, "constant") == 0 && x[i].first == "value";
      frozen(constant ? "the host number" : str_cat("'", x[i].first, "' of ", a.op->name), b, text_of(x[i].second),
             text_of(y[i].second));
    }
    for (size_t i = 0; i < a.outputs.size(); ++i)
      if (!(a.outputs[i] == b.outputs[i]))
        frozen(str_cat("the type of ", a.op->name), b, a.outputs[i].to_string(), b.outputs[i].to_string());
    const auto index = [](const Node& n) { return static_cast<size_t>(n.attrs.i("index")); };
    if (is_cell(a) && was_.cells[index(a)].get() != now_.cells[index(b)].get())
      fail(str_cat("the function reads or writes other parameters or buffers than when it was captured: ",
                   name_of(*now_.cells[index(b)]), " instead of ", name_of(*was_.cells[index(a)]), "; ", reader_of(b)));
    if (a.op->leaf == Leaf::kCaptured && !same_values(was_.captured[index(a)], now_.captured[index(b)]))
      fail(str_cat("a tensor ", a.outputs[0],
                   " that the function closes over or makes from host values has other "
                   "values than when the function was captured; ",
                   reader_of(b)));
  }

  // The first op that reads the value of this node.
  std::string reader_of(const Node& n) const {
    for (int32_t id = 0; id < now_.size(); ++id)
      for (Value v : now_.node(id).inputs)
        if (&now_.node(v) == &n) return str_cat("it is read by ", now_.node(id).op->name, at_line(now_.node(id)));
    return "it is a result";
  }

  const Graph &was_, &now_;
};

}  // namespace

void check_capture(const Entry& e, CompiledCall::TraceFunction fn) {
  CaptureComparison(*e.captured, *trace(e.key, fn).graph).run();
}

}  // namespace weft::internal
