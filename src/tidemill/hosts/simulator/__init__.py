"""A cluster in one thread: virtual time, a network, disks and processes that fail, all from one seed."""
