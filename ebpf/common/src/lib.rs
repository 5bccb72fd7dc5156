//! Layouts shared by the kernel programs and user space.
