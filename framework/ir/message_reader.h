// The parts of graph messages (graph.proto) that other messages have too: types, and where a reader of messages is.
#pragma once
#include <climits>

#include "framework/ir/graph.pb.h"
#include "framework/ir/graph_reader.h"

namespace weft::internal {

/// The inverse of MessageReader::type.
void write_type(const TensorType& t, TypeProto& p);

class MessageReader : protected GraphReader {
 protected:
  /// Messages begin with `reader`.
  explicit MessageReader(const char* reader) : place_(str_cat(reader, ": ")) {}
  ~MessageReader() = default;

  std::string place() const final { return place_; }

  /// During its lifetime, messages name this part of the message too.
  class Part {
   public:
    template <class... Ts>
    explicit Part(MessageReader& r, const Ts&... name) : place_(r.place_), before_(place_.size()) {
      place_ += str_cat(name..., ": ");
    }
    ~Part() { place_.resize(before_); }
    Part(const Part&) = delete;

   private:
    std::string& place_;
    size_t before_;
  };

  /// Throws InvalidArgument if the bytes are no complete message of this type, `name`.
  template <class Message>
  Message message(std::string_view bytes, const char* name) const {
    Message m;
    if (bytes.size() > INT_MAX || !m.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || !m.end())
      refuse(str_cat(bytes.size(), " bytes that are no complete message ", name), "all bytes that to_proto() returned");
    return m;
  }
  TensorType type(const TypeProto& p) const;
  template <class Integers>
  Shape ints(const Integers& values) const {
    if (values.size() > kMaxDims) refuse(str_cat(values.size(), " integers"), str_cat("at most ", kMaxDims));
    Shape s;
    for (int64_t v : values) s.push_back(v);
    return s;
  }

 private:
  std::string place_;
};

/// The bytes of a whole message; throws if they are more than protobuf's 2 GiB.
template <class Message>
std::string bytes_of(Message& m, const char* what) {
  m.set_end(true);
  std::string bytes;
  WEFT_CHECK(m.ByteSizeLong() <= INT_MAX && m.SerializeToString(&bytes), what, " has ", m.ByteSizeLong(),
             " bytes as protobuf; need at most ", INT_MAX);
  return bytes;
}

}  // namespace weft::internal
