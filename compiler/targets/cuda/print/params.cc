#include "compiler/targets/cuda/print/params.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "framework/base/error.h"
#include "framework/base/str_cat.h"

namespace weft::cuda {

template <class T>
static std::vector<char> bytes_of(T x) {
  std::vector<char> bytes(sizeof x);
  std::memcpy(bytes.data(), &x, sizeof x);
  return bytes;
}

std::string Params::add(ParamField field) {
  const std::string spelled = "p." + field.name;
  for (const ParamField& f : fields_)
    if (f.name == field.name) return spelled;
  fields_.push_back(std::move(field));
  return spelled;
}
std::string Params::pointer(const std::string& type, const std::string& name, Pointer what) {
  return add({type, name, std::vector<char>(8), what, true, 8});
}
std::string Params::number(loop_ir::Type type, const std::string& name, double value) {
  switch (type) {
    case loop_ir::Type::f32:
      return add({"f32", name, bytes_of(static_cast<float>(value)), {}, false, 4});
    case loop_ir::Type::f64:
      return add({"f64", name, bytes_of(value), {}, false, 8});
    case loop_ir::Type::i32:
      return i32(name, static_cast<int32_t>(value));
    case loop_ir::Type::i64:
      return i64(name, static_cast<int64_t>(value));
    case loop_ir::Type::pred:
      break;
  }
  return add({"bool", name, bytes_of(value != 0), {}, false, 1});
}
std::string Params::i32(const std::string& name, int64_t value) {
  WEFT_BUG_IF(value != static_cast<int32_t>(value), "cuda parameter ", name, ": ", value, " does not fit in i32");
  return add({"i32", name, bytes_of(static_cast<int32_t>(value)), {}, false, 4});
}
std::string Params::i64(const std::string& name, int64_t value) {
  return add({"i64", name, bytes_of(value), {}, false, 8});
}

std::string Params::div(const std::string& name, int64_t divisor) {
  // The method of Granlund and Montgomery: q = (mulhi(x, m) + x) >> s, exact for x < 2^31.
  struct {
    uint32_t n, m, s;
  } d;
  d.n = static_cast<uint32_t>(std::max<int64_t>(divisor, 1));  // an extent of 0: not used
  d.s = 0;
  while (d.s < 31 && (uint64_t{1} << d.s) < d.n) ++d.s;
  d.m = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << d.s) - d.n)) / d.n + 1);
  return add({"Div", name, bytes_of(d), {}, false, 4});
}

std::vector<Params::ParamField> Params::sorted() const {
  std::vector<ParamField> all = fields_;
  std::stable_sort(all.begin(), all.end(), [](const ParamField& a, const ParamField& b) {
    auto rank = [](const ParamField& f) {
      return std::tuple(-f.align, !f.is_pointer, f.is_pointer ? f.what.kind : 0, f.is_pointer ? f.what.index : 0);
    };
    return rank(a) < rank(b);
  });
  return all;
}

std::string Params::text(const std::string& name) const {
  std::string out = str_cat("struct ", name, " {\n");
  std::string before;
  for (const ParamField& f : sorted()) {
    if (!f.is_pointer && f.type == before) {
      out.insert(out.size() - 2, ", " + f.name);
      continue;
    }
    before = f.is_pointer ? "" : f.type;
    out += str_cat("  ", f.type, f.is_pointer ? "* " : " ", f.name, ";\n");
  }
  return out + "};\n";
}

void Params::write(CudaLaunch* launch) const {
  std::vector<char>& all = launch->params;
  for (const ParamField& f : sorted()) {
    all.resize((all.size() + f.align - 1) / f.align * f.align);
    if (f.is_pointer) {
      launch->pointers.push_back(f.what);
      launch->pointers.back().at = static_cast<int>(all.size());
    }
    all.insert(all.end(), f.bytes.begin(), f.bytes.end());
  }
  all.resize((all.size() + 7) / 8 * 8);
  WEFT_BUG_IF(all.size() > 4096, "cuda: a kernel with ", all.size(), " bytes of parameters");
}

}  // namespace weft::cuda
