"""Figures and images as a rendering that loads as `RecordedFigure`, not as the live object.

Owns: matplotlib figures (PNG, or SVG), plotly figures (their JSON), PIL images (PNG). Dates and ids are fixed, so an
equal figure gives equal bytes. The figure is neither closed nor shown.
Does not own: choosing the format, which the caller may.
"""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlm_memory import errors, wire
from rlm_memory.codecs.files import publishing
from rlm_memory.codecs.libraries import class_of, need
from rlm_memory.codecs.results import Encoded, Terms

SALT = "rlm-memory"
"""Seed of the ids inside an SVG."""


@dataclass(frozen=True, slots=True)
class RecordedFigure:
    """A recorded picture: shows itself in a notebook. `data` are the file's bytes, `media_type` their type."""

    data: bytes
    media_type: str

    def __repr__(self) -> str:
        return f"<RecordedFigure {self.media_type}, {len(self.data):,} bytes>"

    def save(self, path: str | Path) -> None:
        """Write the picture to a file."""
        Path(path).write_bytes(self.data)

    @property
    def spec(self) -> Any:
        """The JSON of a recorded plotly figure (`plotly.graph_objects.Figure(recorded.spec)` makes it live again)."""
        if self.media_type != _PLOTLY:
            raise errors.Invalid("spec: only a recorded plotly figure has one; this is a picture.")
        return json.loads(self.data)

    def _repr_png_(self) -> bytes | None:
        return self.data if self.media_type == _PNG else None

    def _repr_svg_(self) -> str | None:
        return self.data.decode() if self.media_type == _SVG else None

    def _repr_html_(self) -> str | None:
        if self.media_type == _PLOTLY:
            return None
        return f'<img alt="recorded figure" src="data:{self.media_type};base64,{base64.b64encode(self.data).decode()}">'

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        bundle: dict[str, Any] = {"text/plain": repr(self)}
        if self.media_type == _PLOTLY:
            bundle[_PLOTLY] = json.loads(self.data)
        elif self.media_type == _SVG:
            bundle[_SVG] = self.data.decode()
        else:
            bundle[_PNG] = base64.b64encode(self.data).decode()
        if include:
            bundle = {key: value for key, value in bundle.items() if key in include}
        return {key: value for key, value in bundle.items() if not exclude or key not in exclude}


_PNG, _SVG, _PLOTLY = "image/png", "image/svg+xml", "application/vnd.plotly.v1+json"
_FILES = {
    _PNG: (".png", wire.MEDIA_FIGURE_PNG),
    _SVG: (".svg", wire.MEDIA_FIGURE_SVG),
    _PLOTLY: (".json", wire.MEDIA_FIGURE_PLOTLY),
}


def encode_figure(figure: Any, folder: Path, terms: Terms, image: str = "png") -> Encoded:
    """A matplotlib figure, plotly figure, PIL image or `RecordedFigure`; `image` is "png" or "svg" for matplotlib."""
    if image not in ("png", "svg"):
        raise errors.Invalid(f"image: {image[:20]!r} is neither 'png' nor 'svg'.")
    library = class_of(figure).__module__.partition(".")[0]
    shape: list[int] | None = None
    if isinstance(figure, RecordedFigure):
        data, media, kind = figure.data, figure.media_type, "Recorded figure"
    elif library == "plotly":
        data, media, kind = figure.to_json().encode(), _PLOTLY, f"plotly figure, {len(figure.data)} traces"
    elif library == "PIL":
        data, media, shape = _png_of_image(figure), _PNG, [figure.height, figure.width]
        kind = f"Image, {figure.width} x {figure.height} pixels, mode {figure.mode}"
    else:
        data, media = _of_matplotlib(figure, image), _PNG if image == "png" else _SVG
        kind = f"matplotlib figure, {len(figure.axes)} axes"
    suffix, media_type = _FILES[media]
    with publishing(folder, suffix) as (part, final):
        part.write_bytes(data)
        if part.read_bytes() != data:
            raise errors.StoreUnavailable("The file system kept other bytes than were written; nothing was recorded.")
    return Encoded(final, media_type, shape, None, f"{kind}, as {media}", None, "figure", terms.changes)


def _of_matplotlib(figure: Any, image: str) -> bytes:
    """Rendered by a canvas of the format's own; the figure keeps the canvas that it has."""
    matplotlib = need("matplotlib", "A figure")
    sink = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": SALT, "savefig.bbox": None}):
        figure.savefig(
            sink, format=image, metadata={"Software": None} if image == "png" else {"Date": None, "Creator": None}
        )
    return sink.getvalue()


def _png_of_image(image: Any) -> bytes:
    sink = io.BytesIO()
    if image.mode not in ("1", "L", "LA", "I;16", "P", "RGB", "RGBA"):
        image = image.convert("RGBA" if "A" in image.mode or "a" in image.mode else "RGB")
    image.save(sink, format="PNG")
    return sink.getvalue()


def read_figure(path: Path, media_type: str) -> RecordedFigure:
    """The recorded picture."""
    return RecordedFigure(path.read_bytes(), media_type.partition(";")[0].strip())
