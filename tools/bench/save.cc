// save: how long training stands still for a checkpoint, blocking and asynchronous in turn, and how much longer the
// next step and the steps during the write take. The rates of a blocking save and of a load are beside the rates of dd,
// and of checksums and copies, with equal bytes and in turn. Ranks of --mesh are processes.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "distributed/launch/compile.h"
#include "distributed/launch/job.h"
#include "distributed/launch/processes.h"
#include "framework/base/thread_pool.h"
#include "framework/cli/cli.h"
#include "framework/dispatch/rank/first_process.h"
#include "framework/io/crc32c.h"
#include "framework/io/file.h"
#include "models/nn/transformer/language_model.h"
#include "models/train/checkpoint.h"
#include "tools/bench/benchmark.h"
#include "tools/bench/model.h"
#include "weft.h"

ABSL_FLAG(std::string, dir, "", "folder for the checkpoints, on the file system to measure; it is removed at the end");
ABSL_FLAG(std::string, config, "gpt_base", "gpt_tiny, gpt_base or moe_small");
ABSL_FLAG(std::string, mesh, "", "the mesh: \"fsdp2\"; empty: one process");
ABSL_FLAG(int64_t, batch, 2, "sequences in a step, over all ranks");
ABSL_FLAG(int64_t, length, 64, "tokens in a sequence");
ABSL_FLAG(int32_t, rounds, 10, "saves of each kind, after one that is not counted");

namespace weft::bench {
namespace {

using MeshFunction = std::function<Tensor(const Tensor&, const Tensor&)>;

struct SaveTimes {
  std::vector<double> stalls, next, during;  // seconds: stands still, the step after begin, later steps until the end
};

template <class F>
double timed(const F& fn) {
  const auto begin = Clock::now();
  fn();
  return seconds_since(begin);
}

// The tensors of a checkpoint, which are nearly all of its bytes.
std::vector<std::string> tensor_files(const std::string& folder) {
  return {folder + "/model.safetensors", folder + "/optimizer.safetensors"};
}
int64_t bytes_of(const std::string& folder) {
  int64_t bytes = 0;
  for (const std::string& file : tensor_files(folder)) bytes += io::file_size(file);
  return bytes;
}

// Seconds for the bytes of a checkpoint.
struct Bounds {
  std::vector<double> dd_write, crc_and_copy, dd_read, load;
};

double dd(const std::string& operands) {
  const std::string command = str_cat("dd bs=4M status=none ", operands);
  return timed([&] {
    if (std::system(command.c_str()) != 0) internal::fail(Code::kInternal, "failed: " + command);
  });
}

// Checksums of the bytes, and then their copy to a new file, each on all threads.
double checksum_and_copy(const std::string& path, std::span<const std::byte> bytes) {
  constexpr int64_t kBlock = 4 << 20;
  const int64_t n = std::ssize(bytes);
  std::vector<uint32_t> sums(static_cast<size_t>(n / kBlock + 1));
  const auto block = [&](int64_t begin, int64_t end) {
    return bytes.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  };
  return timed([&] {
    const int fd = io::open_for_update(path, O_TRUNC);
    parallel_chunks(n, kBlock, [&](int64_t begin, int64_t end) {
      sums[static_cast<size_t>(begin / kBlock)] = io::crc32c(block(begin, end));
    });
    parallel_chunks(n, kBlock, [&](int64_t begin, int64_t end) {
      if (::pwrite(fd, block(begin, end).data(), static_cast<size_t>(end - begin), begin) != end - begin)
        internal::fail(Code::kResourceExhausted, path + ": cannot be written");
    });
    ::close(fd);
  });
}

// Removes files from the memory of the kernel, as after a restart of the host. Files of tmpfs stay.
void forget(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const int fd = io::open_for_update(file);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

// The load of a run that is resumed: values of a new model and optimiser.
double load(const std::string& folder) {
  const std::shared_ptr<nn::LanguageModel> model = make_decoder(absl::GetFlag(FLAGS_config)).model;
  const optim::AdamW optimizer(model->parameters(), {.lr = 1e-3});
  const train::TrainState state = train::read_state(folder);
  const train::NamedCells weights = model->named_cells(), moments = optimizer.named_cells();
  return timed([&] {
    train::load_cells(train::open_tensors(folder, "model", state), weights);
    train::load_cells(train::open_tensors(folder, "optimizer", state), moments);
  });
}

// Measures once beside a checkpoint. `bytes` has its size.
void measure(const std::string& folder, std::span<const std::byte> bytes, Bounds& bounds) {
  const std::vector<std::string> files = tensor_files(folder);
  const std::string other = folder + "/other";
  const std::string zeros = str_cat("if=/dev/zero iflag=count_bytes count=", bytes.size());
  bounds.dd_write.push_back(dd(str_cat(zeros, " conv=fsync 'of=", other, "'")));
  io::remove_all(other);
  bounds.crc_and_copy.push_back(checksum_and_copy(other, bytes));
  io::remove_all(other);
  double read = 0;
  forget(files);
  for (const std::string& file : files) read += dd(str_cat("of=/dev/null 'if=", file, "'"));
  bounds.dd_read.push_back(read);
  forget(files);
  bounds.load.push_back(load(folder));
}

void run(Report& report) {
  const std::string dir = io::resolve_path(absl::GetFlag(FLAGS_dir));
  if (dir.empty() || io::exists(dir)) usage_error("--dir: got '" + dir + "'; need a new folder");
  const dist::Mesh mesh = dist::Mesh::parse(absl::GetFlag(FLAGS_mesh), {});
  std::optional<dist::Job> job;
  if (mesh.size() > 1) job.emplace(dist::JobOptions{.ranks = mesh.size()});
  if (job && job->code()) {
    if (*job->code() != 0) internal::fail(Code::kAborted, "a rank has failed");
    return;
  }
  manual_seed(0);
  const std::shared_ptr<nn::LanguageModel> model = make_decoder(absl::GetFlag(FLAGS_config)).model;
  optim::AdamW optimizer(model->parameters(), {.lr = 1e-3});
  auto step = dist::compile(MeshFunction([&](const Tensor& tokens, const Tensor& targets) {
                              const Tensor loss = model->loss(tokens, targets).loss;
                              optimizer.minimize(loss);
                              return loss;
                            }),
                            {.mesh = mesh});
  const Shape shape{absl::GetFlag(FLAGS_batch), absl::GetFlag(FLAGS_length)};
  const auto one_step = [&] {
    const Tensor tokens = randint(0, model->vocab(), shape), targets = randint(0, model->vocab(), shape);
    return timed([&] { static_cast<void>(step(tokens, targets).item<float>()); });
  };
  const auto any = [](bool mine) {
    internal::JobProcesses* const processes = internal::job_processes();
    return processes ? processes->any("a save that is measured", mine) : mine;
  };
  int64_t saves = 0;
  // Saves once, and makes steps until the save is complete, or four.
  const auto save = [&](AsyncSave::Pace pace, SaveTimes& times) {
    std::unique_ptr<AsyncSave> pending;
    const bool waits = pace == AsyncSave::Pace::kFull;
    static_cast<void>(any(false));  // ranks end a step at different times, and would wait in the next step, too
    double stall = timed([&] {
      pending = train::begin_checkpoint(dir, {.step = ++saves, .family = "bench"}, model->named_cells(),
                                        optimizer.named_cells(), /*keep=*/2, nullptr, {}, pace);
      if (waits) pending->wait();
    });
    times.next.push_back(one_step());
    for (int steps = 1; steps < 4 || !pending->complete(); ++steps) {
      if (!pending->complete() && !any(pending->busy())) stall += timed([&] { pending->advance(); });
      const bool writes = !pending->complete();
      const double seconds = one_step();
      if (writes) times.during.push_back(seconds);
    }
    times.stalls.push_back(stall);
  };
  std::vector<double> steps;
  for (int i = 0; i < 3; ++i) one_step();
  SaveTimes blocking, async;
  Bounds bounds;
  std::vector<std::byte> other;  // bytes as of a checkpoint
  const auto newest = [&] { return str_cat(dir, "/step_", saves); };
  for (int i = 0; i <= absl::GetFlag(FLAGS_rounds) && !any(interrupted()); ++i) {
    if (i == 1) blocking = async = {}, bounds = {};  // the first save of each kind takes new memory
    for (int s = 0; s < 4; ++s) steps.push_back(one_step());
    save(AsyncSave::Pace::kFull, blocking);
    if (!job) {
      other.resize(static_cast<size_t>(bytes_of(newest())), std::byte{37});
      measure(newest(), other, bounds);
    }
    save(AsyncSave::Pace::kYield, async);
  }
  if (!dist::is_first()) return;
  const double plain = median(steps);
  report.fact("config", absl::GetFlag(FLAGS_config));
  report.fact("mesh", mesh.size() > 1 ? mesh.to_string() : "one process");
  const auto bytes = static_cast<double>(bytes_of(newest()));
  report.add({"checkpoint", bytes / 1e6, "MB"});
  report.add({"step", plain * 1e3, "ms"});
  report.add({"blocking: stands still", median(blocking.stalls) * 1e3, "ms"});
  report.add({"asynchronous: stands still", median(async.stalls) * 1e3, "ms", kNone,
              std::max(0.5, plain * 10)});  // 0.5 ms or 1 % of a step
  report.add({"blocking: next step", median(blocking.next) / plain, "x"});
  report.add({"asynchronous: next step", median(async.next) / plain, "x", kNone, 1.1});
  if (!async.during.empty())
    report.add({"asynchronous: steps while it writes", median(async.during) / plain, "x", kNone, 1.1});
  if (!bounds.load.empty()) {
    constexpr double kShare = 0.7;
    const auto add_rate = [&](const char* name, const std::vector<double>& seconds, const std::vector<double>& bound,
                              bool has_goal = true) {
      const auto rate = [&](const std::vector<double>& s) { return bytes / median(s) * 1e-9; };
      report.add({name, rate(seconds), "GB/s", rate(bound), has_goal ? kShare * rate(bound) : kNone});
    };
    const bool in_memory = io::is_in_memory(dir);
    add_rate("blocking save; bound: dd", blocking.stalls, bounds.dd_write, !in_memory);
    add_rate("blocking save; bound: checksum and copy", blocking.stalls, bounds.crc_and_copy, in_memory);
    add_rate("load; bound: dd", bounds.load, bounds.dd_read);
  }
  io::remove_all(dir);
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_benchmark(argc, argv, "save", "Times checkpoints and the steps beside them.",
                                    weft::bench::run);
}
