"""The live host: workers that are long-running Spark tasks, a coordinator beside the driver, ZeroMQ between them."""
