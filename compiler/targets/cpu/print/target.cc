#include "compiler/targets/cpu/print/target.h"

#include <string_view>

#include "compiler/targets/cpu/print/cpu_texts.h"
#include "compiler/targets/cpu/print/scalar_text.h"
#include "framework/base/error.h"

namespace weft::codegen {
namespace {

// Appends the file without comments and blank lines; files that it includes replace their #include lines.
void append(std::string_view path, std::string& out) {
  constexpr std::string_view include = "#include \"";
  const size_t name = path.rfind('/') + 1;
  const std::string text = strip_comments(cpu_texts(path.substr(name, path.rfind('.') - name)));
  size_t done = 0;
  for (size_t at; (at = text.find(include, done)) != text.npos; done = text.find('\n', at) + 1) {
    out.append(text, done, at - done);
    const size_t start = at + include.size();
    append(std::string_view(text).substr(start, text.find('"', start) - start), out);
  }
  out.append(text, done);
}

std::string texts(std::initializer_list<std::string_view> paths) {
  std::string out;
  for (std::string_view path : paths) append(path, out);
  return out;
}

constexpr PrintTarget kCpu = {
    .name = "cpu",
    .lanes = 16,
    .vectors_a_step = 8,
    .type = {"f32x16", "f64x16", "i32x16", "i64x16", "predx16"},
    .wide = {"f32w", "f64w", "i32w", "i64w", "predw"},
    .memory = {"f32", "f64", "bf16", "f16", "i64", "i32", "i16", "i8", "u8", "bool8"},
    .head = "extern \"C\" void {f}(const Args* args, i64 o0, i64 o1, i64 step, i64 l0, i64 l1) {",
    .all = "all<{t}>({x})",
    .iota = "iota<{t}>({l})",
    .select = "select({c}, {a}, {b})",
    .order_pred = "(-{x})",
    .long_pred = "pred({x})",
    .from_pred = "(-{x})",
    .get_one = "get_one<{t}>({p})",
    .get = "get<{t}>({p}, n)",
    .get_strided = "get_strided<{t}>({p}, {s}, n)",
    .get_indexed = "get_indexed<{t}>({p}, {s}, {x}, {d}, n)",
    .number = "number({x})",
    .check = "check({x}, {v}, args->bad, n)",
    .check_one = "check({x}, {v}, args->bad, All{})",
    .put_one = "put_one({p}, {v});",
    .put = "put({p}, {v}, n);",
    .put_strided = "put_strided({p}, {s}, {v}, n);",
    .far = "const bool {f} = is_far<{n}>(args, {w}, {p}, l0);",
    .put_far = "put_far({p}, {v}, n, {f});",
    .far_end = "if ({f}) end_far();",
    .column = "put({p}, {rd}::f(get<{t}>({p}, n), {v}), n);",
    .tiles = "tiles(o0, o1, step, l0, l1, [&](i64 o0, i64 o1, i64 l0, i64 l1) W_BODY {",
    .tiles_end = "});",
    .transposed = "Turned<{m}> t{p};",
    .line = "const {m}* const line{p} = t{p}.line(x{p}, {s}, {n}, l0, l1);",
    .fetch = "fetch({p});",
    .fetch_to = "fetch_to({p}, {f});",
    .along = "along(l0, l1, [&](i64 l, auto n) W_BODY {",
    .along_end = "});",
    .along_wide = "along_wide(l0, l1, [&](i64 l, auto n) W_BODY {",
    .now = "now({x})",
    .blocks = "in_blocks<{w}>(l0, l1, [&](i64 l, auto n, auto g) W_BODY {",
    .blocks_end = "}, {r});",
    .instances = "instances<{n}>(l0, l1, [&](i64 l, i64 end) W_BODY {",
    .instances_end = "});",
    .vectors = "vectors(l, end, [&](i64 l, auto n, int v) W_BODY {",
    .vectors_end = "});",
    .across = "across({k}, [&](i64 k) W_BODY {",
    .across_end = "}, {r});",
    .per_vector = "{t} {x}[{n}];",
    .this_vector = "{x}[v]",
    .only_vector = "{x}[0]",
    .reduce = "Tree<{e}> t{i}; Reduce<{rd}, {t}> r{i}(t{i});",
    .split = "Blocks<{rd}, {t}> r{i}({p});",
    .reduce_across = "ReduceAcross<{rd}, {t}, {n}> r{i};",
    .take = "r{i}.take(g, {v}, n);",
    .take_across = "r{i}.take(k, {n}, {v});",
    .result = "const {t} {x} = r{i}.result();",
    .result_across = "{t} {x}[{n}]; r{i}.result({x});",
};

constexpr PrintTarget kScalar = {
    .name = "cpu_scalar",
    .lanes = 1,
    .vectors_a_step = 1,
    .type = {"f32", "f64", "i32", "i64", "bool"},
    .wide = {"f32", "f64", "i32", "i64", "bool"},
    .memory = {"f32", "f64", "bf16", "f16", "i64", "i32", "i16", "i8", "u8", "bool8"},
    .head = kCpu.head,
    .all = "{t}({x})",
    .iota = "{t}({l})",
    .select = "{c} ? {a} : {b}",
    .order_pred = "{x}",
    .long_pred = "{x}",
    .from_pred = "i32({x})",
    .get_one = "get(*({p}))",
    .get = "get(*({p}))",
    .get_strided = "get(*({p}))",
    .get_indexed = "get(*({p} + {x} * {d}))",
    .number = "{x}",
    .check = "check({x}, {v}, args->bad)",
    .check_one = "check({x}, {v}, args->bad)",
    .put_one = "put(*({p}), {v});",
    .put = "put(*({p}), {v});",
    .put_strided = "put(*({p}), {v});",
    .far = "",
    .put_far = "",
    .far_end = "",
    .column = "*({p}) = {rd}::f(*({p}), {v});",
    .tiles = "",
    .tiles_end = "",
    .transposed = "",
    .line = "",
    .fetch = "",
    .fetch_to = "",
    .along = "for (i64 l = l0; l < l1; ++l) {",
    .along_end = "}",
    .along_wide = "for (i64 l = l0; l < l1; ++l) {",
    .now = "{x}",
    .blocks = "for (i64 l = l0; l < l1; ++l) {",
    .blocks_end = "}",
    .instances = "for (i64 l = l0; l < l1; ++l) {",
    .instances_end = "}",
    .vectors = "",
    .vectors_end = "",
    .across = "for (i64 k = 0; k < {k}; ++k) {",
    .across_end = "}",
    .per_vector = "",
    .this_vector = "{x}",
    .only_vector = "{x}",
    .reduce = "Reduce<{rd}, {t}> r{i};",
    .split = "Blocks<{rd}, {t}> r{i}({p}, l1);",
    .reduce_across = "Reduce<{rd}, {t}> r{i};",
    .take = "r{i}.take(l, {v});",
    .take_across = "r{i}.take(k, {v});",
    .result = "const {t} {x} = r{i}.result();",
    .result_across = "const {t} {x} = r{i}.result();",
};

}  // namespace

const PrintTarget& cpu() { return kCpu; }
const PrintTarget& cpu_scalar() { return kScalar; }

const std::string& undef_intrinsics() {
  static const std::string text = texts({"ops/numerics/end_env.inc"}) +
                                  "#undef W_FN\n#undef W_INLINE\n#undef W_BODY\n#undef W_ONCE\n#undef W_ROLLED\n";
  return text;
}

const std::string& prelude(const PrintTarget& target) {
  static const std::string vectors = texts({"ops/kernels/simd.inc", "compiler/targets/cpu/print/cpu_intrinsics.inc",
                                            "compiler/targets/cpu/print/cpu_loops.inc"});
  static const std::string scalars = texts({"compiler/targets/cpu/print/scalar_intrinsics.inc"});
  return target.lanes == 1 ? scalars : vectors;
}

}  // namespace weft::codegen
