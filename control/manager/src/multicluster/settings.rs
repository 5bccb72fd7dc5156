//! Values of the flags.

use crate::shadow_endpoint_slice;
use std::collections::BTreeMap;

/// Values of the flags.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Labels of the namespaces into which Services of peers are imported. Without labels, these are all namespaces.
    pub(crate) namespace_labels: BTreeMap<String, String>,
    /// Settings for the addresses of peers.
    pub(crate) endpoints: shadow_endpoint_slice::Settings,
}
