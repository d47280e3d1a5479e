// Pieces: how the tensors of a file make up the cells of a model.
#pragma once
#include <string>
#include <vector>

#include "framework/tensor/view.h"
#include "models/weights/families/family.h"
#include "models/weights/source.h"

namespace weft::weights {

/// Elements of one tensor of a file that are elements of one cell: element e of the box `extents` is element
/// from_offset + e·from of the tensor, and element to_offset + e·to of the cell. `from` descends, so that a range of
/// the first dim is a range of the tensor.
struct Piece {
  std::string source;
  std::vector<int64_t> extents, from, to;
  int64_t from_offset = 0, to_offset = 0;
  /// Whether each element has the same place in the tensor and in the cell.
  bool keeps_places() const { return from == to && from_offset == 0 && to_offset == 0; }
};

/// The sizes of a model that layouts need.
struct Sizes {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t experts = 0;  // 0: no experts
  /// Throws InvalidArgument, naming the field, for values that are not sizes.
  explicit Sizes(const nn::ConfigMap& config);
};

/// The shape of the tensor that a cell of this shape is made of.
Shape source_shape(Layout layout, const Shape& cell, const Sizes& sizes);
/// The piece that is a whole tensor and a whole cell of this shape.
Piece same_piece(std::string source, const Shape& cell);
/// The piece of a cell of this shape. `expert`: the number of the expert, for kExpert.
Piece piece_of(Layout layout, const Shape& cell, const Sizes& sizes, int64_t expert = 0);

/// A cell and the pieces that set each of its elements once.
struct CellPlan {
  std::string cell;
  Shape shape;
  std::vector<Piece> pieces;
};

/// The pieces of all cells [name, shape]. Throws before any data is read: InvalidArgument or NotFound, naming file and
/// tensor, for missing, unknown, repeated and quantised tensors and for other shapes. `warnings` receives
/// sentences about valid but unusual files.
std::vector<CellPlan> plan_cells(const WeightSource& source, const Family& family, const nn::ConfigMap& config,
                                 const std::vector<std::pair<std::string, Shape>>& cells,
                                 std::vector<std::string>* warnings = nullptr);

/// A tensor of a file that contains a part of a cell: the inverse of a CellPlan.
struct TensorPlan {
  std::string name;
  Shape shape;
  size_t cell = 0;  // its number
  Piece piece;
};

/// The tensors of a file with the parts of these cells [name, shape], in their order. `model_type`: of the file, which
/// chooses between names. Throws InvalidArgument, naming the cell, if the rows do not contain a whole cell.
std::vector<TensorPlan> plan_tensors(const Family& family, const nn::ConfigMap& config, const std::string& model_type,
                                     const std::vector<std::pair<std::string, Shape>>& cells);

/// Copies the part of a cell that a tensor contains, with conversion to the tensor's dtype. `cell`: contiguous.
void copy_tensor(const TensorPlan& plan, const StridedView& cell, DType dtype, void* tensor);

/// Throws NotFound if the file lacks a layer of a model of `layers` layers. Call it before making a model: the modules
/// of a layer need memory before its weights are read.
void check_layers(const WeightSource& source, const Family& family, int64_t layers);

/// Copies a piece to the memory of its cell, with conversion to the cell's dtype. Reads only the elements of the piece,
/// in ranges of about 4 MiB that threads share. Verifies as WeightSource::visit().
void copy_piece(const WeightSource& source, const Piece& piece, DType dtype, void* cell);

}  // namespace weft::weights
