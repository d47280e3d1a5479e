#include "distributed/replica/heal.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>

#include "framework/base/one_line.h"
#include "framework/io/checksum.h"

namespace weft::dist {
namespace {

constexpr int64_t kBlockBytes = int64_t{4} << 20;
constexpr size_t kBlocksUnderWay = 4;  // between two ranks
constexpr int64_t kTextBytes = int64_t{256} << 20;

// Bytes of one shard.
struct Block {
  size_t part = 0;
  int64_t begin = 0, bytes = 0;
};

// The blocks of each donor, in the order in which they move. They follow from the types alone.
std::vector<std::vector<Block>> shares(std::span<const StatePart> parts, size_t donors) {
  int64_t all = 0, before = 0;
  for (const StatePart& p : parts) all += p.type.nbytes();
  const auto end_of = [&](size_t donor) {
    return donor + 1 == donors ? all : all / static_cast<int64_t>(donors) * static_cast<int64_t>(donor + 1);
  };
  std::vector<std::vector<Block>> of(donors);
  size_t donor = 0;
  for (size_t i = 0; i < parts.size(); before += parts[i++].type.nbytes())
    for (int64_t at = 0; at < parts[i].type.nbytes();) {
      while (before + at >= end_of(donor)) ++donor;
      const int64_t bytes = std::min({parts[i].type.nbytes() - at, end_of(donor) - before - at, kBlockBytes});
      of[donor].push_back({i, at, bytes});
      at += bytes;
    }
  return of;
}

StridedView view_of(void* data, int64_t bytes) { return {data, kUInt8, {bytes}, {1}}; }

std::byte* bytes_of(const Tensor& t, const Block& b) {
  return static_cast<std::byte*>(t.view_for_kernel().data) + b.begin;
}

uint64_t checksum_of(const Tensor& t, const Block& b) {
  return io::checksum(std::span<const std::byte>(bytes_of(t, b), static_cast<size_t>(b.bytes)));
}

class Healing {
 public:
  Healing(Communicator& replicas, const std::vector<bool>& heals, std::span<const StatePart> parts,
          Work::Deadline deadline, bool from_first)
      : replicas_(replicas), parts_(parts), deadline_(deadline) {
    WEFT_CHECK_AS(kUnavailable, std::ssize(heals) == replicas.size(), "healing: the view of ", heals.size(),
                  " replicas has ended");
    for (int p = 0; p < replicas.size(); ++p) (heals[p] ? joiners_ : donors_).push_back(p);
    WEFT_BUG_IF(donors_.empty(), "heal: no replica has the state");
    joins_ = heals[replicas.rank()];
    if (from_first) donors_.resize(1);
  }

  HealedState run(const std::string& record) {
    if (joiners_.empty()) return {};
    const int64_t bytes = compare(record);
    const std::vector<std::vector<Block>> of = shares(parts_, donors_.size());
    if (joins_) return take(of, bytes);
    if (replicas_.rank() == donors_[0])
      for (const int joiner : joiners_) wait(send(joiner, view_of(const_cast<char*>(record.data()), bytes)));
    const auto own = std::ranges::find(donors_, replicas_.rank());
    if (own != donors_.end()) give(of[own - donors_.begin()]);
    return {};
  }

 private:
  Ref<Work> send(int to, const StridedView& view) {
    return replicas_.start({.kind = Collective::kSend, .in = view, .peer = to});
  }
  Ref<Work> receive(int from, const StridedView& view) {
    return replicas_.start({.kind = Collective::kRecv, .out = view, .peer = from});
  }
  void wait(const Ref<Work>& work) const {
    if (const std::optional<Error> error = work->wait(deadline_)) throw *error;
  }

  // The texts of all ranks, by place.
  std::vector<std::string> gather(const std::string& mine, const std::vector<int64_t>& sizes) {
    int64_t all = 0;
    for (const int64_t n : sizes) all += n;
    std::string joined(static_cast<size_t>(all), '\0');
    wait(replicas_.start({.kind = Collective::kAllGather,
                          .in = view_of(const_cast<char*>(mine.data()), std::ssize(mine)),
                          .out = view_of(joined.data(), all),
                          .recv_counts = sizes}));
    std::vector<std::string> texts;
    size_t at = 0;
    for (const int64_t n : sizes) texts.push_back(joined.substr(at, static_cast<size_t>(n))), at += texts.back().size();
    return texts;
  }

  // A line for each part.
  std::string facts() const {
    std::string text;
    for (const StatePart& p : parts_)
      text += str_cat(one_line(p.name), " of ", p.layout, ", shard ", p.type.dtype, p.type.shape, "\n");
    return text;
  }

  // Throws on all ranks if their parts or the records of donors differ. Returns the size of the record.
  int64_t compare(const std::string& record) {
    struct Head {
      uint64_t facts, record;
      int64_t facts_bytes, record_bytes;
    };
    const std::string mine = facts();
    Head head{io::checksum(mine), io::checksum(record), std::ssize(mine), std::ssize(record)};
    std::vector<Head> heads(static_cast<size_t>(replicas_.size()));
    wait(replicas_.start({.kind = Collective::kAllGather,
                          .in = view_of(&head, sizeof head),
                          .out = view_of(heads.data(), std::ssize(heads) * int64_t{sizeof head})}));
    for (const Head& h : heads)
      WEFT_CHECK_AS(
          kDataLoss,
          std::min(h.facts_bytes, h.record_bytes) >= 0 && h.facts_bytes <= kTextBytes && h.record_bytes <= kTextBytes,
          "healing: got texts of ", h.facts_bytes, " and ", h.record_bytes, " bytes; need at most ", kTextBytes);
    const Head& donor = heads[donors_[0]];
    if (const auto other = std::ranges::find_if(heads, [&](const Head& h) { return h.facts != donor.facts; });
        other != heads.end()) {
      std::vector<int64_t> sizes;
      for (const Head& h : heads) sizes.push_back(h.facts_bytes);
      fail_on_facts(gather(mine, sizes), static_cast<int>(other - heads.begin()));
    }
    for (const int d : donors_)
      WEFT_CHECK_AS(kFailedPrecondition, heads[d].record == donor.record, "healing: the replicas at places ",
                    donors_[0], " and ", d,
                    " have different states (step, position of the data or seed); need equal states");
    record_checksum_ = donor.record;
    return donor.record_bytes;
  }

  [[noreturn]] void fail_on_facts(const std::vector<std::string>& texts, int place) const {
    std::string_view a = texts[donors_[0]], b = texts[place];
    const auto line = [](std::string_view t) { return t.substr(0, t.find('\n')); };
    while (!a.empty() && line(a) == line(b)) a.remove_prefix(line(a).size() + 1), b.remove_prefix(line(b).size() + 1);
    const auto named = [&](std::string_view t) { return t.empty() ? "no further tensor" : str_cat(line(t)); };
    internal::fail(Code::kInvalidArgument,
                   str_cat("healing: the replica at place ", place, " has ", named(b), "; the replica at place ",
                           donors_[0], " has ", named(a), "; need the same model, optimiser and mesh in all replicas"));
  }

  // Sends each block to all joiners, and then the checksums.
  void give(const std::vector<Block>& blocks) {
    std::vector<uint64_t> sums;
    std::deque<Ref<Work>> under_way;
    for (const Block& b : blocks) {
      const Tensor& value = parts_[b.part].value;
      for (const int joiner : joiners_) under_way.push_back(send(joiner, view_of(bytes_of(value, b), b.bytes)));
      sums.push_back(checksum_of(value, b));
      for (; under_way.size() > kBlocksUnderWay * joiners_.size(); under_way.pop_front()) wait(under_way.front());
    }
    for (const int joiner : joiners_)
      under_way.push_back(send(joiner, view_of(sums.data(), std::ssize(sums) * int64_t{sizeof sums[0]})));
    for (const Ref<Work>& work : under_way) wait(work);
  }

  // Takes blocks from all donors at the same time.
  HealedState take(const std::vector<std::vector<Block>>& of, int64_t record_bytes) {
    HealedState healed{.values = {}, .record = std::string(static_cast<size_t>(record_bytes), '\0')};
    for (const StatePart& p : parts_) healed.values.push_back(Tensor::empty(p.type));
    wait(receive(donors_[0], view_of(healed.record.data(), record_bytes)));
    check(io::checksum(healed.record) == record_checksum_, "the record", donors_[0]);
    std::vector<std::vector<uint64_t>> sums(of.size()), sent(of.size());
    std::vector<std::deque<Ref<Work>>> under_way(of.size());
    const auto arrive = [&](size_t d) {
      wait(under_way[d].front());
      under_way[d].pop_front();
      const Block& b = of[d][sums[d].size()];
      sums[d].push_back(checksum_of(healed.values[b.part], b));
    };
    size_t most = 0;
    for (const std::vector<Block>& blocks : of) most = std::max(most, blocks.size());
    for (size_t k = 0; k < most + kBlocksUnderWay; ++k)
      for (size_t d = 0; d < of.size(); ++d) {
        if (k < of[d].size()) {
          const Block& b = of[d][k];
          under_way[d].push_back(receive(donors_[d], view_of(bytes_of(healed.values[b.part], b), b.bytes)));
        }
        if (k >= kBlocksUnderWay && !under_way[d].empty()) arrive(d);
      }
    for (size_t d = 0; d < of.size(); ++d) {
      sent[d].resize(of[d].size());
      wait(receive(donors_[d], view_of(sent[d].data(), std::ssize(sent[d]) * int64_t{sizeof sent[d][0]})));
      for (size_t k = 0; k < sent[d].size(); ++k)
        check(sent[d][k] == sums[d][k], parts_[of[d][k].part].name, donors_[d]);
    }
    return healed;
  }

  static void check(bool equal, const std::string& what, int donor) {
    WEFT_CHECK_AS(kDataLoss, equal, "healing: bytes of '", one_line(what, 80), "' from the replica at place ", donor,
                  " arrived damaged: their checksum differs; the replica keeps its old state");
  }

  Communicator& replicas_;
  const std::span<const StatePart> parts_;
  const Work::Deadline deadline_;
  std::vector<int> donors_, joiners_;  // places
  bool joins_ = false;
  uint64_t record_checksum_ = 0;
};

}  // namespace

HealedState heal(Communicator& replicas, const std::vector<bool>& heals, std::span<const StatePart> parts,
                 const std::string& record, Work::Deadline deadline, bool from_first) {
  return Healing(replicas, heals, parts, deadline, from_first).run(record);
}

}  // namespace weft::dist
