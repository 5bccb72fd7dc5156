//! Values of the flags.

use crate::reflection::policy::Policy;
use crate::reflection::settings::Settings;

/// Values of the flags for the reflection of Events.
#[derive(Clone, Debug)]
pub(crate) struct EventSettings {
    /// The reflection of the objects that Events are about.
    pub(crate) reflection: Settings,
    /// Name of the Node whose pods this process runs; `None` if it runs none.
    pub(crate) node: Option<String>,
    /// Which Events of the provider are reflected, by their annotations.
    pub(crate) policy: Policy,
}
