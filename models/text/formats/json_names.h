// Names of tokenizer.json, in the order of the enums of description.h.
#pragma once

namespace weft::text {

inline constexpr const char* kNormalTypes[] = {"NFC", "NFD", "NFKC", "NFKD", "Prepend", "Replace", "Strip"};
inline constexpr const char* kBehaviors[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext",
                                             "Contiguous"};
inline constexpr const char* kPrepends[] = {"always", "first", "never"};
inline constexpr const char* kDecodeTypes[] = {"ByteLevel", "ByteFallback", "Fuse", "Strip", "Replace", "Metaspace"};

}  // namespace weft::text
