// profile: where the time and the memory of a step go, from its record: a model's that runs here, or a record file's.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "framework/base/switches.h"
#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "tools/profile/diff.h"
#include "tools/profile/measure.h"
#include "tools/profile/pictures.h"
#include "tools/profile/profile_text.h"
#include "tools/profile/record_file.h"
#include "tools/profile/timeline.h"

namespace weft::profiler {
namespace {

struct Options {
  tools::StepChoice step;
  int64_t steps = 10, rank = 0;
  std::string record, save_record, diff, by = "kernel", what_if, roofline, memory, trace, out;
  bool json = false;
};

void write(const std::string& path, const std::string& text) { io::write_file_atomic(io::resolve_path(path), text); }

int print(const Options& o, const std::string& text) {
  if (o.out.empty()) {
    std::fwrite(text.data(), 1, text.size(), stdout);
  } else {
    write(o.out, text);
  }
  return 0;
}

int compare(const Options& o, By by, const std::vector<std::string>& files) {
  if (files.size() != 1) usage_error("--diff needs two record files: --diff BEFORE AFTER");
  const StepRecord before = read_record(o.diff), after = read_record(files[0]);
  return print(o, o.json ? diff_json(before, after, by) + "\n" : diff_text(before, after, by));
}

// Two flags must not name one file, or one of them would be lost.
void check_files(const Options& o) {
  const std::pair<const char*, const std::string*> files[] = {{"record", &o.record}, {"save_record", &o.save_record},
                                                              {"diff", &o.diff},     {"roofline", &o.roofline},
                                                              {"memory", &o.memory}, {"trace", &o.trace},
                                                              {"out", &o.out}};
  std::map<std::string, const char*> seen;
  for (const auto& [flag, file] : files) {
    if (file->empty()) continue;
    const auto [at, fresh] =
        seen.try_emplace(std::filesystem::weakly_canonical(io::resolve_path(*file)).string(), flag);
    if (!fresh) usage_error(str_cat("--", at->second, " and --", flag, " name one file: '", *file, "'"));
  }
}

int run(const Options& o, const std::vector<std::string>& rest) {
  check_files(o);
  const By by = parse_by(o.by);
  const Speedups speedups = o.what_if.empty() ? Speedups{} : parse_what_if(o.what_if);
  const bool ran = o.record.empty() && o.diff.empty();
  if (!ran && !(o.step == tools::StepChoice() && o.steps == Options().steps && o.rank == 0))
    usage_error("--record and --diff read files; leave out the flags of a model, --steps and --rank");
  if (const std::string exec = switch_value("WEFT_EXEC"); ran && exec != "compiled")
    usage_error(str_cat("WEFT_EXEC: got '", exec, "'; need compiled: the launches of a plan are timed"));
  if (!o.diff.empty()) {
    for (const std::string* other : {&o.record, &o.save_record, &o.roofline, &o.memory, &o.trace, &o.what_if})
      if (!other->empty()) usage_error("--diff goes with --by, --json and --out only");
    return compare(o, by, rest);
  }
  if (!rest.empty()) usage_error(str_cat("unexpected argument '", rest[0], "'; --help lists the flags"));
  const bool page = o.memory.ends_with(".html");
  if (!o.memory.empty() && !page && !o.memory.ends_with(".svg"))
    usage_error(str_cat("--memory is '", o.memory, "'; need a file that ends in .svg or .html"));
  const bool picture = o.trace.ends_with(".svg");
  if (!o.trace.empty() && !picture && !o.trace.ends_with(".json"))
    usage_error(str_cat("--trace is '", o.trace, "'; need a file that ends in .json, for ui.perfetto.dev, or in .svg"));
  if (!o.roofline.empty() && !o.roofline.ends_with(".svg"))
    usage_error(str_cat("--roofline is '", o.roofline, "'; need a file that ends in .svg"));
  if (!o.trace.empty() && !o.record.empty()) usage_error("--trace needs a model that runs; leave out --record");
  const StepRecord record =
      o.record.empty() ? measure(o.step, o.steps, static_cast<int>(o.rank)) : read_record(o.record);
  if (!o.save_record.empty()) write_record(o.save_record, record);
  if (!o.roofline.empty()) write(o.roofline, roofline_svg(record, by));
  if (!o.memory.empty()) write(o.memory, page ? memory_html(record) : memory_svg(record));
  if (!o.trace.empty()) {
    const Profile one = trace(o.step);
    if (picture) {
      write(o.trace, timeline_svg(one, str_cat("One step of ", record.title)));
    } else {
      one.save(o.trace);
    }
  }
  if (o.json) return print(o, profile_json(record, by, speedups) + "\n");
  std::string text = str_cat(head_text(record), "\n", rows_text(record, by), "\n", parts_text(record));
  if (const std::string missed = missed_text(record); !missed.empty()) text += "\n" + missed;
  if (!speedups.empty()) text += "\n" + what_if_text(record, speedups);
  return print(o, text);
}

}  // namespace
}  // namespace weft::profiler

int main(int argc, char** argv) {
  weft::profiler::Options o;
  weft::Flags flags = weft::tools::step_flags(o.step);
  const weft::Flags others{
      {"device", &o.step.device, "cpu, cuda or cuda:N: where the step runs"},
      {"steps", &o.steps, "steps that are timed", {.least = 1}},
      {"rank", &o.rank, "the rank of --mesh whose part of the step is shown", {.least = 0, .most = 1 << 20}},
      {"record", &o.record, "a file of --save_record or StepRecord::to_proto() instead of a model that runs"},
      {"save_record", &o.save_record, "write the record to this file, for --record and --diff"},
      {"diff", &o.diff, "compare two record files: --diff BEFORE AFTER"},
      {"by", &o.by, "rows of the table: kernel, module, class or line"},
      {"what_if", &o.what_if, "the classes' shares if some were faster: products=10x,elementwise=2x"},
      {"roofline", &o.roofline, "write the roofline with the rows of the table to this SVG"},
      {"memory", &o.memory, "write who has the memory, and when, to this .svg or .html"},
      {"trace", &o.trace, "write what each thread did during one step to this .json, for ui.perfetto.dev, or .svg"},
      {"json", &o.json, "JSON instead of text"},
      {"out", &o.out, "write to this file; empty: to standard output"},
  };
  flags.insert(flags.end(), others.begin(), others.end());
  return weft::run_program(argc, argv, "Shows where the time and the memory of a training step go.", flags,
                           [&](const std::vector<std::string>& rest) { return weft::profiler::run(o, rest); });
}
