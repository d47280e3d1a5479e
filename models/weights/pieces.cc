#include "models/weights/pieces.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>

#include "framework/base/one_line.h"
#include "framework/base/thread_pool.h"
#include "models/weights/config.h"
#include "ops/kernels/kernels.h"

namespace weft::weights {

Sizes::Sizes(const nn::ConfigMap& config) : heads(number(config, "heads")), kv_heads(heads) {
  if (config.contains("kv_heads")) kv_heads = number(config, "kv_heads");
  if (config.contains("head_dim")) head_dim = number(config, "head_dim");
  WEFT_CHECK(heads > 0 && kv_heads > 0, "config: heads are ", heads, " and kv_heads ", kv_heads, "; need 1 or more");
  if (head_dim == 0) head_dim = number(config, "dim") / heads;
  if (config.contains("experts")) experts = number(config, "experts");
}

Shape source_shape(Layout layout, const Shape& cell, const Sizes& s) {
  const auto with_rows = [&](int64_t rows) {
    Shape shape = cell;
    shape[0] = rows;
    return shape;
  };
  switch (layout) {
    case Layout::kSame:
    case Layout::kQkv:
      return cell;
    case Layout::kTransposed:
    case Layout::kQkvTransposed:
      return {cell[1], cell[0]};
    case Layout::kQ:
    case Layout::kQPermuted:
      return with_rows(s.heads * s.head_dim);
    case Layout::kK:
    case Layout::kKPermuted:
    case Layout::kV:
      return with_rows(s.kv_heads * s.head_dim);
    case Layout::kExpert:
      return {cell[2], cell[1]};
    case Layout::kExpertsGate:
    case Layout::kExpertsUp:
      return {cell[0], 2 * cell[2], cell[1]};
    case Layout::kExperts:
      return {cell[0], cell[2], cell[1]};
  }
  return cell;
}

Piece same_piece(std::string source, const Shape& cell) {
  if (cell.empty()) return {.source = std::move(source), .extents = {1}, .from = {1}, .to = {1}};
  const std::vector<int64_t> strides = contiguous_strides(cell).vec();
  return {.source = std::move(source), .extents = cell.vec(), .from = strides, .to = strides};
}

Piece piece_of(Layout layout, const Shape& cell, const Sizes& s, int64_t expert) {
  const int64_t H = s.heads, G = s.kv_heads, R = H / G, D = s.head_dim;
  const int64_t columns = cell.size() > 1 ? cell.numel() / cell[0] : 1;  // elements of a row of a qkv weight
  const int64_t head = D * columns, group = (R + 2) * head;
  switch (layout) {
    case Layout::kSame:
      return same_piece("", cell);
    case Layout::kTransposed:
      return {.extents = {cell[1], cell[0]}, .from = {cell[0], 1}, .to = {1, cell[1]}};
    case Layout::kQ:
      return {.extents = {G, R * D, columns}, .from = {R * head, columns, 1}, .to = {group, columns, 1}};
    case Layout::kK:
    case Layout::kV:
      return {.extents = {G, D, columns},
              .from = {head, columns, 1},
              .to = {group, columns, 1},
              .to_offset = (layout == Layout::kK ? R : R + 1) * head};
    case Layout::kQPermuted:
      return {.extents = {G, R, D / 2, 2, columns},
              .from = {R * head, head, 2 * columns, columns, 1},
              .to = {group, head, columns, D / 2 * columns, 1}};
    case Layout::kKPermuted:
      return {.extents = {G, D / 2, 2, columns},
              .from = {head, 2 * columns, columns, 1},
              .to = {group, columns, D / 2 * columns, 1},
              .to_offset = R * head};
    case Layout::kQkvTransposed:
      return {.extents = {columns, 3, H, D}, .from = {3 * H * D, H * D, D, 1}, .to = {1, head, 3 * head, columns}};
    case Layout::kQkv:
      return {.extents = {3, H, D, columns}, .from = {H * head, head, columns, 1}, .to = {head, 3 * head, columns, 1}};
    case Layout::kExpert:
      return {.extents = {cell[2], cell[1]},
              .from = {cell[1], 1},
              .to = {1, cell[2]},
              .to_offset = expert * cell[1] * cell[2]};
    case Layout::kExpertsGate:
    case Layout::kExpertsUp:
      return {.extents = {cell[0], cell[2], cell[1]},
              .from = {2 * cell[2] * cell[1], cell[1], 1},
              .to = {cell[1] * cell[2], 1, cell[2]},
              .from_offset = layout == Layout::kExpertsUp ? cell[2] * cell[1] : 0};
    case Layout::kExperts:
      return {.extents = {cell[0], cell[2], cell[1]},
              .from = {cell[1] * cell[2], cell[1], 1},
              .to = {cell[1] * cell[2], 1, cell[2]}};
  }
  return {};
}

namespace {

// The layer of a name that a pattern with one {} matches; "" for a pattern without {}.
std::optional<std::string> layer_in(std::string_view pattern, std::string_view name) {
  const size_t at = pattern.find("{}");
  if (at == pattern.npos) return pattern == name ? std::optional<std::string>("") : std::nullopt;
  const std::string_view before = pattern.substr(0, at), after = pattern.substr(at + 2);
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) || !name.ends_with(after)) return {};
  const std::string_view layer = name.substr(before.size(), name.size() - before.size() - after.size());
  if (!std::all_of(layer.begin(), layer.end(), [](char c) { return c >= '0' && c <= '9'; })) return {};
  return std::string(layer);
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  if (const size_t at = text.find(from); at != text.npos) text.replace(at, from.size(), to);
  return text;
}

// The names of a pattern with {a|b}.
std::vector<std::string> either(const std::string& pattern) {
  const size_t bar = pattern.find('|');
  if (bar == pattern.npos) return {pattern};
  const size_t open = pattern.rfind('{', bar), close = pattern.find('}', bar);
  const std::string before = pattern.substr(0, open), after = pattern.substr(close + 1);
  return {before + pattern.substr(open + 1, bar - open - 1) + after,
          before + pattern.substr(bar + 1, close - bar - 1) + after};
}

// The tensors of a file by their names without prefix.
class Names {
 public:
  explicit Names(const WeightSource& source) {
    for (const std::string& full : source.names()) {
      std::string_view name = full;
      for (std::string_view prefix : {"model.", "transformer."})
        if (name.starts_with(prefix)) {
          name.remove_prefix(prefix.size());
          break;
        }
      const auto [it, added] = tensors_.emplace(name, Entry{full});
      WEFT_CHECK(added, source.path(), ": tensors '", one_line(it->second.full, 80), "' and '", one_line(full, 80),
                 "' have one name without prefix; need one of them");
    }
  }
  /// The file's name of a tensor, which is used now; "" if there is none.
  std::string use(const std::string& name) {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) return "";
    it->second.used = true;
    return it->second.full;
  }
  /// Tensors that nothing uses: [name without prefix, the file's name].
  std::vector<std::pair<std::string, std::string>> unused() const {
    std::vector<std::pair<std::string, std::string>> unused;
    for (const auto& [name, entry] : tensors_)
      if (!entry.used) unused.emplace_back(name, entry.full);
    return unused;
  }

 private:
  struct Entry {
    std::string full;
    bool used = false;
  };
  std::map<std::string, Entry> tensors_;
};

[[noreturn]] void fail_missing(const WeightSource& source, const std::string& cell, const std::string& name) {
  const std::string hint =
      cell == "head.weight" ? "; need it, or \"tie_word_embeddings\": true in config.json if the embedding is the head"
                            : str_cat("; need it for ", cell);
  internal::fail(Code::kNotFound, str_cat(source.path(), ": no tensor '", name, "'", hint));
}

class Planner {
 public:
  Planner(const WeightSource& source, const Family& family, const nn::ConfigMap& config)
      : source_(source), family_(family), config_(config), sizes_(config), names_(source) {}

  CellPlan plan(const std::string& cell, const Shape& shape) {
    CellPlan plan{.cell = cell, .shape = shape};
    int64_t covered = 0;
    std::string missing, partly;               // the first missing tensor; the first after a piece was found
    std::map<int64_t, std::string> at_offset;  // tensors by the first element of the cell that they set
    for (const Row& row : family_.rows) {
      const std::optional<std::string> layer = layer_in(row.weft, cell);
      if (!layer) continue;
      std::string lacks;
      for (int64_t e = 0; e < (row.layout == Layout::kExpert ? sizes_.experts : 1); ++e) {
        std::string found, wanted;
        for (const std::string& pattern : either(row.hf)) {
          const std::string name = replaced(replaced(pattern, "{}", *layer), "{e}", str_cat(e));
          if (wanted.empty()) wanted = name;
          if (found.empty()) found = names_.use(name);
        }
        if (found.empty()) {
          if (lacks.empty()) lacks = wanted;
          continue;
        }
        check_shape(found, source_shape(row.layout, shape, sizes_), row.layout);
        Piece piece = piece_of(row.layout, shape, sizes_, e);
        piece.source = found;
        if (const auto [other, added] = at_offset.emplace(piece.to_offset, found); !added)
          fail_repeated(other->second, found);
        covered += std::accumulate(piece.extents.begin(), piece.extents.end(), int64_t{1}, std::multiplies<>());
        plan.pieces.push_back(std::move(piece));
      }
      if (missing.empty()) missing = lacks;
      if (partly.empty() && !plan.pieces.empty()) partly = lacks;
    }
    // Pieces of different offsets overlap only if one of them is the whole cell.
    if (covered > shape.numel()) fail_repeated(plan.pieces.front().source, plan.pieces.back().source);
    if (covered < shape.numel()) fail_missing(source_, cell, partly.empty() ? missing : partly);
    return plan;
  }

  // Checks the tensors that no cell uses.
  void check_rest(std::vector<std::string>* warnings) {
    std::vector<std::string> unknown;
    for (const auto& [name, full] : names_.unused()) {
      if (name == "lm_head.weight" && config_.at("tied") == "true") {
        if (warnings) compare_head(full, *warnings);
        continue;
      }
      const auto matches = [&name = name](const char* pattern) { return layer_in(pattern, name).has_value(); };
      if (std::none_of(family_.ignored.begin(), family_.ignored.end(), matches)) unknown.push_back(full);
    }
    if (unknown.empty()) return;
    std::string list;
    for (size_t i = 0; i < std::min<size_t>(3, unknown.size()); ++i)
      list += str_cat(i ? ", " : "", "'", one_line(unknown[i], 80), "'");
    internal::fail(Code::kInvalidArgument,
                   str_cat(source_.path(), ": ", unknown.size(), " tensors do not belong to the model: ", list,
                           unknown.size() > 3 ? ", ..." : "", "; need ", kind_of_rest(unknown.front())));
  }

 private:
  void check_shape(const std::string& name, const Shape& need, Layout layout) {
    const WeightInfo info = *source_.find(name);
    const bool queries = layout == Layout::kQ || layout == Layout::kQPermuted;
    const bool head = queries || layout == Layout::kK || layout == Layout::kKPermuted || layout == Layout::kV;
    WEFT_CHECK(info.shape == need, source_.path(), ": tensor '", name, "' is ", info.dtype, info.shape, "; need ", need,
               head ? str_cat(" for ", queries ? "heads " : "key-value heads ",
                              queries ? sizes_.heads : sizes_.kv_heads, " x head_dim ", sizes_.head_dim)
                    : "",
               " of ", family_.settings);
    WEFT_CHECK(is_floating(info.dtype), source_.path(), ": tensor '", name, "' is ", info.dtype,
               "; need floating-point weights: quantised ones need another program");
  }

  [[noreturn]] void fail_repeated(const std::string& a, const std::string& b) {
    internal::fail(Code::kInvalidArgument, str_cat(source_.path(), ": tensors '", one_line(a, 80), "' and '",
                                                   one_line(b, 80), "' are the same weights; need one of them"));
  }

  std::string kind_of_rest(const std::string& name) {
    const auto has = [&](const char* part) { return name.find(part) != name.npos; };
    if (has("lora_A") || has("lora_B")) return "the merged weights of a model, not an adapter's";
    if (has("qweight") || has("qzeros") || has("scales") || has("weight_packed") || has("weight_scale"))
      return "weights that are not quantised";
    return str_cat("the tensors that ", family_.settings, " describes");
  }

  // A head beside a tied embedding: the configuration decides.
  void compare_head(const std::string& head, std::vector<std::string>& warnings) {
    const std::string tokens = names_.use(family_.rows.front().hf);
    const std::optional<WeightInfo> a = source_.find(head), b = source_.find(tokens);
    bool equal = b && a->dtype == b->dtype && a->shape == b->shape;
    std::vector<std::byte> room_a, room_b;
    const int64_t n = a->shape.numel(), step = int64_t{1} << 20;
    for (int64_t at = 0; equal && at < n; at += step) {
      const int64_t end = std::min(n, at + step);
      equal = std::memcmp(source_.read(head, at, end, room_a), source_.read(tokens, at, end, room_b),
                          static_cast<size_t>((end - at) * itemsize(a->dtype))) == 0;
    }
    source_.release(head);
    if (!equal)
      warnings.push_back(str_cat(source_.path(), ": '", head,
                                 "' differs from the embedding, but config.json ties them; "
                                 "the embedding is used"));
  }

  const WeightSource& source_;
  const Family& family_;
  const nn::ConfigMap& config_;
  const Sizes sizes_;
  Names names_;
};

}  // namespace

std::vector<CellPlan> plan_cells(const WeightSource& source, const Family& family, const nn::ConfigMap& config,
                                 const std::vector<std::pair<std::string, Shape>>& cells,
                                 std::vector<std::string>* warnings) {
  Planner planner(source, family, config);
  std::vector<CellPlan> plans;
  for (const auto& [name, shape] : cells) plans.push_back(planner.plan(name, shape));
  planner.check_rest(warnings);
  return plans;
}

std::vector<TensorPlan> plan_tensors(const Family& family, const nn::ConfigMap& config, const std::string& model_type,
                                     const std::vector<std::pair<std::string, Shape>>& cells) {
  const Sizes sizes(config);
  std::vector<TensorPlan> plans;
  for (size_t c = 0; c < cells.size(); ++c) {
    const auto& [cell, shape] = cells[c];
    int64_t covered = 0;
    for (const Row& row : family.rows) {
      const std::optional<std::string> layer = layer_in(row.weft, cell);
      if (!layer || (row.model_type && row.model_type != model_type)) continue;
      const std::string pattern = replaced(either(row.hf).front(), "{}", *layer);
      const std::string prefix = pattern.starts_with("lm_head.") ? "" : family.prefix;
      for (int64_t e = 0; e < (row.layout == Layout::kExpert ? sizes.experts : 1); ++e) {
        TensorPlan plan{.name = prefix + replaced(pattern, "{e}", str_cat(e)),
                        .shape = source_shape(row.layout, shape, sizes),
                        .cell = c,
                        .piece = piece_of(row.layout, shape, sizes, e)};
        covered += plan.shape.numel();
        plans.push_back(std::move(plan));
      }
    }
    WEFT_CHECK(covered == shape.numel(), "config: the cell '", cell, "' ", shape,
               " has no name in files of model_type ", model_type, "; need a model whose cells all have one");
  }
  return plans;
}

void copy_tensor(const TensorPlan& plan, const StridedView& cell, DType dtype, void* tensor) {
  const Piece& p = plan.piece;
  StridedView in{.dtype = cell.dtype}, out{.dtype = dtype};
  for (size_t d = 0; d < p.extents.size(); ++d) {
    in.shape.push_back(p.extents[d]);
    in.strides.push_back(p.to[d]), out.strides.push_back(p.from[d]);
  }
  out.shape = in.shape;
  in.data = static_cast<std::byte*>(cell.data) + p.to_offset * itemsize(cell.dtype);
  out.data = static_cast<std::byte*>(tensor) + p.from_offset * itemsize(dtype);
  kernels::cast_copy(in, out);
}

void check_layers(const WeightSource& source, const Family& family, int64_t layers) {
  Names names(source);
  const auto row = std::ranges::find_if(
      family.rows, [](const Row& r) { return std::string_view(r.hf).find("{}") != std::string_view::npos; });
  for (int64_t i = 0; row != family.rows.end() && i < layers; ++i)
    if (const std::string name = replaced(row->hf, "{}", str_cat(i)); names.use(name).empty())
      fail_missing(source, replaced(row->weft, "{}", str_cat(i)), name);
}

namespace {

// Joins dims that one stride describes in the file and in the cell, and leaves out dims of one index.
Piece joined(const Piece& p) {
  Piece j{.source = p.source, .from_offset = p.from_offset, .to_offset = p.to_offset};
  for (size_t d = 0; d < p.extents.size(); ++d) {
    const int64_t n = p.extents[d];
    if (n == 1) continue;
    if (!j.extents.empty() && j.from.back() == n * p.from[d] && j.to.back() == n * p.to[d]) {
      j.extents.back() *= n, j.from.back() = p.from[d], j.to.back() = p.to[d];
    } else {
      j.extents.push_back(n), j.from.push_back(p.from[d]), j.to.push_back(p.to[d]);
    }
  }
  if (j.extents.empty()) j.extents = j.from = j.to = {1};
  return j;
}

constexpr int64_t kTaskBytes = 4 << 20;  // bytes of the file

}  // namespace

void copy_piece(const WeightSource& source, const Piece& piece, DType dtype, void* cell) {
  if (std::ranges::find(piece.extents, 0) != piece.extents.end()) return;
  const Piece p = joined(piece);
  const size_t n = p.extents.size();
  const DType from = source.find(p.source)->dtype;
  const int64_t size = itemsize(from);
  // The dims from `dense` on are one range of the file, in which an index of the first dim has at most kTaskBytes.
  size_t dense = n;
  int64_t range = 1;
  while (dense > 0 && p.from[dense - 1] == range && range * size <= kTaskBytes) range *= p.extents[--dense];
  const auto product = [](int64_t a, int64_t b) { return a * b; };
  const int64_t ranges =
      std::accumulate(p.extents.begin(), p.extents.begin() + static_cast<ptrdiff_t>(dense), int64_t{1}, product);
  // A task copies many ranges, or a part of the indices of the first dim of one.
  const int64_t rows = dense < n ? p.extents[dense] : 1, row = range / rows,
                step = std::clamp<int64_t>(kTaskBytes / (row * size), 1, rows), parts = (rows + step - 1) / step;
  const int64_t grain = parts > 1 ? 1 : std::max<int64_t>(1, kTaskBytes / (range * size));
  parallel_chunks(ranges * parts, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t at = i % parts * step, count = std::min(step, rows - at);
      int64_t begin = p.from_offset + at * row, to = p.to_offset, rest = i / parts;
      if (dense < n) to += at * p.to[dense];
      for (size_t d = dense; d-- > 0; rest /= p.extents[d])
        begin += rest % p.extents[d] * p.from[d], to += rest % p.extents[d] * p.to[d];
      StridedView in{.dtype = from}, out{.dtype = dtype};
      for (size_t d = dense; d < n; ++d) {
        in.shape.push_back(p.extents[d]), in.strides.push_back(p.from[d]);
        out.strides.push_back(p.to[d]);
      }
      // A transposition writes whole lines of cache only from many rows.
      const int64_t unit = p.to.back() == 1 ? row : count * row;
      source.visit(p.source, begin, begin + count * row, unit, [&](int64_t part, int64_t elements, const void* data) {
        int64_t offset = to;
        if (dense < n) in.shape[0] = elements / row, offset += (part - begin) / row * p.to[dense];
        out.shape = in.shape;
        in.data = const_cast<void*>(data);
        out.data = static_cast<std::byte*>(cell) + offset * itemsize(dtype);
        kernels::cast_copy(in, out);
      });
    }
  });
}

}  // namespace weft::weights
