#include "tools/draw/page.h"

#include "absl/strings/escaping.h"
#include "framework/base/error.h"
#include "framework/io/zlib.h"
#include "tools/draw/page_texts.h"

namespace weft::tools {

static void replace(std::string& page, std::string_view mark, std::string_view text) {
  const size_t at = page.find(mark);
  WEFT_BUG_IF(at == page.npos, "page: no ", std::string(mark));
  page.replace(at, mark.size(), text);
}

std::string make_page(std::string_view title, std::string_view body, std::string_view style, std::string_view script,
                      std::string_view json) {
  std::string page(page_texts("page_shell_html"));
  if (script.empty()) {
    const size_t begin = page.find("<script"), end = page.find("</body>");
    page.erase(begin, end - begin);
  } else {
    replace(page, ">DATA<", str_cat(">", absl::Base64Escape(io::gzip_compress(json, 9)), "<"));
    replace(page, "/*SCRIPT*/", str_cat(page_texts("page_kit_js"), "\n", script));
  }
  replace(page, "<title></title>", str_cat("<title>", title, "</title>"));
  replace(page, "/*STYLE*/", style);
  replace(page, "<!--BODY-->", body);
  return page;
}

std::string make_document(std::string_view title, std::string_view body, std::string_view style,
                          std::string_view script, std::string_view json) {
  return make_page(title, body, str_cat(page_texts("document_css"), style), script, json);
}

}  // namespace weft::tools
