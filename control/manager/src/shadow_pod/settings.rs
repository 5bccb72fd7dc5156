//! Settings of the ShadowPod controller.

/// Values of the flags.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Namespace of Liqo.
    pub(crate) namespace: String,
    /// Whether Quotas limit the pods of consumers.
    pub(crate) enforces_resources: bool,
}
