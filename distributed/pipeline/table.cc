#include "distributed/pipeline/table.h"

#include <algorithm>
#include <utility>

#include "framework/base/error.h"

namespace weft::dist::pipeline {

std::string_view to_string_view(ActionKind kind) {
  constexpr std::string_view kNames[kKinds] = {"F", "I", "W", "B", "SEND", "RECV", "GATHER", "RELEASE", "REDUCE"};
  return kNames[static_cast<size_t>(kind)];
}

std::string Action::to_string() const {
  if (transfers(kind)) {
    const bool send = kind == ActionKind::kSend;
    return str_cat(kind, " from stage ", send ? stage : peer, " to ", send ? peer : stage, ", microbatch ", microbatch);
  }
  return computes(kind) ? str_cat(kind, " of stage ", stage, ", microbatch ", microbatch)
                        : str_cat(kind, " of stage ", stage);
}

namespace {

std::vector<StageLink> chain(int stages) {
  std::vector<StageLink> links;
  for (int s = 1; s < stages; ++s) links.push_back({s - 1, s});
  return links;
}

/// The begin of each stage's links in a list that is sorted by stage.
std::vector<int> begins(int stages, const std::vector<StageLink>& links, int StageLink::*end) {
  std::vector<int> first(static_cast<size_t>(stages) + 1, 0);
  for (const StageLink& link : links) ++first[static_cast<size_t>(link.*end) + 1];
  for (size_t s = 1; s < first.size(); ++s) first[s] += first[s - 1];
  return first;
}

}  // namespace

StageLinks::StageLinks(int stages) : StageLinks(stages, chain(stages)) {}

StageLinks::StageLinks(int stages, std::vector<StageLink> links) : links_(std::move(links)) {
  WEFT_CHECK(stages >= 1, "pipeline: got ", stages, " stages; need 1 or more");
  std::sort(links_.begin(), links_.end());
  for (size_t i = 0; i < links_.size(); ++i) {
    const StageLink link = links_[i];
    WEFT_CHECK(link.from >= 0 && link.from < link.to && link.to < stages, "pipeline: got a link from stage ", link.from,
               " to stage ", link.to, "; need one from a stage to a later one, of stages 0 to ", stages - 1);
    WEFT_CHECK(i == 0 || links_[i - 1] != link, "pipeline: the link from stage ", link.from, " to stage ", link.to,
               " comes twice; need each link once");
  }
  first_output_ = begins(stages, links_, &StageLink::from);
  first_input_ = begins(stages, links_, &StageLink::to);
  inputs_.resize(links_.size());
  std::vector<int> next = first_input_;
  for (int i = 0; i < size(); ++i) inputs_[next[(*this)[i].to]++] = i;
}

int StageLinks::find(int from, int to) const {
  const auto at = std::lower_bound(links_.begin(), links_.end(), StageLink{from, to});
  return at != links_.end() && *at == StageLink{from, to} ? static_cast<int>(at - links_.begin()) : -1;
}

std::span<const int> StageLinks::inputs(int stage) const {
  const size_t s = static_cast<size_t>(stage);
  return std::span(inputs_).subspan(static_cast<size_t>(first_input_[s]),
                                    static_cast<size_t>(first_input_[s + 1] - first_input_[s]));
}

}  // namespace weft::dist::pipeline
