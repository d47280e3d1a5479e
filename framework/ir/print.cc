#include <bit>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>

#include "framework/base/hash.h"
#include "framework/ir/equal.h"
#include "framework/ir/op_def.h"
#include "framework/ir/text.h"

namespace weft {
namespace internal {

std::string quoted(std::string_view s) {
  std::string r = "\"";
  for (char c : s) {
    switch (c) {
      case '"':
        r += "\\\"";
        break;
      case '\\':
        r += "\\\\";
        break;
      case '\n':
        r += "\\n";
        break;
      case '\t':
        r += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 32 || c == 127) {
          constexpr char kHex[] = "0123456789abcdef";
          r += "\\x";
          r += kHex[c >> 4 & 15];
          r += kHex[c & 15];
        } else {
          r += c;
        }
    }
  }
  return r + '"';
}

std::string exact(double v) {
  char buf[40];
  if (std::isnan(v)) {
    constexpr uint64_t kSign = uint64_t{1} << 63;
    uint64_t u = std::bit_cast<uint64_t>(v), quiet = std::bit_cast<uint64_t>(std::nan(""));
    if ((u & ~kSign) == (quiet & ~kSign)) return u & kSign ? "-nan" : "nan";
    auto end = std::to_chars(buf, buf + sizeof buf, u, 16).ptr;
    return str_cat("nan(0x", std::string_view(buf, end - buf), ")");
  }
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  auto end = std::to_chars(buf, buf + sizeof buf, v).ptr;
  std::string s(buf, end);
  if (s.find_first_of(".e") == s.npos) s += ".0";
  return s;
}

bool is_identifier(std::string_view s) {
  if (s.empty() || std::isdigit(static_cast<unsigned char>(s[0]))) return false;
  for (char c : s)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_') return false;
  return true;
}

std::string value_name(const Graph& g, Value v) {
  if (g.node(v).outputs.size() == 1) return str_cat('%', v.node);
  return str_cat('%', v.node, '.', v.index);
}

std::string_view base_name(std::string_view file) { return file.substr(file.find_last_of('/') + 1); }

namespace {

void print_graph(std::string& out, const Graph& g, const std::string& indent);

/// The elements of a small captured tensor, row-major. All NaNs print alike, because graphs_equal treats them as equal.
std::string elements(const Tensor& t) {
  std::string s = "[";
  auto join = [&](const auto& values, auto text) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (i) s += ", ";
      s += text(values[i]);
    }
  };
  if (t.dtype() == kBool) {
    join(t.to_vector<int64_t>(), [](int64_t v) { return std::string(v ? "true" : "false"); });
  } else if (is_integral(t.dtype())) {
    join(t.to_vector<int64_t>(), [](int64_t v) { return std::to_string(v); });
  } else if (t.dtype() == kFloat64) {
    join(t.to_vector<double>(), [](double v) { return v == v ? exact(v) : "nan"; });
  } else {
    join(t.to_vector<float>(), [](float v) {
      if (!std::isfinite(v)) return std::string(v == v ? exact(v) : "nan");
      char buf[32];  // shortest that reads back as this float
      std::string r(buf, std::to_chars(buf, buf + sizeof buf, v).ptr);
      return r.find_first_of(".e") == r.npos ? r + ".0" : r;
    });
  }
  return s + "]";
}

uint64_t content_hash(const Tensor& t) {
  if (t.is_contiguous()) {
    const Tensor host = internal::on_host(t);
    StridedView v = host.view_for_kernel();
    return hash_bytes(v.data, v.nbytes());
  }
  std::vector<double> values = t.to_vector<double>();
  return hash_bytes(values.data(), values.size() * sizeof(double));
}

void print_captured(std::string& out, const Tensor& t, size_t index) {
  out += str_cat("captured t", index);
  if (!t.defined()) return void(out += " undefined");
  out += str_cat(" ", t.type());
  if (is_inline(t)) {
    out += " = " + elements(t);
  } else if (!t.is_traced() && t.device().type == DeviceType::kCpu) {
    char hash[17];
    auto end = std::to_chars(hash, hash + sizeof hash, content_hash(t), 16).ptr;
    out += str_cat(" hash 0x", std::string_view(hash, end - hash));
  }
}

void print_attrs(std::string& out, const Attrs& attrs, const std::string& indent) {
  out += " {";
  bool first = true;
  for (const auto& [key, value] : attrs.entries()) {
    if (!first) out += ", ";
    first = false;
    out += is_identifier(key) ? key : quoted(key);
    out += '=';
    append_value(out, value, indent);
  }
  out += '}';
}

/// cell c0, captured t0: the short form of the structural op with only an index.
bool print_short(std::string& out, const Node& n) {
  if (!is_kept(n)) return false;
  const AttrValue* index = n.attrs.find("index");
  if (n.attrs.entries().size() != 1 || !std::holds_alternative<int64_t>(*index) || std::get<int64_t>(*index) < 0)
    return false;
  out += str_cat(is_cell(n) ? " c" : " t", std::get<int64_t>(*index));
  return true;
}

void print_line_comment(std::string& out, const Node& n, size_t line_start) {
  bool scope = n.scope && *n.scope;
  if (!n.line.line && !scope) return;
  size_t width = out.size() - line_start;
  out.append(width < 60 ? 60 - width : 1, ' ');
  out += '#';
  if (n.line.line) {
    std::string_view file = base_name(n.line.file);
    bool plain = !file.empty() && file.find_first_of(" \t\n\"#:") == file.npos;
    out += str_cat(' ', plain ? std::string(file) : quoted(file), ':', n.line.line);
  }
  if (scope) {
    std::string_view s = n.scope;
    bool plain = s.find_first_of(" \t\n\r\"#:") == s.npos;
    out += str_cat(' ', plain ? std::string(s) : quoted(s));
  }
}

bool is_listed_argument(const Graph& g, int32_t id) {
  const AttrValue* v = g.node(id).attrs.find("index");
  if (!is_argument(g.node(id)) || !v || !std::holds_alternative<int64_t>(*v)) return false;
  int64_t i = std::get<int64_t>(*v);
  return i >= 0 && i < static_cast<int64_t>(g.inputs.size()) && g.inputs[i] == Value{id, 0};
}

void print_node(std::string& out, const Graph& g, int32_t id, const std::string& indent) {
  const Node& n = g.node(id);
  out += indent;
  size_t line_start = out.size() - indent.size();
  int count = static_cast<int>(n.outputs.size());
  for (int i = 0; i < count; ++i) out += str_cat(i ? ", " : "", value_name(g, {id, i}));
  out += str_cat(count ? " = " : "", n.op->name);
  if (!print_short(out, n)) {
    for (size_t i = 0; i < n.inputs.size(); ++i) out += (i ? ", " : " ") + value_name(g, n.inputs[i]);
    if (!n.attrs.empty()) print_attrs(out, n.attrs, indent);
  }
  if (n.no_grad) out += " no_grad";
  if (n.backward) out += " backward";
  if (n.recomputed) out += " recomputed";
  if (count) out += " : ";
  for (int i = 0; i < count; ++i) out += str_cat(i ? ", " : "", n.outputs[i]);
  size_t last_line = out.find_last_of('\n');
  if (last_line != out.npos && last_line >= line_start) line_start = last_line + 1;
  print_line_comment(out, n, line_start);
  out += '\n';
}

void print_graph(std::string& out, const Graph& g, const std::string& indent) {
  out += str_cat("graph ", is_identifier(g.stage) ? g.stage : quoted(g.stage), " (");
  for (size_t i = 0; i < g.inputs.size(); ++i)
    out += str_cat(i ? ", " : "", value_name(g, g.inputs[i]), ": ", g.type(g.inputs[i]));
  out += ") {\n";
  std::string in = indent + "  ";
  for (size_t i = 0; i < g.cells.size(); ++i) {
    const Cell& c = *g.cells[i];
    out += str_cat(in, "cell c", i, ' ', quoted(c.name), c.is_parameter ? " parameter" : " buffer");
    if (c.is_parameter != c.requires_grad) out += c.is_parameter ? " frozen" : " requires_grad";
    out += str_cat(' ', c.type, '\n');
  }
  for (size_t i = 0; i < g.captured.size(); ++i) {
    out += in;
    print_captured(out, g.captured[i], i);
    out += '\n';
  }
  for (int32_t i = 0; i < g.size(); ++i)
    if (!is_listed_argument(g, i)) print_node(out, g, i, in);
  for (const CellWrite& w : g.writes) out += str_cat(in, "write c", w.cell, ", ", value_name(g, w.value), '\n');
  out += in + "return";
  for (size_t i = 0; i < g.outputs.size(); ++i) out += (i ? ", " : " ") + value_name(g, g.outputs[i]);
  out += '\n' + indent + "}";
}

}  // namespace

void append_value(std::string& out, const AttrValue& v, const std::string& indent) {
  std::visit(
      [&]<class T>(const T& x) {
        if constexpr (std::is_same_v<T, double>)
          out += exact(x);
        else if constexpr (std::is_same_v<T, std::string>)
          out += quoted(x);
        else if constexpr (std::is_same_v<T, Ref<Graph>>) {
          if (x)
            print_graph(out, *x, indent);
          else
            out += "null";
        } else
          append(out, x);
      },
      v);
}

}  // namespace internal

std::string Graph::to_string() const {
  std::string out;
  internal::print_graph(out, *this, "");
  return out + '\n';
}

}  // namespace weft
