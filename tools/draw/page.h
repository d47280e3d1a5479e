// A page of HTML that contains its program and data: it opens from a file and needs no network.
#pragma once
#include <string>
#include <string_view>

namespace weft::tools {

/// A page with this title (text without & and <), content of its body, style, script, and data. The data is compressed:
/// the script gets it from `await unpackData()` and calls the other functions of page_kit.js. A page without a script
/// has no data.
std::string make_page(std::string_view title, std::string_view body, std::string_view style, std::string_view script,
                      std::string_view json);

/// make_page() for text, tables and charts: `style` adds to document.css. The script shows errors in #message.
std::string make_document(std::string_view title, std::string_view body, std::string_view style,
                          std::string_view script = {}, std::string_view json = {});

}  // namespace weft::tools
