//! Steers a node's traffic for remote clusters into the overlay, and back.

fn main() {}
