"""Operations as functions of arrays, on the host or on a GPU: what `mini_dnn` offers to Python programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from mini_dnn.errors import DeviceError, ShapeError, UsageError
from mini_dnn.interop.arrays import kind_of
from mini_dnn.interop.calls import CALLS
from mini_dnn.interop.document import document
from mini_dnn.interop.kinds import Gathered, Kind, More, Site, describe, refuse_mixed
from mini_dnn.interop.problem import check_results, problem_of, results_of, word_of
from mini_dnn.interop.protocols import handed_over
from mini_dnn.interop.refusals import (
    check_apart,
    check_device,
    check_host,
    check_impl,
    check_writable,
    host_array,
    refuse_place,
)
from mini_dnn.interop.signature import PLAIN, signature_of
from mini_dnn.ops import Operation
from mini_dnn.running.compute import best, compute
from mini_dnn.running.prepared import ALIGNMENT, Prepared
from mini_dnn.variant import Variant, find


class Ready(NamedTuple):
    """A call that was prepared."""

    prepared: Prepared
    # The order in which the call expects the addresses of inputs and results; empty if unchanged
    order: tuple[int, ...]
    nbytes: tuple[int, ...]  # of each array, in the order of the arguments
    makers: tuple[Callable[[], Any], ...]  # each allocates a new result
    site: Site


class Function:
    """An operation as a function of arrays.

    NumPy arrays, and other arrays in host memory, are copied to a device and back: see
    `mini_dnn.running.compute.compute`. Arrays on a GPU are used in place, on the current stream of their
    library. The call does not synchronise, and results are arrays of that library. Compiled kernels and
    scratch memory are kept for further calls of the same kind: see `mini_dnn.interop.calls`.

    Parameters
    ----------
    operation
        The operation. The arguments of a call are those of its ``of``; see `mini_dnn.interop.document`.
    """

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.__name__ = self.__qualname__ = operation.name
        self.__module__ = "mini_dnn"
        self._signature = signature_of(operation)
        self.__signature__ = self._signature.of_python
        self.__doc__ = document(operation)
        self._names = self._signature.arrays
        self._count = -1 if self._signature.many else len(self._names)

    def __repr__(self) -> str:
        return f"<function {self.__name__} of mini_dnn: {self.operation.about}>"

    def __reduce__(self) -> str:
        """Pickle the function by its name, as Python does, so that it can be passed to other processes."""
        return self.__name__

    def __call__(self, *given: Any, **options: Any) -> Any:
        """Compute the operation.

        Parameters
        ----------
        given
            The arrays, in the operation's order. After them, or as keyword arguments:

            impl
                A variant: a name that ``run.py list`` shows, or a path; by default the best one for the
                problem and the device.
            device
                For arrays in host memory ``"auto"``, ``"cuda"``, ``"emulator"``, or an open device. Arrays on
                a GPU are computed there.
        options
            Fields of the problem that the arrays do not determine, such as ``pool=2``; optional arrays; and
            ``out``, an array for the result (a tuple if there are several), which overlaps no other array.

        Returns
        -------
        Any
            The output, or a tuple if there are several. It is ``out`` if that is an array. If arrays are
            given without the axis of the batch, it has none.

        Raises
        ------
        ShapeError, VariantError, DeviceError, UsageError
            See `mini_dnn.errors`.
        """
        if len(given) != self._count:
            given = self._arrays_by_place(given, options)
        kind = kind_of(given[0])
        return self._on_host(given, options) if kind is None else self._in_place(kind, given, options)

    def _in_place(self, kind: Kind, arrays: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The call with arrays on a GPU. `benchmarks/calls.py` measures the time of its steps."""
        names = self._names if len(arrays) == self._count else self._signature.names(len(arrays))
        impl: Any = None
        made: tuple[Any, ...] = ()
        if options:
            arrays, names, impl, made = self._sorted(arrays, names, options)
        results = len(made)
        seen = kind.gather(names, arrays)
        gpu, stream, metas, addresses, more = seen
        known = impl if impl is None else _key(impl)
        key = (self.__name__, gpu, stream, known, names, metas, *options.items())
        ready = CALLS.ready.get(key)
        if ready is None:
            ready = CALLS.ready[key] = self._prepare(kind, impl, names, results, seen, options)
        bits = 0
        for address in addresses:
            bits |= address
        if bits % ALIGNMENT:
            refuse_place(names, addresses)
        if results:
            check_apart(names, addresses, ready.nbytes, results)
            kind.written(made)
        else:
            made = tuple([make() for make in ready.makers])
            addresses += [kind.address(array) for array in made]
        if ready.order:
            addresses = [addresses[i] for i in ready.order]
        if more is None:
            ready.prepared(addresses)
        else:
            made = _by_protocol(ready, addresses, made, more, new=not results)
        return made[0] if len(made) == 1 else made

    def _sorted(
        self, arrays: tuple[Any, ...], names: tuple[str, ...], options: dict[str, Any]
    ) -> tuple[tuple[Any, ...], tuple[str, ...], Any, tuple[Any, ...]]:
        """All arrays and their names, the variant, and the arrays for results.

        The remaining ``options`` are fields of the problem.
        """
        impl, out = options.pop("impl", None), options.pop("out", None)
        if options:
            if "device" in options:
                check_device(options.pop("device"))
            for name in self._signature.optional:
                if (array := options.pop(name, None)) is not None:
                    arrays, names = (*arrays, array), (*names, name)
            for name, value in options.items():
                # Other objects may change without notice, because they stay the same objects.
                if not isinstance(value, PLAIN):
                    raise ShapeError(f"{name} is {describe(value)}; expected a Python number or string")
        if out is None:
            return arrays, names, impl, ()
        if isinstance(out, str):
            options["out"] = out
            return arrays, names, impl, ()
        results = out if isinstance(out, tuple) else (out,)
        return arrays + results, names + ("out",) * len(results), impl, results

    def _prepare(
        self,
        kind: Kind,
        impl: Any,
        names: tuple[str, ...],
        results: int,
        seen: Gathered,
        fields: dict[str, Any],
    ) -> Ready:
        """The part of a call that further calls of the same kind do not have to repeat.

        The last ``results`` of the arrays are those that the call writes.
        """
        fields = self._signature.checked(self.__name__, fields)
        gpu, stream, flat, _, _ = seen
        metas = [
            (tuple(shape), kind.dtype(dtype)) for shape, dtype in zip(flat[::2], flat[1::2], strict=True)
        ]
        count = len(names) - results
        if results and "out" in self._signature.fields:
            fields = {**fields, "out": word_of(metas[count][1])}
        asked = problem_of(self.operation, names[:count], metas[:count], fields)
        if results:
            check_results(asked.problem, asked.results, metas[count:])
        device = CALLS.device(gpu)
        if impl is None:
            variant = best(self.operation, asked.problem, device)
        else:
            variant = impl if isinstance(impl, Variant) else find(impl)
        prepared = CALLS.prepare(variant, asked.problem, device, stream)
        places = {**asked.which, **{name: count + i for i, name in enumerate(asked.results)}}
        order = tuple(places[name] for name in prepared.names)
        site = Site(gpu, stream, device)
        makers = [kind.maker(shape, dtype, site) for shape, dtype in asked.results.values()]
        by_place = sorted(places, key=lambda name: places[name])
        return Ready(
            prepared=prepared,
            order=() if order == tuple(range(len(order))) else order,
            nbytes=tuple(asked.problem.arrays[name].nbytes for name in by_place),
            makers=() if results else tuple(makers),
            site=site,
        )

    def _arrays_by_place(self, given: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
        """The arrays in order, if some are keyword arguments, or if options are positional arguments."""
        names, count = self._names, self._count if self._count >= 0 else max(1, len(given))
        by_place = ("impl", "device")
        if len(given) > count + len(by_place):
            raise UsageError(
                f"{self.__name__} takes {', '.join((*names, *by_place))} as positional arguments, and all "
                f"others as keyword arguments; found {len(given)} positional arguments"
            )
        for name, value in zip(by_place, given[count:], strict=False):
            options.setdefault(name, value)
        arrays = given[:count]
        for name in names[len(arrays) :]:
            if name not in options:
                raise ShapeError(f"{self.__name__} takes {self._signature.by_place}; {name} is missing")
            arrays = (*arrays, options.pop(name))
        return arrays

    def _on_host(self, arrays: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """The call with arrays in host memory."""
        held = dict(zip(self._signature.names(len(arrays)), arrays, strict=True)) | options
        if any(kind_of(value) is not None for value in held.values()):
            held = {name: value for name, value in held.items() if hasattr(value, "shape")}
            refuse_mixed(list(held), list(held.values()))
        impl, device, out = options.pop("impl", None), options.pop("device", "auto"), options.pop("out", None)
        check_host(held, device)
        if impl is not None:
            check_impl(impl)
        arrays = tuple(host_array(name, value) for name, value in zip(held, arrays, strict=False))
        given = ((name, options.pop(name, None)) for name in self._signature.optional)
        optional = {name: host_array(name, value) for name, value in given if value is not None}
        results = () if out is None or isinstance(out, str) else out if isinstance(out, tuple) else (out,)
        check_writable(results)
        if isinstance(out, str):
            options["out"] = out
        elif results and "out" in self._signature.fields:
            options["out"] = word_of(results[0].dtype.name)
        fields = self._signature.checked(self.__name__, options)
        try:
            problem, found = self.operation.of(*arrays, **optional, **fields)
            expected = results_of(problem, arrays[0].ndim)
            if results:
                check_results(problem, expected, [(array.shape, str(array.dtype)) for array in results])
            computed = compute(self.operation, problem, found, impl, device)
        except MemoryError as error:
            raise DeviceError(
                f"{self.__name__} needs more memory than is free ({error}); compute a part of the batch at a "
                "time"
            ) from error
        made = tuple(computed[name].reshape(shape) for name, (shape, _) in expected.items())
        for array, value in zip(results, made, strict=False):
            array[...] = value
        made = results or made
        return made[0] if len(made) == 1 else made


def _key(impl: Any) -> Any:
    """The key of a variant object is its identity: the prepared call keeps the object alive."""
    if type(impl) is str:
        return impl
    check_impl(impl)
    return id(impl) if isinstance(impl, Variant) else impl


def _by_protocol(
    ready: Ready, addresses: list[int], results: tuple[Any, ...], more: More, new: bool
) -> tuple[Any, ...]:
    """Issue a call on a stream that the libraries of its arrays neither know nor wait for."""
    with ready.site.device.entered():
        for other in more.others:
            ready.prepared.stream.follow(other)
        ready.prepared(addresses)
        for other in more.others:  # later work there may read the results, or overwrite the operands
            ready.site.device.foreign_stream(other).follow(ready.site.stream)
        CALLS.hold(ready.prepared.stream.mark(), (more.owners, results))
    return tuple(handed_over(result, more.owners[0]) for result in results) if new else results
