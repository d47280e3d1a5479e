// Threads play the processes of a job: each has cells of its own. distributed/testing/processes_test.cc saves from real
// processes.
#include "models/save/in_parts.h"

#include <unistd.h>

#include <barrier>
#include <cstring>
#include <numeric>
#include <thread>

#include "framework/base/testing/error_of.h"
#include "framework/dispatch/rank/first_process.h"
#include "framework/dispatch/state/stored_value.h"
#include "framework/io/file.h"
#include "framework/io/safetensors.h"
#include "models/nn/layers/linear.h"
#include "models/save/async.h"
#include "models/save/save.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::error_of;
using testing::expect_has;

class ThreadJob;

class Member final : public internal::JobProcesses {
 public:
  Member(ThreadJob& job, int number) : job_(job), number_(number) {}
  int process() const override { return number_; }
  const std::vector<int>& hosts() const override;
  void on_first(const std::string& what, const std::function<void()>& fn) override {
    on_all(what, [&] {
      if (number_ == 0) fn();
      return std::string();
    });
  }
  std::vector<std::string> on_all(const std::string& what, const std::function<std::string()>& fn) override;
  bool any(const std::string& what, bool mine) override {
    const auto all = on_all(what, [&] { return std::string(mine, 'x'); });
    return std::any_of(all.begin(), all.end(), [](const std::string& text) { return !text.empty(); });
  }
  void check_equal(const std::string& what, const Facts& mine, const std::string& need) override;

 private:
  ThreadJob& job_;
  const int number_;
};

thread_local Member* me = nullptr;

class ThreadJob {
 public:
  explicit ThreadJob(int size)
      : results(static_cast<size_t>(size)), errors(results.size()), meet(size), hosts(results.size()) {
    internal::set_job_processes([]() -> internal::JobProcesses* { return me; });
  }
  ~ThreadJob() { internal::set_job_processes(nullptr); }
  // Calls fn in each process; returns its errors, by process.
  std::vector<std::string> run(const std::function<void(int)>& fn) {
    std::vector<std::string> texts(results.size());
    std::vector<std::thread> threads;
    for (size_t p = 0; p < texts.size(); ++p)
      threads.emplace_back([&, p] {
        Member member(*this, static_cast<int>(p));
        me = &member;
        texts[p] = error_of([&] { fn(static_cast<int>(p)); });
      });
    for (std::thread& t : threads) t.join();
    return texts;
  }

  std::vector<std::string> results, errors;
  std::barrier<> meet;
  std::vector<int> hosts;
};

const std::vector<int>& Member::hosts() const { return job_.hosts; }

std::vector<std::string> Member::on_all(const std::string&, const std::function<std::string()>& fn) {
  const auto p = static_cast<size_t>(number_);
  job_.errors[p] = error_of([&] { job_.results[p] = fn(); });
  job_.meet.arrive_and_wait();
  const std::vector<std::string> results = job_.results, errors = job_.errors;
  job_.meet.arrive_and_wait();
  for (const std::string& e : errors)
    if (!e.empty()) throw Error(Code::kInternal, e);
  return results;
}

void Member::check_equal(const std::string& what, const Facts& mine, const std::string& need) {
  std::string text;
  for (const auto& [name, value] : mine) text += str_cat(name, " is ", value, "\n");
  for (const std::string& other : on_all(what, [&] { return text; }))
    if (other != text) throw Error(Code::kFailedPrecondition, "different: need " + need);
}

// Rows of a value in this process, as a mesh with fsdp stores them.
struct Rows final : PartedValue {
  Tensor gather(const Cell&) override { internal::fail(Code::kInternal, "the whole value in one process"); }
  std::optional<Own> own_parts(const Cell&, double, bool) const override { return own; }
  Own own{"rows", {}};
};

// A cell of process p of n with its rows of `whole`.
Parameter sharded(const Tensor& whole, int p, int n) {
  const Parameter cell(whole.type(), [type = whole.type()] { return zeros(type.shape, {.dtype = type.dtype}); });
  auto rows = make_ref<Rows>();
  const int64_t begin = p * whole.size(0) / n, end = (p + 1) * whole.size(0) / n;
  TensorPart part = TensorPart::all(whole.shape());
  part.dims[0].clear();
  add_range(part.dims[0], begin, end);
  rows->own.parts.push_back({part, slice(whole, 0, begin, end).contiguous()});
  internal::set_remote(cell.cell(), rows);
  return cell;
}

// A cell of process p that process `owner` saves as a whole.
Parameter whole_in(int owner, const Tensor& whole, int p) {
  const Parameter cell(whole.type(), [type = whole.type()] { return zeros(type.shape, {.dtype = type.dtype}); });
  auto rows = make_ref<Rows>();
  if (p == owner) rows->own.parts.push_back({TensorPart::all(whole.shape()), whole});
  internal::set_remote(cell.cell(), rows);
  return cell;
}

using Cells = std::vector<std::pair<std::string, CellHandle>>;

void save_cells(const Cells& cells, const std::string& path) {
  auto file = std::make_unique<SaveInParts>("save", "save: ");
  file->add(path, cells, {{"format", "pt"}});
  save_now(std::move(file), [] { return std::string(); });
}

class InParts : public ::testing::Test {
 protected:
  void SetUp() override {
    io::remove_all(folder_);
    io::make_folders(folder_);
    save_cells({{"old", Buffer(ones({3}))}}, path_);
    old_ = io::read_file(path_);
  }
  // All processes have an error with this text, and the folder is as before.
  void expect_failure(const std::vector<std::string>& errors, const std::string& text) {
    for (const std::string& e : errors) expect_has(e, text);
    EXPECT_EQ(io::read_file(path_), old_);
    EXPECT_EQ(io::list_folder(folder_).size(), 1u);
  }
  const std::string folder_ = ::testing::TempDir() + "/in_parts", path_ = folder_ + "/m.safetensors";
  std::string old_;
};

TEST_F(InParts, ManyProcessesWriteTheBytesOfOne) {
  constexpr int64_t kRow = (1 << 20) + 5;  // a process ends within a block of 4 MiB
  const Tensor w = arange(7 * 300).to(kFloat32).reshape({7, 300}), m = ones({9, 2, 5}, {.dtype = kBFloat16}),
               large = arange(kRow * 3).to(kFloat32).reshape({3, kRow}), step = full({}, 4, {.dtype = kInt64}),
               empty = zeros({0, 3});
  save_cells({{"w", Buffer(w)},
              {"step", Buffer(step)},
              {"m", Buffer(m)},
              {"large", Buffer(large)},
              {"empty", Buffer(empty)},
              {"scalar", Buffer(step)}},
             path_);
  const std::string want = io::read_file(path_);
  for (int n = 1; n <= 4; ++n) {
    ThreadJob job(n);
    if (n == 3) job.hosts = {0, 1, 2};
    const auto errors = job.run([&](int p) {
      // A value that is not sharded is the first process's.
      const Tensor own_step = p == 0 ? step : zeros({}, {.dtype = kInt64});
      save_cells({{"w", sharded(w, p, n)},
                  {"step", Buffer(own_step)},
                  {"m", sharded(m, p, n)},
                  {"large", sharded(large, p, n)},
                  {"empty", sharded(empty, p, n)},
                  {"scalar", whole_in(n - 1, step, p)}},
                 path_);
    });
    EXPECT_EQ(errors, std::vector<std::string>(static_cast<size_t>(n)));
    EXPECT_TRUE(io::read_file(path_) == want) << n << " processes";
    EXPECT_EQ(io::list_folder(folder_).size(), 1u);
  }
}

TEST_F(InParts, ProcessesWithDifferentTensorsAreRefused) {
  const auto with_others = [&](const Cells& others) {
    return ThreadJob(2).run([&](int p) { save_cells(p ? others : Cells{{"w", sharded(ones({4, 2}), 0, 2)}}, path_); });
  };
  const std::string need =
      "different: need the same tensors and metadata, with the same types and placement, in all processes";
  expect_failure(with_others({{"v", sharded(ones({4, 2}), 1, 2)}}), need);
  expect_failure(with_others({{"w", sharded(ones({4, 2}, {.dtype = kInt32}), 1, 2)}}), need);
  expect_failure(with_others({{"w", sharded(ones({2, 4}), 1, 2)}}), need);
  expect_failure(with_others({{"w", Buffer(ones({4, 2}))}}), need);
  expect_failure(with_others({{"w", sharded(ones({4, 2}), 1, 2)}, {"v", Buffer(ones({1}))}}), need);
}

TEST_F(InParts, SeveralFilesAndTheirIndexAreThoseOfOneProcess) {
  const Tensor a = arange(90).to(kFloat32).reshape({9, 10}), b = arange(60).reshape({6, 10}), c = ones({5, 2});
  const auto files_of = [&](int n, bool one_host) {
    const std::string folder = str_cat(folder_, "/", n, one_host ? "" : "hosts");
    io::make_folders(folder);
    ThreadJob job(n);
    if (!one_host) std::iota(job.hosts.begin(), job.hosts.end(), 0);
    const auto errors = job.run([&](int p) {
      auto files = std::make_unique<SaveInParts>("save", "save: ");
      files->add("m.safetensors", Cells{{"a", sharded(a, p, n)}, {"b", sharded(b, p, n)}, {"c", sharded(c, p, n)}},
                 {{"format", "pt"}}, 400);
      files->add("more.safetensors", Cells{{"c", sharded(c, p, n)}});
      save_now(std::move(files), [&] { return folder; });
    });
    EXPECT_EQ(errors, std::vector<std::string>(static_cast<size_t>(n)));
    std::map<std::string, std::string> texts;
    for (const std::string& name : io::list_folder(folder)) texts[name] = io::read_file(folder + "/" + name);
    return texts;
  };
  const auto want = files_of(1, true);
  EXPECT_EQ(want.size(), 5u);  // three files, their index, and one more file
  EXPECT_TRUE(want.contains("m.safetensors.index.json"));
  EXPECT_EQ(load(folder_ + "/1/m.safetensors.index.json").at("b").to_vector<int64_t>(), b.to_vector<int64_t>());
  for (const int n : {2, 3})
    for (const bool one_host : {false, true}) EXPECT_TRUE(files_of(n, one_host) == want) << n << " " << one_host;
}

// The processes of each host write the files of one process in a folder of the host.
TEST_F(InParts, EachHostHasTheFiles) {
  const Tensor w = arange(7 * 300).to(kFloat32).reshape({7, 300}), step = full({}, 4, {.dtype = kInt64});
  save_cells({{"w", Buffer(w)}, {"step", Buffer(step)}}, path_);
  const std::string want = io::read_file(path_);
  ThreadJob job(4);
  job.hosts = {0, 1, 0, 1};
  const auto save = [&](int p) {
    auto file = std::make_unique<SaveInParts>("save", "save: ", SaveInParts::Folders::kEachHost);
    file->add("m.safetensors", Cells{{"w", sharded(w, p / 2, 2)}, {"step", Buffer(step)}}, {{"format", "pt"}});
    save_now(std::move(file), [&] {
      io::make_folders(str_cat(folder_, "/", p));
      return str_cat(folder_, "/", p);
    });
  };
  EXPECT_EQ(job.run(save), std::vector<std::string>(4));
  EXPECT_EQ(io::list_folder(folder_), (std::vector<std::string>{"0", "1", "m.safetensors"}));
  for (const char* host : {"/0", "/1"}) EXPECT_TRUE(io::read_file(folder_ + host + "/m.safetensors") == want) << host;
}

// They would write to other places of the file.
TEST_F(InParts, ProcessesWithDifferentLayoutsAreRefused) {
  const auto with = [&](const std::function<void(SaveInParts&, const Cells&, bool other)>& add) {
    return ThreadJob(2).run([&](int p) {
      auto file = std::make_unique<SaveInParts>("save", "save: ");
      add(*file, {{"w", sharded(ones({4, 2}), p, 2)}, {"v", sharded(ones({4, 2}), p, 2)}}, p == 1);
      save_now(std::move(file), [] { return std::string(); });
    });
  };
  const std::string need = "different: need the same tensors and metadata";
  expect_failure(with([&](SaveInParts& file, const Cells& cells, bool other) {
                   file.add(path_, cells, {{"format", other ? "pt, and more" : "pt"}});
                 }),
                 need);
  expect_failure(
      with([&](SaveInParts& file, const Cells& cells, bool other) { file.add(path_, cells, {}, other ? 40 : 400); }),
      need);
  expect_failure(with([&](SaveInParts& file, const Cells& cells, bool other) {
                   file.add(path_, cells);
                   if (other) file.add(folder_ + "/more.safetensors", Cells{});
                 }),
                 need);
}

TEST_F(InParts, AnErrorOfOneProcessIsTheErrorOfAll) {
  const auto save_with = [&](const std::function<void(Rows&, Cell&)>& change, const std::string& path) {
    return ThreadJob(3).run([&](int p) {
      const Parameter w = sharded(ones({6, 2}), p, 3);
      w.set_name("w");
      if (p == 1) change(static_cast<Rows&>(*w.cell().remote), w.cell());
      save_cells({{"w", w}}, path);
    });
  };
  // Before the first byte, while bytes are written, and after the last byte.
  expect_failure(save_with([](Rows&, Cell& c) { c.torn = true; }, path_),
                 "save: cell 'w' was torn by a step that failed half-way; load a checkpoint first");
  expect_failure(save_with(
                     [](Rows& rows, Cell&) {
                       rows.own.parts[0].value = ones({2, 3});
                     },
                     path_),
                 "the part of 'w' to save is f32[2, 3]");
  expect_failure(save_with(
                     [](Rows& rows, Cell&) {
                       rows.own.parts[0].value = ones({2, 2}, {.dtype = kBool});
                     },
                     path_),
                 "the part of 'w' to save is bool[2, 2]");
  expect_failure(save_with([](Rows& rows, Cell&) { rows.own.parts.push_back(rows.own.parts[0]); }, path_),
                 "pieces of a tensor overlap");
  expect_failure(save_with([](Rows& rows, Cell&) { rows.own.parts.clear(); }, path_),
                 "m.safetensors: the processes have written -16 bytes more than the tensors have");
  expect_failure(save_with([](Rows&, Cell&) {}, folder_ + "/none/m.safetensors"), "No such file or directory");
}

// A disk that is slow in one process, an error of one process, and processes that end early: all agree.
TEST_F(InParts, AsynchronousSavesAreThoseOfAllProcesses) {
  const Tensor w = arange(70).to(kFloat32).reshape({7, 10});
  const auto save_w = [&](int p, int n, const std::string& path) {
    auto parts = std::make_unique<SaveInParts>("save_async", "save_async: ");
    parts->add(path, Cells{{"w", sharded(w, p, n)}}, {{"format", "pt"}});
    parts->begin([] { return std::string(); });
    return std::make_unique<AsyncSave>(std::move(parts), [&] { return "after " + io::read_file(path).substr(8, 3); });
  };
  save_cells({{"w", Buffer(w)}}, path_);
  const std::string want = io::read_file(path_), other = folder_ + "/other.safetensors";
  for (int n = 1; n <= 3; ++n) {
    ThreadJob job(n);
    const auto errors = job.run([&](int p) {
      const auto save = save_w(p, n, other);
      save->wait();
      EXPECT_TRUE(save->complete());
      EXPECT_EQ(save->note(), "after " + want.substr(8, 3));  // all have the first process's
      EXPECT_GT(save->seconds(), 0);
      EXPECT_TRUE(io::read_file(other) == want);
    });
    EXPECT_EQ(errors, std::vector<std::string>(static_cast<size_t>(n)));
    io::remove_all(other);
  }
  // Step by step, as a trainer calls it.
  ThreadJob(2).run([&](int p) {
    const auto save = save_w(p, 2, other);
    while (!save->complete())
      if (!me->any("", save->busy())) save->advance();
    EXPECT_TRUE(io::read_file(other) == want);
  });
  const auto errors = ThreadJob(2).run([&](int p) {
    auto parts = std::make_unique<SaveInParts>("save_async", "save_async: ");
    const Parameter cell = sharded(w, p, 2);
    if (p == 1) static_cast<Rows&>(*cell.cell().remote).own.parts.clear();
    parts->add(other + "2", Cells{{"w", cell}});
    parts->begin([] { return std::string(); });
    AsyncSave(std::move(parts)).wait();
  });
  for (const std::string& e : errors) expect_has(e, "the processes have written -");
  ::testing::internal::CaptureStderr();
  ThreadJob(2).run([&](int p) { save_w(p, 2, other + "3"); });
  expect_has(::testing::internal::GetCapturedStderr(),
             "save_async: the files may be missing, because the program did not call wait()");
  EXPECT_EQ(io::list_folder(folder_).size(), 2u);
}

// A step that writes the cell between begin() and write() does not change the saved values.
TEST_F(InParts, ValuesAreThoseOfTheBegin) {
  const Parameter w(ones({4}), "w");
  SaveInParts file("save", "save: ");
  file.add("w.safetensors", Cells{{"w", w}});
  file.begin([&] { return folder_; });
  w.set(zeros({4}));
  std::thread([&] { file.write(); }).join();
  EXPECT_FALSE(io::exists(folder_ + "/w.safetensors"));
  file.join();
  file.name_files();
  EXPECT_EQ(load(folder_ + "/w.safetensors").at("w").to_vector<float>(), std::vector<float>(4, 1));
}

// Each process of a job reads and checks its own shards when a step needs them; a process alone checks all at once.
TEST_F(InParts, LoadReadsTheShardsOfTheProcess) {
  const auto net = [] { return nn::Linear(1100, 1000); };  // the weight has 4.4 MB, which is two blocks
  const nn::Linear saved = net();
  save(saved, path_);
  const int64_t damaged = io::SafetensorsFile(path_).at("weight").end - 1;
  const int fd = io::open_for_update(path_);
  ASSERT_EQ(::pwrite(fd, "\xff", 1, damaged), 1);
  ::close(fd);
  const std::string damage = "tensor 'weight', bytes 4194304 to 4400000: the checksum differs";
  expect_has(error_of([&] { load(net(), path_); }), damage);
  ThreadJob job(1);
  const auto errors = job.run([&](int) {
    const nn::Linear loaded = net();
    load(loaded, path_);
    EXPECT_EQ(loaded.bias.value().to_vector<float>(), saved.bias.value().to_vector<float>());
    const Cell& cell = loaded.weight.cell();
    auto* const stored = dynamic_cast<StoredValue*>(cell.remote.get());
    ASSERT_TRUE(stored);
    TensorPart part = TensorPart::all({1000, 1100});
    part.dims[0] = {{1, 3}, {7, 8}};
    std::vector<float> rows(3 * 1100), whole = saved.weight.value().to_vector<float>();
    stored->read(cell, part, rows.data());
    EXPECT_TRUE(std::equal(rows.begin(), rows.begin() + 2200, whole.begin() + 1100));
    EXPECT_TRUE(std::equal(rows.begin() + 2200, rows.end(), whole.begin() + 7700));
    part.dims[0] = {{999, 1000}};
    expect_has(error_of([&] { stored->read(cell, part, rows.data()); }), damage);
    expect_has(error_of([&] { load(nn::Linear(1100, 999), path_); }),
               "'weight' has shape [1000, 1100], need [999, 1100]");
  });
  EXPECT_EQ(errors, std::vector<std::string>{""});
}

}  // namespace
}  // namespace weft
