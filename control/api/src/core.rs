//! API group `core.liqo.io`.

pub use foreign_cluster::{ForeignCluster, ForeignClusterSpec, ForeignClusterStatus};

pub mod foreign_cluster;
