#include "distributed/control/identity.h"

#include <algorithm>
#include <charconv>

#include "distributed/control/address.h"
#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/base/parse_number.h"

extern char** environ;

namespace weft::control {
namespace {

constexpr int64_t kMostRanks = 1 << 20;
constexpr int kDefaultPort = 29500;  // torchrun's default
// Ports for numbered jobs: below the ports that the kernel gives to outgoing connections.
constexpr int kFirstPort = 20000, kPorts = 9000;

bool in_host_name(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_';
}

class VariableReader {
 public:
  VariableReader(const Environment& variables, std::string source) : all_(variables), source_(std::move(source)) {}

  bool has(const char* name) const { return all_.count(name) != 0; }
  std::string text(const char* name) const { return all_.at(name); }
  std::string shown(const char* name) const {
    return has(name) ? str_cat(name, "=", one_line(text(name), 60)) : str_cat(name, " not set");
  }

  /// The number in a variable. The variable `with` is set and requires this variable.
  int64_t number(const char* name, const char* with, int64_t least, int64_t most) const {
    WEFT_CHECK(has(name), "identity: ", shown(with), " and ", name, " is not set; ", source_,
               " sets both; need both or none of them");
    return number(name, least, most);
  }
  int64_t number(const char* name, int64_t least, int64_t most) const {
    const std::string& t = all_.at(name);
    const std::optional<int64_t> n = parse_number(t, least, most);
    WEFT_CHECK(n, "identity: ", shown(name), " (", source_, "); need a whole number from ", least, " to ", most);
    return *n;
  }

  void less(const char* name, int64_t n, const char* of, int64_t limit) const {
    WEFT_CHECK(n < limit, "identity: ", shown(name), " and ", shown(of), " (", source_,
               ") contradict each other; need a rank below the number of ranks");
  }
  void equal(const char* a, const char* b) const {
    if (!has(a) || !has(b)) return;
    WEFT_CHECK(number(a, 0, kMostRanks) == number(b, 0, kMostRanks), "identity: ", shown(a), " and ", shown(b),
               " contradict each other; need equal numbers, or one of them unset");
  }

  /// MASTER_ADDR; "" if it is not set.
  std::string master() const {
    if (!has("MASTER_ADDR")) return "";
    const std::string host = text("MASTER_ADDR");
    const bool ok = !host.empty() && host.size() < 256 &&
                    std::all_of(host.begin(), host.end(), [](char c) { return in_host_name(c) || c == ':'; });
    WEFT_CHECK(ok, "identity: ", shown("MASTER_ADDR"), " (", source_, "); need the name or address of a host");
    return host;
  }
  int port(int fallback) const {
    return has("MASTER_PORT") ? static_cast<int>(number("MASTER_PORT", 1, 65535)) : fallback;
  }

 private:
  const Environment& all_;
  std::string source_;
};

int port_of(const std::string& job) {
  uint64_t h = 1469598103934665603u;  // FNV-1a: equal on all ranks
  for (const char c : job) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return kFirstPort + static_cast<int>(h % kPorts);
}

/// Reads rank and size, in the world and on this host.
void read_ranks(const VariableReader& r, Identity& id, const char* rank, const char* size, const char* local,
                const char* locals) {
  id.rank = r.number(rank, size, 0, kMostRanks);
  id.world = r.number(size, rank, 1, kMostRanks);
  r.less(rank, id.rank, size, id.world);
  id.local_world = id.world == 1 ? 1 : 0;
  if (r.has(locals)) {
    id.local_world = r.number(locals, 1, kMostRanks);
    r.less(locals, id.local_world - 1, size, id.world);
  }
  if (!r.has(local)) {
    WEFT_CHECK(!r.has(locals), "identity: ", r.shown(locals), " and ", local, " is not set; need both or none of them");
    return;
  }
  id.local_rank = r.number(local, 0, kMostRanks);
  r.less(local, id.local_rank, size, id.world);
  if (id.local_world != 0) r.less(local, id.local_rank, id.world == 1 ? size : locals, id.local_world);
}

/// If the service listens on this host alone, all ranks are on it.
void take_loopback_as_one_host(Identity& id) {
  const bool loopback = id.host == "localhost" || id.host == "::1" || id.host.starts_with("127.");
  if (id.local_world != 0 || !loopback) return;
  id.local_world = id.world;
  id.local_rank = id.rank;
}

Identity from_torchrun(const Environment& v) {
  Identity id{.source = "torchrun"};
  const VariableReader r(v, "torchrun");
  read_ranks(r, id, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  id.host = r.master();
  if (id.world > 1) {
    WEFT_CHECK(!id.host.empty(), "identity: ", r.shown("RANK"), ", ", r.shown("WORLD_SIZE"),
               " and MASTER_ADDR is not set; need the host of rank 0 in MASTER_ADDR, and MASTER_PORT");
    r.number("MASTER_PORT", "MASTER_ADDR", 1, 65535);
  }
  if (id.host.empty()) id.host = "127.0.0.1";
  take_loopback_as_one_host(id);
  id.port = r.port(kDefaultPort);
  if (r.has("TORCHELASTIC_RUN_ID")) {
    id.job = str_cat(r.text("TORCHELASTIC_RUN_ID"), ".", id.port);
    if (r.has("TORCHELASTIC_RESTART_COUNT")) id.job += "." + r.text("TORCHELASTIC_RESTART_COUNT");
    // torchrun's own store listens on MASTER_PORT then.
    if (r.has("TORCHELASTIC_USE_AGENT_STORE") && r.text("TORCHELASTIC_USE_AGENT_STORE") == "True")
      id.port = port_of(id.job);
  }
  return id;
}

Identity from_mpirun(const Environment& v) {
  Identity id{.source = "mpirun"};
  const VariableReader r(v, "mpirun");
  const bool pmix = r.has("PMIX_RANK") && !r.has("OMPI_COMM_WORLD_RANK");
  const char* rank = pmix ? "PMIX_RANK" : "OMPI_COMM_WORLD_RANK";
  r.equal("PMIX_RANK", "OMPI_COMM_WORLD_RANK");
  read_ranks(r, id, rank, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  id.host = r.master();
  if (id.host.empty()) {
    WEFT_CHECK(id.local_world == id.world, "identity: ", r.shown(rank), ", ", r.shown("OMPI_COMM_WORLD_SIZE"), ", ",
               r.shown("OMPI_COMM_WORLD_LOCAL_SIZE"),
               " and MASTER_ADDR is not set; need the host of rank 0 in MASTER_ADDR: mpirun -x MASTER_ADDR=HOST");
    id.host = "127.0.0.1";
  }
  // Two jobs on one host need two ports; all ranks of a job have the name space of the job.
  if (r.has("PMIX_NAMESPACE")) id.job = r.text("PMIX_NAMESPACE");
  id.port = r.port(r.has("PMIX_NAMESPACE") ? port_of(id.job) : kDefaultPort);
  return id;
}

Identity from_mpiexec(const Environment& v) {
  Identity id{.source = "mpiexec"};
  const VariableReader r(v, "mpiexec of MPICH or Intel MPI");
  read_ranks(r, id, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  id.host = r.master();
  if (id.host.empty() && id.one_host()) id.host = "127.0.0.1";
  WEFT_CHECK(
      !id.host.empty(), "identity: ", r.shown("PMI_RANK"), ", ", r.shown("PMI_SIZE"), ", ", r.shown("MPI_LOCALNRANKS"),
      ": the processes are, or may be, on several hosts; need MASTER_ADDR, the host of rank 0, and JOB_TOKEN, one "
      "secret text, on all of them: mpiexec -genv MASTER_ADDR HOST -genv JOB_TOKEN TEXT; on one host, MASTER_ADDR "
      "may be 127.0.0.1");
  take_loopback_as_one_host(id);
  id.port = r.port(kDefaultPort);
  return id;
}

/// Refuses starters whose variables give no world: each process would start a job of its own.
void refuse_other_starters(const Environment& v) {
  constexpr const char* kOthers[][3] = {{"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                                        {"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
                                        {"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"}};
  const VariableReader r(v, "");
  for (const auto& [name, rank, size] : kOthers)
    WEFT_CHECK(
        !r.has(rank) || !r.has(size) || r.text(size) == "1", "identity: ", r.shown(rank), ", ", r.shown(size),
        ": the variables of ", name,
        " are not read; need RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT in each "
        "process, as torchrun sets them");
}

/// The tasks of node number `node` in a list such as "2(x3),1". The variable `name` has the list.
int64_t tasks_of_node(const std::string& name, const std::string& list, int64_t node) {
  const auto need = [&](bool ok, const std::string& what) {
    WEFT_CHECK(ok, "identity: ", name, "=", one_line(list, 200), what, "; need tasks per node, such as 2(x3),1");
  };
  const auto number = [&](const char*& at, const char* end) {
    int64_t n = 0;
    const auto [next, error] = std::from_chars(at, end, n);
    need(error == std::errc() && n >= 1 && n <= kMostRanks, " is no list of tasks");
    at = next;
    return n;
  };
  int64_t found = 0, nodes = 0;
  for (size_t i = 0; i <= list.size();) {  // the whole list is checked
    const size_t comma = std::min(list.find(',', i), list.size());
    const char *at = list.data() + i, *const end = list.data() + comma;
    const int64_t tasks = number(at, end);
    int64_t times = 1;
    if (std::string_view(at, static_cast<size_t>(end - at)).starts_with("(x")) {
      times = number(at += 2, end);
      need(at < end && *at++ == ')', " is no list of tasks");
    }
    need(at == end, " is no list of tasks");
    if (node >= nodes && node < nodes + times) found = tasks;
    nodes += times;
    i = comma + 1;
  }
  need(found > 0, str_cat(" has ", nodes, nodes == 1 ? " node" : " nodes", ", and SLURM_NODEID=", node));
  return found;
}

Identity from_slurm(const Environment& v) {
  Identity id{.source = "Slurm"};
  const VariableReader r(v, "Slurm");
  const char* size = r.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  read_ranks(r, id, "SLURM_PROCID", size, "SLURM_LOCALID", "");
  r.equal("WORLD_SIZE", size);
  r.equal("PMIX_RANK", "SLURM_PROCID");
  const bool step = r.has("SLURM_STEP_ID") || r.has("SLURM_STEP_NODELIST");
  WEFT_CHECK(
      step || id.world == 1, "identity: ", r.shown("SLURM_PROCID"), ", ", r.shown(size),
      " and neither SLURM_STEP_ID nor SLURM_STEP_NODELIST is set: this is the batch script, not one of its tasks; "
      "need srun before the program");
  const char* tasks = r.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  if (id.world > 1 && r.has(tasks) && r.has("SLURM_NODEID"))
    id.local_world = tasks_of_node(tasks, r.text(tasks), r.number("SLURM_NODEID", 0, kMostRanks));
  if (id.local_world > id.world || id.local_rank >= id.local_world) id.local_world = id.world == 1 ? 1 : 0;
  id.host = r.master();
  const char* nodes = r.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_NODELIST";
  if (!r.has(nodes)) nodes = "SLURM_JOB_NODELIST";
  if (id.host.empty() && id.world == 1) id.host = "127.0.0.1";
  if (id.host.empty()) {
    WEFT_CHECK(r.has(nodes), "identity: ", r.shown("SLURM_PROCID"), ", ", r.shown(size),
               " and neither SLURM_STEP_NODELIST nor MASTER_ADDR is set; need one of them");
    try {
      id.host = first_host(r.text(nodes));
    } catch (const Error& e) {
      WEFT_CHECK(false, "identity: ", nodes, ": ", e.what());
    }
  }
  if (r.has("SLURM_JOB_ID"))
    id.job = str_cat(r.text("SLURM_JOB_ID"), ".", r.has("SLURM_STEP_ID") ? r.text("SLURM_STEP_ID") : "");
  id.port = r.port(r.has("SLURM_JOB_ID") ? port_of(id.job) : kDefaultPort);
  return id;
}

Identity from_kubernetes(const Environment& v) {
  Identity id{.source = "Kubernetes"};
  const VariableReader r(v, "a Kubernetes indexed job with WORLD_SIZE in its pod");
  read_ranks(r, id, "JOB_COMPLETION_INDEX", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  if (!r.has("LOCAL_RANK")) id.local_world = 1;
  id.host = r.master();
  WEFT_CHECK(!id.host.empty() || id.world == 1, "identity: ", r.shown("JOB_COMPLETION_INDEX"), ", ",
             r.shown("WORLD_SIZE"), " and MASTER_ADDR is not set; need the host of index 0: JOB-0.SERVICE");
  if (id.host.empty()) id.host = "127.0.0.1";
  id.port = r.port(kDefaultPort);
  return id;
}

Identity from_launch(const Environment& v) {
  Identity id{.source = "launch"};
  const VariableReader r(v, "launch");
  read_ranks(r, id, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  id.store = r.text("JOB_STORE");
  id.host = "127.0.0.1";
  return id;
}

}  // namespace

std::string first_host(const std::string& list) {
  const auto bad = [&] {
    WEFT_CHECK(false, "'", one_line(list, 200), "' is no list of hosts; need a list such as node[1-3,7],login");
  };
  std::string out;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (in_host_name(list[i])) {
      out += list[i];
      continue;
    }
    const size_t end = list.find(']', i);
    if (list[i] != '[' || end == list.npos) bad();
    size_t digits = i + 1;
    while (list[digits] >= '0' && list[digits] <= '9') ++digits;
    for (size_t k = i + 1; k < end; ++k)
      if (!(list[k] >= '0' && list[k] <= '9') && list[k] != '-' && list[k] != ',') bad();
    if (digits == i + 1) bad();
    out += list.substr(i + 1, digits - i - 1);
    i = end;
  }
  if (out.empty() || out.size() > 255) bad();
  return out;
}

Environment environment() {
  Environment out;
  for (char** at = environ; at && *at; ++at) {
    const std::string_view entry = *at;
    const size_t equals = entry.find('=');
    if (equals != entry.npos) out.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return out;
}

Identity identity_of(const Environment& v) {
  const auto has = [&](const char* name) { return v.count(name) != 0; };
  if (has("JOB_STORE")) return from_launch(v);
  if (has("RANK")) return from_torchrun(v);
  if (has("OMPI_COMM_WORLD_RANK") || has("OMPI_COMM_WORLD_SIZE")) return from_mpirun(v);
  // Hydra starts processes of several tasks of Slurm; srun --mpi=pmi2 sets PMI_RANK as well.
  if (has("PMI_RANK") && (has("MPI_LOCALNRANKS") || !has("SLURM_PROCID"))) return from_mpiexec(v);
  if (has("SLURM_PROCID")) return from_slurm(v);
  if (has("PMIX_RANK")) return from_mpirun(v);
  if (has("JOB_COMPLETION_INDEX")) return from_kubernetes(v);
  for (const char* name : {"WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"})
    WEFT_CHECK(!has(name), "identity: ", name, "=", one_line(v.at(name), 60),
               " and RANK is not set; torchrun sets both; need both or none of them");
  refuse_other_starters(v);
  return {.host = "127.0.0.1", .source = "none"};
}

}  // namespace weft::control
