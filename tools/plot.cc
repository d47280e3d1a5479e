// plot: draws a metrics file of a training run, or a chart given as JSON, as SVG.
#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "tools/draw/chart_files.h"

namespace weft {
namespace {

struct PlotFlags {
  File metrics, chart, out{File::Use::kWrite};
  std::string title = "Loss";
};

int run(const PlotFlags& o) {
  if (!o.metrics == !o.chart) usage_error("need either --metrics FILE or --chart FILE");
  if (!o.out) usage_error("need --out FILE.svg");
  const std::string &file = (o.chart ? o.chart : o.metrics).path, text = io::read_file(file);
  io::write_file_atomic(o.out.path,
                        draw::svg(o.chart ? draw::json_charts(text, file) : draw::metrics_charts(text, file, o.title)));
  return 0;
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  weft::PlotFlags o;
  const weft::Flags flags{
      {"metrics", &o.metrics,
       "a file of --metrics of a trainer: draws the loss by step and the share of tokens by expert"},
      {"chart", &o.chart, "a chart as JSON (tools/draw/chart_files.h), instead of --metrics"},
      {"out", &o.out, "file for the SVG"},
      {"title", &o.title, "title of the loss chart"},
  };
  return weft::run_program(
      argc, argv, "Draws a metrics file or a chart as SVG.", flags, [&] { return weft::run(o); },
      weft::Switches::kNone);
}
