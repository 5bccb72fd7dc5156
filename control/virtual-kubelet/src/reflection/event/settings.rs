//! Values of the flags.

use crate::reflection::settings::Settings;
use control_api::offloading::policy::Policy;

/// Values of the flags for the reflection of Events.
#[derive(Clone, Debug)]
pub(crate) struct EventSettings {
    /// The reflection of the objects that Events are about; without policies, those about pods only.
    pub(crate) reflection: Settings,
    /// Name of the Node with the pods that Events are about; `None` for Events about reflected objects.
    pub(crate) node: Option<String>,
    /// Which Events of the provider are reflected, by their annotations.
    pub(crate) policy: Policy,
}
