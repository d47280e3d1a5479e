// For tests: tables of actions with one change.
#pragma once
#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "distributed/pipeline/table.h"
#include "framework/base/error.h"

namespace weft::dist::pipeline::testing {

using Random = std::mt19937_64;

inline int below(Random& random, size_t end) { return static_cast<int>(random() % end); }

struct Mutation {
  Table table;
  std::string what;
  std::vector<Action> touched;  // an error must name one of these or the other end of a transfer, or report a deadlock
  std::string says;             // text that the error must also contain
};

/// Removes, doubles, moves to another rank, or swaps.
inline Mutation mutate(Table table, Random& random) {
  const size_t rank = random() % table.ranks.size();
  std::vector<Action>& list = table.ranks[rank];
  const auto at = [&](int i) { return list.begin() + i; };
  const int i = below(random, list.size());
  const Action a = *at(i);
  // If the change splits a pair, the error names the first action of the pair.
  std::vector<Action> touched = {a};
  auto touch = [&](int k) {
    if (k >= 0 && k < static_cast<int>(list.size()) && at(k)->with_next) touched.push_back(*at(k));
  };
  auto done = [&](const char* what, const char* says) {
    return Mutation{std::move(table), str_cat(what, " ", a, " on rank ", rank), touched, a.with_next ? "" : says};
  };
  touch(i - 1);
  switch (random() % 4) {
    case 0: {
      list.erase(at(i));
      return done("without", touched.size() > 1 ? "" : " lacks ");
    }
    case 1: {
      const int to = below(random, list.size() + 1);
      touch(to - 1);
      list.insert(at(to), a);
      return done("twice", touched.size() > 1 ? "" : " twice");
    }
    case 2: {
      const size_t other = random() % table.ranks.size();
      if (other == rank) break;
      list.erase(at(i));
      std::vector<Action>& others = table.ranks[other];
      const int to = below(random, others.size() + 1);
      const bool in_pair = to > 0 && others[static_cast<size_t>(to - 1)].with_next;
      others.insert(others.begin() + to, a);
      return done("moved", in_pair || touched.size() > 1 ? "" : "; need it on rank ");
    }
    default:
      break;
  }
  const int j = random() % 2 ? below(random, list.size()) : std::min(i + 1, static_cast<int>(list.size()) - 1);
  const Action b = *at(j);
  touched.push_back(b);
  touch(j - 1);
  std::swap(*at(i), *at(j));
  return done(str_cat(b, " swapped with").c_str(), "");
}

}  // namespace weft::dist::pipeline::testing
