#include "distributed/comm/matching.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace weft::dist::internal {
namespace {

DType dtype_of(const Request& r) { return r.kind == Collective::kRecv ? r.out.dtype : r.in.dtype; }

}  // namespace

std::string Request::to_string() const {
  const Request& r = *this;
  std::string s = str_cat(r.kind);
  if (r.kind != Collective::kBarrier) {
    if (combines(r.kind)) s += str_cat(" ", r.op);
    const StridedView& v = r.kind == Collective::kRecv ? r.out : r.in;
    s += str_cat(" of ", v.dtype, v.shape);
  }
  if (r.kind == Collective::kBroadcast) s += str_cat(" from rank ", r.peer);
  if (r.kind == Collective::kPermute) s += str_cat(" by ", r.shift);
  if (r.site && r.site < kOwnSites) s += str_cat(" (site ", r.site, ")");
  return s;
}

size_t Match::position(int rank) const { return std::find(members.begin(), members.end(), rank) - members.begin(); }

GroupNames::GroupNames(int size, std::string group_name, std::vector<int> world_ranks)
    : name(std::move(group_name)), ranks(std::move(world_ranks)) {
  for (int r = static_cast<int>(ranks.size()); r < size; ++r) ranks.push_back(r);
}

std::string GroupNames::who(int rank) const { return str_cat("rank ", ranks[rank]); }
std::string GroupNames::where(Collective kind, uint64_t number) const {
  std::string s = str_cat(kind);
  if (number) s += str_cat(" #", number);
  return name.empty() ? s + ": " : str_cat(s, " over ", name, ": ");
}

std::optional<Error> GroupNames::wrong_peer(const Request& r, int rank) const {
  if (!point_to_point(r.kind) || (r.peer >= 0 && r.peer < size() && r.peer != rank)) return {};
  return Error(Code::kInvalidArgument, str_cat(where(r.kind, 0), who(rank), " names peer ", r.peer,
                                               "; need another rank from 0 to ", size() - 1));
}

void GroupNames::agree(const Match& m, int first, size_t second) const {
  const Request &a = m.requests[first], &b = m.requests[second];
  const bool pair = point_to_point(a.kind);
  bool same = (pair || a.kind == b.kind) && dtype_of(a) == dtype_of(b);
  // Outside of plans, each rank numbers its own transfers.
  if (!pair && a.site < kOwnSites && b.site < kOwnSites) same &= a.site == b.site;
  if (combines(a.kind)) same &= a.op == b.op;
  if (a.kind == Collective::kBroadcast) same &= a.peer == b.peer;
  if (a.kind == Collective::kPermute) same &= (a.shift - b.shift) % size() == 0;
  if (!pair) same &= a.in_dim == b.in_dim && a.out_dim == b.out_dim;
  WEFT_CHECK(same, where(a.kind, m.number), who(m.members[second]), " started ", b.to_string(), ", but ",
             who(m.members[first]), " started ", a.to_string(),
             "; all ranks must start the same collectives in the same order");
}

// The part of `view` along `dim` that goes to or comes from rank `peer`.
StridedView GroupNames::part(const Match& m, int rank, const StridedView& view, int dim,
                             const std::vector<int64_t>& counts, int peer) const {
  const Collective kind = m.requests[rank].kind;
  WEFT_CHECK(dim >= 0 && dim < view.shape.size(), where(kind, m.number), who(rank), " splits dim ", dim, " of ",
             view.shape, "; need a dim below ", view.shape.size());
  if (counts.empty()) {
    WEFT_CHECK(view.shape[dim] % size() == 0, where(kind, m.number), "dim ", dim, " of ", view.shape, " on ", who(rank),
               " does not divide by ", size(), "; give the sizes of uneven parts");
    const int64_t n = view.shape[dim] / size();
    return internal::slice(view, dim, peer * n, n);
  }
  int64_t begin = 0, total = 0;
  bool positive = static_cast<int>(counts.size()) == size();
  for (size_t p = 0; p < counts.size(); ++p) {
    if (static_cast<int>(p) < peer) begin += counts[p];
    total += counts[p];
    positive &= counts[p] >= 0 && total <= view.shape[dim];
  }
  WEFT_CHECK(positive, where(kind, m.number), who(rank), " has parts ", counts, " of dim ", dim, " of ", view.shape,
             "; need ", size(), " sizes of 0 or more that sum to at most ", view.shape[dim]);
  return internal::slice(view, dim, begin, counts[peer]);
}

void GroupNames::add(Match& m, Transfer t, int from_rank, const std::vector<int>& to_ranks) const {
  const Collective kind = m.requests[0].kind;
  for (const StridedView& f : t.from)
    WEFT_CHECK(f.shape == t.shape() && f.dtype == t.from[0].dtype, where(kind, m.number), "the input of ",
               who(m.members[0]), " is ", t.from[0].dtype, t.shape(), ", and the input of ",
               who(m.members[&f - t.from.data()]), " is ", f.dtype, f.shape, "; need the same type on all ranks");
  for (size_t k = 0; k < t.to.size(); ++k)
    WEFT_CHECK(t.to[k].shape == t.shape() && t.to[k].dtype == t.from[0].dtype, where(kind, m.number),
               who(m.members[from_rank]), " sends ", t.from[0].dtype, t.shape(), ", but ", who(m.members[to_ranks[k]]),
               " expects ", t.to[k].dtype, t.to[k].shape);
  std::vector<int> sources{from_rank};
  if (t.from.size() > 1) {
    sources.resize(t.from.size());
    std::iota(sources.begin(), sources.end(), 0);
  }
  m.transfers.push_back(std::move(t));
  m.sources.push_back(std::move(sources));
  m.receivers.push_back(to_ranks);
}

void GroupNames::build(Match& m) const {
  m.all_started = std::chrono::steady_clock::now();
  std::vector<Request>& r = m.requests;
  const int n = static_cast<int>(r.size());
  std::vector<int> everyone(n);
  for (int i = 0; i < n; ++i) everyone[i] = i;
  Transfer t;
  switch (r[0].kind) {
    case Collective::kBarrier:
      WEFT_CHECK(m.splits == 0 || m.splits == n, where(r[0].kind, m.number),
                 "some ranks call split() and others do not");
      return;
    case Collective::kAllReduce:
      t.op = r[0].op;
      check_reducible(m);
      for (const Request& x : r) {
        t.from.push_back(x.in);
        t.to.push_back(x.out);
      }
      return add(m, std::move(t), 0, everyone);
    case Collective::kBroadcast:
      WEFT_CHECK(r[0].peer >= 0 && r[0].peer < n, where(r[0].kind, m.number), "the root is ", r[0].peer,
                 "; need a rank from 0 to ", n - 1);
      t.from = {r[r[0].peer].in};
      for (const Request& x : r) t.to.push_back(x.out);
      return add(m, std::move(t), r[0].peer, everyone);
    case Collective::kAllGather:
      for (int p = 0; p < n; ++p) {
        t.from = {r[p].in};
        t.to.clear();
        for (int q = 0; q < n; ++q) t.to.push_back(part(m, q, r[q].out, r[q].out_dim, r[q].recv, p));
        add(m, t, p, everyone);
      }
      return;
    case Collective::kReduceScatter:
      t.op = r[0].op;
      check_reducible(m);
      for (int q = 0; q < n; ++q) {
        t.from.clear();
        for (int p = 0; p < n; ++p) t.from.push_back(part(m, p, r[p].in, r[p].in_dim, r[p].send, q));
        t.to = {r[q].out};
        add(m, t, q, {q});
      }
      return;
    case Collective::kAllToAll:
      for (int p = 0; p < n; ++p)
        for (int q = 0; q < n; ++q) {
          t.from = {part(m, p, r[p].in, r[p].in_dim, r[p].send, q)};
          t.to = {part(m, q, r[q].out, r[q].out_dim, r[q].recv, p)};
          add(m, t, p, {q});
        }
      return;
    case Collective::kPermute:
      for (int p = 0; p < n; ++p) {
        const int q = ((p + r[p].shift) % n + n) % n;
        t.from = {r[p].in};
        t.to = {r[q].out};
        add(m, t, p, {q});
      }
      return;
    case Collective::kSend:
    case Collective::kRecv:
      t.from = {r[0].in};
      t.to = {r[1].out};
      return add(m, std::move(t), 0, {1});
  }
}
void GroupNames::check_reducible(const Match& m) const {
  const Request& r = m.requests[0];
  WEFT_CHECK(internal::reduces(r.op, r.in.dtype), where(r.kind, m.number), "cannot take the ", r.op, " of ",
             r.in.dtype);
}

std::vector<std::pair<int, std::vector<int>>> GroupNames::parts(const Match& m) const {
  std::map<int, std::vector<std::pair<int, int>>> colors;  // colour -> (key, rank)
  for (int r = 0; r < size(); ++r)
    if (m.colors[r].first >= 0) colors[m.colors[r].first].push_back({m.colors[r].second, r});
  std::vector<std::pair<int, std::vector<int>>> all;
  for (auto& [color, list] : colors) {
    std::stable_sort(list.begin(), list.end());
    all.push_back({color, {}});
    for (auto [key, r] : list) all.back().second.push_back(r);
  }
  return all;
}
std::string GroupNames::part_name(int color) const { return str_cat(name, name.empty() ? "" : "/", color); }

Error GroupNames::missing(const Match& m, const std::vector<LastStarted>& last, Code code,
                          const std::string& what) const {
  std::string missing, present;
  const Request& r = m.requests[m.first];
  for (size_t i = 0; i < m.members.size(); ++i) {
    std::string& s = m.here[i] ? present : missing;
    s += str_cat(s.empty() ? "" : ", ", who(m.members[i]));
    if (m.here[i]) continue;
    const auto& [kind, number] = last[i];
    s += number ? str_cat(" (last started ", kind, " #", number, ")") : std::string(" (started nothing yet)");
  }
  return Error(code, str_cat(where(r.kind, m.number), what, "; missing: ", missing, "; waiting in ", r.to_string(),
                             ": ", present));
}

Error GroupNames::still_copying(const Match& m, size_t left, size_t all) const {
  std::string members;
  for (int r : m.members) members += str_cat(members.empty() ? "" : ", ", who(r));
  return Error(Code::kDeadlineExceeded,
               str_cat(where(m.requests[m.first].kind, m.number), "the deadline has passed; all ranks (", members,
                       ") have started it, and ", left, " of ", all, " parts are not copied yet"));
}

Error GroupNames::returned(const Match& m, const std::vector<LastStarted>& last, size_t position) const {
  return missing(m, last, Code::kFailedPrecondition,
                 str_cat(who(m.members[position]), " returned without starting it"));
}
Error GroupNames::dropped(Collective kind, uint64_t number, int rank) const {
  return Error(Code::kAborted, str_cat(where(kind, number), who(rank), " dropped it without waiting"));
}

Error abort_error(const std::string& cause) { return Error(Code::kAborted, cause.empty() ? "no cause given" : cause); }
Error aborted_by(const std::string& what) {  // an error that follows from one that follows names the cause alone
  constexpr std::string_view kPrefix = "collective aborted: ";
  return Error(Code::kAborted, what.starts_with(kPrefix) ? what : str_cat(kPrefix, what));
}

uint64_t mix(uint64_t h, uint64_t x) {
  h ^= x + 0x9e3779b97f4a7c15 + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccd;
  return h ^ h >> 33;
}

}  // namespace weft::dist::internal
