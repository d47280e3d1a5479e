#include "models/text/formats/parts.h"

#include <algorithm>

#include "framework/base/error.h"
#include "models/text/bytes_as_text.h"

namespace weft::text {
namespace {

void replace_in(std::string& text, std::string_view from, std::string_view to) {
  std::string out;
  replace_all(out, text, from, to);
  text = std::move(out);
}

}  // namespace

void decode_step(const DecodeStep& s, std::string& text) {
  switch (s.kind) {
    case DecodeStep::Kind::kByteLevel:
      if (auto bytes = bytes_of_text(text)) text = *bytes;
      break;
    case DecodeStep::Kind::kByteFallback:
      if (const int b = fallback_byte(text); b >= 0) text.assign(1, static_cast<char>(b));
      break;
    case DecodeStep::Kind::kFuse:
      break;
    case DecodeStep::Kind::kStrip: {
      size_t begin = 0;
      for (int64_t i = 0; i < s.start && std::string_view(text).substr(begin).starts_with(s.from); ++i)
        begin += s.from.size();
      size_t end = text.size();
      for (int64_t i = 0; i < s.stop && std::string_view(text).substr(begin, end - begin).ends_with(s.from); ++i)
        end -= s.from.size();
      text = text.substr(begin, end - begin);
      break;
    }
    case DecodeStep::Kind::kReplace:
      replace_in(text, s.from, s.to);
      break;
    case DecodeStep::Kind::kMetaspace:
      replace_in(text, s.from, " ");
      break;
  }
}

Parts::Parts(Description description) : d(std::move(description)), bpe(d) {
  for (const SplitStep& s : d.split) {
    CompiledStep c{s, nullptr, std::nullopt};
    const bool gpt2 = s.kind == SplitStep::Kind::kByteLevel && s.use_regex;
    if (gpt2 || s.kind == SplitStep::Kind::kPattern) {
      const std::string expression = gpt2 ? gpt2_pattern().expression : s.pattern;
      c.known = find_pattern(expression);
      c.regex.emplace(expression, d.where);
    }
    steps.push_back(std::move(c));
  }
  std::string buffers[2];
  for (const AddedToken& t : d.added) {
    // Special tokens are found in the text as it is: a normaliser could join them with text of a user. Without a
    // normaliser, too, `normal` is looked for in what `raw` leaves.
    const bool late = t.normalized && !t.special;
    (late ? normal : raw).add(t, late ? normalized(d.normal, t.content, false, buffers) : t.content);
  }
  names = named_ids(std::move(d.tokens), d.added);
  vocab = std::ssize(names);
  d.tokens.clear();
  d.merges = {};
  special.resize(names.size());
  std::vector<bool> added(names.size());
  for (const AddedToken& t : d.added) {
    const auto i = static_cast<size_t>(t.id);
    special[i] = t.special, added[i] = true;
  }
  for (const std::vector<int32_t>* side : {&d.before, &d.after})
    for (int32_t id : *side) WEFT_CHECK(id < vocab, d.where, ": the template has id ", id, "; need 0 to ", vocab - 1);
  const auto fuse = std::find_if(d.decode.begin(), d.decode.end(),
                                 [](const DecodeStep& s) { return s.kind == DecodeStep::Kind::kFuse; });
  joined.assign(fuse, d.decode.end());
  bytes.reserve(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    if (!names[i].empty()) ids.emplace(names[i], static_cast<int32_t>(i));
    bytes.push_back(names[i]);
    for (auto s = d.decode.begin(); s != fuse; ++s)
      if (!(added[i] && s->kind == DecodeStep::Kind::kByteLevel)) decode_step(*s, bytes.back());
  }
  for (auto s = d.decode.begin(); s != fuse; ++s) drop_first = drop_first || s->drop_first;
  cut = cut_rule(*this);
}

std::unique_ptr<Memory> Parts::borrow() const {
  {
    const std::lock_guard lock(mutex_);
    if (!pool_.empty()) {
      std::unique_ptr<Memory> m = std::move(pool_.back());
      pool_.pop_back();
      return m;
    }
  }
  auto m = std::make_unique<Memory>();
  m->steps.resize(steps.size());
  return m;
}

void Parts::give_back(std::unique_ptr<Memory> memory) const {
  const std::lock_guard lock(mutex_);
  pool_.push_back(std::move(memory));
}

}  // namespace weft::text
