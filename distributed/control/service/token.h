// The secret that all members of a job share with its coordination service.
#pragma once
#include <string>
#include <string_view>

namespace weft::control {

/// The token in a file that only its owner may read, without leading and trailing white space. Throws if there is none.
std::string token_of_file(const std::string& path);
/// The token in an environment variable, which is removed from this process's environment. "" if it is not set.
std::string take_token(const char* variable);
/// A new random token.
std::string make_token();
/// Compares in a time that depends only on the length of `given`.
bool same_token(std::string_view given, std::string_view token);

}  // namespace weft::control
