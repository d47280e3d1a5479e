// Parameter and Buffer: shared handles to cells. Cells are the only state; copies of a handle are aliases. Assigning to
// a handle makes it refer to another cell; the module that registered this handle follows.
#pragma once
#include <functional>
#include <string>

#include "framework/dispatch/state/registered.h"
#include "framework/ir/cell.h"

namespace weft {

class CellHandle {
 public:
  using Loc = std::source_location;
  CellHandle() = default;
  CellHandle(const CellHandle& o) : cell_(internal::clone_scope ? clone_of(o.cell_) : o.cell_) {}
  CellHandle(CellHandle&&) = default;
  CellHandle& operator=(const CellHandle&) = default;
  CellHandle& operator=(CellHandle&&) = default;
  /// A handle to an existing cell.
  explicit CellHandle(Ref<Cell> cell) : cell_(std::move(cell)) {}

  /// The current value; inside capture a traced value, made at first use. Materialises a lazy cell. Throws if the cell
  /// is torn. Any thread may read and set a cell: while a compiled step of another thread writes it, both wait for the
  /// step's commit, and a value that was read before keeps its numbers. Inside that step, in a custom op, both throw.
  /// In a job of processes, only the thread that runs the steps reads sharded cells and sets cells of a mesh.
  Tensor value(Loc loc = Loc::current()) const;
  operator Tensor() const { return value(Loc()); }
  Tensor data(Loc loc = Loc::current()) const { return value(loc).detach(); }
  /// Replaces the value; shape, dtype and device must be equal. Inside capture, the write happens when the step
  /// commits.
  void set(const Tensor& value, Loc loc = Loc::current()) const;
  const TensorType& type() const { return cell().type; }
  const Shape& shape() const { return cell().type.shape; }
  DType dtype() const { return cell().type.dtype; }
  DType scalar_type() const { return dtype(); }
  Device device() const { return cell().type.device; }
  int64_t numel() const { return cell().type.shape.numel(); }
  int dim() const { return cell().type.shape.size(); }
  const Shape& size() const { return shape(); }
  int64_t size(int64_t dim, Loc loc = Loc::current()) const { return value(loc).size(dim, loc); }
  const std::string& name() const { return cell().name; }
  void set_name(std::string name) const { cell().name = std::move(name); }
  bool defined() const { return static_cast<bool>(cell_); }
  /// False for a lazy cell that has not been read yet.
  bool materialised() const;
  Cell& cell() const;
  const Ref<Cell>& ref() const { return cell_.ref(); }
  /// For a module that registers this handle: shows the cell that was assigned last.
  const Ref<internal::RegisteredSlot<Cell>>& slot() const { return cell_.slot(); }
  /// Do not exist: a cell changes by set().
#define WEFT_NO_ASSIGNMENT(op)                                                                    \
  template <class T>                                                                              \
  void operator op(T&&) const {                                                                   \
    static_assert(sizeof(T) == 0, "Parameter, Buffer: write p.set(p + y) for p += y, and so on"); \
  }
  WEFT_NO_ASSIGNMENT(+=)
  WEFT_NO_ASSIGNMENT(-=)
  WEFT_NO_ASSIGNMENT(*=)
  WEFT_NO_ASSIGNMENT(/=)
#undef WEFT_NO_ASSIGNMENT
  /// Does not exist: a cell has no gradient.
  template <class T = Tensor>
  Tensor grad() const {
    static_assert(!std::is_same_v<T, Tensor>,
                  "Parameter: gradients are values, not state: write g = grad(loss, model.parameters()) or "
                  "grad(loss, {p})[0]");
    return {};
  }
  /// Changes dtype or device of the cell; a lazy one stays lazy.
  void convert(DType dtype) const;
  void convert(Device device) const;
  friend bool operator==(const CellHandle& a, const CellHandle& b) { return a.ref() == b.ref(); }

 protected:
  internal::Registered<Cell> cell_;

 private:
  static internal::Registered<Cell> clone_of(const internal::Registered<Cell>& cell);
};

/// Makes the value of a cell. Called once, under capture, at construction: so random ops keep their place in program
/// order.
using Initializer = std::function<Tensor()>;

/// Trained state. Its values record for grad() unless frozen by requires_grad(false).
class Parameter : public CellHandle, public TensorMethods<Parameter> {
 public:
  using Loc = CellHandle::Loc;
  Parameter() = default;
  explicit Parameter(Ref<Cell> cell) : CellHandle(std::move(cell)) {}
  /// Starts from a concrete value.
  explicit Parameter(const Tensor& value, std::string name = "", Loc loc = Loc::current());
  /// A lazy parameter: the result of `init` must have this type; uses no memory until the first read.
  Parameter(const TensorType& type, const Initializer& init, std::string name = "", Loc loc = Loc::current());
  const Parameter& requires_grad(bool on) const;
  bool requires_grad() const { return cell().requires_grad; }
  /// A new cell with the same value.
  Parameter clone() const;
};

/// State that is not trained: running statistics, caches, step counts, learning rates.
class Buffer : public CellHandle, public TensorMethods<Buffer> {
 public:
  using Loc = CellHandle::Loc;
  Buffer() = default;
  explicit Buffer(Ref<Cell> cell) : CellHandle(std::move(cell)) {}
  explicit Buffer(const Tensor& value, std::string name = "", Loc loc = Loc::current());
  Buffer(const TensorType& type, const Initializer& init, std::string name = "", Loc loc = Loc::current());
  Buffer clone() const;
};

}  // namespace weft
