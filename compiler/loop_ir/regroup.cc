#include "compiler/loop_ir/regroup.h"

#include <utility>

namespace weft::loop_ir {
namespace {

using kernels::Pw;

/// The value sign * x, where x is an instruction.
struct SignedTerm {
  int x;
  bool negative;
};

class Regroup {
 public:
  explicit Regroup(std::vector<Instr>* instrs) : instrs_(*instrs) {}

  void run(std::span<std::vector<int>> before, std::span<std::vector<int>> loop) {
    for (size_t s = 0; s < loop.size(); ++s)
      for (size_t at = 0; at < loop[s].size(); ++at) visit(loop[s], &at);
    remove_unused(before, loop);
  }

 private:
  bool is_sum(int id) const {
    const Instr& i = instrs_[static_cast<size_t>(id)];
    return i.op == Op::kPw && (i.type == Type::i32 || i.type == Type::i64) && (i.pw == Pw::add || i.pw == Pw::sub);
  }
  bool is_index(int id) const { return instrs_[static_cast<size_t>(id)].op == Op::kIndex; }
  Level level(int id) const { return instrs_[static_cast<size_t>(id)].level; }
  bool fixed(int id) const { return level(id) == Level::kPoint; }

  /// Rewrites i = (c + s) + p, where p and s do not change in the loop, to c + (s + p): any order, any signs.
  void visit(std::vector<int>& list, size_t* at) {
    const int id = list[*at];
    if (!is_sum(id)) return;
    const Instr i = instrs_[static_cast<size_t>(id)];
    const bool left = !fixed(i.a) && fixed(i.b), right = fixed(i.a) && !fixed(i.b);
    if (!left && !right) return;
    const SignedTerm inner{left ? i.a : i.b, right && i.pw == Pw::sub}, p{left ? i.b : i.a, left && i.pw == Pw::sub};
    if (!is_sum(inner.x)) return;
    const Instr& sum = instrs_[static_cast<size_t>(inner.x)];
    if (fixed(sum.a) == fixed(sum.b)) return;
    const bool first_fixed = fixed(sum.a), subtracts = sum.pw == Pw::sub;
    const SignedTerm c{first_fixed ? sum.b : sum.a, inner.negative != (first_fixed && subtracts)};
    const SignedTerm s{first_fixed ? sum.a : sum.b, inner.negative != (!first_fixed && subtracts)};
    // t = s + p. t is positive if s or p is positive.
    Instr t = i;
    t.level = Level::kPoint;
    bool t_negative = false;
    if (s.negative == p.negative) {
      t.pw = Pw::add, t.a = s.x, t.b = p.x;
      t_negative = s.negative;
    } else {
      t.pw = Pw::sub, t.a = s.negative ? p.x : s.x, t.b = s.negative ? s.x : p.x;
    }
    if (c.negative && t_negative) return;  // -(c + t) would be one more operation
    instrs_.push_back(std::move(t));
    const int fixed_sum = static_cast<int>(instrs_.size()) - 1;
    list.insert(list.begin() + static_cast<std::ptrdiff_t>((*at)++), fixed_sum);
    Instr& to = instrs_[static_cast<size_t>(id)];
    to.pw = c.negative || t_negative ? Pw::sub : Pw::add;
    to.a = c.negative ? fixed_sum : c.x;
    to.b = c.negative ? c.x : fixed_sum;
  }

  void remove_unused(std::span<std::vector<int>> before, std::span<std::vector<int>> loop) {
    std::vector<int> uses(instrs_.size(), 0);
    auto count = [&](int id, int by) {
      const Instr& i = instrs_[static_cast<size_t>(id)];
      for (int x : {i.a, i.b, i.c})
        if (x >= 0) uses[static_cast<size_t>(x)] += by;
    };
    for (const auto& lists : {before, loop})
      for (const std::vector<int>& list : lists)
        for (int id : list) count(id, 1);
    auto remove = [&](std::vector<int>& list) {
      for (size_t at = list.size(); at-- > 0;) {
        const int id = list[at];
        if (uses[static_cast<size_t>(id)] > 0 || !(is_sum(id) || is_index(id))) continue;
        count(id, -1);
        list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
      }
    };
    for (size_t s = loop.size(); s-- > 0;) remove(loop[s]), remove(before[s]);
  }

  std::vector<Instr>& instrs_;
};

}  // namespace

void regroup_sums(std::vector<Instr>* instrs, std::span<std::vector<int>> before, std::span<std::vector<int>> loop) {
  Regroup(instrs).run(before, loop);
}

}  // namespace weft::loop_ir
