//! The commands that are not `liqoctl VERB KIND`; those are in `kinds`.

pub(crate) mod authenticate;
pub(crate) mod completion;
pub(crate) mod force;
pub(crate) mod info;
pub(crate) mod install;
pub(crate) mod network;
pub(crate) mod offload;
pub(crate) mod peer;
pub(crate) mod test;
pub(crate) mod uninstall;
pub(crate) mod unoffload;
pub(crate) mod unpeer;
pub(crate) mod version;
