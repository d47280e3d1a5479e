#include "models/train/job.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>
#include <random>

#include "compiler/cost/machine/kept_rates.h"
#include "compiler/cost/machine/rates.h"
#include "distributed/control/group/replica_identity.h"
#include "distributed/launch/host_replicas.h"
#include "distributed/placement/replica.h"
#include "distributed/replica/replica_step.h"
#include "framework/base/switches.h"
#include "framework/base/thread_pool.h"
#include "framework/dispatch/rank/flight.h"
#include "framework/io/checksum.h"
#include "framework/io/file.h"
#include "models/data/dataset.h"
#include "models/train/device.h"
#include "models/train/memory.h"
#include "models/weights/load.h"

namespace weft::train {

// Whether the values of a flag may differ between processes: flags of files that only the first process writes, and
// --restarts, which no rank has.
static bool may_differ(const std::string& flag) {
  for (const char* name : {"metrics", "log_dir", "profile_out", "save_plan", "show_plan", "restarts"})
    if (flag == name) return true;
  return false;
}

// The identity of --data. Unreadable data is an error later, with the message of the reader.
static std::string identity_of(const std::string& data) {
  try {
    return data::data_identity(data == "synthetic" ? data : io::resolve_path(data));
  } catch (const Error& e) {
    return e.what();
  }
}

// The identity of the weights that a run starts from: the first bytes and the sizes of their files. Each process reads
// the shards of its own ranks, so nothing else would notice that hosts have other weights under one path.
static std::string identity_of_weights(const TrainOptions& o) {
  try {
    const std::string path = o.hf.empty() ? find_checkpoint(io::resolve_path(o.init_from)) : weights::find_hf(o.hf);
    if (!io::is_folder(path)) return str_cat(io::file_size(path), " bytes, ", config_hash(path));
    std::string all;
    for (const std::string& name : io::list_folder(path))
      if (name.ends_with(".safetensors") || name == "config.json")
        all += str_cat(name, " ", io::file_size(path + "/" + name), " ", config_hash(path + "/" + name), "\n");
    return io::hex64(io::checksum(all));
  } catch (const Error& e) {
    return e.what();
  }
}

void measure_before_ranks(const TrainOptions& o) {
  const bool starts = o.ranks == "processes" && o.step.mesh.size() > 1 && o.replay.empty() && !dist::started();
  if (!starts || o.metrics.empty() || !internal::keeps_rates()) return;
  if (parse_device(o.device).type != DeviceType::kCpu || !switch_value("WEFT_MACHINE").empty()) return;
  const std::optional<internal::KeptRates> kept = internal::kept_rates(threads_alone());
  if (kept && !kept->disturbed) return;
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      set_num_threads(threads_alone());
      rates_of(Device::cpu());
    } catch (const std::exception&) {  // the run goes on without mfu
    }
    _exit(0);
  }
  while (child > 0 && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

double rate_of_products(Device device, DType dtype, bool at_once) {
  const flight::HostPhase phase(flight::Phase::kPlan);
  const bool alone = !dist::Processes::current();
  std::optional<Machine> rates;
  if (at_once || !alone) rates = known_rates(device);
  if (!rates && alone) rates = rates_of(device);
  return rates ? rates->products_of(dtype) : 0;
}

void announce_mfu(double flops_per_token, double rate) {
  if (rate == 0) {
    std::printf(
        "--metrics will lack mfu: the rates of this machine are not known; %s\n",
        internal::keeps_rates()
            ? "//tools:doctor -- --measure, or a run of one process, keeps them beside the kernel cache"
            : "need WEFT_CACHE with a folder that keeps them, or WEFT_MACHINE with a file of doctor --measure --out");
    return;
  }
  std::printf(
      "mfu counts model FLOPs (3 x the products of the forward pass), not the work that kernels do: %.3f MFLOP "
      "for each token, of %.1f GFLOP/s\n",
      flops_per_token * 1e-6, rate * 1e-9);
}

std::unique_ptr<dist::Job> make_job(const TrainOptions& o, const std::string& dir) {
  const bool is_replica = control::replica_identity().has_value();
  const int ranks = dist::ranks_of_job(o.step.mesh);
  const bool processes = o.ranks == "processes" && o.replay.empty();
  const auto started = dist::started();
  if (started && o.restarts != 0)
    usage_error(str_cat("--restarts: got ", o.restarts, "; drop --restarts: ", started->text,
                        " and restarts the job itself; pass --resume"));
  if (started && started->processes > 1) {
    check_flag("replay", o.replay.empty(), o.replay, str_cat("one process: ", started->text));
    check_flag("mesh", ranks > 1, "none", str_cat("a mesh with a rank for each process: ", started->text));
    check_flag("ranks", processes, str_cat("'", o.ranks, "'"), str_cat("processes: ", started->text));
    check_flag("mesh", ranks % started->processes == 0,
               str_cat(o.step.mesh.to_string(), ", which has ", ranks, " ranks"),
               str_cat("a multiple of ", started->processes, " ranks: ", started->text));
  }
  dist::JobOptions job;
  job.ranks = processes ? ranks : 1;
  TrainOptions copy = o;
  for (const Flag& flag : train_flags(copy))
    if (flag.name.starts_with("outer_"))  // in the fact of --diloco, the flag before them: facts are few
      job.facts.back().second += str_cat(" --", flag.name, " ", flag_text(flag));
    else if (!may_differ(flag.name))
      job.facts.emplace_back("--" + flag.name, flag_text(flag));
  // Hosts may have other files under one path. A process that only starts the others does not read them.
  if (processes && ranks > 1 && dist::started()) {
    job.facts.emplace_back("the content of --data", identity_of(o.data));
    if (!o.tokenizer.empty()) job.facts.emplace_back("the content of --tokenizer", identity_of(o.tokenizer));
    if (!o.hf.empty() || !o.init_from.empty())
      job.facts.emplace_back(str_cat("the weights of --", source_flag(o)), identity_of_weights(o));
  }
  job.timeout = std::chrono::nanoseconds(static_cast<int64_t>(o.step.timeout * 1e9));
  job.transport = o.transport;
  job.share_cores = switch_int("WEFT_THREADS") == 0;
  if (o.restarts > 0)
    job.restarts = {.most = o.restarts,
                    .committed =
                        [dir, in = o.memory_dir](const std::string& held) {
                          return std::max(newest_step(dir), newest_step(memory_folder(in.empty() ? held : in, dir)));
                        },
                    .names_step = !is_replica,  // other replicas may have a newer state
                    .arguments = {"--restarts=0", "--checkpoint_dir=" + dir},
                    .resume = {"--resume"}};
  // The other replicas may save a checkpoint before this one starts.
  if (is_replica && o.restarts > 0) job.restarts.arguments.push_back("--resume");
  if (!o.checkpoint_dir.empty()) job.keep = io::resolve_path(o.checkpoint_dir);
  return std::make_unique<dist::Job>(job);
}

std::optional<int> run_replicas(const TrainOptions& o, const Setup& setup) {
  if (!starts_replicas(o) || dist::started()) return {};
  const std::string journal = setup.dir + ".journal";
  io::make_folders(io::folder_of(journal));
  return dist::start_replicas({.count = dist::replica_count(o.step.mesh),
                               .journal = journal,
                               .is_new = setup.resumed.empty(),  // the folder of an earlier run was removed
                               .name = program_invocation_short_name});
}

std::string unseen_path(const std::string& dir) {
  std::random_device random;
  return str_cat(dir, "/.seen-", io::hex64(uint64_t{random()} << 32 | random()));
}

void check_shared(const std::string& dir) {
  dist::Processes* const job = dist::Processes::current();
  if (!job) return;
  const std::string what = "looking for --checkpoint_dir";
  std::optional<io::AtomicFile> made;  // never committed, so its destructor removes it
  const auto make = [&] {
    if (job->process() != 0) return std::string();
    return made.emplace(unseen_path(dir)).temporary();
  };
  const std::string path = job->on_all(what, make)[0];
  job->on_all(what, [&] {
    char host[256] = "unknown";
    ::gethostname(host, sizeof host - 1);
    WEFT_CHECK_AS(kFailedPrecondition, io::exists(path), "--checkpoint_dir: rank ", job->first(), " (host ", host,
                  ") does not see a file that rank 0 has made in '", io::folder_of(path),
                  "'; need one folder for all processes: the whole path of a folder that all hosts share");
    return std::string();
  });
}

}  // namespace weft::train
