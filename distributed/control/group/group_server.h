// The service of replicas: the logic of group.h on a server (service/server.h). It may end and start again at any time:
// it continues from its journal, and steps go on meanwhile. Its journal is the history of the run.
//
// The members of a view also exchange addresses through it, in rounds: each gives a value, and all get the values of
// all members. A restart loses these values. Members that connect again give them again.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "distributed/control/group/view.h"

namespace weft::control {

struct GroupServerOptions {
  std::string address = "127.0.0.1:0";  // port 0: any free one
  /// May be empty only on loopback; then every user of this host can connect.
  std::string token = {};
  /// Path of the file with the views; "": none, so the members do not outlive a restart of the service.
  std::string journal = {};
  std::string job = "replicas";
  bool is_new = false;       // a new run, which replaces a journal of an earlier run with the same `job`
  int64_t replicas = 1;      // the most members of a view; further replicas wait
  int64_t replicas_min = 1;  // the group waits for this number of replicas
};

struct GroupServerStatus {
  ReplicaView view;     // the current view
  int64_t replicas;     // processes that the service knows, members and others
  int64_t connections;  // connections with the token
  int64_t refused;      // connections with another token
  int64_t messages;     // messages so far
  int64_t deaths;       // deaths that launchers have reported so far
};

class GroupServer {
 public:
  /// Throws as Server does, and for wrong numbers of replicas.
  explicit GroupServer(const GroupServerOptions& options);
  ~GroupServer();
  GroupServer(const GroupServer&) = delete;

  /// "127.0.0.1:43210".
  std::string address() const;
  int port() const;
  GroupServerStatus status() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::control
