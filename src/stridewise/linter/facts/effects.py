"""What functions of torch and numpy do to layout, by name. `tests/linter/facts/test_effects.py` runs each and looks."""

from enum import Enum


class Effect(Enum):
    """What a call gives, seen from its first tensor; its other tensors count for `LIKE` only."""

    FRESH = "new memory, contiguous whatever went in"
    FOLLOWS = "new memory, contiguous if the first tensor is"
    LIKE = "new memory, contiguous if all tensors that went in are"
    ANY = "new memory, in an order that depends on more than that"
    PERMUTED = "a view with dimensions in another order"
    EXPANDED = "a view that repeats elements"
    PART = "a view of a part"
    RESHAPED = "a view that is contiguous if the tensor is, and only then"
    NEGATIVE = "a view that runs backwards, of a numpy array"
    MAYBE = (
        "the tensor, a view or a copy: which one depends on its layout, dtype or device; contiguous if the tensor is"
    )
    SAME = "the tensor itself"
    TENSOR = "a tensor of which no more is known: a view or a copy, in any order"
    HOST = "no tensor"


RELAYOUTS = frozenset(
    (
        *("t_", "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_"),
        *("resize_", "resize_as_", "set_", "as_strided_", "swap_tensors"),
    )
)
"""Methods that change the layout of the tensor itself, and so what is known of every name that it has."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


IN_PLACE = _names(
    """
    abs_ absolute_ acos_ acosh_ add_ addbmm_ addcdiv_ addcmul_ addmm_ addmv_ addr_ alpha_dropout_ apply_ arccos_
    arccosh_ arcsin_ arcsinh_ arctan2_ arctan_ arctanh_ asin_ asinh_ atan2_ atan_ atanh_ baddbmm_ bernoulli_
    bitwise_and_ bitwise_left_shift_ bitwise_not_ bitwise_or_ bitwise_right_shift_ bitwise_xor_ cauchy_ ceil_ celu_
    clamp_ clamp_max_ clamp_min_ clip_ conj_physical_ constant_ copy_ copysign_ cos_ cosh_ cumprod_ cumsum_ deg2rad_
    detach_ digamma_ dirac_ div_ divide_ dropout_ elu_ embedding_renorm_ eq_ erf_ erfc_ erfinv_ exp2_ exp_ expm1_
    exponential_ eye_ feature_alpha_dropout_ feature_dropout_ fill_ fill_diagonal_ fix_ float_power_ floor_
    floor_divide_ fmod_ frac_ gcd_ ge_ geometric_ greater_ greater_equal_ gt_ hardtanh_ heaviside_ hypot_ i0_
    igamma_ igammac_ index_add_ index_copy_ index_fill_ index_put_ index_reduce_ kaiming_normal_ kaiming_uniform_
    lcm_ ldexp_ le_ leaky_relu_ lerp_ less_ less_equal_ lgamma_ log10_ log1p_ log2_ log_ log_normal_ logical_and_
    logical_not_ logical_or_ logical_xor_ logit_ lt_ map2_ map_ masked_fill_ masked_scatter_ mul_ multiply_
    mvlgamma_ nan_to_num_ ne_ neg_ negative_ nextafter_ normal_ not_equal_ ones_ orthogonal_ polygamma_ pow_ put_
    rad2deg_ random_ reciprocal_ relu_ remainder_ renorm_ requires_grad_ resize_as_sparse_ round_ rrelu_ rsqrt_
    scatter_ scatter_add_ scatter_reduce_ selu_ sgn_ share_memory_ sigmoid_ sign_ sin_ sinc_ sinh_ sparse_
    sparse_resize_ sparse_resize_and_clear_ sqrt_ square_ sub_ subtract_ tan_ tanh_ threshold_ tril_ triu_
    true_divide_ trunc_ trunc_normal_ uniform_ xavier_normal_ xavier_uniform_ xlogy_ zero_ zeros_
    """
)
"""Methods and functions that change a tensor in place and give it back; it lies as before."""


def _table(*rows: tuple[Effect, str]) -> dict[str, Effect]:
    return {name: effect for effect, names in rows for name in names.split()}


_BOTH = _table(
    (
        Effect.FRESH,
        """
        sum mean prod any all nansum nanmean amax amin aminmax argmax argmin count_nonzero logsumexp norm var std
        var_mean std_mean quantile nanquantile median nanmedian mode kthvalue dist trace cov corrcoef histc bincount
        cumsum cumprod cummax cummin logcumsumexp softmax log_softmax topk
        matmul mm bmm mv dot vdot inner outer ger addmm addmv addbmm baddbmm tensordot cdist cross det pinverse
        gather index_select take take_along_dim masked_select masked_fill masked_scatter scatter scatter_add
        scatter_reduce index_add index_copy narrow_copy bucketize searchsorted unique unique_consecutive multinomial
        bernoulli tril triu diag diagflat diag_embed repeat tile repeat_interleave
        """,
    ),
    (
        Effect.FOLLOWS,
        """
        abs absolute neg negative sign sgn signbit sqrt rsqrt square reciprocal exp exp2 expm1 log log2 log10 log1p
        sin cos tan asin acos atan arcsin arccos arctan sinh cosh tanh asinh acosh atanh arcsinh arccosh arctanh sinc
        sigmoid logit relu hardshrink prelu erf erfc erfinv lgamma digamma i0 ceil floor round trunc fix frac isnan
        isinf isfinite isposinf isneginf isreal logical_not bitwise_not nan_to_num deg2rad rad2deg angle clone fliplr
        flipud flip roll sort argsort msort slice_scatter select_scatter diagonal_scatter index_fill index_put
        """,
    ),
    (
        Effect.LIKE,
        """
        add sub subtract rsub mul multiply div divide true_divide floor_divide remainder fmod pow float_power maximum
        minimum fmax fmin max min atan2 arctan2 eq ne lt le gt ge less greater less_equal greater_equal not_equal
        isclose logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor bitwise_left_shift
        bitwise_right_shift hypot copysign xlogy heaviside nextafter ldexp logaddexp logaddexp2 clamp clip clamp_min
        clamp_max lerp addcmul addcdiv where addr kron
        """,
    ),
    (Effect.ANY, "nonzero argwhere rot90 inverse qr svd"),
    (Effect.PERMUTED, "transpose permute t swapaxes swapdims movedim moveaxis adjoint"),
    (Effect.EXPANDED, "broadcast_to"),
    (
        Effect.PART,
        """
        narrow select diagonal as_strided chunk split split_with_sizes tensor_split hsplit vsplit dsplit unbind
        """,
    ),
    (Effect.RESHAPED, "squeeze unsqueeze unflatten detach conj"),
    (Effect.MAYBE, "reshape flatten ravel conj_physical resolve_conj resolve_neg"),
    (Effect.SAME, "positive"),
    (
        Effect.HOST,
        """
        numel equal allclose get_device is_complex is_floating_point is_conj is_neg is_signed is_same_size is_nonzero
        """,
    ),
)
"""Methods of a tensor that are functions of `torch` as well, or would be."""

METHODS: dict[str, Effect] = _BOTH | _table(
    (Effect.FRESH, "new_zeros new_ones new_empty new_full new_tensor"),
    (Effect.EXPANDED, "expand expand_as"),
    (Effect.PART, "unfold"),
    (Effect.RESHAPED, "view view_as"),
    (
        Effect.MAYBE,
        """
        contiguous reshape_as to type type_as float double half bfloat16 int long short char byte bool cfloat cpu cuda
        """,
    ),
    (
        Effect.HOST,
        """
        size stride dim ndimension nelement data_ptr is_contiguous item tolist storage_offset element_size
        untyped_storage is_pinned is_shared is_set_to dim_order register_hook backward
        """,
    ),
)
"""By the name of a method of `torch.Tensor`. Names that end in `_` change in place, and are not listed."""

FUNCTIONS: dict[str, Effect] = (
    {f"torch.{name}": effect for name, effect in _BOTH.items()}
    | {
        f"torch.{name}": effect
        for name, effect in _table(
            (
                Effect.FRESH,
                """
                zeros ones empty full arange linspace logspace eye rand randn randint randperm normal scalar_tensor
                tril_indices triu_indices hann_window frombuffer block_diag cartesian_prod embedding
                """,
            ),
            (
                Effect.FOLLOWS,
                """
                zeros_like ones_like empty_like full_like rand_like randn_like randint_like poisson tensor
                layer_norm batch_norm
                """,
            ),
            (
                Effect.LIKE,
                """
                cat concat concatenate stack hstack vstack dstack column_stack row_stack complex polar
                """,
            ),
            (Effect.ANY, "conv1d conv2d conv3d empty_strided"),
            (Effect.EXPANDED, "meshgrid"),
            (Effect.PART, "real imag view_as_complex"),
            (Effect.RESHAPED, "atleast_1d atleast_2d atleast_3d view_as_real from_numpy nn.Parameter"),
            (Effect.MAYBE, "asarray as_tensor dropout"),
            (Effect.TENSOR, "einsum broadcast_tensors"),
            (Effect.HOST, "is_tensor"),
        ).items()
    }
    | {
        f"torch.nn.functional.{name}": effect
        for name, effect in _table(
            (
                Effect.FRESH,
                """
                softmax log_softmax softmin linear bilinear embedding embedding_bag one_hot
                affine_grid cross_entropy nll_loss cosine_similarity cosine_embedding_loss
                pairwise_distance pdist unfold fold
                """,
            ),
            (
                Effect.FOLLOWS,
                """
                relu relu6 gelu silu mish elu selu celu leaky_relu softplus softsign hardtanh hardswish hardsigmoid
                logsigmoid tanhshrink softshrink hardshrink sigmoid tanh glu threshold rrelu prelu gumbel_softmax
                layer_norm rms_norm group_norm batch_norm instance_norm local_response_norm normalize
                max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d lp_pool1d lp_pool2d
                adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
                adaptive_max_pool3d interpolate grid_sample pixel_shuffle pixel_unshuffle channel_shuffle pad
                """,
            ),
            (
                Effect.LIKE,
                """
                mse_loss l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy binary_cross_entropy_with_logits
                """,
            ),
            (
                Effect.ANY,
                """
                conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d scaled_dot_product_attention
                """,
            ),
            (
                Effect.MAYBE,
                """
                dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout
                """,
            ),
        ).items()
    }
    | {
        f"torch.linalg.{name}": effect
        for name, effect in _table(
            (
                Effect.FRESH,
                """
                norm vector_norm det slogdet pinv matrix_exp multi_dot eigvalsh svdvals cross matmul
                """,
            ),
            (Effect.ANY, "matrix_power inv solve lstsq cholesky qr svd eig eigh"),
            (Effect.PART, "diagonal"),
        ).items()
    }
    | {
        f"torch.special.{name}": effect
        for name, effect in _table(
            (Effect.FRESH, "softmax log_softmax logsumexp"), (Effect.FOLLOWS, "expit"), (Effect.LIKE, "xlogy")
        ).items()
    }
    | {
        f"torch.fft.{name}": Effect.ANY
        for name in ("fft", "ifft", "rfft", "irfft", "fft2", "ifft2", "rfft2", "fftn", "fftshift")
    }
)
"""By full name, such as `torch.nn.functional.pad`."""

ATTRIBUTES = _table(
    (Effect.PERMUTED, "T mT H mH"),
    (Effect.PART, "real imag"),
    (Effect.RESHAPED, "data"),
    (
        Effect.HOST,
        """
        shape dtype device ndim layout requires_grad itemsize nbytes is_cuda is_cpu is_sparse is_leaf is_meta
        is_quantized is_nested grad_fn
        """,
    ),
)
"""Of a tensor."""

SEVERAL = _names(
    """
    chunk split split_with_sizes tensor_split hsplit vsplit dsplit unbind sort topk mode kthvalue cummax cummin aminmax
    var_mean std_mean unique_consecutive qr svd slogdet broadcast_tensors meshgrid eig eigh lstsq array_split
    """
)
"""Names of functions that give several tensors, each of which lies so."""
SOMETIMES_SEVERAL = frozenset(("max", "min", "median", "nanmedian", "unique", "where", "nonzero"))
"""Those that give several for some arguments: unpacked, each lies so."""

ORDERED = _names(
    """
    abs absolute neg negative sign sgn signbit sqrt rsqrt square reciprocal exp exp2 expm1 log log2 log10 log1p sin
    cos tan asin acos atan arcsin arccos arctan sinh cosh tanh asinh acosh atanh arcsinh arccosh arctanh sinc
    sigmoid logit relu hardshrink prelu erf erfc erfinv lgamma digamma i0 ceil floor round trunc fix frac isnan
    isinf isfinite isposinf isneginf isreal logical_not nan_to_num deg2rad rad2deg angle clone add sub subtract mul
    multiply div divide true_divide floor_divide remainder fmod pow float_power maximum minimum fmax fmin atan2
    arctan2 eq ne lt le gt ge less greater less_equal greater_equal not_equal isclose logical_and logical_or
    logical_xor hypot copysign xlogy heaviside nextafter ldexp logaddexp logaddexp2 clamp clip clamp_min clamp_max
    lerp addcmul addcdiv detach conj conj_physical resolve_conj resolve_neg positive to type type_as float double
    half bfloat16 int long short char byte bool cfloat cpu zeros_like ones_like empty_like full_like rand_like
    randn_like randint_like from_numpy Parameter dropout relu6 gelu silu mish elu selu celu leaky_relu softplus
    softsign hardtanh hardswish hardsigmoid tanhshrink softshrink threshold normalize dropout1d dropout2d dropout3d
    alpha_dropout feature_alpha_dropout expit cuda data operator
    """
)
"""Names of functions that give a dense tensor the memory order of the dense tensor that went in, and its sizes."""
CONTIGUOUS_STAYS = ORDERED | _names("reshape reshape_as flatten ravel numpy contiguous")
"""Names of functions that give something contiguous for a contiguous tensor, also if that is not regular."""
IRREGULAR = _names(
    """
    diag_embed log_softmax pad lp_pool1d lp_pool2d
    softmax softmin logcumsumexp bernoulli index_add index_copy
    """
)
"""Names of functions whose results may have other strides than a new tensor at dimensions of size 1.

Those of the second line do on the meta device of torch 2.6.
"""
OF_ANYTHING = _names(
    """
    absolute add all any argmax argmin argsort bfloat16 bool byte char clip clone conj copy_ cpu cuda cumprod
    cumsum data_ptr detach diagonal dot double element_size expand fill_ flatten float get_device half int is_pinned
    is_shared item long max mean min mode multinomial nonzero numel prod ravel repeat requires_grad_ reshape round
    searchsorted share_memory_ short size sort split squeeze std sub sum swapaxes take to tolist trace transpose type
    var view where
    """
)
"""Methods that arrays, strings, modules or lists have as well: they do not tell that something is a tensor."""

ARRAY_METHODS: dict[str, Effect] = _table(
    (Effect.FRESH, "copy flatten dot take repeat argmax argmin argsort"),
    (Effect.FOLLOWS, "astype round cumsum cumprod sum mean std var prod max min any all"),
    (Effect.LIKE, "clip"),
    (Effect.PERMUTED, "transpose swapaxes"),
    (Effect.PART, "diagonal"),
    (Effect.RESHAPED, "squeeze"),
    (Effect.MAYBE, "reshape ravel"),
    (Effect.HOST, "tolist item tobytes"),
)
"""Of `numpy.ndarray`."""

ARRAY_FUNCTIONS: dict[str, Effect] = {
    f"numpy.{name}": effect
    for name, effect in _table(
        (
            Effect.FRESH,
            """
            zeros ones empty full arange linspace eye identity random.rand random.randn matmul dot tile repeat take
            """,
        ),
        (
            Effect.FOLLOWS,
            """
            array copy zeros_like ones_like empty_like full_like abs exp log sqrt sin cos tanh square round floor ceil
            sign isnan isfinite sum mean pad roll
            """,
        ),
        (
            Effect.LIKE,
            """
            add subtract multiply divide power maximum minimum clip where concatenate stack vstack hstack
            """,
        ),
        (Effect.PERMUTED, "transpose swapaxes moveaxis rollaxis"),
        (Effect.EXPANDED, "broadcast_to"),
        (Effect.PART, "split array_split diagonal"),
        (Effect.RESHAPED, "expand_dims squeeze"),
        (Effect.NEGATIVE, "flip fliplr flipud rot90"),
        (Effect.MAYBE, "asarray asanyarray ascontiguousarray require reshape ravel"),
        (Effect.TENSOR, "asfortranarray"),
    ).items()
}
"""By full name, such as `numpy.flip`."""
