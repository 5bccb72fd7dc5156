//! The agent over real sockets, between an API server and kubelets in memory.

mod access;
mod fixture;
mod kubelet;
mod kubelets;
mod rights;
mod scrapes;
mod serving;
