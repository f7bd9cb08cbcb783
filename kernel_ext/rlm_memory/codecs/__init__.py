"""Objects to exact files and back: `encode`, `decode`, and ways to look without loading.

Owns: the public names of this package. Importing it loads neither numpy nor pandas nor pyarrow. No file ever
holds a pickle, and reading one executes nothing from it.

Source: design pages "Exact results" (Codecs) and "Exactness".
"""

from rlm_memory.codecs.compare import Comparison, compare
from rlm_memory.codecs.dispatch import decode, encode
from rlm_memory.codecs.figures import RecordedFigure
from rlm_memory.codecs.readers import open_lazy
from rlm_memory.codecs.results import Encoded

__all__ = ["Comparison", "Encoded", "RecordedFigure", "compare", "decode", "encode", "open_lazy"]
