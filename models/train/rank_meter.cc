#include "models/train/rank_meter.h"

#include <utility>

namespace weft::train {

RankMeter::RankMeter(dist::World& world) : world_(world), begun_(world.local().size()), last_(begun_), all_(begun_) {}

void RankMeter::begin() {
  for (size_t i = 0; i < begun_.size(); ++i) begun_[i] = world_.rank(world_.local()[i]).waited();
}

void RankMeter::end() {
  for (size_t i = 0; i < begun_.size(); ++i) {
    const WaitedSeconds now = world_.rank(world_.local()[i]).waited();
    last_[i] = {now.all - begun_[i].all, now.late - begun_[i].late};
  }
}

void RankMeter::count(double seconds, double tokens) {
  last_seconds_ = seconds;
  last_tokens_ = tokens;
  if (std::exchange(first_, false)) return;
  for (size_t i = 0; i < last_.size(); ++i) all_[i].all += last_[i].all, all_[i].late += last_[i].late;
  seconds_ += seconds;
  tokens_ += tokens;
  ++steps_;
}

std::vector<RankMetrics> RankMeter::last() { return gathered(last_, last_seconds_, last_tokens_); }
std::vector<RankMetrics> RankMeter::all() { return gathered(all_, seconds_, tokens_); }

std::vector<RankMetrics> RankMeter::gathered(const std::vector<WaitedSeconds>& waited, double seconds, double tokens) {
  constexpr int64_t kNumbers = 3;
  const auto ranks = static_cast<int64_t>(world_.size());
  std::vector<std::vector<double>> mine;
  for (const WaitedSeconds& w : waited)
    mine.push_back({tokens / static_cast<double>(ranks) / (seconds - w.late), w.all / seconds, w.late / seconds});
  std::vector<double> all;
  if (waited.size() == static_cast<size_t>(ranks)) {
    for (const std::vector<double>& m : mine) all.insert(all.end(), m.begin(), m.end());
  } else {
    all.resize(static_cast<size_t>(ranks * kNumbers));
    std::vector<std::vector<double>> copies(mine.size(), all);
    world_.run([&](int r) {
      const auto i = static_cast<size_t>(r - world_.local()[0]);
      RankContext& rank = world_.rank(r);
      // Times differ when a step is made again, so their sums say nothing about wrong bits (state_check.h).
      std::vector<uint64_t>* const sums = std::exchange(rank.operand_sums, nullptr);
      rank.run("world", {.kind = Collective::kAllGather,
                         .in = {mine[i].data(), kFloat64, Shape{kNumbers}, Shape{1}},
                         .out = {copies[i].data(), kFloat64, Shape{ranks * kNumbers}, Shape{1}},
                         .site = rank.new_site()});
      rank.operand_sums = sums;
    });
    all = copies[0];
  }
  std::vector<RankMetrics> out;
  for (size_t i = 0; i < all.size(); i += kNumbers) out.push_back({all[i], all[i + 1], all[i + 2]});
  return out;
}

}  // namespace weft::train
