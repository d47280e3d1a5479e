#include "models/train/rank_cells.h"

#include <unistd.h>

#include <algorithm>

#include "distributed/launch/processes.h"
#include "framework/base/thread_pool.h"
#include "framework/dispatch/rank/first_process.h"
#include "framework/io/checksum.h"

namespace weft::train {
namespace {

constexpr const char* kWhat = "looking for wrong bits";

std::string own_host() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

}  // namespace

uint64_t first_difference(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  const size_t n = std::min(a.size(), b.size());
  const auto at = std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(n), b.begin()).first - a.begin();
  return static_cast<size_t>(at) == n ? kNever : static_cast<uint64_t>(at);
}

void gather_words(std::vector<uint64_t>& words) {
  dist::Processes* const job = dist::Processes::current();
  if (!job) return;
  const auto bytes = static_cast<int64_t>(words.size() * sizeof words[0]);
  job->collective(kWhat, [&] { job->max({words.data(), kUInt8, {bytes}, {1}}); });
}

dist::ShardedCell* shards_of(const Cell& cell, const dist::World& world) {
  auto* const shards = dynamic_cast<dist::ShardedCell*>(cell.remote.get());
  return shards && shards->shards.size() == static_cast<size_t>(world.size()) ? shards : nullptr;
}

std::span<const std::byte> bytes_of(const Tensor& t) {
  return {static_cast<const std::byte*>(t.view_for_kernel().data), static_cast<size_t>(t.type().nbytes())};
}

std::vector<uint64_t> cell_hashes(const NamedCells& cells, const dist::World* world) {
  const size_t ranks = world ? static_cast<size_t>(world->size()) : 1;
  std::vector<uint64_t> all(cells.size() * ranks);
  std::vector<std::pair<Tensor, uint64_t*>> values;
  for (size_t c = 0; c < cells.size(); ++c)
    each_value(cells[c].second.cell(), world, [&](size_t rank, const Tensor& value) {
      const bool on_host = value.device().type == DeviceType::kCpu;  // the CPU of any rank
      values.emplace_back(on_host ? value : value.to(Device::cpu()), &all[c * ranks + rank]);
    });
  parallel_for(static_cast<int64_t>(values.size()),
               [&](int64_t i) { *values[i].second = io::checksum(bytes_of(values[i].first)); });
  gather_words(all);
  return all;
}

std::string ranks_text(const std::vector<int>& ranks) {
  dist::Processes* const job = dist::Processes::current();
  const std::vector<std::string> hosts = job ? job->on_all(kWhat, own_host) : std::vector{own_host()};
  std::string who;
  for (const int r : ranks)
    who += str_cat(who.empty() ? "" : " or ", "rank ", r, " on host ", hosts[job ? job->process_of(r) : 0]);
  return who;
}

void fail_check(const char* flag, const std::string& found, const StateCheckOptions& options) {
  try {
    if (options.before_throw) options.before_throw();
  } catch (const Error& e) {  // the wrong rank is the more important error
    if (dist::is_first()) internal::warn(e.what());
  }
  const std::string text = str_cat("--", flag, ": ", found, "; check this host, then continue with --resume");
  internal::on_first_process(kWhat, [&] { internal::fail(Code::kDataLoss, text); });
  internal::fail(Code::kDataLoss, text);
}

}  // namespace weft::train
