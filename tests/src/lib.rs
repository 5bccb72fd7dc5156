//! Laboratories for tests, demo and bench.
