"""MillWheel's Zeitgeist, as `tidemill demo` runs it: searches in, the queries that spike or dip out.

It stands on what any user has: `tables` lets Spark make everything from a seed, `replay` is a source, `trends` the
pipeline, `judging` the questions to Spark SQL, and `show` runs them one after another.
"""
