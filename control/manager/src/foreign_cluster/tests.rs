//! The ForeignCluster controller in a simulated cluster.

use super::{ForeignClusterController, Refusals, Settings};
use serde_json::{Value, json};
use std::time::Duration;

mod conditions;
mod golden;
mod lifetime;
mod objects;
mod observed;
mod orders;
mod ownership;
mod rome;
mod switched_off;

use objects::*;
use rome::Rome;

/// The ForeignCluster follows a change within this time.
const SOON: Duration = Duration::from_secs(1);

/// The tenant namespace of the peer.
const TENANT: &str = "liqo-tenant-milan";
