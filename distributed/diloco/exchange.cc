#include "distributed/diloco/exchange.h"

#include <cstring>
#include <numeric>

#include "distributed/diloco/outer.h"
#include "framework/base/error.h"
#include "framework/base/saturate.h"
#include "framework/io/checksum.h"

namespace weft::dist {
namespace {

using Bytes = std::vector<std::byte>;

struct Head {
  uint64_t checksum = 0;  // over the bytes that follow
  int64_t weight = 0;
};

int64_t message_bytes(OuterWire wire, int64_t values) { return int64_t{sizeof(Head)} + wire_bytes(wire, values); }

uint64_t checksum_of(std::span<const std::byte> message) { return io::checksum(message.subspan(sizeof(uint64_t))); }

void write_message(OuterWire wire, int64_t weight, std::span<const float> values, std::span<std::byte> to) {
  Head head{.weight = weight};
  std::memcpy(to.data(), &head, sizeof head);
  encode(wire, values, to.subspan(sizeof head));
  head.checksum = checksum_of(to);
  std::memcpy(to.data(), &head, sizeof head);
}

// Returns the weight.
int64_t read_message(OuterWire wire, std::span<const std::byte> from, std::span<float> values) {
  Head head;
  std::memcpy(&head, from.data(), sizeof head);
  WEFT_CHECK_AS(kDataLoss, head.checksum == checksum_of(from) && head.weight >= 0,
                "outer gradients of another replica arrived damaged: their checksum differs");
  decode(wire, from.subspan(sizeof head), values);
  return head.weight;
}

// The first value of the share of a place; for place = replicas, the end.
int64_t share_begin(int64_t values, int64_t place, int64_t replicas) {
  const int64_t blocks = (values + kWireBlock - 1) / kWireBlock;
  return std::min(values, blocks * place / replicas * kWireBlock);
}

void run(Communicator& c, const CommRequest& request, Work::Deadline deadline) {
  if (const std::optional<Error> error = c.start(request)->wait(deadline)) throw *error;
}

StridedView view_of(Bytes& bytes) { return {bytes.data(), kUInt8, {std::ssize(bytes)}, {1}}; }

}  // namespace

std::vector<float> exchange(Communicator& replicas, OuterWire wire, std::span<const float> d, int64_t weight,
                            Work::Deadline deadline, int64_t& sent) {
  const int count = replicas.size(), own = replicas.rank();
  std::vector<std::span<const float>> shares;
  std::vector<int64_t> sizes;
  for (int p = 0; p < count; ++p) {
    const int64_t begin = share_begin(std::ssize(d), p, count), end = share_begin(std::ssize(d), p + 1, count);
    shares.push_back(d.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
    sizes.push_back(message_bytes(wire, end - begin));
  }
  const size_t total = static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
  const std::vector<int64_t> own_sizes(static_cast<size_t>(count), sizes[own]);
  Bytes all(total), mine(static_cast<size_t>(sizes[own] * count));
  // Calls f(place, bytes of its message).
  const auto each_share = [&](auto&& f) {
    size_t at = 0;
    for (int p = 0; p < count; at += static_cast<size_t>(sizes[p++]))
      f(p, std::span(all).subspan(at, static_cast<size_t>(sizes[p])));
  };
  each_share([&](int p, std::span<std::byte> to) { write_message(wire, weight, shares[p], to); });
  run(replicas,
      {.kind = Collective::kAllToAll,
       .in = view_of(all),
       .out = view_of(mine),
       .send_counts = sizes,
       .recv_counts = own_sizes,
       .site = kOwnSites},
      deadline);
  std::vector<float> sum(shares[own].size(), 0.0f), values(sum.size());
  int64_t weights = 0;
  for (int p = 0; p < count; ++p) {
    const auto message =
        std::span<const std::byte>(mine).subspan(static_cast<size_t>(p * sizes[own]), static_cast<size_t>(sizes[own]));
    const int64_t w = read_message(wire, message, values);
    add_weighted<float>(sum, values, w);
    weights = saturating_add(weights, w);
  }
  divide<float>(sum, weights);
  mine.resize(static_cast<size_t>(sizes[own]));
  write_message(wire, weights, sum, mine);
  run(replicas,
      {.kind = Collective::kAllGather,
       .in = view_of(mine),
       .out = view_of(all),
       .recv_counts = sizes,
       .site = kOwnSites},
      deadline);
  std::vector<float> average(d.size());
  each_share([&](int p, std::span<std::byte> from) {
    const auto at = static_cast<size_t>(shares[p].data() - d.data());
    WEFT_CHECK_AS(kDataLoss, read_message(wire, from, std::span(average).subspan(at, shares[p].size())) == weights,
                  "outer gradients: the replica at place ", p, " has another sum of weights");
  });
  sent += static_cast<int64_t>(total) - sizes[own] + sizes[own] * (count - 1);
  return average;
}

std::vector<float> average_of(OuterWire wire, std::span<const std::vector<float>> d, std::span<const int64_t> weights) {
  std::vector<float> sum(d[0].size(), 0.0f), values(sum.size());
  Bytes bytes(static_cast<size_t>(wire_bytes(wire, std::ssize(sum))));
  for (size_t p = 0; p < d.size(); ++p) {
    encode(wire, d[p], bytes);
    decode(wire, bytes, values);
    add_weighted<float>(sum, values, weights[p]);
  }
  divide<float>(sum, std::accumulate(weights.begin(), weights.end(), int64_t{0}, saturating_add));
  encode(wire, sum, bytes);
  decode(wire, bytes, sum);
  return sum;
}

}  // namespace weft::dist
