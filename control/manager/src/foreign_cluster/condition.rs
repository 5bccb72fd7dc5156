//! Conditions of a ForeignCluster.

pub(super) use control_api::core::foreign_cluster::{
    ForeignClusterConditionStatus as Status, ForeignClusterConditionType as Type,
};

/// A condition without times: type, status, reason, message.
pub(super) type Line<'a> = (Type, Status, &'a str, &'a str);
