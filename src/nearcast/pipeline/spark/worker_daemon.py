"""The process from which Spark forks its Python workers: that of pyspark, with our modules loaded.

Otherwise every worker would import them (numba, pyarrow, the pipeline) for itself, which takes
longer than its tasks if the trace is small. The threads that libraries start when they are imported
(of OpenBLAS and jemalloc) are prepared for a fork.
"""

import gc

from pyspark.daemon import manager

from nearcast.extras import keep_pandas_out

if __name__ == "__main__":
    keep_pandas_out()
    import pyspark.worker  # noqa: F401

    import nearcast.pipeline.analyse  # noqa: F401

    gc.freeze()  # what is never freed need not be looked at, which would copy its pages
    manager()
