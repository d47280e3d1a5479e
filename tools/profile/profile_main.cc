// profile: the time and the memory of a step by part, from the record of a model's step that runs here, or of a file.
#include <algorithm>
#include <functional>
#include <vector>

#include "framework/base/error.h"
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

using enum File::Use;

struct ProfileFlags {
  tools::StepChoice step;
  bool step_given = false;  // a flag of the step
  int64_t steps = 10, rank = 0;
  std::string by = "kernel", what_if;
  bool what_if_given = false;
  File record, diff;
  File save_record{kWrite}, roofline{kWrite}, memory{kWrite}, trace{kWrite}, out{kWrite};
  bool json = false;
};

void print(const ProfileFlags& o, const std::string& text) {
  if (o.out) return io::write_file_atomic(o.out.path, text);
  write_output(text);
}

int compare(ProfileFlags& o, By by, const std::vector<std::string>& files) {
  if (files.size() != 1) usage_error("--diff needs two record files: --diff BEFORE AFTER");
  File other{.path = io::resolve_path(files[0])};
  check_files({{"diff", &other, ""}, {"out", &o.out, ""}});
  const StepRecord before = read_measured_record("diff", o.diff.path), after = read_measured_record("diff", other.path);
  print(o, o.json ? diff_json(before, after, by) + "\n" : diff_text(before, after, by));
  return 0;
}

// Writes all outputs, even if an output fails.
void write_all(const std::vector<std::function<void()>>& outputs) {
  std::string failed;
  for (const auto& write : outputs) try {
      write();
    } catch (const Error& e) {
      failed += str_cat(failed.empty() ? "" : "; ", e.what());
    }
  WEFT_CHECK_AS(kFailedPrecondition, failed.empty(), failed);
}

int run(ProfileFlags& o, const std::vector<std::string>& rest) {
  const By by = parse_by(o.by);
  const Speedups speedups = o.what_if_given ? parse_what_if(o.what_if) : Speedups{};
  const bool ran = !o.record && !o.diff;
  if (!ran && o.step_given)
    usage_error("--record and --diff read files; leave out the flags of a model, --device, --steps and --rank");
  if (const std::string exec = switch_value("WEFT_EXEC"); ran && exec != "compiled")
    usage_error(str_cat("WEFT_EXEC: got '", exec, "'; need compiled: the launches of a plan are timed"));
  if (o.diff) {
    if (o.record) usage_error("--diff reads two files; leave out --record");
    for (const File* other : {&o.save_record, &o.roofline, &o.memory, &o.trace})
      if (*other || o.what_if_given) usage_error("--diff goes with --by, --json and --out only");
    return compare(o, by, rest);
  }
  if (!rest.empty()) usage_error(str_cat("unexpected argument '", rest[0], "'; --help lists the flags"));
  const auto need = [](const char* flag, const File& file, std::initializer_list<const char*> ends, const char* what) {
    if (file && std::none_of(ends.begin(), ends.end(), [&](const char* end) { return file.path.ends_with(end); }))
      usage_error(str_cat("--", flag, " is '", file.path, "'; need a file that ends in ", what));
  };
  need("memory", o.memory, {".svg", ".html"}, ".svg or .html");
  need("trace", o.trace, {".svg", ".json"}, ".json, for ui.perfetto.dev, or in .svg");
  need("roofline", o.roofline, {".svg"}, ".svg");
  if (o.trace && o.record) usage_error("--trace needs a model that runs; leave out --record");
  const StepRecord record = !o.record    ? measure(o.step, o.steps, static_cast<int>(o.rank))
                            : o.roofline ? read_measured_record("record", o.record.path)
                                         : read_record("record", o.record.path);
  const auto text = [&] {
    if (o.json) return profile_json(record, by, speedups) + "\n";
    std::string all = str_cat(head_text(record), "\n", rows_text(record, by), "\n", parts_text(record));
    if (const std::string missed = missed_text(record); !missed.empty()) all += "\n" + missed;
    if (!speedups.empty()) all += "\n" + what_if_text(record, speedups);
    return all;
  };
  const auto write = [](const File& file, const auto& made) {
    if (file) io::write_file_atomic(file.path, made());
  };
  write_all({[&] { write(o.save_record, [&] { return record.to_proto(); }); },
             [&] { write(o.roofline, [&] { return roofline_svg(record, by); }); },
             [&] {
               write(o.memory,
                     [&] { return o.memory.path.ends_with(".svg") ? memory_svg(record) : memory_html(record); });
             },
             [&] {
               if (!o.trace) return;
               const Profile one = trace(o.step);
               if (o.trace.path.ends_with(".json")) return one.save(o.trace.path);
               write(o.trace, [&] { return timeline_svg(one, str_cat("One step of ", record.title)); });
             },
             [&] { print(o, text()); }});
  return 0;
}

}  // namespace
}  // namespace weft::profiler

int main(int argc, char** argv) {
  weft::profiler::ProfileFlags o;
  weft::Flags flags = weft::tools::step_flags(o.step);
  flags.push_back({"device", &o.step.device, "cpu, cuda or cuda:N: where the step runs"});
  flags.push_back({"steps",
                   &o.steps,
                   "pairs of steps that are timed, one as it is and one by launches",
                   {.least = 1, .most = 1e6}});
  flags.push_back({"rank", &o.rank, "the rank of --mesh whose part is shown", {.least = 0, .most = 1 << 20}});
  for (weft::Flag& flag : flags) flag.given = &o.step_given;
  const weft::Flags others{
      {"record", &o.record, "a file of --save_record or StepRecord::to_proto() instead of a model that runs"},
      {"save_record", &o.save_record, "write the record to this file, for --record and --diff"},
      {"diff", &o.diff, "compare two record files: --diff BEFORE AFTER"},
      {"by", &o.by, "rows of the table: kernel, module, class or line"},
      {"what_if",
       &o.what_if,
       "the shares and the step if classes were faster: contraction=10x,elementwise=2x; products means contraction",
       {},
       &o.what_if_given},
      {"roofline", &o.roofline, "write the roofline with the rows of the table to this SVG"},
      {"memory", &o.memory, "write the memory by owner, launch by launch, to this .svg or .html"},
      {"trace", &o.trace, "write each thread's activity during one step to this .json, for ui.perfetto.dev, or .svg"},
      {"json", &o.json, "JSON instead of text"},
      {"out", &o.out, "write to this file instead of to standard output"},
  };
  flags.insert(flags.end(), others.begin(), others.end());
  return weft::run_program(argc, argv, "Shows where the time and the memory of a training step go.", flags,
                           [&](const std::vector<std::string>& rest) { return weft::profiler::run(o, rest); });
}
