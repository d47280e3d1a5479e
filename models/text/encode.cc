// The encoder: added tokens, normaliser, pre-tokenizer, model.
#include <algorithm>

#include "framework/base/error.h"
#include "framework/io/utf8.h"
#include "models/text/formats/parts.h"
#include "models/text/unicode.h"

namespace weft::text {

void replace_all(std::string& out, std::string_view text, std::string_view from, std::string_view to) {
  for (size_t at; (at = text.find(from)) != text.npos; text.remove_prefix(at + from.size())) {
    out += text.substr(0, at);
    out += to;
  }
  out += text;
}

namespace {

/// A stretch of text on its way through the steps.
struct Stretch {
  std::string_view text;
  bool at_start;      // at the start of the document
  bool continued;     // its beginning was cut off, so it gets no prefix
  const char* limit;  // the end of the buffer of the text

  Stretch(std::string_view whole, bool at_start, bool continued)
      : text(whole), at_start(at_start), continued(continued), limit(whole.data() + whole.size()) {}
  Stretch part(size_t begin, size_t end) const {
    Stretch p = *this;
    p.text = text.substr(begin, end - begin);
    p.at_start = at_start && begin == 0;
    p.continued = continued && begin == 0;
    return p;
  }
};

class Encoder {
 public:
  Encoder(const Parts& parts, Memory& memory, std::vector<int32_t>& out) : p_(parts), m_(memory), out_(out) {}

  void document(std::string_view text, const Ranges& specials, bool continued) {
    valid_ = io::is_utf8(text);
    const auto allowed = [&](const AddedToken& t, size_t begin, size_t end) {
      if (!t.special) return true;
      const auto r = std::upper_bound(specials.begin(), specials.end(), std::pair(begin, text.size() + 1));
      return r != specials.begin() && std::prev(r)->second >= end;
    };
    added(p_.raw, {text, !continued, continued}, !specials.empty(), allowed, [&](const Stretch& s) { valid(s); });
    flush();
  }

 private:
  /// Calls `rest` with the stretches between added tokens, which it appends.
  template <class Allowed, class Rest>
  void added(const AddedTokens& tokens, const Stretch& s, bool specials, Allowed&& allowed, Rest&& rest) {
    const std::string_view text = s.text;
    const auto between = [&](size_t begin, size_t end) {
      if (begin < end) rest(s.part(begin, end));
    };
    if (!specials && !tokens.any_plain()) return between(0, text.size());
    size_t done = 0;
    AddedTokens::Found f;
    for (size_t from = 0; tokens.find(text, from, specials, allowed, &f);) {
      from = f.end;
      if (f.token->single_word && ((f.begin > 0 && is_word(io::last_character(text.substr(0, f.begin)).code)) ||
                                   (f.end < text.size() && is_word(io::first_character(text.substr(f.end)).code))))
        continue;
      if (f.token->lstrip) f.begin = std::max(f.begin - io::trailing(text.substr(0, f.begin), is_white), done);
      if (f.token->rstrip) f.end += io::leading(text.substr(f.end), is_white);
      between(done, f.begin);
      flush();
      out_.push_back(f.token->id);
      done = from = f.end;
    }
    between(done, text.size());
  }

  /// Bytes that are no UTF-8 are pieces of their own.
  void valid(Stretch s) {
    while (true) {
      const size_t n = valid_ ? s.text.size() : io::valid_utf8_length(s.text);
      if (n > 0) normalize(s.part(0, n));
      if (n == s.text.size()) return;
      flush();
      p_.bpe.encode_byte(static_cast<unsigned char>(s.text[n]), out_);
      s = {s.text.substr(n + 1), false, true};
    }
  }

  void normalize(const Stretch& s) {
    const Stretch n(normalized(p_.d.normal, s.text, s.continued, m_.normal), s.at_start, s.continued);
    if (p_.normal.empty()) return split(0, n);
    added(
        p_.normal, n, false, [](const AddedToken& t, size_t, size_t) { return !t.special; },
        [&](const Stretch& rest) { split(0, rest); });
  }

  void split(size_t step, const Stretch& s) {
    if (s.text.empty()) return;
    if (step == p_.steps.size()) return piece(s);
    const CompiledStep& c = p_.steps[step];
    switch (c.step.kind) {
      case SplitStep::Kind::kByteLevel:
        return byte_level(c, step, s);
      case SplitStep::Kind::kMetaspace:
        return metaspace(c, step, s);
      case SplitStep::Kind::kPattern:
      case SplitStep::Kind::kLiteral:
      case SplitStep::Kind::kDigits:
        return matches(c, step, s);
    }
  }

  void piece(const Stretch& s) {
    if (s.text.size() > PieceCache::kLongest) {
      flush();
      return p_.bpe.encode(s.text, s.text.size(), m_.bpe, out_);
    }
    Queued& q = queue_[queued_ % kQueue];
    if (queued_ - done_ == kQueue) p_.bpe.encode(q.key, *q.line, m_.bpe, out_), ++done_;
    q.key = key_of(s.text, static_cast<size_t>(s.limit - s.text.data()));
    q.line = &m_.bpe.cache.line(q.key);
    __builtin_prefetch(q.line);
    ++queued_;
  }

  void flush() {
    for (; done_ < queued_; ++done_) {
      const Queued& q = queue_[done_ % kQueue];
      p_.bpe.encode(q.key, *q.line, m_.bpe, out_);
    }
  }

  /// Calls visit(begin, end, is a match) for all parts of a text. Matches may be empty.
  template <class Visit>
  void each_match(const CompiledStep& c, std::string_view text, Visit&& visit) {
    const char* const data = text.data();
    const size_t n = text.size();
    size_t done = 0;
    const auto found = [&](size_t begin, size_t end) {
      if (done < begin) visit(done, begin, false);
      visit(begin, end, true);
      done = end;
    };
    if (c.step.kind == SplitStep::Kind::kDigits) {
      for (size_t i = 0; i < n;) {
        const io::CodePoint p = io::code_point(text.substr(i));
        if (p.code < 0x80 ? p.code - '0' < 10 : is_numeric(p.code)) found(i, i + p.size);
        i += p.size;
      }
    } else if (c.step.kind == SplitStep::Kind::kLiteral) {
      for (size_t at; (at = text.find(c.step.pattern, done)) != text.npos;) found(at, at + c.step.pattern.size());
    } else {
      const Scanner scan = c.known ? c.known->scan : nullptr;
      Regex::Match m;
      size_t last = n + 1;  // where the last match ended
      for (size_t from = 0; from <= n && !(c.known && from == n);) {
        if (const char* end = scan ? scan(data + from, data + n) : nullptr) {
          found(from, last = static_cast<size_t>(end - data));
          from = last;
          continue;
        }
        if (!c.regex->find(text, from, m_.regex, &m)) break;
        if (m.begin == m.end && m.end == last) {  // the search goes on at the next character
          from = m.end < n ? m.end + io::code_point(text.substr(m.end)).size : n + 1;
          continue;
        }
        found(m.begin, from = last = m.end);
      }
    }
    if (done < n) visit(done, n, false);
  }

  void matches(const CompiledStep& c, size_t step, const Stretch& s) {
    const auto emit = [&](size_t begin, size_t end) { split(step + 1, s.part(begin, end)); };
    const bool invert = c.step.invert;
    // The part before, which may still grow.
    size_t begin = 0, end = 0;
    bool open = false, before = false;
    const auto join = [&](size_t b, size_t e, bool with_last) {
      if (open && with_last) {
        end = e;
        return;
      }
      if (open) emit(begin, end);
      open = true, begin = b, end = e;
    };
    each_match(c, s.text, [&](size_t b, size_t e, bool match) {
      match = match != invert;
      switch (c.step.behavior) {
        case Behavior::kIsolated:
          return emit(b, e);
        case Behavior::kRemoved:
          return match ? void() : emit(b, e);
        case Behavior::kContiguous:
          join(b, e, match == before);
          break;
        case Behavior::kWithPrevious:
          join(b, e, match && !before);
          break;
        case Behavior::kWithNext:
          join(b, e, !match && before);
          break;
      }
      before = match;
    });
    if (open) emit(begin, end);
  }

  void byte_level(const CompiledStep& c, size_t step, Stretch s) {
    if (c.step.prefix_space && !s.continued && s.text[0] != ' ') {
      m_.steps[step].assign(" ").append(s.text);
      s = {m_.steps[step], s.at_start, s.continued};
    }
    c.step.use_regex ? matches(c, step, s) : split(step + 1, s);
  }

  void metaspace(const CompiledStep& c, size_t step, const Stretch& s) {
    std::string& text = m_.steps[step];
    text.clear();
    const std::string& mark = c.step.pattern;
    const bool marked = s.text.starts_with(' ') || s.text.starts_with(mark);
    const bool wanted = c.step.prepend == Prepend::kAlways || (c.step.prepend == Prepend::kFirst && s.at_start);
    if (wanted && !marked && !s.continued) text += mark;
    replace_all(text, s.text, " ", mark);
    const Stretch whole(text, s.at_start, s.continued);
    if (!c.step.split) return split(step + 1, whole);
    for (size_t begin = 0, end; begin < text.size(); begin = end) {
      end = std::min(text.find(mark, begin + (text.compare(begin, mark.size(), mark) == 0 ? mark.size() : 0)),
                     text.size());
      split(step + 1, whole.part(begin, end));
    }
  }

  /// Short pieces whose lines of the cache are being fetched.
  struct Queued {
    PieceCache::Key key;
    PieceCache::Line* line;
  };
  static constexpr size_t kQueue = 8;

  const Parts& p_;
  Memory& m_;
  std::vector<int32_t>& out_;
  bool valid_ = false;
  Queued queue_[kQueue];
  size_t queued_ = 0, done_ = 0;
};

}  // namespace

std::string_view normalized(const std::vector<NormalStep>& steps, std::string_view text, bool continued,
                            std::string (&buffers)[2]) {
  int last = 1;
  const auto next = [&]() -> std::string& {
    last = 1 - last;
    buffers[last].clear();
    return buffers[last];
  };
  for (const NormalStep& s : steps) {
    switch (s.kind) {
      case NormalStep::Kind::kNfc:
      case NormalStep::Kind::kNfd:
      case NormalStep::Kind::kNfkc:
      case NormalStep::Kind::kNfkd: {
        const auto form = static_cast<NormalForm>(s.kind);
        if (surely_normal(text, form)) break;
        std::string& out = next();
        append_normal(out, text, form);
        text = out;
        break;
      }
      case NormalStep::Kind::kPrepend: {
        if (text.empty() || continued) break;
        std::string& out = next();
        out.append(s.to).append(text);
        text = out;
        break;
      }
      case NormalStep::Kind::kReplace: {
        if (text.find(s.from) == text.npos) break;
        std::string& out = next();
        out.reserve(text.size() + text.size() / 2);
        replace_all(out, text, s.from, s.to);
        constexpr size_t kLongestNormal = size_t{1} << 30;
        // Many steps that lengthen a text could fill the memory.
        WEFT_CHECK(out.size() <= kLongestNormal, "tokenizer: the normaliser makes ", out.size(),
                   " bytes of a text; need at most ", kLongestNormal);
        text = out;
        break;
      }
      case NormalStep::Kind::kStrip:
        if (s.left && !continued) text.remove_prefix(io::leading(text, is_white));
        if (s.right) text.remove_suffix(io::trailing(text, is_white));
        break;
    }
  }
  return text;
}

void encode(const Parts& parts, std::string_view text, const Ranges& specials, bool continued,
            std::vector<int32_t>& out) {
  std::unique_ptr<Memory> memory = parts.borrow();
  out.reserve(out.size() + text.size() / 4 + 16);
  Encoder(parts, *memory, out).document(text, specials, continued);
  parts.give_back(std::move(memory));
}

}  // namespace weft::text
