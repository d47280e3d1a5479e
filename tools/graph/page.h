// A page of HTML with a program and its data inside: it opens from a file and asks the network for nothing.
#pragma once
#include <string>
#include <string_view>

namespace weft::tools {

/// `shell` with the style, the scripts and the data, compressed, in place of /*STYLE*/, /*SCRIPT*/ and >DATA<. The
/// script gets the data from `await unpackData()`.
std::string make_page(std::string_view shell, std::string_view style, std::string_view script, std::string_view json);

}  // namespace weft::tools
