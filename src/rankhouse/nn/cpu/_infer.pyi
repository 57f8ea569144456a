def supported() -> bool: ...
def product(
    kind: int,
    activation: int,
    into: int,
    rows: int,
    scales: int,
    sums: int,
    weight: int,
    weight_scale: int,
    bias: int,
    out: int,
    count: int,
    steps: int,
    columns: int,
    /,
) -> None: ...
def attend(
    qkv: int, ends: int, rows: int, heads: int, d: int, bias: int, stride: int, centre: int, out: int, /
) -> None: ...
def attend_once(queries: int, x: int, ends: int, rows: int, heads: int, width: int, out: int, /) -> None: ...
def norm(
    kind: int,
    x: int,
    gain: int,
    shift: int,
    eps: float,
    count: int,
    width: int,
    out: int,
    scales: int,
    sums: int,
    /,
) -> None: ...
def quantise(x: int, count: int, width: int, out: int, scales: int, sums: int, /) -> None: ...
