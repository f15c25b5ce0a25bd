"""The built-in computations: windows, aggregates, joins and steps, each over whole bundles.

They are what the fluent methods of `tidemill.api.stream` add to a pipeline. All keep their state in a `Table`: partial
results of what arrived together, which are merged when there are many of them or when somebody looks.
"""
