// Errors of planning name the line of the user's op.
#pragma once
#include <utility>

#include "framework/base/error.h"
#include "framework/ir/graph.h"

namespace weft::dist {

/// Returns f(). Its errors get the line and the scope of the node.
template <class F>
decltype(auto) at_node(const Node& n, F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const Error& e) {
    throw Error(e.code(), str_cat(e.what(), n.line.line ? str_cat("; at ", n.line.to_string()) : "",
                                  *n.scope ? str_cat("; in ", n.scope) : ""));
  }
}

}  // namespace weft::dist
