// An operator that takes tensors, not pointers: what it can't compute it refuses, and strides go to the kernel.
#include <torch/library.h>
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

namespace {

// y[i, j] = x[i, j] * w[j]. The strides are arguments: any slice, transpose or expanded tensor is read as it lies.
template <typename T>
void scale_kernel(const T* x, int64_t x_row, int64_t x_column, const T* w, int64_t w_step, T* y, int64_t rows,
                  int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      y[i * columns + j] = x[i * x_row + j * x_column] * w[j * w_step];
    }
  }
}

at::Tensor scale_cpu(const at::Tensor& x, const at::Tensor& w) {
  TORCH_CHECK(x.device().is_cpu() && w.device().is_cpu(), "scale: x and w must be on the CPU, not on ", x.device(),
              " and ", w.device());
  TORCH_CHECK(x.scalar_type() == w.scalar_type(), "scale: x is ", x.scalar_type(), ", and w is ", w.scalar_type());
  TORCH_CHECK(x.dim() == 2 && w.dim() == 1 && x.size(1) == w.size(0), "scale: x of ", x.sizes(), " and w of ",
              w.sizes(), " are not (n, m) and (m)");
  // at::empty and not empty_like: that keeps the strides of x, and the kernel writes row by row.
  at::Tensor y = at::empty(x.sizes(), x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale", [&] {
    scale_kernel<scalar_t>(x.const_data_ptr<scalar_t>(), x.stride(0), x.stride(1), w.const_data_ptr<scalar_t>(),
                           w.stride(0), y.mutable_data_ptr<scalar_t>(), x.size(0), x.size(1));
  });
  return y;
}

// The same for a kernel that reads its input flat: it says so, and nothing else reaches it.
at::Tensor scale_flat_cpu(const at::Tensor& x, double factor) {
  TORCH_CHECK(x.device().is_cpu(), "scale_flat: x must be on the CPU, not on ", x.device());
  TORCH_CHECK(x.is_contiguous(), "scale_flat: x must be contiguous, its strides are ", x.strides());
  at::Tensor y = at::empty(x.sizes(), x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale_flat", [&] {
    const scalar_t* from = x.const_data_ptr<scalar_t>();
    scalar_t* to = y.mutable_data_ptr<scalar_t>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      to[i] = from[i] * static_cast<scalar_t>(factor);
    }
  });
  return y;
}

}  // namespace

// The schema has no alias marks: the operators write to none of their arguments and return no view of one.
TORCH_LIBRARY(stridewise_example, m) {
  m.def("scale(Tensor x, Tensor w) -> Tensor");
  m.def("scale_flat(Tensor x, float factor) -> Tensor");
}

TORCH_LIBRARY_IMPL(stridewise_example, CPU, m) {
  m.impl("scale", &scale_cpu);
  m.impl("scale_flat", &scale_flat_cpu);
}
