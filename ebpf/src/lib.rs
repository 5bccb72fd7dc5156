//! Loads the kernel programs and gives each map a typed wrapper.
