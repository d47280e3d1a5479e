#include "tools/graph/svg.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include "compiler/loop_ir/fused.h"
#include "framework/base/units.h"
#include "framework/ir/op_def.h"
#include "tools/draw/marks.h"
#include "tools/graph/module_rows.h"

namespace weft::tools {
namespace {

constexpr int kLanes = 3, kClasses = 5;
constexpr int kBoxWidth = 310, kBoxHeight = 40, kGap = 16, kFrameTop = 22, kFrameSide = 8, kTrack = 7, kMargin = 20;
constexpr int kKept = 120;  // between forward and backward, for values that backward reads
constexpr int kTop = 96;
constexpr int kMostRows = 40;

// For each class of work, the fill, and whether text on it is white. The fills have distinct lightness.
struct Colour {
  const char* fill;
  bool dark;
};
constexpr std::array<Colour, kClasses> kColours = {
    {{"#173f78", true}, {"#9d86c6", false}, {"#8cc29c", false}, {"#ecdcae", false}, {"#a83e28", true}}};

// The contents of one box.
struct SvgCell {
  std::map<std::string, int> ops;
  std::array<double, kClasses> weight{};
  double flops = 0, bytes = 0, us = 0;
  int nodes = 0;
};

// A value that rows of its own lane read: one line from its row to all of them.
struct Net {
  int lane, from;
  std::set<int> to;
  int track = 0;
};

class Picture {
 public:
  Picture(const Graph& g, const StepRecord* record)
      : g_(g),
        phases_(phases_of(g)),
        rows_(module_rows(g, phases_, kMostRows)),
        cells_(rows_.labels.size()),
        kept_(rows_.labels.size()) {
    for (int32_t id = 0; id < g.size(); ++id)
      if (row(id) >= 0) add(id);
    if (record)
      for (const LaunchRecord& l : record->launches)
        if (l.node >= 0 && row(l.node) >= 0 && !rows_.repeated[l.node])
          cell(l.node).us += l.measured_us > 0 ? l.measured_us : l.predicted_us;
    for (auto& [key, to] : readers_) nets_.push_back({key[0], key[1], to});
    lay_out();
  }

  std::string draw(const std::string& title) {
    int width = kMargin;
    for (int lane = 0; lane < kLanes; ++lane)
      width = std::max(width, x_[lane] + (used_[lane] ? kBoxWidth : 0) + side_[lane]);
    width = std::max(width + kMargin, 900);
    head(title, width);
    for (const ModuleRows::Frame& f : rows_.frames) frame(f, width);
    for (int lane = 0; lane < kLanes; ++lane)
      if (used_[lane]) text(x_[lane] + kBoxWidth / 2, kTop - 12, "middle", "lane", kLaneNames[lane]);
    for (const Net& net : nets_) draw_net(net);
    draw_gradients();
    for (size_t r = 0; r < kept_.size(); ++r) draw_kept(static_cast<int>(r));
    out_ += labels_;
    for (size_t r = 0; r < cells_.size(); ++r)
      for (int lane = 0; lane < kLanes; ++lane)
        if (cells_[r][lane].nodes) box(static_cast<int>(r), lane);
    return str_cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height_,
                   "\" viewBox=\"0 0 ", width, " ", height_, "\">\n", kStyle, out_, "</svg>\n");
  }

 private:
  static constexpr const char* kLaneNames[kLanes] = {"forward", "backward", "update"};
  static constexpr const char* kStyle = R"(<style>
text { font: 11px system-ui, 'DejaVu Sans', sans-serif; fill: #1b2129 }
.title { font-size: 16px; font-weight: 600 }
.lane { font-size: 13px; font-weight: 600 }
.name { font-size: 12px; font-weight: 600 }
.soft { fill: #5b6674 }
.white { fill: #ffffff }
.halo { paint-order: stroke; stroke: #ffffff; stroke-width: 4px }
.net { fill: none; stroke: #5b6674; stroke-width: 1.2 }
.loop { stroke-dasharray: 4 3 }
.kept { stroke: #1b2129; stroke-width: 1.6 }
.frame { fill: none; stroke: #8b95a3 }
</style>
<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path d="M0 0L8 4L0 8z" fill="#5b6674"/></marker></defs>
<rect width="100%" height="100%" fill="#ffffff"/>
)";

  int row(int32_t id) const { return rows_.row[id]; }
  int lane(int32_t id) const { return static_cast<int>(phases_[id]); }
  SvgCell& cell(int32_t id) { return cells_[row(id)][lane(id)]; }

  void add(int32_t id) {
    const Node& n = g_.node(id);
    const bool fused = n.op->is(kGroup);
    std::set<int32_t> sources;
    for (Value v : n.inputs)
      if (const int32_t from = source_of(g_, v); from >= 0) sources.insert(from);
    for (int32_t from : sources) {
      if (lane(from) == lane(id) && row(from) != row(id)) readers_[{lane(id), row(from)}].insert(row(id));
      if (lane(from) == 1 && lane(id) == 2) gradients_[row(id)].insert(row(from));
      if (lane(from) == 0 && lane(id) == 1 && !rows_.repeated[from] && read_.insert(from).second)
        for (const TensorType& t : g_.node(from).outputs) kept_[row(from)] += static_cast<double>(t.nbytes());
    }
    if (rows_.repeated[id]) return;
    SvgCell& c = cell(id);
    used_[lane(id)] = true;
    ++c.nodes;
    if (fused) {
      const Graph& body = loop_ir::body_of(n);
      for (int32_t k = 0; k < body.size(); ++k)
        if (!body.node(k).inputs.empty() && !body.node(k).op->is(kView)) ++c.ops[body.node(k).op->name];
    } else {
      ++c.ops[n.op->name];
    }
    if (n.op->is(kStructural) || (!fused && !n.op->kernel)) return;
    const Cost cost = op_cost(g_, n);
    c.flops += cost.flops;
    c.bytes += cost.bytes;
    c.weight[static_cast<size_t>(class_of(n))] += cost.flops + cost.bytes;
  }

  // Against the direction of its lane, for instance to the next equal layer.
  static bool is_loop(const Net& net, int to) { return net.lane == 1 ? to > net.from : to < net.from; }
  // A line that goes straight to the box beside it needs no track.
  static bool is_beside(const Net& net, int to) { return to == net.from + (net.lane == 1 ? -1 : 1); }

  void lay_out() {
    // Short lines get the tracks nearest to the boxes.
    const auto span = [](const Net& n) {
      return std::pair{std::min(n.from, *n.to.begin()), std::max(n.from, *n.to.rbegin())};
    };
    std::stable_sort(nets_.begin(), nets_.end(), [&](const Net& a, const Net& b) {
      return span(a).second - span(a).first < span(b).second - span(b).first;
    });
    std::array<std::vector<std::vector<std::pair<int, int>>>, kLanes> tracks;
    for (Net& net : nets_) {
      if (net.to.size() == 1 && is_beside(net, *net.to.begin())) continue;
      auto& of_lane = tracks[net.lane];
      const auto [lo, hi] = span(net);
      const auto free = [&, lo = lo, hi = hi](const auto& track) {
        return std::all_of(track.begin(), track.end(), [&](const auto& s) { return s.second < lo || s.first > hi; });
      };
      const auto at = std::find_if(of_lane.begin(), of_lane.end(), free);
      net.track = static_cast<int>(at - of_lane.begin()) + 1;
      if (at == of_lane.end()) of_lane.emplace_back();
      of_lane[static_cast<size_t>(net.track) - 1].push_back({lo, hi});
    }
    int deepest = 0;
    for (int depth : rows_.depths) deepest = std::max(deepest, depth);
    const int inset = kMargin + (deepest + 1) * kFrameSide;
    for (size_t lane = 0; lane < kLanes; ++lane) side_[lane] = kTrack * static_cast<int>(tracks[lane].size()) + 12;
    x_[0] = inset + side_[0];
    x_[1] = used_[0] ? x_[0] + kBoxWidth + kKept : inset;
    x_[2] = used_[1] ? x_[1] + kBoxWidth + side_[1] + 3 * kGap : x_[1];
    if (used_[2]) side_[2] += inset - kMargin;
    int y = kTop;
    for (size_t r = 0; r < rows_.labels.size(); ++r) {
      for (const ModuleRows::Frame& f : rows_.frames) y += f.first == static_cast<int>(r) ? kFrameTop : 0;
      y_.push_back(y);
      y += kBoxHeight + kGap;
      for (const ModuleRows::Frame& f : rows_.frames) y += f.last == static_cast<int>(r) ? kFrameSide : 0;
    }
    height_ = y + kMargin;
  }

  static std::string text_element(int x, int y, const char* anchor, std::string_view kind, std::string_view s) {
    return str_cat("<text x=\"", x, "\" y=\"", y, "\" text-anchor=\"", anchor, "\" class=\"", kind, "\">",
                   draw::escape(s), "</text>\n");
  }
  void text(int x, int y, const char* anchor, std::string_view kind, std::string_view s) {
    out_ += text_element(x, y, anchor, kind, s);
  }

  void line(const char* kind, const std::string& path, bool arrow = true) {
    out_ += str_cat("<path class=\"net ", kind, "\" d=\"", path, "\"", arrow ? " marker-end=\"url(#a)\"" : "", "/>\n");
  }

  void head(const std::string& title, int width) {
    int drawn = 0;
    for (int r : rows_.row) drawn += r >= 0;
    text(kMargin, 28, "start", "title", title);
    text(width - kMargin, 28, "end", "soft", str_cat(g_.size(), " nodes, ", drawn, " of them ops or kernels"));
    int x = kMargin;
    for (int k = 0; k < kClasses; ++k) {
      out_ += str_cat("<rect x=\"", x, "\" y=\"42\" width=\"14\" height=\"14\" fill=\"", kColours[k].fill,
                      "\" stroke=\"#8b95a3\"/>\n");
      const std::string name = to_string(static_cast<WorkClass>(k));
      text(x + 19, 53, "start", "", name);
      x += 36 + 7 * static_cast<int>(name.size());
    }
    line("loop", str_cat("M", x, " 49H", x + 26), true);
    text(x + 32, 53, "start", "", "back to an earlier row");
    if (!read_.empty()) {
      line("kept", str_cat("M", x + 186, " 49H", x + 212));
      text(x + 218, 53, "start", "", "kept for backward");
    }
  }

  void frame(const ModuleRows::Frame& f, int width) {
    const int x = kMargin + f.depth * kFrameSide, y = y_[f.first] - kFrameTop + 4 - inner(f, true);
    const int bottom = y_[f.last] + kBoxHeight + kFrameSide - 2 + inner(f, false);
    out_ += str_cat("<rect class=\"frame\" rx=\"4\" x=\"", x, "\" y=\"", y, "\" width=\"", width - 2 * x,
                    "\" height=\"", bottom - y, "\"/>\n");
    labels_ += text_element(x + 8, y + 14, "start", "name halo", f.label);
  }

  // Space of the frames inside `f` that begin, or end, in the same row.
  int inner(const ModuleRows::Frame& f, bool begin) const {
    int space = 0;
    for (const ModuleRows::Frame& o : rows_.frames)
      if (o.depth > f.depth && (begin ? o.first == f.first : o.last == f.last && o.first >= f.first))
        space += begin ? kFrameTop : kFrameSide;
    return space;
  }

  void draw_net(const Net& net) {
    const bool left = net.lane == 0;
    const int edge = left ? x_[net.lane] : x_[net.lane] + kBoxWidth,
              x = edge + (left ? -1 : 1) * (8 + kTrack * net.track);
    const int middle = x_[net.lane] + kBoxWidth / 2, from = y_[net.from];
    for (int to : net.to) {
      const int at = y_[to];
      if (is_beside(net, to)) {
        line("", net.lane == 1 ? str_cat("M", middle, " ", from, "V", at + kBoxHeight + 2)
                               : str_cat("M", middle, " ", from + kBoxHeight, "V", at - 2));
      } else {
        line(is_loop(net, to) ? "loop" : "",
             str_cat("M", edge, " ", from + kBoxHeight - 9, "H", x, "V", at + 11, "H", edge + (left ? -2 : 2)));
      }
    }
  }

  void draw_kept(int r) {
    const double bytes = kept_[r];
    if (bytes == 0) return;
    const int y = y_[r] + kBoxHeight / 2, x = x_[0] + kBoxWidth;
    const bool same_row = cells_[r][1].nodes > 0;
    line("kept", str_cat("M", x, " ", y, "H", same_row ? x_[1] - 2 : x + 24));
    text(x + 8 + (same_row ? 0 : 20), y - 4, "start", "", bytes_text(bytes));
  }

  // The rows of backward share one line to each row of the update.
  void draw_gradients() {
    int x = x_[2] - kGap;
    for (const auto& [to, rows] : gradients_) {
      for (int from : rows)
        line("", str_cat("M", x_[1] + kBoxWidth, " ", y_[from] + 20, "H", x, "V", y_[to] + 20, "H", x_[2] - 2));
      x = std::max(x - kTrack, x_[1] + kBoxWidth + side_[1]);
    }
  }

  void box(int r, int lane) {
    const SvgCell& c = cells_[r][lane];
    const auto kind = static_cast<size_t>(std::max_element(c.weight.begin(), c.weight.end()) - c.weight.begin());
    const int x = x_[lane], y = y_[r];
    out_ += str_cat("<rect rx=\"3\" x=\"", x, "\" y=\"", y, "\" width=\"", kBoxWidth, "\" height=\"", kBoxHeight,
                    "\" fill=\"", kColours[kind].fill, "\" stroke=\"#5b6674\"/>\n");
    const std::string on = kColours[kind].dark ? "white" : "";
    const std::string cost = c.us > 0 ? seconds_text(1e-6 * c.us) : c.flops > 0 ? flops_text(c.flops) : "";
    text(x + 8, y + 16, "start", "name " + on, shortened(rows_.labels[r], cost.size()));
    text(x + kBoxWidth - 8, y + 16, "end", on, cost);
    text(x + 8, y + 32, "start", on, ops_text(c));
    text(x + kBoxWidth - 8, y + 32, "end", on, c.bytes > 0 ? bytes_text(c.bytes) : "");
  }

  static std::string shortened(const std::string& s, size_t beside) {
    const size_t most = 44 - beside;
    return s.size() <= most ? s : str_cat("...", s.substr(s.size() - most + 3));
  }

  // The most frequent ops that fit.
  static std::string ops_text(const SvgCell& c) {
    std::vector<std::pair<std::string, int>> ops(c.ops.begin(), c.ops.end());
    std::stable_sort(ops.begin(), ops.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    std::string s;
    for (const auto& [name, count] : ops) {
      const std::string part = str_cat(s.empty() ? "" : ", ", count > 1 ? str_cat(count, " ") : std::string(), name);
      if (s.size() + part.size() > 36) return s + ", ...";
      s += part;
    }
    return s;
  }

  const Graph& g_;
  const std::vector<Phase> phases_;
  const ModuleRows rows_;
  std::vector<std::array<SvgCell, kLanes>> cells_;       // indices: row and lane
  std::vector<double> kept_;                             // bytes by row of forward that backward reads
  std::set<int32_t> read_;                               // forward nodes that backward reads
  std::map<std::array<int, 2>, std::set<int>> readers_;  // lane, row -> rows of the lane
  std::map<int, std::set<int>> gradients_;               // row of the update -> rows of backward
  std::vector<Net> nets_;
  std::array<bool, kLanes> used_{};
  std::array<int, kLanes> x_{}, side_{};
  std::vector<int> y_;
  int height_ = 0;
  std::string out_, labels_;  // labels_: of frames, above the lines
};

}  // namespace

std::string graph_svg(const std::string& title, const Graph& g, const StepRecord* record) {
  return Picture(g, record).draw(title);
}

}  // namespace weft::tools
