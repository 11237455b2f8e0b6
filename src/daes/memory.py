"""Memory that is not there, as a sentence."""

import re

_TORCH = re.compile(r"can't allocate memory|out of memory|Storage size calculation overflowed")
_AMOUNT = re.compile(r"allocate (\d+) bytes|allocate ([\d.]+ [KMGTPE]iB)")


def out_of_memory(error: BaseException) -> str | None:
    """What to say of an error of NumPy or torch that means too little memory; None for any other error.

    >>> out_of_memory(MemoryError("Unable to allocate 2.13 PiB for an array"))
    'not enough memory: 2.13 PiB were asked for at once; smaller tables, layers, windows or batches need less'
    >>> out_of_memory(ValueError("dim must be positive, got 0"))
    """
    if not isinstance(error, MemoryError) and not (isinstance(error, RuntimeError) and _TORCH.search(str(error))):
        return None
    found = _AMOUNT.search(str(error))
    amount = ""
    if found is not None:
        amount = f": {found[2] or f'{int(found[1]) / 2**30:,.1f} GiB'} were asked for at once"
    return f"not enough memory{amount}; smaller tables, layers, windows or batches need less"
