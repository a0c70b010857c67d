//! Matrix views over slices, and the one call into `matrixmultiply`.
//!
//! The only unsafe code of this room is `multiply`. Invariant: a view never reaches past its
//! slice, which is asserted where the view is made, so the call below it is in bounds.

/// A read-only matrix inside a slice, by strides in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Matrix<'a> {
    // data: element (i, j) stands at i * row_stride + j * column_stride
    data: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Views the first `rows * columns` elements as a row-major matrix.
    pub(super) fn new(data: &'a [f32], rows: usize, columns: usize) -> Self {
        Self::strided(data, rows, columns, columns)
    }

    /// Views `rows` rows of `columns` elements whose starts lie `row_stride` apart.
    pub(super) fn strided(data: &'a [f32], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert_inside(data.len(), rows, columns, row_stride);
        Self { data, rows, columns, row_stride, column_stride: 1 }
    }

    /// The same elements with rows and columns exchanged.
    pub(super) fn transposed(self) -> Self {
        Self {
            data: self.data,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }
}

/// A writable matrix inside a slice, with contiguous rows.
#[derive(Debug)]
pub(super) struct MatrixMut<'a> {
    // data: element (i, j) stands at i * row_stride + j
    data: &'a mut [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
}

impl<'a> MatrixMut<'a> {
    /// Views the first `rows * columns` elements as a row-major matrix.
    pub(super) fn new(data: &'a mut [f32], rows: usize, columns: usize) -> Self {
        Self::strided(data, rows, columns, columns)
    }

    /// Views `rows` rows of `columns` elements whose starts lie `row_stride` apart.
    pub(super) fn strided(data: &'a mut [f32], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert_inside(data.len(), rows, columns, row_stride);
        assert!(row_stride >= columns, "rows of a written matrix must not overlap");
        Self { data, rows, columns, row_stride }
    }
}

fn assert_inside(length: usize, rows: usize, columns: usize, row_stride: usize) {
    assert!(rows > 0 && columns > 0, "a matrix has at least one element");
    assert!((rows - 1) * row_stride + columns <= length, "a matrix must lie inside its slice");
}

/// Whether a product replaces what the output holds or is added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Into {
    /// `out = scale a b`
    Replace,
    /// `out = out + scale a b`
    Add,
}

/// Multiplies `a` (m, k) by `b` (k, n) and `scale` into `out` (m, n).
///
/// # Panics
///
/// If the shapes do not fit; that is a bug of the caller.
#[expect(clippy::needless_pass_by_value, reason = "a view is made for one product")]
pub(super) fn multiply(scale: f32, a: Matrix<'_>, b: Matrix<'_>, how: Into, out: MatrixMut<'_>) {
    assert_eq!(a.columns, b.rows, "inner dimensions");
    assert_eq!((a.rows, b.columns), (out.rows, out.columns), "outer dimensions");
    let beta = match how {
        Into::Replace => 0.0,
        Into::Add => 1.0,
    };
    // A stride is below a slice's length, which fits isize by the rules of the language.
    let stride = |value: usize| value.cast_signed();
    #[expect(unsafe_code, reason = "matrixmultiply's entry point takes raw pointers")]
    // SAFETY: the views assert that every index (i, j) within rows and columns lies inside the
    // slice; `out` is borrowed exclusively, so it aliases neither `a` nor `b`, and its rows do not
    // overlap. With beta = 0 the output is not read.
    unsafe {
        matrixmultiply::sgemm(
            a.rows,
            a.columns,
            b.columns,
            scale,
            a.data.as_ptr(),
            stride(a.row_stride),
            stride(a.column_stride),
            b.data.as_ptr(),
            stride(b.row_stride),
            stride(b.column_stride),
            beta,
            out.data.as_mut_ptr(),
            stride(out.row_stride),
            1,
        );
    }
}
