// Places where a text can be cut so that its tokens stay. A rule follows from the steps of the pre-tokenizer; a file
// whose steps follow no rule is encoded whole.
#include <algorithm>

#include "models/text/formats/parts.h"
#include "models/text/patterns/scan.h"

namespace weft::text {
namespace {

constexpr std::string_view kMark = "▁";

bool visible_ascii(char c) { return c > ' ' && c < 127; }
bool ascii_letter(char c) { return class_of(c) == kLetter; }

/// Whether an added token could contain a cut between '\n' and a letter, or take characters from beyond it.
bool crosses_lines(const AddedToken& t) {
  const size_t line = t.content.find('\n');
  if (line != t.content.npos && (t.single_word || line + 1 < t.content.size())) return true;
  return t.lstrip && ascii_letter(t.content[0]);
}

/// The same for a cut between a visible character and a space.
bool crosses_spaces(const AddedToken& t) {
  const auto blank = [](char c) { return c == ' ' || c == kMark[0]; };
  for (size_t i = 0; i + 1 < t.content.size(); ++i)
    if (t.content[i] != ' ' && blank(t.content[i + 1])) return true;
  return t.rstrip || (t.single_word && blank(t.content[0]));
}

}  // namespace

CutRule cut_rule(const Parts& p) {
  using Kind = SplitStep::Kind;
  const auto any_plain = [&](bool (*crosses)(const AddedToken&)) {
    return std::any_of(p.d.added.begin(), p.d.added.end(),
                       [&](const AddedToken& t) { return !t.special && !t.content.empty() && crosses(t); });
  };
  bool marked = false;  // the normaliser writes ▁ for spaces
  for (const NormalStep& s : p.d.normal) {
    if (s.kind == NormalStep::Kind::kStrip) return CutRule::kNever;
    if (s.kind != NormalStep::Kind::kReplace) continue;
    if (s.from != " " || s.to != kMark) return CutRule::kNever;
    marked = true;
  }
  const bool metaspace = p.steps.size() == 1 && p.steps[0].step.kind == Kind::kMetaspace;
  if (metaspace ? !marked && p.steps[0].step.pattern == kMark : marked && p.steps.empty()) {
    if (any_plain(crosses_spaces)) return CutRule::kNever;
    return metaspace && p.steps[0].step.split ? CutRule::kBeforeSpaces : CutRule::kUnmergeable;
  }
  bool pattern = false;
  for (const CompiledStep& c : p.steps) {
    const bool known = c.known && c.known->cut_at_lines && c.step.behavior == Behavior::kIsolated;
    if (!known && c.step.kind != Kind::kDigits && !(c.step.kind == Kind::kByteLevel && !c.step.use_regex))
      return CutRule::kNever;
    pattern = pattern || known;
  }
  return pattern && !marked && !any_plain(crosses_lines) ? CutRule::kAtLines : CutRule::kNever;
}

size_t cut(const Parts& p, std::string_view text, size_t most) {
  if (p.cut == CutRule::kNever || text.empty()) return 0;
  for (size_t i = std::min(most, text.size() - 1); i >= 2; --i) {
    const char a = text[i - 2], b = text[i - 1], c = text[i];
    if (p.cut == CutRule::kAtLines) {
      if (b == '\n' && visible_ascii(a) && ascii_letter(c)) return i;
    } else if (c == ' ' && visible_ascii(b) &&
               (p.cut == CutRule::kBeforeSpaces || p.bpe.parted(static_cast<unsigned char>(b), 0x2581))) {
      return i;
    }
  }
  return 0;
}

}  // namespace weft::text
