// Network addresses of this host and of the coordination service.
#pragma once
#include <string>

namespace weft::control {

/// "10.0.0.1:29500", "[fd00::1]:29500".
std::string with_port(const std::string& host, int port);
/// Why a name or address of a host is not known here; empty: it is. If no name server answers, it asks again for 3 s.
std::string unknown_host(const std::string& host);
/// Whether other hosts can reach a name or address of this host: it is known here, and not of the loopback interface,
/// as the own name of a host often is.
bool is_reachable(const std::string& host);
/// The numeric address of this host that packets to `host`, which may be this one, have as their source; empty if the
/// name is not known, there is no way to it, or the address is of the loopback interface. Sends nothing.
std::string address_towards(const std::string& host);

}  // namespace weft::control
