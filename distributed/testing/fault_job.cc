#include "distributed/testing/fault_job.h"

#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "distributed/diagnose/planned.h"
#include "distributed/launch/compile.h"
#include "distributed/launch/job.h"
#include "distributed/launch/processes.h"
#include "distributed/launch/step.h"
#include "distributed/launch/world.h"
#include "distributed/testing/child.h"
#include "framework/base/clock.h"
#include "framework/dispatch/rank/flight.h"
#include "framework/io/file.h"
#include "weft.h"

namespace weft::testing {
namespace {

using std::chrono::milliseconds;

constexpr int kSteps = 5;
constexpr double kTimeout = 8;  // longer than a delay
constexpr milliseconds kLate(3000);

bool of_collective(Kind k) { return k >= Kind::kDrop && k <= Kind::kRetype; }
bool of_start(Kind k) { return k >= Kind::kSeed && k <= Kind::kBatch; }

struct Model : nn::Module {
  nn::Linear up, down;
  Model() : up(16, 48), down(48, 16) { register_module("up", up), register_module("down", down); }
  Tensor loss(const Tensor& x) const { return mse_loss(down(gelu(up(x))), x); }
};

// Cuts this process's connections, except the connection to the coordination service.
void cut_links() {
  std::ifstream file(std::string(std::getenv("JOB_STORE")) + "/service");
  std::string address;
  std::getline(file, address);
  const int service = std::atoi(address.substr(address.rfind(':') + 1).c_str());
  WEFT_CHECK(service > 0, "no address of the coordination service: '", address, "'");
  int cut = 0;
  for (int fd = 3; fd < 256; ++fd) {
    sockaddr_in own{}, other{};
    socklen_t n = sizeof own, m = sizeof other;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &n) != 0 || own.sin_family != AF_INET) continue;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&other), &m) != 0) continue;
    if (ntohs(own.sin_port) == service || ntohs(other.sin_port) == service) continue;
    cut += shutdown(fd, SHUT_RDWR) == 0;
  }
  WEFT_CHECK(cut > 0, "no connection to cut");
}

// Wakes this process when it is stopped.
void wake_after_a_second() {
  std::string shell = "/bin/sh", option = "-c", text = str_cat("sleep 1; kill -CONT ", getpid());
  char* const arguments[] = {shell.data(), option.data(), text.data(), nullptr};
  pid_t pid = 0;
  WEFT_CHECK(posix_spawn(&pid, shell.c_str(), nullptr, nullptr, arguments, environ) == 0, "no shell");
}

class Training {
 public:
  Training(const FaultCase& c, std::string mark) : c_(c), mark_(std::move(mark)) {}

  void run(dist::Job* job) {
    manual_seed(7);
    Model model;
    optim::AdamW optimizer(model.parameters(), {.lr = 1e-3});
    const std::vector<Parameter> parameters = optimizer.parameters(true);
    CompileOptions options{.mesh = dist::Mesh::parse(c_.mesh), .timeout = kTimeout};
    if (c_.mesh.starts_with("dp")) options.plan.zero = 1;
    auto step = dist::compile(
        [&](Tensor x) {
          const Tensor loss = model.loss(x);
          const auto [clipped, norm] = optim::clip_grad_norm(grad(loss, parameters), 1.0);
          commit_if(logical_and(isfinite(loss), isfinite(norm)));
          optimizer.step(clipped);
          return loss;
        },
        options);
    auto evaluation = dist::compile(
        [&](Tensor x) {
          NoGrad guard;
          return model.loss(x);
        },
        options);
    const Tensor x = ones({48, 16});
    for (int k = 0; k < kSteps; ++k) {
      const bool now = k == c_.step;
      if (job) job->progress(k + 1);
      {
        const flight::HostPhase phase(flight::Phase::kLoader);
        if (now && c_.kind == Kind::kLoader && c_.where == Where::kForward) at_host();
      }
      if (k == 0) {
        const flight::HostPhase phase(flight::Phase::kPlan);
        step.prepare(x);
      }
      if (k == 0) step(x);  // compiles the kernels
      if (now && c_.where != Where::kEvaluation && c_.where != Where::kCheckpoint) arm(step.world(), 1);
      step(x);
      {
        const flight::HostPhase phase(flight::Phase::kEvaluation);
        if (k == 0) evaluation(x);
        const bool here = now && c_.where == Where::kEvaluation;
        if (here && c_.kind == Kind::kLoader) {
          const flight::HostPhase loader(flight::Phase::kLoader);
          at_host();
        } else if (here && (of_collective(c_.kind) || c_.ranks == "threads" || c_.pick % 2)) {
          arm(evaluation.world(), 2);
        } else if (here) {
          at_host();
        }
        evaluation(x);
      }
      if (dist::Processes::current()) checkpoint(model, optimizer, now && c_.where == Where::kCheckpoint);
    }
    if (dist::Processes* const all = dist::Processes::current()) all->barrier();
  }

 private:
  bool guilty() const { return dist::is_local(c_.rank); }

  void mark() { io::write_file_atomic(mark_, std::to_string(internal::now_ns())); }

  // Makes this process's fault happen here.
  void happen() {
    mark();
    switch (c_.kind) {
      case Kind::kDelay:
      case Kind::kLoader:
        return std::this_thread::sleep_for(kLate);
      case Kind::kExit:
        std::exit(3);
      case Kind::kThrow:
        return internal::fail(Code::kInternal, "no more data");
      case Kind::kKill:
        kill(getpid(), SIGKILL);
        return;
      case Kind::kPause:
        wake_after_a_second();
        kill(getpid(), SIGSTOP);
        return;
      case Kind::kStop:
        kill(getpid(), SIGSTOP);
        return;
      case Kind::kLink:
        return cut_links();
      default:
        internal::fail(Code::kInternal, "no fault of a process");
    }
  }
  void at_host() {
    if (guilty() && c_.kind != Kind::kNone) happen();
  }

  // Sets the fault to happen at a collective of the next run of the step with this number.
  void arm(dist::World& world, int number) {
    if (!guilty() || c_.kind == Kind::kNone || c_.kind == Kind::kLoader || c_.where == Where::kStart) return;
    const int first = world.local()[0];
    const std::string path = str_cat(flight::folder(), "/", dist::diagnose::planned_name(first, number));
    const dist::diagnose::PlannedStep plan = dist::diagnose::parse_planned(io::read_file(path), path);
    const std::vector<dist::diagnose::PlannedRow>& rows =
        plan.programs[static_cast<size_t>(plan.program_of.at(c_.rank))];
    const bool pair = c_.kind == Kind::kReorder, needs_data = c_.kind == Kind::kResize || c_.kind == Kind::kRetype;
    const auto fits = [&](size_t i) {
      return i < rows.size() && (c_.where == Where::kEvaluation || rows[i].phase == to_string_view(c_.where) ||
                                 (c_.where == Where::kUpdate && rows[i].phase == "commit"));
    };
    std::vector<size_t> places;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (needs_data && rows[i].kind == Collective::kBarrier) continue;
      if (pair ? i + 1 < rows.size() && (fits(i) || fits(i + 1)) : fits(i)) places.push_back(i);
    }
    WEFT_CHECK(!places.empty(), "no collective for the fault ", to_string(c_));
    at_ = places[c_.pick % places.size()];
    position_ = 0;
    world.rank(c_.rank).fault = [this](const std::string& axes, const CommRequest& r) { return started(axes, r); };
  }

  RankContext::Requests started(const std::string& axes, CommRequest r) {
    const size_t p = position_++;
    if (p == at_ + 1 && c_.kind == Kind::kReorder) {
      mark();
      return {{axes, r}, held_};
    }
    if (p != at_) return {{axes, r}};
    switch (c_.kind) {
      case Kind::kReorder:
        held_ = {axes, r};
        return {};
      case Kind::kDrop:
        mark();
        return {};
      case Kind::kExtra: {
        mark();
        CommRequest extra{.kind = Collective::kAllReduce, .site = 4711};
        extra.in = {scratch_, kFloat32, {4}, {1}};
        extra.out = extra.in;
        return {{axes, extra}, {axes, r}};
      }
      case Kind::kResize:
        for (StridedView* v : {&r.in, &r.out}) change(*v, 2, v->dtype);
        mark();
        return {{axes, r}};
      case Kind::kRetype:
        for (StridedView* v : {&r.in, &r.out}) change(*v, 1, v->dtype == kInt32 ? kFloat32 : kInt32);
        mark();
        return {{axes, r}};
      default:
        happen();
        return {{axes, r}};
    }
  }

  // Makes the view refer to other data.
  void change(StridedView& v, int64_t times, DType dtype) {
    if (v.shape.empty()) v.shape = {1};
    for (int64_t& n : v.shape) {
      if (n > 0) n *= std::exchange(times, 1);
    }
    v.strides = contiguous_strides(v.shape);
    v.dtype = dtype;
    WEFT_CHECK(v.numel() * 8 <= static_cast<int64_t>(sizeof scratch_), "a small collective expected");
    v.data = scratch_;
  }

  // Runs the collectives of GatheredCells: one for each cell.
  void checkpoint(const Model& model, const optim::AdamW& optimizer, bool now) {
    const flight::HostPhase phase(flight::Phase::kCheckpoint);
    const dist::GatheredCells whole(model.named_cells()), state(optimizer.named_cells());
    std::vector<std::pair<int64_t, DType>> parts{{64, kFloat32}, {200, kFloat32}, {8, kInt64}, {32, kFloat32}};
    if (now && guilty()) {
      const size_t at = c_.pick % 3;
      if (of_collective(c_.kind)) {
        mark();
      } else {
        happen();
      }
      if (c_.kind == Kind::kDrop) parts.erase(parts.begin() + static_cast<ptrdiff_t>(at));
      if (c_.kind == Kind::kExtra) parts.insert(parts.begin() + static_cast<ptrdiff_t>(at), {24, kFloat32});
      if (c_.kind == Kind::kReorder) std::swap(parts[at], parts[at + 1]);
      if (c_.kind == Kind::kResize) parts[at].first *= 2;
      if (c_.kind == Kind::kRetype) parts[at].second = kInt32;
    }
    for (auto [n, dtype] : parts) dist::Processes::current()->broadcast(0, {scratch_, dtype, {n}, {1}});
  }

  const FaultCase c_;
  const std::string mark_;
  size_t at_ = 0, position_ = 0;
  std::pair<std::string, CommRequest> held_;
  double scratch_[4096] = {};
};

// The fault happens now; a signal comes up to 50 ms later, while the processes join, in half of the cases. The thread
// that sends the signal is joined before the training: a quick training would end before the signal.
std::jthread fail_at_start(const FaultCase& c, const std::string& mark) {
  const auto happen = [c, mark] {
    io::write_file_atomic(mark, std::to_string(internal::now_ns()));
    if (c.kind == Kind::kExit) _exit(3);
    if (c.kind == Kind::kThrow) internal::fail(Code::kInternal, "no more data");
    kill(getpid(), c.kind == Kind::kKill ? SIGKILL : SIGSTOP);
  };
  const bool signal = c.kind == Kind::kKill || c.kind == Kind::kStop;
  if (!signal || c.pick % 2) {
    happen();
    return {};
  }
  return std::jthread([c, happen] {
    std::this_thread::sleep_for(milliseconds(c.pick / 2 % 50));
    happen();
  });
}

}  // namespace

std::string_view to_string_view(Kind kind) {
  constexpr std::string_view k[] = {"none",         "drop",       "extra",    "reorder",     "resize",  "retype",
                                    "delay",        "pause",      "exit",     "throw",       "kill",    "stop",
                                    "loader stall", "other seed", "other lr", "other batch", "cut link"};
  return k[static_cast<int>(kind)];
}
std::string_view to_string_view(Where where) {
  constexpr std::string_view k[] = {"forward", "backward", "update", "checkpoint", "evaluation", "start"};
  return k[static_cast<int>(where)];
}

std::string to_string(const FaultCase& c) {
  return str_cat(static_cast<int>(c.kind), " ", static_cast<int>(c.where), " ", c.ranks, " ", c.mesh, " ", c.rank, " ",
                 c.step, " ", c.pick);
}
FaultCase parse_fault_case(const std::string& text) {
  FaultCase c;
  int kind = 0, where = 0;
  std::istringstream(text) >> kind >> where >> c.ranks >> c.mesh >> c.rank >> c.step >> c.pick;
  WEFT_CHECK(kind < kNumKinds && where < kNumWheres, "a fault expected: ", text);
  c.kind = static_cast<Kind>(kind), c.where = static_cast<Where>(where);
  return c;
}

std::vector<FaultCase> fault_cases() {
  std::vector<FaultCase> all;
  for (const char* ranks : {"threads", "shared", "gloo"})
    for (int k = 1; k < kNumKinds; ++k)
      for (int w = 0; w < kNumWheres; ++w) {
        const auto kind = static_cast<Kind>(k);
        const auto where = static_cast<Where>(w);
        const bool threads = ranks == std::string("threads");
        // These faults need one rank per process: on threads, the fault of one rank would hit all ranks.
        if (threads && !of_collective(kind) && kind != Kind::kDelay && kind != Kind::kThrow) continue;
        if (threads && where == Where::kCheckpoint) continue;  // a checkpoint of threads has no collectives
        if (kind == Kind::kLink && ranks != std::string("gloo")) continue;
        if (kind == Kind::kLoader && where != Where::kForward && where != Where::kEvaluation) continue;
        if (of_start(kind) && where != Where::kForward) continue;
        if (where == Where::kStart && (threads || kind < Kind::kExit || kind > Kind::kStop)) continue;
        all.push_back({.kind = kind, .where = where, .ranks = ranks});
      }
  return all;
}

int run_faulty(const FaultCase& c, const std::string& mark) {
  return run_child([&](std::unique_ptr<dist::Job>& job) {
    if (c.ranks != "threads") {
      const bool guilty = std::to_string(c.rank) == std::getenv("RANK");
      dist::JobOptions o;
      o.ranks = dist::Mesh::parse(c.mesh).size();
      o.facts = {{"--seed", guilty && c.kind == Kind::kSeed ? "8" : "7"},
                 {"--lr", guilty && c.kind == Kind::kLr ? "0.01" : "0.001"},
                 {"--batch_size", guilty && c.kind == Kind::kBatch ? "32" : "16"}};
      const char* const seconds = std::getenv("JOIN_SECONDS");
      o.timeout = std::chrono::seconds(seconds ? std::atoi(seconds) : 60);
      o.transport = c.ranks;
      if (guilty && of_start(c.kind)) io::write_file_atomic(mark, std::to_string(internal::now_ns()));
      std::jthread fault;
      if (guilty && c.where == Where::kStart) fault = fail_at_start(c, mark);
      job = std::make_unique<dist::Job>(o);
    }
    Training(c, mark).run(job.get());
  });
}

}  // namespace weft::testing
