// plot: draws a metrics file of a training run, or a chart given as JSON, as SVG.
#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "tools/draw/chart_files.h"

namespace weft {
namespace {

struct Options {
  std::string metrics, chart, out, title = "Loss";
};

int run(const Options& o) {
  if (o.metrics.empty() == o.chart.empty()) usage_error("need either --metrics FILE or --chart FILE");
  if (!o.out.empty() && (o.out == o.metrics || o.out == o.chart)) usage_error("--out names the file that is read");
  if (o.out.empty()) usage_error("need --out FILE.svg");
  const std::string file = io::resolve_path(o.metrics.empty() ? o.chart : o.metrics), text = io::read_file(file);
  io::write_file_atomic(io::resolve_path(o.out), draw::svg(o.chart.empty() ? draw::metrics_charts(text, file, o.title)
                                                                           : draw::json_charts(text, file)));
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::Options o;
  const weft::Flags flags{
      {"metrics", &o.metrics,
       "a file of JSON lines, as --metrics of the trainers writes it: draws the loss by step and "
       "the share of tokens by expert"},
      {"chart", &o.chart, "a chart as JSON (tools/draw/chart_files.h) instead"},
      {"out", &o.out, "the SVG"},
      {"title", &o.title, "of the loss"},
  };
  return weft::run_program(argc, argv, "Draws a metrics file or a chart as SVG.", flags, [&] { return weft::run(o); });
}
