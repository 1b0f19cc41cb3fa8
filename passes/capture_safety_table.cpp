#include "passes/capture_safety_table.h"

#include <ATen/core/alias_info.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace pcg {
namespace {

// Rows that differ in nothing but their names, written as one. An operator of
// aten or prim that no row names is safe, or glue if its schema holds no
// tensor.
//
// Torch 2.11. Drawn from a reading of the binaries and settled, for a hundred
// operators, by capturing each on an H200.
struct Theme {
  CaptureClass kind;
  Reason reason;
  Condition condition;
  std::string_view argument;
  std::string_view sentence;
  std::string_view names;  // Separated by white space.
};

constexpr Theme unsafe(Reason reason, std::string_view sentence,
                       std::string_view names) {
  return {CaptureClass::kUnsafe, reason, Condition::kNone, "", sentence, names};
}
constexpr Theme conditional(Reason reason, Condition condition,
                            std::string_view argument,
                            std::string_view sentence, std::string_view names) {
  return {
      CaptureClass::kConditional, reason, condition, argument, sentence, names};
}
constexpr Theme glueUnless(Reason reason, Condition condition,
                           std::string_view argument, std::string_view sentence,
                           std::string_view names) {
  return {CaptureClass::kGlue, reason, condition, argument, sentence, names};
}
constexpr Theme glue(std::string_view names) {
  return {CaptureClass::kGlue, Reason::kNone, Condition::kNone, "", "", names};
}
constexpr Theme safe(std::string_view names) {
  return {CaptureClass::kSafe, Reason::kNone, Condition::kNone, "", "", names};
}

constexpr Theme kThemes[] = {
    // ---- tensor data read on the host ---------------------------------------

    unsafe(Reason::kHostRead,
           "copies a value to the host and waits for the GPU", R"(
      aten::item  aten::_local_scalar_dense  aten::is_nonzero
      aten::Bool.Tensor  aten::Int.Tensor  aten::Float.Tensor
      aten::Complex.Tensor_Tensor  aten::Complex.Tensor_bool
      aten::Complex.Tensor_float  aten::Complex.Tensor_int
      aten::Complex.bool_Tensor  aten::Complex.float_Tensor
      aten::Complex.int_Tensor
      aten::IntImplicit  aten::FloatImplicit  aten::ComplexImplicit
      aten::ScalarImplicit
      aten::_choose_qparams_per_tensor.*
      aten::_test_check_tensor
      aten::_use_cudnn_ctc_loss.Tensor  aten::_use_miopen_ctc_loss.Tensor)"),
    unsafe(Reason::kHostRead,
           "copies a tensor to the host and waits for the GPU", R"(
      aten::_tensor_to_list  prim::tolist  aten::cpu  aten::_to_cpu
      aten::_reshape_from_tensor)"),
    unsafe(Reason::kHostRead,
           "compares tensors and reads the outcome on the host", R"(
      aten::equal  aten::allclose
      aten::eq.Tensor_list  aten::ne.Tensor_list
      aten::count.Tensor  aten::index.list_Tensor  aten::remove.Tensor
      aten::sort.Tensor  aten::sorted.Tensor)"),
    unsafe(Reason::kHostRead, "checks the standard deviations on the host", R"(
      aten::normal.Tensor_Tensor  aten::normal.Tensor_Tensor_out
      aten::normal.float_Tensor  aten::normal.float_Tensor_out)"),
    unsafe(Reason::kHostRead, "checks its window on the host", R"(
      aten::istft)"),
    unsafe(Reason::kHostRead,
           "chooses its approximation on the host, by the norm of the matrix",
           R"(
      aten::matrix_exp  aten::linalg_matrix_exp.*  aten::matrix_exp_backward)"),
    unsafe(Reason::kHostRead, "reads its sequence lengths on the host", R"(
      aten::ctc_loss.Tensor  aten::_ctc_loss.Tensor  aten::_ctc_loss.Tensor_out
      aten::_cudnn_ctc_loss.Tensor)"),
    unsafe(Reason::kHostRead, "reads an observer's state on the host", R"(
      aten::_fused_moving_avg_obs_fq_helper.*
      aten::_fused_moving_avg_obs_fq_helper_functional
      aten::fused_moving_avg_obs_fake_quant  aten::choose_qparams_optimized)"),
    unsafe(Reason::kHostRead, "reads its learning rate on the host", R"(
      aten::_fused_adagrad.tensor_lr  aten::_fused_adagrad.tensor_lr_out
      aten::_fused_adam.tensor_lr  aten::_fused_adam.tensor_lr_out
      aten::_fused_adamw.tensor_lr  aten::_fused_adamw.tensor_lr_out
      aten::_fused_sgd.tensor_lr  aten::_fused_sgd.tensor_lr_out)"),
    conditional(Reason::kHostRead, Condition::kRuntime, "",
                "reads its learning rate on the host on some paths", R"(
      aten::_fused_adagrad_.tensor_lr  aten::_fused_adam_.tensor_lr
      aten::_fused_adamw_.tensor_lr  aten::_fused_sgd_.tensor_lr)"),
    conditional(Reason::kHostRead, Condition::kTensorScalar, "value",
                "reads its value on the host where that lies on the GPU", R"(
      aten::masked_fill.Tensor  aten::masked_fill.Tensor_out
      aten::masked_fill_.Tensor
      aten::index_fill.int_Tensor  aten::index_fill.int_Tensor_out
      aten::index_fill.Dimname_Tensor
      aten::index_fill_.int_Tensor  aten::index_fill_.Dimname_Tensor)"),
    conditional(Reason::kHostRead, Condition::kTensorScalar, "start,end",
                "reads its ends on the host where they lie on the GPU", R"(
      aten::linspace.Scalar_Tensor  aten::linspace.Scalar_Tensor_out
      aten::linspace.Tensor_Scalar  aten::linspace.Tensor_Scalar_out
      aten::linspace.Tensor_Tensor  aten::linspace.Tensor_Tensor_out
      aten::logspace.Scalar_Tensor  aten::logspace.Scalar_Tensor_out
      aten::logspace.Tensor_Scalar  aten::logspace.Tensor_Scalar_out
      aten::logspace.Tensor_Tensor  aten::logspace.Tensor_Tensor_out)"),
    conditional(Reason::kHostRead, Condition::kTensorScalar, "high",
                "reads its bound on the host where that lies on the GPU", R"(
      aten::randint_like.Tensor  aten::randint_like.Tensor_out
      aten::randint_like.Tensor_generator
      aten::randint_like.Tensor_generator_out)"),
    conditional(Reason::kHostRead, Condition::kRuntime, "",
                "reads its operand on the host where no fast path applies", R"(
      aten::_foreach_mul.Tensor  aten::_foreach_mul.Tensor_out
      aten::_foreach_mul_.Tensor
      aten::_foreach_div.Tensor  aten::_foreach_div.Tensor_out
      aten::_foreach_div_.Tensor)"),
    glueUnless(Reason::kHostRead, Condition::kTensorScalar, "start",
               "reads its start on the host where that lies on the GPU", R"(
      aten::narrow.Tensor)"),
    glueUnless(Reason::kHostRead, Condition::kTensorArgument, "",
               "turns a tensor into text or a number on the host", R"(
      aten::str  aten::format  aten::percentFormat  aten::hash.generic)"),
    glueUnless(Reason::kHostRead, Condition::kTensorArgument, "",
               "compares tensors and reads the outcome on the host", R"(
      aten::sort.any  aten::sorted.any)"),
    conditional(Reason::kHostRead, Condition::kPresentArgument, "sorter",
                "checks the sorter on the host", R"(
      aten::searchsorted.*)"),
    conditional(Reason::kHostRead, Condition::kPresentArgument,
                "fweights,aweights", "checks the weights on the host", R"(
      aten::cov)"),
    conditional(Reason::kHostRead, Condition::kFalseArgument, "unsafe",
                "checks the segment lengths on the host", R"(
      aten::segment_reduce.*)"),
    conditional(Reason::kHostRead, Condition::kRuntime, "",
                "waits for the GPU where a slice is large and must be sorted",
                R"(
      aten::mode  aten::mode.values  aten::mode.dimname
      aten::mode.dimname_out)"),
    conditional(Reason::kHostRead, Condition::kRuntime, "",
                "waits for the GPU where many elements are tested for", R"(
      aten::isin.*)"),
    conditional(Reason::kHostRead, Condition::kRuntime, "",
                "copies its pivots to the host for some shapes", R"(
      aten::linalg_lu_solve.*  aten::lu_solve.*)"),
    conditional(Reason::kHostRead, Condition::kRuntime, "",
                "reads group sizes or scales on the host for some types", R"(
      aten::_grouped_mm  aten::_scaled_grouped_mm  aten::_scaled_grouped_mm_v2
      aten::_scaled_mm.*  aten::_scaled_mm_v2.*)"),
    conditional(Reason::kHostRead, Condition::kRuntime, "",
                "waits for the GPU where the input holds a zero", R"(
      aten::cumprod_backward)"),

    // ---- sizes that depend on data ------------------------------------------

    unsafe(Reason::kDynamicShape,
           "waits for the GPU to learn how many elements it returns", R"(
      aten::nonzero  aten::nonzero.out  aten::nonzero_numpy  aten::argwhere
      aten::where
      aten::masked_select.*  aten::masked_scatter_backward
      aten::_unique.*  aten::_unique2.*  aten::unique_dim.*
      aten::unique_consecutive.*  aten::unique_dim_consecutive.*
      aten::bincount.*  aten::combinations
      aten::_padded_dense_to_jagged_forward
      torchvision::nms)"),
    conditional(Reason::kDynamicShape, Condition::kBoolIndex, "indices",
                "waits for the GPU where an index is a mask, and copies an "
                "index that lies in host memory",
                R"(
      aten::index.Tensor  aten::index.Tensor_hacked_twin  aten::index.Tensor_out
      aten::_unsafe_index.Tensor  aten::_unsafe_index.Tensor_hacked_twin
      aten::_unsafe_masked_index
      aten::index_put.*  aten::index_put_.*
      aten::_index_put_impl.*  aten::_index_put_impl_.*
      aten::_unsafe_index_put.*  aten::_unsafe_masked_index_put_accumulate)"),
    conditional(Reason::kDynamicShape, Condition::kMissingArgument,
                "output_size",
                "adds up its repeats on the host where no output_size is given",
                R"(
      aten::repeat_interleave.Tensor  aten::repeat_interleave.Tensor_out
      aten::repeat_interleave.self_Tensor)"),
    conditional(Reason::kDynamicShape, Condition::kNegativeArgument,
                "num_classes",
                "reads the largest class on the host where num_classes is not "
                "given",
                R"(
      aten::one_hot)"),
    conditional(Reason::kDynamicShape, Condition::kLabelSmoothing,
                "weight,reduction,label_smoothing",
                "selects the targets that count and waits for their number "
                "where a weighted mean smooths its labels",
                R"(
      aten::cross_entropy_loss)"),
    conditional(Reason::kHostRead, Condition::kEqualArguments, "min,max",
                "reads the range of the data on the host where none is given",
                R"(
      aten::histc.*)"),

    // ---- linear algebra with an error check ---------------------------------

    unsafe(Reason::kErrorCheck,
           "reads an error code on the host; an _ex variant that does not "
           "check can be captured",
           R"(
      aten::linalg_inv.*  aten::inverse.*
      aten::linalg_cholesky.*  aten::cholesky.*
      aten::linalg_solve.*  aten::linalg_lu_factor.*
      aten::linalg_ldl_factor.*)"),
    unsafe(Reason::kErrorCheck, "reads an error code on the host", R"(
      aten::_linalg_check_errors
      aten::linalg_tensorinv.*  aten::linalg_tensorsolve.*
      aten::cholesky_inverse.*
      aten::linalg_eigh.*  aten::_linalg_eigh.*  aten::linalg_eigvalsh.*
      aten::linalg_eig.*  aten::linalg_eigvals.*  aten::_linalg_eigvals
      aten::linalg_svd.*  aten::_linalg_svd.*  aten::linalg_svdvals.*
      aten::svd.*  aten::linalg_lstsq.*
      aten::linalg_pinv.*  aten::pinverse  aten::linalg_matrix_rank.*
      aten::nuclear_norm.*)"),
    conditional(Reason::kErrorCheck, Condition::kTrueArgument, "check_errors",
                "reads an error code on the host where check_errors is set", R"(
      aten::linalg_inv_ex.*  aten::linalg_cholesky_ex.*
      aten::linalg_solve_ex.*  aten::_linalg_solve_ex.*
      aten::linalg_lu_factor_ex.*  aten::linalg_ldl_factor_ex.*)"),
    conditional(Reason::kErrorCheck, Condition::kNegativeArgument, "n",
                "inverts the matrix for a negative power and reads an error "
                "code on the host",
                R"(
      aten::matrix_power.*  aten::linalg_matrix_power.*)"),
    conditional(Reason::kErrorCheck, Condition::kSpectralNorm, "ord",
                "needs singular values for this order and reads an error code "
                "on the host",
                R"(
      aten::linalg_norm.*  aten::linalg_matrix_norm.*)"),
    conditional(Reason::kErrorCheck, Condition::kRuntime, "",
                "needs singular values for some orders and reads an error code "
                "on the host",
                R"(
      aten::linalg_cond.*)"),

    // ---- copies between host and device -------------------------------------

    conditional(Reason::kDeviceTransfer, Condition::kDeviceChange, "device",
                "copies between host and device memory where the device "
                "changes",
                R"(
      aten::to.device  aten::to.dtype_layout  aten::to.prim_Device
      aten::_to_copy  aten::as_tensor)"),
    conditional(Reason::kDeviceTransfer, Condition::kDeviceChange, "other",
                "copies between host and device memory where the devices "
                "differ",
                R"(
      aten::to.other  aten::type_as  aten::copy_.Tensor)"),
    conditional(Reason::kDeviceTransfer, Condition::kDeviceChange, "out",
                "copies between host and device memory where the devices "
                "differ",
                R"(
      aten::_to_copy.out)"),
    conditional(Reason::kDeviceTransfer, Condition::kDeviceChange, "src",
                "copies between host and device memory where the devices "
                "differ",
                R"(
      aten::copy_  aten::copy  aten::copy.out)"),
    conditional(Reason::kDeviceTransfer, Condition::kDeviceChange, "dst",
                "copies between host and device memory where the devices "
                "differ",
                R"(
      aten::_copy_from  aten::_copy_from.out
      aten::_copy_from_and_resize  aten::_copy_from_and_resize.out)"),
    conditional(Reason::kDeviceTransfer, Condition::kRuntime, "",
                "copies between host and device memory where the devices "
                "differ",
                R"(
      aten::to.prim_other)"),
    conditional(Reason::kDeviceTransfer, Condition::kDeviceChange, "",
                "copies host memory to the GPU unless the tensor is there", R"(
      aten::cuda)"),
    conditional(Reason::kDeviceTransfer, Condition::kHostLiteral, "device",
                "builds a tensor in host memory and copies it to its device",
                R"(
      aten::tensor.*  aten::as_tensor.bool  aten::as_tensor.complex
      aten::as_tensor.float  aten::as_tensor.int  aten::as_tensor.list)"),
    conditional(Reason::kDeviceTransfer, Condition::kRuntime, "",
                "copies a host value to the tensor's device", R"(
      aten::copy_.float  aten::copy_.int)"),
    conditional(Reason::kDeviceTransfer, Condition::kRuntime, "",
                "copies between host and device memory where the devices "
                "differ",
                R"(
      aten::_foreach_copy  aten::_foreach_copy.out  aten::_foreach_copy_)"),
    conditional(Reason::kDeviceTransfer, Condition::kRuntime, "",
                "copies its table of pointers to the GPU on some paths", R"(
      aten::_chunk_cat.*  aten::split_with_sizes_copy.*)"),
    unsafe(Reason::kDeviceTransfer, "copies its sequence lengths to the GPU",
           R"(
      aten::ctc_loss.IntList  aten::_ctc_loss  aten::_ctc_loss.out
      aten::_cudnn_ctc_loss  aten::_cudnn_ctc_loss.out)"),
    unsafe(Reason::kDeviceTransfer, "allocates page-locked host memory", R"(
      aten::pin_memory  aten::_pin_memory.*)"),

    // ---- computation on host memory -----------------------------------------

    unsafe(Reason::kHostComputation, "builds a tensor in host memory", R"(
      aten::_list_to_tensor  aten::_shape_as_tensor  aten::from_file.*)"),
    unsafe(Reason::kHostComputation,
           "handles packed sequences, whose batch sizes lie in host memory", R"(
      aten::lstm.data  aten::gru.data  aten::rnn_tanh.data  aten::rnn_relu.data
      aten::_pack_padded_sequence.*  aten::_pack_padded_sequence_backward
      aten::_pad_packed_sequence  aten::_pack_sequence
      prim::PackPadded  prim::PadPacked)"),
    unsafe(Reason::kHostComputation, "reads split points from host memory", R"(
      aten::tensor_split.tensor_indices_or_sections)"),
    unsafe(Reason::kHostComputation, "reads its scalars from host memory", R"(
      aten::_foreach_addcdiv.Tensor  aten::_foreach_addcdiv.Tensor_out
      aten::_foreach_addcdiv_.Tensor
      aten::_foreach_addcmul.Tensor  aten::_foreach_addcmul.Tensor_out
      aten::_foreach_addcmul_.Tensor)"),
    unsafe(Reason::kHostComputation, "has only a CPU kernel", R"(
      aten::histogram.*  aten::histogramdd.*  aten::_histogramdd_bin_edges.*
      aten::_histogramdd_from_bin_cts.*  aten::_histogramdd_from_bin_tensors.*
      aten::_sobol_engine_*  aten::_nnpack_spatial_convolution.*
      aten::_grid_sampler_2d_cpu_fallback*  aten::fbgemm_*
      aten::_wrapped_*  aten::_saturate_weight_to_fp16
      mkldnn::*  onednn::*  mkldnn_prepacked::*  prepacked::*)"),
    unsafe(Reason::kHostComputation, "looks tensors up as the keys of a dict",
           R"(
      aten::__contains__.Tensor  aten::__getitem__.Dict_Tensor
      aten::_set_item.Tensor  aten::Delete.Dict_Tensor
      aten::get.Tensor  aten::get.default_Tensor
      aten::pop.Dict_Tensor  aten::pop.Dict_default_Tensor
      aten::setdefault.Tensor  aten::popitem.Tensor
      aten::keys.Tensor  aten::values.Tensor  aten::items.Tensor
      aten::dict.Tensor  aten::dict.Dict_Tensor  aten::update.Tensor
      aten::clear.Tensor  aten::copy.Dict_Tensor  aten::len.Dict_Tensor)"),

    // ---- side effects -------------------------------------------------------

    unsafe(Reason::kSideEffect, "prints or warns", R"(
      prim::Print  aten::_print  aten::warn)"),
    unsafe(Reason::kSideEffect, "writes a file", R"(
      aten::save)"),
    unsafe(Reason::kSideEffect, "reads the clock", R"(
      prim::TimePoint)"),
    unsafe(Reason::kSideEffect, "records a statistic", R"(
      prim::AddStatValue  profiler::*)"),
    unsafe(Reason::kSideEffect, "changes a mode of the thread", R"(
      aten::set_grad_enabled)"),
    unsafe(Reason::kSideEffect, "sets or reads the state of a generator", R"(
      aten::manual_seed.*  aten::seed  aten::initial_seed)"),
    unsafe(Reason::kSideEffect, "changes the cache of FFT plans", R"(
      aten::_cufft_clear_plan_cache  aten::_cufft_set_plan_cache_max_size)"),
    unsafe(Reason::kSideEffect,
           "selects, or waits for, a device or stream of CUDA", R"(
      cuda::*)"),
    unsafe(Reason::kSideEffect, "ties memory to a stream", R"(
      aten::record_stream)"),
    unsafe(Reason::kSideEffect,
           "reads how often a tensor was written, which a replay does not "
           "count",
           R"(
      aten::_version)"),
    unsafe(Reason::kGenerator, "makes a random number generator", R"(
      aten::Generator)"),
    unsafe(Reason::kModuleState, "assigns an attribute", R"(
      prim::SetAttr)"),
    unsafe(Reason::kContextManager, "enters or leaves a with block", R"(
      prim::Enter  prim::Exit)"),

    // ---- asynchronous and remote work ---------------------------------------

    unsafe(Reason::kAsynchronous, "starts asynchronous work or waits for it",
           R"(
      prim::fork  prim::forkClosure  prim::TracedFork  aten::wait
      prim::awaitable  prim::awaitableClosure  prim::awaitable_nowait
      prim::awaitable_wait)"),
    unsafe(Reason::kAsynchronous, "works with another process", R"(
      prim::rpc_async  prim::rpc_sync  prim::rpc_remote
      aten::to_here  aten::local_value  aten::owner  aten::owner_name
      aten::is_owner  aten::confirmed_by_owner
      c10d::*  _c10d_functional::*  _c10d_functional_autograd::*
      symm_mem::*)"),

    // ---- calls and leftovers of other passes --------------------------------

    unsafe(Reason::kOpaqueCall, "calls code that could not be inlined", R"(
      prim::CallMethod  prim::CallFunction  prim::Closure
      prim::TracedModuleForward)"),
    unsafe(Reason::kOpaqueCall, "calls Python", R"(
      prim::PythonOp  prim::IgnoredPythonOp)"),
    unsafe(Reason::kOpaqueCall,
           "was put there by an optimizing executor; partition the graph "
           "before it is optimized",
           R"(
      prim::profile  prim::profile_ivalue  prim::Guard  prim::BailOut
      prim::BailoutTemplate  prim::TypeCheck  prim::RequiresGradCheck
      prim::DifferentiableGraph  prim::FallbackGraph  prim::FunctionalGraph
      prim::FusionGroup  prim::FusedConcat  prim::CudaFusionGroup
      prim::CudaFusionGuard  prim::TensorExprGroup
      prim::TensorExprDynamicGroup  prim::TensorExprDynamicGuard
      prim::oneDNNFusionGroup  prim::oneDNNFusionGuard  prim::MKLDNNGroup
      prim::StaticSubgraph  prim::StaticRuntimeCopyOuts  static_runtime::*)"),
    unsafe(Reason::kOpaqueCall, "already runs a segment", R"(
      pcg::segment  pcg::run_segment)"),
    unsafe(Reason::kTagged, "marks where the graph is to be split", R"(
      pcg::no_graph_begin  pcg::no_graph_end  pcg::force_no_graph)"),
    unsafe(Reason::kBoundaryType, "creates an object", R"(
      prim::CreateObject)"),
    unsafe(Reason::kBoundaryType, "looks a submodule up", R"(
      prim::ModuleContainerIndex.*  prim::TracedAttr)"),

    // ---- a tensor's own metadata, autograd ----------------------------------

    unsafe(Reason::kMetadataMutation,
           "changes a tensor's own sizes or storage, which a replay would not "
           "repeat",
           R"(
      aten::resize_  aten::resize_as_  aten::resize_as_sparse_
      aten::_resize_output_  aten::set_.*  aten::set_data
      aten::squeeze_.*  aten::unsqueeze_  aten::transpose_  aten::t_
      aten::swapaxes_  aten::swapdims_  aten::as_strided_  aten::detach_
      aten::rename_)"),
    unsafe(Reason::kAutograd, "accumulates gradients", R"(
      aten::backward.*  aten::_backward  aten::dist_backward)"),
    conditional(Reason::kAutograd, Condition::kRuntime, "",
                "computes gradients: it is captured with all that recorded "
                "the tape, or not at all",
                R"(
      aten::grad)"),
    unsafe(Reason::kAutograd, "reads or keeps an accumulated gradient", R"(
      prim::grad  aten::retain_grad)"),
    unsafe(Reason::kAutograd, "reads what a tensor is to its tape", R"(
      aten::is_leaf  aten::output_nr  aten::retains_grad)"),
    unsafe(Reason::kStorageLayout,
           "compares where tensors lie in memory, which a copy does not show",
           R"(
      aten::is_set_to)"),
    unsafe(Reason::kAutograd, "belongs to forward-mode differentiation", R"(
      aten::_fw_primal  aten::_make_dual  aten::_unpack_dual)"),

    // ---- other storage layouts ----------------------------------------------

    unsafe(Reason::kStorageLayout, "works on sparse tensors", R"(
      aten::to_sparse*  aten::_to_sparse*  aten::sparse_*  aten::_sparse_*
      aten::_validate_sparse_*  aten::_validate_compressed_sparse_indices
      aten::to_dense  aten::_to_dense.*  aten::to_dense_backward
      aten::coalesce  aten::_coalesce.*  aten::_coalesced.*  aten::_coalesced_
      aten::indices  aten::indices_copy.*  aten::_indices
      aten::_indices_copy.*
      aten::values  aten::values_copy.*  aten::_values  aten::_values_copy.*
      aten::crow_indices  aten::crow_indices_copy.*
      aten::col_indices  aten::col_indices_copy.*
      aten::ccol_indices  aten::ccol_indices_copy.*
      aten::row_indices  aten::row_indices_copy.*
      aten::copy_sparse_to_sparse.*  aten::copy_sparse_to_sparse_
      aten::smm  aten::sspaddmm.*  aten::hspmm.*  aten::_spdiags.*
      aten::_spsolve  aten::resize_as_sparse.*  aten::_cslt_*
      aten::_gather_sparse_backward  aten::_convert_indices_from_*
      aten::embedding_sparse_backward  aten::_embedding_bag_sparse_backward
      sparse::*)"),
    unsafe(Reason::kStorageLayout, "works on quantized tensors", R"(
      aten::quantize_*  aten::quantized_*  aten::dequantize.*  aten::int_repr.*
      aten::q_*  aten::qscheme  aten::empty_quantized.*
      aten::_empty_affine_quantized.*
      aten::_empty_per_channel_affine_quantized.*
      aten::_make_per_channel_quantized_tensor.*
      aten::_make_per_tensor_quantized_tensor.*
      quantized::*  _quantized::*  quantization::*)"),
    unsafe(Reason::kStorageLayout, "works on nested tensors", R"(
      aten::_nested_*  aten::nested_to_padded_tensor
      aten::to_padded_tensor.*)"),
    unsafe(Reason::kStorageLayout, "works on tensors in MKL-DNN layout", R"(
      aten::to_mkldnn*  aten::mkldnn_*  aten::_mkldnn_*  prim::MKLDNN*
      prim::mkldnn_convolution  prim::ConstantMKLDNNTensor
      prim::BroadcastMKLDNNTensors)"),

    // ---- glue: constants, packing, control flow -----------------------------

    glue(R"(
      prim::Constant  prim::If  prim::Loop  prim::GetAttr  prim::HasAttr
      prim::Param  prim::Return
      prim::ListConstruct  prim::ListUnpack
      prim::TupleConstruct  prim::TupleUnpack  prim::TupleIndex
      prim::TupleSlice  prim::DictConstruct  prim::EmptyListLiteral
      prim::Uninitialized  prim::AutogradZero
      prim::AutogradAnyNonZero  prim::AutogradAllNonZero
      prim::AutogradAllZero
      prim::unchecked_cast  prim::unchecked_unwrap_optional
      prim::isinstance  prim::annotate  prim::IfThenElse
      prim::EnumName  prim::EnumValue.*
      aten::_unwrap_optional  aten::__is__  aten::__isnot__  aten::__not__
      aten::dict)"),
    // A host check; where it stands in a branch, the branch is a host one.
    glue("prim::RaiseException"),
    // A host scalar in a CPU tensor of dimension 0, as traced shape arithmetic
    // makes them.
    glue("prim::NumToTensor.*"),

    // ---- glue: what a tensor says of itself ---------------------------------

    glue(R"(
      aten::size  aten::size.int  aten::size.Dimname  aten::dim  aten::numel
      aten::len.Tensor  aten::stride  aten::stride.int  aten::stride.Dimname
      aten::storage_offset  aten::element_size  aten::get_device
      aten::sym_size  aten::sym_size.int  aten::sym_numel  aten::sym_stride
      aten::sym_stride.int  aten::sym_storage_offset  aten::sym_is_contiguous
      prim::shape  prim::device  prim::dtype  prim::layout  prim::name
      prim::itemsize  prim::nbytes  prim::requires_grad
      prim::is_cpu  prim::is_cuda  prim::is_ipu  prim::is_maia  prim::is_meta
      prim::is_mkldnn  prim::is_mps  prim::is_mtia  prim::is_nested
      prim::is_quantized  prim::is_sparse  prim::is_sparse_csr
      prim::is_vulkan  prim::is_xla  prim::is_xpu
      aten::is_coalesced  aten::is_complex  aten::is_conj
      aten::is_contiguous.*  aten::is_distributed  aten::is_floating_point
      aten::is_inference  aten::is_neg
      aten::is_non_overlapping_and_dense  aten::is_pinned  aten::is_same_size
      aten::is_signed  aten::is_strides_like_format
      aten::_is_zerotensor
      aten::dense_dim  aten::sparse_dim  aten::_dimI  aten::_dimV  aten::_nnz
      aten::result_type.*  aten::cudnn_is_acceptable  aten::_fused_sdp_choice
      aten::_use_cudnn_ctc_loss  aten::_use_miopen_ctc_loss
      aten::_has_compatible_shallow_copy_type  aten::_has_same_storage_numel
      aten::_debug_has_internal_overlap  aten::_assert_tensor_metadata)"),
    // Sets a flag of the tensor; gradient islands need it.
    glue("aten::requires_grad_"),

    // ---- glue: views --------------------------------------------------------

    // `reshape`, `contiguous`, `flatten` and `to` may copy and count as work.
    glue(R"(
      aten::view  aten::view.dtype  aten::view_as  aten::_unsafe_view
      aten::_reshape_alias  aten::view_as_real  aten::view_as_complex
      aten::real  aten::imag  aten::conj  aten::_conj  aten::_neg_view
      aten::expand  aten::expand_as  aten::broadcast_to
      aten::broadcast_tensors  aten::meshgrid.*
      aten::permute  aten::transpose.*  aten::t  aten::numpy_T.*
      aten::matrix_H.*  aten::mT.*  aten::mH.*  aten::adjoint
      aten::movedim.*  aten::moveaxis.*  aten::swapaxes  aten::swapdims
      aten::select.int  aten::select.Dimname  aten::slice.Tensor
      aten::slice_inverse  aten::narrow
      aten::squeeze.*  aten::unsqueeze  aten::unflatten.*
      aten::unbind.*  aten::chunk  aten::unsafe_chunk  prim::ConstantChunk
      aten::split  aten::split.Tensor  aten::split.sizes
      aten::split_with_sizes  aten::unsafe_split.Tensor
      aten::unsafe_split_with_sizes
      aten::tensor_split.indices  aten::tensor_split.sections
      aten::hsplit.*  aten::vsplit.*  aten::dsplit.*
      aten::diagonal.*  aten::linalg_diagonal  aten::unfold
      aten::as_strided
      aten::atleast_1d.*  aten::atleast_2d.*  aten::atleast_3d.*
      aten::unflatten_dense_tensors
      aten::alias  aten::positive  aten::detach  aten::data  prim::data
      aten::lift  aten::lift_fresh
      aten::rename  aten::refine_names  aten::align_to.*  aten::align_as
      aten::align_tensors
      aten::_ncf_unsqueeze  aten::_ncf_view)"),

    // ---- safe, though a tag, or the lack of a schema, says otherwise --------

    safe(R"(
      aten::nonzero_static.*
      prim::abs  prim::AutogradAdd  prim::VarConcat  prim::VarStack
      prim::MMTreeReduce  prim::MMBatchSide)"),
    // On the host, though the schema does not show it.
    glue(R"(
      aten::has_torch_function
      prim::ChunkSizes  prim::BroadcastSizes  prim::ReductionSizes)"),
    // Dense kernels with static shapes, vouched for by pcg.
    safe(R"(
      torchvision::roi_align  torchvision::_roi_align_backward
      torchvision::roi_pool  torchvision::_roi_pool_backward
      torchvision::ps_roi_align  torchvision::_ps_roi_align_backward
      torchvision::ps_roi_pool  torchvision::_ps_roi_pool_backward
      torchvision::deform_conv2d  torchvision::_deform_conv2d_backward)"),
};

bool isSpace(char c) {
  return c == ' ' || c == '\n';
}

template <typename Visit>
void forEachName(std::string_view names, const Visit& visit) {
  std::size_t i = 0;
  while (i < names.size()) {
    while (i < names.size() && isSpace(names[i]))
      ++i;
    const std::size_t begin = i;
    while (i < names.size() && !isSpace(names[i]))
      ++i;
    if (i > begin)
      visit(names.substr(begin, i - begin));
  }
}

bool endsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() &&
         text.substr(text.size() - end.size()) == end;
}

std::string_view withoutOverload(std::string_view name) {
  return name.substr(0, name.find('.'));
}

class Table {
 public:
  Table() {
    for (const Theme& theme : kThemes) {
      forEachName(theme.names, [&](std::string_view name) {
        rows_.push_back({name, theme.kind, theme.reason, theme.condition,
                         theme.argument, theme.sentence});
      });
    }
    for (const OperatorRule& row : rows_) {
      if (endsWith(row.name, ".*")) {
        all_overloads_.emplace(withoutOverload(row.name), &row);
      } else if (endsWith(row.name, "*")) {
        prefixes_.push_back(&row);
      } else {
        exact_.emplace(row.name, &row);
      }
    }
    std::stable_sort(prefixes_.begin(), prefixes_.end(),
                     [](const OperatorRule* a, const OperatorRule* b) {
                       return a->name.size() > b->name.size();
                     });
  }

  const OperatorRule* find(std::string_view name) const {
    const auto exact = exact_.find(name);
    if (exact != exact_.end())
      return exact->second;
    const auto all = all_overloads_.find(withoutOverload(name));
    if (all != all_overloads_.end())
      return all->second;
    for (const OperatorRule* row : prefixes_) {
      const auto prefix = row->name.substr(0, row->name.size() - 1);
      if (name.substr(0, prefix.size()) == prefix)
        return row;
    }
    return nullptr;
  }

  const std::vector<OperatorRule>& rows() const { return rows_; }

 private:
  std::vector<OperatorRule> rows_;
  std::unordered_map<std::string_view, const OperatorRule*> exact_;
  std::unordered_map<std::string_view, const OperatorRule*> all_overloads_;
  std::vector<const OperatorRule*> prefixes_;  // Longest first.
};

const Table& table() {
  static const Table instance;
  return instance;
}

bool isHostOnlyType(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::SymFloatType:
    case c10::TypeKind::SymBoolType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::NoneType:
    case c10::TypeKind::DeviceObjType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
    case c10::TypeKind::EnumType:
    case c10::TypeKind::AnyEnumType:
    case c10::TypeKind::AnyListType:
    case c10::TypeKind::AnyTupleType:
    case c10::TypeKind::AnyClassType:
    case c10::TypeKind::VarType:  // An element that is only handed on.
      return true;
    case c10::TypeKind::ListType:
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::TupleType:
    case c10::TypeKind::DictType:
    case c10::TypeKind::UnionType: {
      const auto contained = type.containedTypes();
      return std::all_of(
          contained.begin(), contained.end(),
          [](const auto& inner) { return isHostOnlyType(*inner); });
    }
    default:
      return false;
  }
}

// Each was seen to return its input, or two results in one memory, in torch
// 2.11, or carries torch's tag for operators that may.
constexpr std::string_view kHiddenAliases = R"(
  aten::dropout  aten::feature_dropout  aten::alpha_dropout
  aten::feature_alpha_dropout
  aten::batch_norm  aten::_batch_norm_impl_index
  aten::type_as  aten::chalf  aten::conj_physical  aten::sum_to_size
  aten::_cast_Byte  aten::_cast_Char  aten::_cast_Double  aten::_cast_Float
  aten::_cast_Half  aten::_cast_Int  aten::_cast_Long  aten::_cast_Short
  aten::einsum  aten::meshgrid  aten::cartesian_prod
  aten::atleast_1d  aten::atleast_2d  aten::atleast_3d
  aten::broadcast_tensors  aten::align_tensors  aten::align_as
  aten::unsafe_chunk  aten::unsafe_split  aten::unsafe_split_with_sizes
  aten::_unsafe_view  aten::lift  aten::data
  aten::flatten_dense_tensors  aten::unflatten_dense_tensors
  aten::to_dense  aten::_to_cpu  aten::_pack_sequence
  aten::grad
  prim::AutogradAdd  prim::IfThenElse)";

}  // namespace

const OperatorRule* findOperatorRule(std::string_view qualified_name) {
  return table().find(qualified_name);
}

const std::vector<OperatorRule>& operatorRules() {
  return table().rows();
}

bool isHostOnlySchema(const c10::FunctionSchema& schema) {
  if (schema.is_vararg() || schema.is_varret())
    return false;
  const auto is_host = [](const c10::Argument& argument) {
    return isHostOnlyType(*argument.type());
  };
  return std::all_of(schema.arguments().begin(), schema.arguments().end(),
                     is_host) &&
         std::all_of(schema.returns().begin(), schema.returns().end(), is_host);
}

bool liesAboutAliasing(std::string_view qualified_name) {
  static const auto all = [] {
    std::unordered_set<std::string_view> names;
    forEachName(kHiddenAliases,
                [&](std::string_view name) { names.insert(name); });
    return names;
  }();
  return all.count(withoutOverload(qualified_name)) != 0;
}

}  // namespace pcg
