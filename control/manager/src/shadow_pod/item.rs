//! Work items of the ShadowPod controller.

use control_runtime::Key;
use std::fmt;

/// A ShadowPod, and the pod of the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WorkItem(pub(super) Key);

impl fmt::Display for WorkItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shadow_pod {}", self.0)
    }
}
