"""The programs of a grid interpreted together: one operation on the values of all of them.

Triton's interpreter runs a grid program by program, and most of its time is its own bookkeeping. Here a value
that differs between programs has them along a first axis of its array (:class:`Lanes`), and the kernel's
Python runs once for many programs. Programs may take different ways: by a condition, by how often they go
through a loop, or by a number that Python needs. Then those of each way run together, from the start, after
what was stored is put back. What cannot be done for several at once (atomics, prints, block pointers, a scan
or reduction by a function of the kernel's own) is done program by program, as is whatever fails.

A small batch leaves most programs of a grid idle: their masks let them store nothing. Where no mask of a
store and no way that a program took came from what was read, the same programs are idle whenever the kernel
is called with the same numbers, and are left out from the second call on.
"""

from __future__ import annotations

import functools
import inspect
import operator
import sys

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

_AT_ONCE = 64  # programs
_WAYS = 16  # of a kernel's programs, before each runs alone
_ELEMENTWISE = (
    *("binary_op", "ternary_op", "unary_op", "cast_impl", "create_fp_to_fp", "create_bitcast", "create_idiv"),
    *(
        "create_ashr",
        "create_umulhi",
        "create_fma",
        "create_fabs",
        "create_erf",
        "create_rsqrt",
        "create_addptr",
    ),
    *("create_dot", "create_split", "create_int_to_ptr", "create_ptr_to_int"),
)
_ANYWAY = ("create_make_range", "create_get_num_programs", "create_barrier")  # alike for all programs
_REDUCTIONS = {
    "_argmin_combine_tie_break_left": (np.min, np.argmin),
    "_argmax_combine_tie_break_left": (np.max, np.argmax),
    "_elementwise_max": (np.nanmax,),
    "_elementwise_min": (np.nanmin,),
    "_sum_combine": (np.sum,),
}
_SCANS = {"_sum_combine": (np.cumsum,), "_prod_combine": (np.cumprod,)}


_EVERYWHERE = interpreter.TensorHandle(np.ones(1, bool), tl.int1)
_MADE = ("create_make_range", "create_get_num_programs", "create_get_program_id", "get_")  # by nothing read
_FIXED = "_of_no_memory"
_FIXED_IF = ("create_splat", "create_unsplat", "create_expand_dims", "create_broadcast", "create_reshape")


ALONE: set = set()
"""Kernels whose programs cannot run together."""
BUSY: dict[tuple, np.ndarray] = {}
"""Kernel, grid and numbers that it is called with -> the programs that may store anything."""


class Lanes(interpreter.TensorHandle):
    """A value of each program: the first axis of ``data`` is the programs, a scalar has a second one of 1."""


class _Apart(Exception):
    """Programs take different ways: ``ways`` has a number for each that those of one way share."""

    def __init__(self, ways) -> None:
        super().__init__("programs of a grid take different ways")
        self.ways = ways


class _OneByOne(Exception):
    """Something cannot be done for several programs at once."""


class _Batch:
    """The programs that run together at present; None in ``now`` when one runs alone."""

    now: _Batch | None = None

    def __init__(self, places) -> None:
        self.places = places  # (programs, 3)
        self.busy = np.zeros(len(places), bool)  # that store
        self.fixed = True  # no mask of a store and no way came from what was read
        self._stored: list[tuple] = []

    def note(self, mask) -> None:
        """Which programs the mask of a store lets store."""
        self.fixed &= _is_fixed(mask)
        self.busy |= (
            mask.data.reshape(len(mask.data), -1).any(1) if isinstance(mask, Lanes) else mask.data.any()
        )

    def store(self, pointers, value, mask) -> None:
        kept = interpreter._interpreter.load(pointers, mask, np.zeros_like(value), value.dtype)
        self._stored.append((pointers, kept, mask))
        interpreter._interpreter.store(pointers, value, mask)

    def put_back(self) -> None:
        """Put back what was stored, the last first."""
        while self._stored:
            interpreter._interpreter.store(*self._stored.pop())


def install() -> None:
    """Let grids run together; to be called after all else that changes the interpreter's operations."""
    builder = interpreter.InterpreterBuilder
    for name in _ELEMENTWISE:
        setattr(builder, name, _elementwise(getattr(builder, name)))
    for name, own in _OWN.items():
        setattr(builder, name, _either(getattr(builder, name), own))
    known = {*_ELEMENTWISE, *_OWN, *_ANYWAY}
    for name, real in inspect.getmembers(builder, inspect.isfunction):
        if name.startswith("create_") and name not in known and not _delegates(real):
            setattr(builder, name, _alone(real))
    for name, real in inspect.getmembers(builder, inspect.isfunction):
        if name.startswith(_MADE) and not name.endswith("_ty"):
            setattr(builder, name, _fixed(real))
        elif name in (*_ELEMENTWISE, *_FIXED_IF):
            setattr(builder, name, _fixed_if_given(real))
    _fix(_EVERYWHERE)
    interpreter._implicit_cvt = _of_number(interpreter._implicit_cvt)
    for kind, own in ((interpreter.ReduceOps, _reduce), (interpreter.ScanOps, _scan)):
        kind.apply_impl = _either_along(kind.apply_impl, own)
    extension = sys.modules["triton.language.extra.cann.extension"]
    for own in (extract_slice, insert_slice, get_element):
        setattr(extension, own.__name__, _either_extension(getattr(extension, own.__name__), own))
    tl.core.tensor.__init__ = _checked(tl.core.tensor.__init__)
    interpreter._patch_lang_tensor = _with_lanes(interpreter._patch_lang_tensor)
    interpreter._patch_lang_core = _with_ranges(interpreter._patch_lang_core)
    interpreter.GridExecutor.__init__ = _together(interpreter.GridExecutor.__init__)


class _Grid:
    """A kernel whose first program runs all of the grid's; the calls for the others do nothing then."""

    def __init__(self, kernel) -> None:
        self._kernel, self._left = kernel, 0
        self.__signature__, self.__globals__ = inspect.signature(kernel), kernel.__globals__
        functools.update_wrapper(self, kernel)
        del self.__wrapped__

    def __call__(self, **arguments):
        if self._left:
            self._left -= 1
            return
        builder = interpreter.interpreter_builder
        count = int(np.prod(builder.grid_dim))
        if count > 1 and builder.grid_idx == (0, 0, 0) and self._kernel not in ALONE:
            call = _call(self._kernel, builder.grid_dim, arguments)
            places = BUSY.get(call)
            if places is None:
                places = np.array(list(np.ndindex(*builder.grid_dim)), dtype=np.int32)
            parts = (places[start : start + _AT_ONCE] for start in range(0, len(places), _AT_ONCE))
            busy = [some for part in parts for some in self._run(part, arguments)]
            if call and call not in BUSY and all(one is not None for one in busy):
                BUSY[call] = np.concatenate(busy)
            self._left = count - 1
            return
        self._kernel(**arguments)

    def _run(self, places, arguments) -> list:
        """Run some programs, those of one way together; those that may store, None for what nobody knows."""
        todo, ways, busy = [places], 0, []
        while todo:
            some = todo.pop()
            if len(some) == 1 or self._kernel in ALONE:
                self._one_by_one(some, arguments)
                busy.append(some)
                continue
            batch = _Batch.now = _Batch(some)
            try:
                self._kernel(**arguments)
                busy.append(some[batch.busy] if batch.fixed else None)
            except _Apart as apart:
                batch.put_back()
                found = [some[apart.ways == way] for way in np.unique(apart.ways)]
                ways += len(found)
                todo += found[::-1]
                if ways > _WAYS:
                    ALONE.add(self._kernel)
            except Exception:  # also what is wrong with the kernel: alone, the interpreter says it itself
                batch.put_back()
                ALONE.add(self._kernel)
                todo.append(some)
            finally:
                _Batch.now = None
        return busy

    def _one_by_one(self, places, arguments) -> None:
        for place in places:
            interpreter.interpreter_builder.set_grid_idx(*map(int, place))
            self._kernel(**arguments)


def _together(real):
    def init(self, *arguments, **options):
        real(self, *arguments, **options)
        self.fn = _Grid(self.fn)

    return init


def _call(kernel, grid, arguments):
    """What decides which programs are idle, but for what they read; None where that is not told."""
    known = []
    for name, given in arguments.items():
        if isinstance(given, tl.tensor):
            is_number = not (given.type.is_block() or given.type.is_ptr())
            known.append((name, str(given.type), given.handle.data.item() if is_number else None))
        elif given is None or isinstance(given, bool | int | float | str | tl.constexpr | tl.dtype):
            known.append((name, type(given).__name__, str(given)))
        else:
            return None
    return (kernel, tuple(grid), *known)


def _is_fixed(handle) -> bool:
    """Whether a value follows from the numbers of the call alone, whatever the memory holds."""
    return _FIXED in handle.__dict__


def _fix(found):
    for one in found if isinstance(found, tuple) else (found,):
        if isinstance(one, interpreter.TensorHandle):
            setattr(one, _FIXED, True)
    return found


def _fixed(real):
    """An operation whose value nothing read can change."""
    return functools.wraps(real)(lambda *given, **named: _fix(real(*given, **named)))


def _fixed_if_given(real):
    """An operation whose value nothing read can change where none of the values given comes from memory."""

    @functools.wraps(real)
    def operation(self, *given, **named):
        found = real(self, *given, **named)
        handles = (one for one in (*given, *named.values()) if isinstance(one, interpreter.TensorHandle))
        return _fix(found) if all(map(_is_fixed, handles)) else found

    return operation


def _of_number(real):
    def convert(given):
        found = real(given)
        if isinstance(given, int):
            _fix(found.handle)
        return found

    return convert


# ---- operations ----


def _has_lanes(given) -> bool:
    return any(isinstance(one, Lanes) for one in given)


def _aligned(given) -> list:
    """What is given to an operation, with room in each :class:`Lanes` for the axes of the other blocks."""
    ranks = [
        one.data.ndim - isinstance(one, Lanes) for one in given if isinstance(one, interpreter.TensorHandle)
    ]
    return [_with_rank(one, max(ranks)) if isinstance(one, Lanes) else one for one in given]


def _with_rank(one, rank):
    count, *shape = one.data.shape
    room = rank - len(shape)
    return Lanes(one.data.reshape(count, *(1,) * room, *shape), one.dtype) if room else one


def _lanes(handle):
    return Lanes(handle.data, handle.dtype)


def _elementwise(real):
    """An operation that numpy does for each program alike: arrays are aligned at their last axes."""

    def operation(self, *given, **named):
        if _Batch.now is None or not _has_lanes(given):
            return real(self, *given, **named)
        found = real(self, *_aligned(given), **named)
        return tuple(map(_lanes, found)) if isinstance(found, tuple) else _lanes(found)

    return operation


def _either(real, own):
    """``own`` where a value differs between programs."""

    def operation(self, *given, **named):
        if _Batch.now is None or not (_has_lanes(given) or own in _ALWAYS):
            return real(self, *given, **named)
        return own(*given, **named)

    return operation


def _alone(real):
    def operation(self, *given, **named):
        if _Batch.now is not None:
            raise _OneByOne(real.__name__)
        return real(self, *given, **named)

    return operation


def _delegates(function) -> bool:
    """Whether an operation only calls one that is done for each program alike."""
    return bool({*function.__code__.co_names} & {*_ELEMENTWISE})


def _program_id(axis):
    one = _Batch.now.places[:, axis]
    if (one == one[0]).all():
        return interpreter.TensorHandle(one[:1].copy(), tl.int32)
    return Lanes(one.reshape(-1, 1), tl.int32)


def _across(*handles):
    """The arrays of handles in one shape, each with memory of its own for each element."""
    return [
        np.ascontiguousarray(one) for one in np.broadcast_arrays(*(one.data for one in _aligned(handles)))
    ]


def _load(pointers, mask, other, *_):
    kind = pointers.get_element_ty()
    found = interpreter._get_np_dtype(kind)
    instead = other or interpreter.TensorHandle(np.zeros(1, found), kind)
    some = _some(mask)
    given = (_only(one, some) for one in (pointers, mask, instead))
    read = interpreter._interpreter.load(*_across(*given), found)
    if some is None:
        return Lanes(read, kind)
    (instead,) = _of_all(instead)
    whole = np.empty((len(instead), *read.shape[1:]), found)
    whole[:] = instead.reshape(len(instead), *(1,) * (read.ndim - instead.ndim), *instead.shape[1:])
    whole[some] = read
    return Lanes(whole, kind)


def _load_all(pointers, *_):
    return _load(pointers, _EVERYWHERE, None)


def _store(pointers, value, mask, *_):
    _Batch.now.note(mask)
    some = _some(mask)
    _Batch.now.store(*_across(*(_only(one, some) for one in (pointers, value, mask))))


def _store_all(pointers, value, *_):
    _store(pointers, value, _EVERYWHERE)


def _some(mask):
    """The programs that a mask lets read or write, or the first if none; None for all of them."""
    if not isinstance(mask, Lanes):
        return None
    working = mask.data.reshape(len(mask.data), -1).any(axis=1)
    if working.all():
        return None
    return np.flatnonzero(working) if working.any() else np.zeros(1, int)


def _only(one, some):
    return one if some is None or not isinstance(one, Lanes) else Lanes(one.data[some], one.dtype)


def _splat(kind, value):
    array = value.data.reshape(-1, *(1 for _ in kind.shape)).astype(interpreter._get_np_dtype(value.dtype))
    return Lanes(np.broadcast_to(array, (len(array), *kind.shape)).copy(), value.dtype.scalar)


def _unsplat(value):
    return Lanes(value.data.reshape(len(value.data), -1)[:, :1].copy(), value.dtype.scalar)


def _expand_dims(value, axis):
    return Lanes(np.expand_dims(value.data, axis + 1), value.dtype.scalar)


def _broadcast(value, shape):
    return Lanes(np.broadcast_to(value.data, (len(value.data), *shape)), value.dtype.scalar)


def _reshape(value, shape, _):
    return Lanes(value.data.reshape((len(value.data), *shape)), value.dtype.scalar)


def _trans(value, axes):
    return Lanes(np.transpose(value.data, (0, *(axis + 1 for axis in axes))), value.dtype.scalar)


def _of_all(*handles):
    """The arrays of handles for each program, those that do not differ included."""
    count = len(_Batch.now.places)
    return [
        one.data if isinstance(one, Lanes) else np.broadcast_to(one.data, (count, *one.data.shape))
        for one in handles
    ]


def _cat(one, other):
    return Lanes(np.concatenate(_of_all(one, other), axis=1), one.dtype.scalar)


def _join(one, other):
    return Lanes(np.stack(_of_all(one, other), axis=-1), one.dtype.scalar)


def _assert(condition, message="Assume failed"):
    assert condition.data.all(), message


_OWN = {
    "create_get_program_id": _program_id,
    "create_load": _load_all,
    "create_store": _store_all,
    "create_masked_load": _load,
    "create_masked_store": _store,
    "create_splat": _splat,
    "create_unsplat": _unsplat,
    "create_expand_dims": _expand_dims,
    "create_broadcast": _broadcast,
    "create_reshape": _reshape,
    "create_trans": _trans,
    "create_cat": _cat,
    "create_join": _join,
    "create_assert": _assert,
    "create_assume": _assert,
}
_ALWAYS = {_program_id, _store, _store_all}


def _checked(real):
    """A tensor whose array has another shape than its type is none of several programs."""

    def init(self, handle, type):
        real(self, handle, type)
        if _Batch.now is not None and handle is not None:
            shape = tuple(type.shape) if type.is_block() else (1,)
            shape = (len(_Batch.now.places), *shape) if isinstance(handle, Lanes) else shape
            if handle.data.shape != shape and (type.is_block() or isinstance(handle, Lanes)):
                raise _OneByOne(f"{handle.data.shape} in place of {shape}")

    return init


# ---- along an axis ----


def _either_along(real, own):
    def apply(self, blocks):
        if _Batch.now is None or not _has_lanes(one.handle for one in blocks):
            return real(self, blocks)
        return own(self, blocks)

    return apply


def _of_numpy(functions, combine, block):
    """What numpy has for a function of Triton's own; another one is done value by value."""
    names = (name for name in functions if getattr(tl.standard, name, None) is combine)
    found = functions.get(next(names, ""))
    if found is None or block.dtype == tl.bfloat16:
        raise _OneByOne("a function along an axis")
    return found


def _reduce(operation, blocks):
    functions = _of_numpy(_REDUCTIONS, operation.combine_fn, blocks[0])
    array, axis, keep = blocks[0].handle.data, operation.axis, operation.keep_dims
    count, *shape = array.shape
    if axis is None:
        array = array.reshape(count, -1)
    along = 1 if axis is None else axis + 1 if axis >= 0 else axis
    found = []
    for function, kind in zip(functions, (blocks[0].dtype, tl.int32), strict=False):
        result = function(array, axis=along, keepdims=keep)
        result = result.reshape(count, *(1 for _ in shape)) if keep and axis is None else result
        found.append(_tensor(result, kind))
    return found[0] if len(found) == 1 else tuple(found)


def _scan(operation, blocks):
    (function,) = _of_numpy(_SCANS, operation.combine_fn, blocks[0])
    axis = operation.axis + 1 if operation.axis >= 0 else operation.axis
    array = blocks[0].handle.data
    array = np.flip(array, axis=axis) if operation.reverse else array
    result = function(array, axis=axis)
    return [_tensor(np.flip(result, axis=axis) if operation.reverse else result, blocks[0].dtype)]


def _tensor(array, kind):
    """A block of each program, or a scalar of each."""
    array = array.astype(interpreter._get_np_dtype(kind))
    shape = array.shape[1:]
    handle = Lanes(array if shape else array.reshape(-1, 1), kind.scalar)
    return tl.tensor(handle, tl.block_type(kind, list(shape)) if shape else kind)


# ---- the CANN extension ----


def _either_extension(real, own):
    def function(*given, **named):
        named = {name: one for name, one in named.items() if not name.startswith("_")}
        listed = [one for many in (*given, *named.values()) for one in (many if _listed(many) else [many])]
        if _Batch.now is None or not _has_lanes(getattr(one, "handle", None) for one in listed):
            return real(*given, **named)
        return own(*given, **named)

    return function


def _listed(given) -> bool:
    return isinstance(given, list | tuple | tl.tuple)


def extract_slice(ful, offsets, sizes, strides):
    """A strided part of a block of each program."""
    (whole,) = _of_all(ful.handle)
    return _tensor(whole[_slices(offsets, sizes, strides)].copy(), ful.dtype)


def insert_slice(ful, sub, offsets, sizes, strides):
    """A block of each program with a strided part replaced."""
    whole, part = _of_all(ful.handle, sub.handle)
    whole = whole.copy()
    whole[_slices(offsets, sizes, strides)] = part
    return _tensor(whole, ful.dtype)


def get_element(src, indice):
    """One element of a block of each program; which one may differ between programs."""
    (whole,) = _of_all(src.handle)
    return _tensor(whole[(np.arange(len(whole)), *map(_numbers, indice))], src.dtype)


def _slices(offsets, sizes, strides):
    numbers = zip(
        *(map(operator.index, map(_plain, given)) for given in (offsets, sizes, strides)), strict=True
    )
    return (slice(None), *(slice(start, start + count * step, step) for start, count, step in numbers))


def _plain(number):
    return number.value if isinstance(number, tl.constexpr) else number


# ---- what Python asks for ----


def _of_each(tensor):
    """The number of each program."""
    return tensor.handle.data.reshape(len(tensor.handle.data), -1)[:, 0]


def _the_one(numbers):
    """The number that all programs have."""
    if (numbers != numbers[0]).any():
        raise _Apart(numbers)
    return numbers[0]


def _seen(tensor) -> None:
    """Python asks for a number, and may take another way for another one."""
    if _Batch.now is not None:
        _Batch.now.fixed &= _is_fixed(tensor.handle)


def _with_lanes(real):
    def patch(tensor, scope):
        real(tensor, scope)
        number, truth, turned = tensor.__index__, tensor.__bool__, tensor.T

        def to_number(self):
            _seen(self)
            return int(_the_one(_of_each(self))) if isinstance(self.handle, Lanes) else number(self)

        def to_truth(self):
            _seen(self)
            if not isinstance(self.handle, Lanes) or self.type.is_block():
                return truth(self)
            return bool(_the_one(_of_each(self).astype(bool)))

        def to_turned(self):
            if not isinstance(self.handle, Lanes):
                return turned.fget(self)
            shape = [*self.type.shape[:-2], self.type.shape[-1], self.type.shape[-2]]
            return tl.tensor(_trans_last(self.handle), tl.block_type(self.dtype, shape))

        scope.set_attr(tensor, "__index__", to_number)
        scope.set_attr(tensor, "__bool__", to_truth)
        scope.set_attr(tensor, "T", property(to_turned))

    return patch


def _trans_last(handle):
    return Lanes(np.swapaxes(handle.data, -1, -2), handle.dtype)


def _with_ranges(real):
    def patch(lang, scope):
        real(lang, scope)
        for name in ("range", "static_range"):
            scope.set_attr(lang, name, _range(getattr(lang, name)))

    return patch


def _range(plain):
    """A range whose ends may differ between programs, as long as it is as long for each."""

    def own(first, last=None, step=None, **named):
        ends = (0, first) if last is None else (first, last)
        if not _has_lanes(getattr(one, "handle", None) for one in ends):
            return plain(first, last, step, **named)
        tensors = [one for one in ends if isinstance(one, tl.tensor)]
        for one in tensors:
            _seen(one)
        start, end = map(_numbers, ends)
        by = 1 if step is None else operator.index(step)
        trips = int(_the_one(np.maximum(0, -((start - end) // by))))
        kind = ends[0].dtype if isinstance(ends[0], tl.tensor) else tl.int32
        fixed = all(_is_fixed(one.handle) for one in tensors)

        def at(number):
            found = _tensor(start + number * by, kind)
            if fixed:
                _fix(found.handle)
            return found

        return map(at, range(trips))

    return own


def _numbers(end):
    if isinstance(end, tl.tensor) and isinstance(end.handle, Lanes):
        return _of_each(end).astype(np.int64)
    return np.full(len(_Batch.now.places), operator.index(_plain(end)), np.int64)
