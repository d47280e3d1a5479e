// Records of linear algebra. Matrices are the last two dims, f32 or f64; the dims before them are a batch. They have
// CPU kernels only: a step on another device that contains one is refused when it is prepared.
#pragma once
#include <span>

#include "framework/ir/op_def.h"

namespace weft {

extern const OpDef solve_op;        // (a[..., n, n], b[..., n, k]) -> a^-1 b; throws if a is singular
extern const OpDef lu_op;           // a[..., m, n] -> l and u in one matrix, pivots i32, rows i64
extern const OpDef determinant_op;  // a[..., n, n] -> det, sign, log |det|
extern const OpDef cofactors_op;    // a[..., n, n] -> the derivative of the determinant by each element
extern const OpDef cholesky_op;     // a[..., n, n] -> lower triangle; throws unless a is positive definite
extern const OpDef qr_op;           // a[..., m, n] -> q[..., m, k], r[..., k, n]
extern const OpDef eigh_op;         // a[..., n, n] -> eigenvalues, ascending; eigenvectors in columns
extern const OpDef svd_op;          // a[..., m, n] -> u, s, vh {full}
extern const OpDef matrix_exp_op;   // a[..., n, n] -> e^a
std::span<const OpDef* const> linalg_ops();

}  // namespace weft
